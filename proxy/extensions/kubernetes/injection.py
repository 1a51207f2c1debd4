"""The proxy's container and volume as Kubernetes manifests, put into the pods of workloads and in front of their
Services.

`Sidecar` makes the container, the volume and the tool's probe as plain values; the chart renders the same, and a test
compares them. `inject_all` takes manifests as plain values and gives changed copies. Injecting twice gives the same as
injecting once: what was injected before is replaced. An obstacle is an InjectionError, which says what to do about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

Manifest = dict[str, Any]

CONTAINER: Final = "toolcall-proxy"
VOLUME: Final = "toolcall-proxy-config"
CONFIG_FOLDER: Final = "/etc/toolcall-proxy"
PORT_NAME: Final = "toolproxy"
PROBES_NAME: Final = "toolproxy-probe"
# Pods that are finished end at once, so a long period costs nothing.
LEAST_GRACE: Final = 300
_HOOKS_APART: Final = 5
_LAST_CALLS: Final = 5


@dataclass(frozen=True, slots=True)
class Sidecar:
    """The sidecar of a pod: its image, its ConfigMap, the ports and times (seconds) of its config, and the tool behind
    it.

    `paths`: key of the ConfigMap -> file in the config's folder.
    """

    image: str
    config_map: str
    upstream: str
    tool_port: int
    port: int
    probes: int
    admin: int
    drain: int
    longest_call: int
    paths: Mapping[str, str] = field(default_factory=dict)

    @property
    def sleep(self) -> int:
        """Seconds by which the tool's SIGTERM is delayed."""
        return self.drain + _HOOKS_APART

    @property
    def grace(self) -> int:
        """The least terminationGracePeriodSeconds."""
        return max(LEAST_GRACE, self.sleep + self.longest_call + _LAST_CALLS)

    def make_container(self, *, port_name: str = PORT_NAME, in_job: bool = False) -> Manifest:
        """The native sidecar. In a Job no calls come once it is to end, so it does not wait for any."""
        drain = ["--seconds", "0"] if in_job else ["--with-tools"]
        return {
            "name": CONTAINER,
            "image": self.image,
            "imagePullPolicy": "IfNotPresent",
            "restartPolicy": "Always",
            "command": ["python", "-m", "proxy"],
            "args": ["serve", f"{CONFIG_FOLDER}/config.yaml"],
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "ports": [
                {"name": port_name, "containerPort": self.port, "protocol": "TCP"},
                {"name": PROBES_NAME, "containerPort": self.probes, "protocol": "TCP"},
            ],
            "lifecycle": {
                "preStop": {
                    "exec": {
                        "command": ["python", "-m", "proxy", "drain", *drain, "--admin", f"127.0.0.1:{self.admin}"]
                    }
                }
            },
            "startupProbe": _probe("/startupz", periodSeconds=1, timeoutSeconds=1, failureThreshold=60),
            "readinessProbe": _probe("/readyz", periodSeconds=5, timeoutSeconds=1, failureThreshold=2),
            "livenessProbe": _probe("/livez", periodSeconds=10, timeoutSeconds=2, failureThreshold=3),
            "resources": {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "256Mi"}},
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": True,
                "runAsNonRoot": True,
                "runAsUser": 10001,
                "runAsGroup": 10001,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "volumeMounts": [{"name": VOLUME, "mountPath": CONFIG_FOLDER, "readOnly": True}],
        }

    def make_volume(self) -> Manifest:
        """The volume with the config."""
        source: Manifest = {"name": self.config_map}
        if any(key != path for key, path in self.paths.items()):
            source["items"] = [{"key": key, "path": path} for key, path in self.paths.items()]
        return {"name": VOLUME, "projected": {"defaultMode": 0o444, "sources": [{"configMap": source}]}}

    def make_tool_probe(self) -> Manifest:
        """The readiness probe of the tool's container. It asks the proxy, because kubelet cannot reach a tool on
        loopback."""
        asked = {"path": f"/readyz/upstream/{self.upstream}", "port": self.probes}
        return {"httpGet": asked, "periodSeconds": 2, "timeoutSeconds": 1, "failureThreshold": 2}


def _probe(path: str, **times: int) -> Manifest:
    return {"httpGet": {"path": path, "port": PROBES_NAME}, **times}


# Where the pod's template stands in each kind of workload.
POD_TEMPLATES: Final[dict[str, tuple[str, ...]]] = {
    "Deployment": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
    "Pod": (),
}
_JOBS: Final = ("Job", "CronJob")
_PROBES: Final = ("startupProbe", "readinessProbe", "livenessProbe")
# This annotation with the value `disabled` on a workload or its pod template leaves it alone.
ANNOTATION: Final = "toolcall-proxy/inject"
_OFF: Final = "disabled"


class InjectionError(Exception):
    """An obstacle to the sidecar; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Injected:
    """Manifests with the sidecar, and what the operator should know of them."""

    manifests: list[Manifest]
    notes: list[str]


def inject_all(manifests: Iterable[Manifest], sidecar: Sidecar, only: Iterable[str] = ()) -> Injected:
    """Injects every workload, or those of `only` (`kind/name`, in lower case). Raises InjectionError.

    Changed manifests lose their `resourceVersion`: `kubectl apply` would refuse them once the server has written the
    state of a rollout.
    """
    found, notes, pods = list(manifests), list[str](), list[Manifest]()
    wanted, seen = set(only), set[str]()
    for index, manifest in enumerate(found):
        name = describe(manifest)
        if manifest.get("kind") not in POD_TEMPLATES or (wanted and name not in wanted):
            continue
        seen.add(name)
        if why := _find_reason_to_skip(manifest):
            notes.append(f"{name} is left as it is: {why}")
            continue
        found[index] = _forget_version(inject_workload(manifest, sidecar, notes))
        pods.append(_find_pod(found[index]))
    if missing := sorted(wanted - seen):
        raise InjectionError(
            f"nothing here is called {', '.join(missing)}: --only takes kind/name, as in deployment/weather"
        )
    if not pods and not notes:
        raise InjectionError(f"no workload is among the manifests ({', '.join(POD_TEMPLATES)})")
    for index, manifest in enumerate(found):
        if manifest.get("kind") == "Service" and (selected := [pod for pod in pods if _selects(manifest, pod)]):
            names = {_list_own_containers(pod["spec"])[0]["ports"][0]["name"] for pod in selected}
            found[index] = _forget_version(redirect_service(manifest, sidecar, names, notes))
    return Injected(found, notes)


def _forget_version(manifest: Manifest) -> Manifest:
    kept = {key: value for key, value in (manifest.get("metadata") or {}).items() if key != "resourceVersion"}
    return manifest | {"metadata": kept}


def describe(manifest: Manifest) -> str:
    """A manifest as `kind/name`."""
    return f"{manifest.get('kind', '')}/{(manifest.get('metadata') or {}).get('name', '')}".lower()


def inject_workload(manifest: Manifest, sidecar: Sidecar, notes: list[str]) -> Manifest:
    """A workload with the sidecar in its pods. Raises InjectionError."""
    made = deepcopy(manifest)
    name, in_job = describe(manifest), manifest["kind"] in _JOBS
    spec = _find_pod(made)["spec"]
    _check_obstacles(name, spec, sidecar)
    tool = _find_tool(name, spec, sidecar)
    before = _list_own_containers(spec)
    port_name = _take_port_name(spec, tool, sidecar, before)
    others = [each for each in spec.get("initContainers") or [] if each["name"] != CONTAINER]
    spec["initContainers"] = [*others, sidecar.make_container(port_name=port_name, in_job=in_job)]
    volumes = [each for each in spec.get("volumes") or [] if each["name"] != VOLUME]
    spec["volumes"] = [*volumes, sidecar.make_volume()]
    spec["terminationGracePeriodSeconds"] = max(spec.get("terminationGracePeriodSeconds") or 0, sidecar.grace)
    if not in_job:
        _keep_until_drained(name, tool, sidecar, notes)
        tool.setdefault("readinessProbe", sidecar.make_tool_probe())
    return made


def _find_pod(manifest: Manifest) -> Manifest:
    """The pod template of a workload; of a Pod, itself."""
    found = manifest
    for key in POD_TEMPLATES[manifest["kind"]]:
        found = found.get(key) or {}
    if not isinstance(found.get("spec"), dict) or not found["spec"].get("containers"):
        raise InjectionError(f"{describe(manifest)} has no containers")
    return found


def _find_reason_to_skip(manifest: Manifest) -> str:
    pod = _find_pod(manifest)
    for metadata in (manifest.get("metadata"), pod.get("metadata")):
        if ((metadata or {}).get("annotations") or {}).get(ANNOTATION) == _OFF:
            return f"{ANNOTATION}: {_OFF}"
    return ""


def _list_own_containers(spec: Manifest) -> list[Manifest]:
    return [each for each in spec.get("initContainers") or [] if each["name"] == CONTAINER]


def _check_obstacles(name: str, spec: Manifest, sidecar: Sidecar) -> None:
    if spec.get("hostNetwork"):
        raise InjectionError(f"{name} has hostNetwork: its ports are the node's, and anybody gets past a sidecar there")
    system = (spec.get("os") or {}).get("name") or (spec.get("nodeSelector") or {}).get("kubernetes.io/os", "linux")
    if system != "linux":
        raise InjectionError(f"{name} runs on {system}: the proxy's image is for linux")
    if any(each["name"] == CONTAINER for each in spec["containers"]):
        raise InjectionError(f"{name} has an ordinary container {CONTAINER} already: take that one out first")
    for container in _list_other_containers(spec):
        for port in container.get("ports") or []:
            if port["containerPort"] in (sidecar.port, sidecar.probes, sidecar.admin):
                raise InjectionError(
                    f"{name}: container {container['name']} has port {port['containerPort']}, which the config gives "
                    "to the proxy, and containers of a pod share its ports: change `listen` or `admin` in the config"
                )


def _list_other_containers(spec: Manifest) -> Iterator[Manifest]:
    """The containers other than the sidecar."""
    for each in [*(spec.get("initContainers") or []), *spec["containers"]]:
        if each["name"] != CONTAINER:
            yield each


def _find_tool(name: str, spec: Manifest, sidecar: Sidecar) -> Manifest:
    """The container that serves the upstream's port: the one that names it, or the only one."""
    served: list[Manifest] = spec["containers"]
    for container in served:
        if any(port["containerPort"] == sidecar.tool_port for port in container.get("ports") or []):
            return container
    if len(served) == 1:
        return served[0]
    named = ", ".join(each["name"] for each in served)
    raise InjectionError(
        f"{name}: none of its containers ({named}) names port {sidecar.tool_port}, where the upstream "
        f"{sidecar.upstream!r} of the config leads: add it to the ports of the tool's container"
    )


def _take_port_name(spec: Manifest, tool: Manifest, sidecar: Sidecar, before: list[Manifest]) -> str:
    """Moves the name of the tool's port to the proxy's port, so that a Service with that name as target leads to the
    proxy. Probes of the tool that use the name get the number."""
    for port in tool.get("ports") or []:
        if port["containerPort"] == sidecar.tool_port and port.get("name"):
            taken: str = port.pop("name")
            for container in spec["containers"]:
                for probe in _PROBES:
                    for asked in (container.get(probe) or {}).values():
                        if isinstance(asked, dict) and asked.get("port") == taken:
                            asked["port"] = sidecar.tool_port
            return taken
    ports = [port for each in before for port in each.get("ports") or []]
    return next((port["name"] for port in ports if port["containerPort"] == sidecar.port), PORT_NAME)


def _keep_until_drained(name: str, tool: Manifest, sidecar: Sidecar, notes: list[str]) -> None:
    lifecycle = tool.setdefault("lifecycle", {})
    stop = lifecycle.get("preStop")
    if stop is None or set(stop) == {"sleep"}:
        before = ((stop or {}).get("sleep") or {}).get("seconds", 0)
        lifecycle["preStop"] = {"sleep": {"seconds": max(before, sidecar.sleep)}}
    else:
        notes.append(
            f"{name}: the preStop of container {tool['name']} is kept: see that it takes at least {sidecar.sleep} s, "
            "for so long the proxy still sends calls"
        )


# --- services ---------------------------------------------------------------------------------------------------------
def _selects(service: Manifest, pod: Manifest) -> bool:
    selector = service.get("spec", {}).get("selector") or {}
    labels = (pod.get("metadata") or {}).get("labels") or {}
    return bool(selector) and selector.items() <= labels.items()


def redirect_service(service: Manifest, sidecar: Sidecar, names: set[str], notes: list[str]) -> Manifest:
    """The Service with each port that leads to the tool leading to the proxy: by number, because Services find names of
    an init container's ports only from Kubernetes 1.32 on. `names` are the names of the proxy's port in the pods."""
    made = deepcopy(service)
    for port in made["spec"].get("ports") or []:
        if port.get("targetPort", port["port"]) in (sidecar.tool_port, *names):
            port["targetPort"] = sidecar.port
    if made["spec"].get("clusterIP") == "None":
        notes.append(
            f"{describe(service)} is headless: clients that look the pods up choose the port themselves, and past the "
            f"proxy's ({sidecar.port}) they reach the tool"
        )
    return made
