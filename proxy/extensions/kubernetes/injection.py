"""The sidecar put into the pods of workloads and in front of their Services.

`inject_all` takes manifests as plain values and gives changed copies, or raises InjectionError with every obstacle, its
place and the remedy. So a manifest is either guarded or refused. Injecting twice gives the same as injecting once,
because injecting begins with taking back (`undo.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from proxy.core.model.value_class import value_class
from proxy.extensions.kubernetes.services import Workload, find_unserved, redirect_service
from proxy.extensions.kubernetes.sidecar import CONTAINER, PORT_NAME, PROBES_NAME, VOLUMES, Manifest, Sidecar
from proxy.extensions.kubernetes.undo import Record, forget_version, set_annotation, take_back
from proxy.extensions.kubernetes.workloads import (
    BEFORE,
    CHECKSUM,
    INJECT,
    JOBS,
    KNATIVE,
    OFF,
    POD_TEMPLATES,
    Findings,
    InjectionError,
    Path,
    describe,
    find_pod,
    find_pod_path,
    get_annotations,
    get_namespace,
    has_unknown_pods,
    is_service,
    is_workload,
    list_other_containers,
    list_own_containers,
    list_ports,
)

_HANDLERS: Final = ("startupProbe", "readinessProbe", "livenessProbe")
_HOOKS: Final = ("postStart", "preStop")
# An amount as Kubernetes writes it: 250m, 96Mi, 1e3.
_QUANTITY: Final = re.compile(r"[0-9]+(\.[0-9]+)?(e[0-9]+|[numkMGTPE]|[KMGTPE]i)?", re.IGNORECASE)
_LEVELS: Final = ("debug", "info", "warning", "error")
_SUFFIX: Final = "-toolcall-proxy"
_PREFIX: Final = "toolcall-proxy/"


@value_class
class InjectionChoice:
    """The choice of workloads and names. `only` are `kind/name` or `namespace/kind/name` in lower case (empty: all),
    `namespace` is that of manifests which name none. `config_map` is the name of one ConfigMap for all workloads ('':
    each has its own)."""

    only: tuple[str, ...] = ()
    namespace: str = ""
    config_map: str = ""


@value_class
class Injected:
    """Manifests with the sidecar, the ConfigMaps that they need as (namespace, name), and notes for the operator."""

    manifests: list[Manifest]
    config_maps: list[tuple[str, str]]
    notes: list[str]


def inject_all(
    manifests: Iterable[Manifest],
    sidecar: Sidecar,
    choice: InjectionChoice = InjectionChoice(),  # noqa: B008 - a value, and none changes it
) -> Injected:
    """Injects every workload, or those of the choice. Raises InjectionError with all obstacles.

    Changed manifests lose their `resourceVersion`.
    """
    made, findings = list(manifests), Findings()
    chosen = _find_chosen(made, choice.only, findings)
    config_maps, workloads = list[tuple[str, str]](), list[Workload]()
    for index, manifest in enumerate(made):
        if index in chosen:
            own = replace(sidecar, config_map=choice.config_map or _name_config_map(manifest))
            names = set[str]()
            made[index] = forget_version(inject_workload(index, manifest, own, findings, names))
            place = (get_namespace(manifest), own.config_map)
            config_maps += [] if place in config_maps else [place]
            workloads.append(_read_workload(made[index], frozenset(names), by_this_run=True))
        elif is_workload(manifest) or has_unknown_pods(manifest):
            workloads.append(_read_workload(manifest))
    services = [manifest for manifest in made if is_service(manifest)]
    for index, manifest in enumerate(made):
        if is_service(manifest):
            made[index] = redirect_service(index, manifest, sidecar, workloads, findings, choice.namespace)
    if findings.obstacles:
        raise InjectionError(obstacles=tuple(findings.obstacles))
    for each in find_unserved(services, workloads, choice.namespace):
        if each.name.partition("/")[0] not in map(str.lower, JOBS):
            findings.notes.append(
                f"no Service here selects {each.name}: one elsewhere that leads to port {sidecar.tool_port} by number "
                "gets past the proxy: inject both together"
            )
    return Injected(made, config_maps, findings.notes)


def _find_chosen(manifests: Sequence[Manifest], only: tuple[str, ...], findings: Findings) -> set[int]:
    """The numbers of the workloads to inject. Raises InjectionError where there are none."""
    found, seen = set[int](), set[str]()
    for index, manifest in enumerate(manifests):
        names = {describe(manifest), f"{get_namespace(manifest)}/{describe(manifest)}".lower()}
        if only and names.isdisjoint(only):
            continue
        seen |= names
        if is_workload(manifest):
            if any(get_annotations(each).get(INJECT) == OFF for each in (manifest, find_pod(manifest))):
                findings.notes.append(f"{describe(manifest)} is left as it is: {INJECT}: {OFF}")
            else:
                found.add(index)
        elif has_unknown_pods(manifest):
            findings.notes.append(_write_unknown(manifest))
    if missing := sorted(set(only) - seen):
        raise InjectionError(
            f"nothing here is called {', '.join(missing)}: --only takes kind/name, as in deployment/weather, or "
            "namespace/kind/name"
        )
    if not found and not findings.notes:
        raise InjectionError(f"no workload is among the manifests ({', '.join(POD_TEMPLATES)})")
    return found


def _write_unknown(manifest: Manifest) -> str:
    name, version = describe(manifest), str(manifest.get("apiVersion"))
    if version.startswith(KNATIVE):
        return (
            f"{name} ({version}) is left as it is: Knative brings calls to its pods through its queue container: put "
            "the chart's gateway in front of it"
        )
    return (
        f"{name} ({version}) is left as it is: inject knows {', '.join(POD_TEMPLATES)}. The chart's injector "
        f"guards its pods by the annotation {INJECT} in its pod template"
    )


def _name_config_map(manifest: Manifest) -> str:
    """The ConfigMap of one workload: two of the same name and another kind have two."""
    kind, _, name = describe(manifest).partition("/")
    return (name or kind) + ("" if kind == "deployment" else f"-{kind}") + _SUFFIX


def _read_workload(manifest: Manifest, names: frozenset[str] = frozenset(), *, by_this_run: bool = False) -> Workload:
    pod = find_pod(manifest)
    injected = bool(list_own_containers(pod["spec"]))
    return Workload(describe(manifest), get_namespace(manifest), pod, injected, by_this_run and injected, names)


@dataclass(slots=True)
class _Target:
    """A workload to be injected: its copy, its pod's template, and the template's place in the manifest."""

    index: int
    manifest: Manifest
    findings: Findings

    @property
    def name(self) -> str:
        return describe(self.manifest)

    @property
    def pod(self) -> Manifest:
        return find_pod(self.manifest)

    @property
    def spec(self) -> Manifest:
        spec: Manifest = self.pod["spec"]
        return spec

    def refuse(self, path: Path, message: str) -> None:
        """Adds an obstacle at a place in the pod's template."""
        self.findings.refuse(self.index, (*find_pod_path(self.manifest), *path), f"{self.name}{message}")


def inject_workload(index: int, manifest: Manifest, sidecar: Sidecar, findings: Findings, names: set[str]) -> Manifest:
    """A workload with the sidecar in its pods; unchanged if there is an obstacle. `names` gets the former name of
    the port of calls."""
    target, known = _Target(index, take_back(manifest), findings), len(findings.obstacles)
    sidecar = _apply_annotations(target, sidecar)
    _check_obstacles(target, sidecar)
    tool = _find_tool(target, sidecar)
    if tool is None or len(findings.obstacles) > known:
        return manifest
    spec, in_job = target.spec, manifest["kind"] in JOBS
    record = Record(tool["name"], spec.get("terminationGracePeriodSeconds"), sidecar.tool_port)
    _take_port_name(tool, record)
    names |= {record.name} - {""}
    container = sidecar.make_container(port_name=record.name or PORT_NAME, in_job=in_job)
    spec["initContainers"] = [*(spec.get("initContainers") or []), container]
    spec["volumes"] = [*(spec.get("volumes") or []), *sidecar.make_volumes()]
    spec["terminationGracePeriodSeconds"] = max(record.grace or 0, sidecar.grace)
    if not in_job:
        _keep_until_drained(target, tool, sidecar, record)
        record.probe = "readinessProbe" not in tool
        tool.setdefault("readinessProbe", sidecar.make_tool_probe())
    if sidecar.checksum:
        set_annotation(target.pod, CHECKSUM, sidecar.checksum)
    set_annotation(target.manifest, BEFORE, record.write())
    return target.manifest


def _apply_annotations(target: _Target, sidecar: Sidecar) -> Sidecar:
    """The sidecar with the annotations of the pod's template, which go before the command line."""
    keys = ("cpu", "memory", "log-level", "secret", "port", "upstream")
    annotations = get_annotations(target.pod)
    values = {key: annotations[f"{_PREFIX}{key}"] for key in keys if f"{_PREFIX}{key}" in annotations}

    def refuse(key: str, message: str) -> None:
        target.refuse(("metadata", "annotations", f"{_PREFIX}{key}"), f": {_PREFIX}{key} {message}")

    for key, example in (("cpu", "100m"), ("memory", "256Mi")):
        if not _QUANTITY.fullmatch(values.get(key, example)):
            refuse(key, f"is no amount: {values[key]!r}  (write one such as {example})")
    if values.get("log-level", "info") not in _LEVELS:
        refuse("log-level", f"is {values['log-level']!r}: it is one of {', '.join(_LEVELS)}")
    if values.get("upstream", sidecar.upstream) != sidecar.upstream:
        refuse(
            "upstream", f"is {values['upstream']!r}, and the config's tool is {sidecar.upstream!r}  (say --upstream)"
        )
    made = replace(
        sidecar,
        cpu=values.get("cpu", sidecar.cpu),
        memory=values.get("memory", sidecar.memory),
        log_level=values.get("log-level", sidecar.log_level),
        secret=values.get("secret", sidecar.secret),
        calls_port=values.get("port", sidecar.calls_port),
    )
    for needed in () if made.secret else sidecar.secret_places:
        target.refuse((), f" mounts no Secret, and {needed}  (say --secret NAME, or annotate the pod's template with "
                      f"{_PREFIX}secret)")  # fmt: skip
    return made


def _check_obstacles(target: _Target, sidecar: Sidecar) -> None:
    spec = target.spec
    if spec.get("hostNetwork"):
        target.refuse(("spec", "hostNetwork"), " has hostNetwork: its ports are the node's, and anybody gets past a "
                      "sidecar there  (take it out)")  # fmt: skip
    system = (spec.get("os") or {}).get("name") or (spec.get("nodeSelector") or {}).get("kubernetes.io/os", "linux")
    if system != "linux":
        target.refuse(("spec",), f" runs on {system}: the proxy's image is for linux")
    if any(each["name"] == CONTAINER for each in spec["containers"]):
        target.refuse(
            ("spec", "containers"), f" has an ordinary container {CONTAINER} already: take that one out first"
        )
    if list_own_containers(spec):
        target.refuse(("spec", "initContainers"), f" has the sidecar {CONTAINER} already, and inject did not put it in "
                      "(the chart or the Kustomize component did): take that one out first")  # fmt: skip
    if taken := {each["name"] for each in spec.get("volumes") or []} & set(VOLUMES):
        target.refuse(("spec", "volumes"), f" has a volume {', '.join(sorted(taken))} already: call it otherwise")
    for path, container in list_other_containers(spec):
        for number, port in enumerate(container.get("ports") or []):
            place: Path = ("spec", *path, "ports", number)
            named = f": container {container['name']} "
            if port["containerPort"] in (sidecar.port, sidecar.probes, sidecar.admin):
                target.refuse(
                    place, f"{named}has port {port['containerPort']}, which the config gives to the proxy, and "
                    "containers of a pod share its ports: change `listen` or `admin` in the config",
                )  # fmt: skip
            if port.get("name") in (PORT_NAME, PROBES_NAME):
                target.refuse(place, f"{named}calls a port {port['name']}, as the proxy does: call it otherwise")
            if port["containerPort"] == sidecar.tool_port and port.get("hostPort"):
                target.refuse(
                    place, f"{named}has hostPort {port['hostPort']} on the port of calls: the node's port leads past "
                    "the proxy  (take it out; a Service of type NodePort leads to the proxy)",
                )  # fmt: skip


def _find_tool(target: _Target, sidecar: Sidecar) -> Manifest | None:
    """The container that serves the upstream's port: the one that names it, or the only one if it names none. None
    where that was refused."""
    served: list[Manifest] = target.spec["containers"]
    container_name = get_annotations(target.pod).get(f"{_PREFIX}container")
    leads = f"where the upstream {sidecar.upstream!r} of the config leads"
    if container_name is not None and container_name not in [each["name"] for each in served]:
        where = ("metadata", "annotations", f"{_PREFIX}container")
        target.refuse(where, f": no container is called {container_name!r}, as {_PREFIX}container says")
        return None
    own = [each for each in served if container_name in (None, each["name"])]
    naming = [each for each in own if any(port["containerPort"] == sidecar.tool_port for port in list_ports(each))]
    if len(naming) > 1 or (not naming and len(own) > 1):
        names = ", ".join(each["name"] for each in naming or own)
        many = "several of its containers" if naming else "none of its containers"
        target.refuse(("spec", "containers"), f": {many} ({names}) {'name' if naming else 'names'} port "
                      f"{sidecar.tool_port}, {leads}: add it only to the ports of the tool's container")  # fmt: skip
        return None
    tool = (naming or own)[0]
    place: Path = ("spec", "containers", served.index(tool), "ports")
    ports = {port["containerPort"]: port.get("name") for port in list_ports(tool)}
    shown = ", ".join(f"{name} {number}" if name else str(number) for number, name in ports.items())
    if ports and sidecar.tool_port not in ports:
        target.refuse(place, f": container {tool['name']} names port {shown}, and not {sidecar.tool_port}, {leads}: "
                      "correct the upstream's url, or name its port there")  # fmt: skip
    elif not sidecar.calls_port and len(ports) > 1:
        target.refuse(place, f": container {tool['name']} names several ports ({shown}): say which takes calls, with "
                      f"--port {sidecar.tool_port} or the annotation {_PREFIX}port of the pod's template")  # fmt: skip
    elif sidecar.calls_port and sidecar.calls_port not in (str(sidecar.tool_port), ports.get(sidecar.tool_port)):
        target.refuse(
            place, f": the port of calls is said to be {sidecar.calls_port}, and not {sidecar.tool_port}, {leads}"
        )
    return tool


def _take_port_name(tool: Manifest, record: Record) -> None:
    """Moves the name of the tool's port to the proxy's port, so that a Service with that name as target leads to the
    proxy. Probes and hooks of the tool that use the name get the number."""
    for port in tool.get("ports") or []:
        if port["containerPort"] == record.port and port.get("name"):
            record.name = port.pop("name")
    if not record.name:
        return
    lifecycle = tool.get("lifecycle") or {}
    places = [[key] for key in _HANDLERS if tool.get(key)] + [
        ["lifecycle", key] for key in _HOOKS if lifecycle.get(key)
    ]
    for place in places:
        handler = tool[place[0]] if len(place) == 1 else lifecycle[place[1]]
        for kind, action in handler.items():
            if isinstance(action, dict) and action.get("port") == record.name:
                action["port"] = record.port
                record.renamed.append([*place, kind, "port"])


def _keep_until_drained(target: _Target, tool: Manifest, sidecar: Sidecar, record: Record) -> None:
    lifecycle = tool.setdefault("lifecycle", {})
    stop = lifecycle.get("preStop")
    if stop is None or set(stop) == {"sleep"}:
        record.stop, record.sleep = True, ((stop or {}).get("sleep") or {}).get("seconds")
        lifecycle["preStop"] = {"sleep": {"seconds": max(record.sleep or 0, sidecar.sleep)}}
    else:
        target.findings.notes.append(
            f"{target.name}: the preStop of container {tool['name']} is kept: see that it takes at least "
            f"{sidecar.sleep} s, for so long the proxy still sends calls"
        )
