"""Takes an injection back: by the record that it left in the annotation `toolcall-proxy/before`.

The record of a workload has the former values of its pod (container, period of grace, preStop, probe, name of the
port). That of a Service has the former targets of its ports. Injecting again begins with taking back, so twice is once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from typing import Any

from proxy.core.model.value_class import value_class
from proxy.extensions.kubernetes.sidecar import CONTAINER, VOLUMES, Manifest
from proxy.extensions.kubernetes.workloads import (
    BEFORE,
    CHECKSUM,
    InjectionError,
    describe,
    find_pod,
    get_annotations,
    is_service,
    is_workload,
)


@dataclass(slots=True)
class Record:
    """The former values of a pod. `name` is the name of the tool's port, `renamed` are the places in the tool's
    container that used it. `stop` and `probe`: whether `inject` wrote the tool's preStop and readiness probe."""

    container: str = ""
    grace: int | None = None
    port: int = 0
    name: str = ""
    renamed: list[list[str]] = field(default_factory=list)
    stop: bool = False
    sleep: int | None = None
    probe: bool = False

    def write(self) -> str:
        """The record as the annotation's text."""
        return json.dumps(asdict(self), separators=(",", ":"))


def is_injected(manifest: Manifest) -> bool:
    """Returns whether `inject` has left its record in a workload or Service."""
    return BEFORE in get_annotations(manifest)


def set_annotation(manifest: Manifest, key: str, value: str | None) -> None:
    """Sets an annotation of a manifest or a pod's template; None takes it out."""
    metadata = manifest.setdefault("metadata", {})
    others = {name: text for name, text in (metadata.get("annotations") or {}).items() if name != key}
    metadata["annotations"] = others if value is None else {**others, key: value}
    _drop_empty(metadata, "annotations")


def take_back(manifest: Manifest) -> Manifest:
    """A copy without the changes of `inject`; equal to the manifest without any. Raises InjectionError."""
    made = deepcopy(manifest)
    text = get_annotations(made).get(BEFORE)
    if text is None or not (is_workload(made) or is_service(made)):
        return made
    try:
        record = json.loads(text)
        _restore_service(made, record) if is_service(made) else _restore_workload(made, Record(**record))
    except (ValueError, TypeError, LookupError, AttributeError):
        raise InjectionError(
            f"{describe(manifest)}: its annotation {BEFORE} is not the record that inject wrote: take the manifest as "
            "it was before inject"
        ) from None
    set_annotation(made, BEFORE, None)
    return made


def _restore_service(service: Manifest, record: dict[str, Any]) -> None:
    for port in service["spec"].get("ports") or []:
        key = f"{port['port']}/{port.get('protocol', 'TCP')}"
        if key in record:
            before = record[key]
            if before is None:
                port.pop("targetPort", None)
            else:
                port["targetPort"] = before


def _restore_workload(manifest: Manifest, record: Record) -> None:
    pod = find_pod(manifest)
    spec = pod["spec"]
    if CHECKSUM in get_annotations(pod):
        set_annotation(pod, CHECKSUM, None)
    for key, names in (("initContainers", (CONTAINER,)), ("volumes", VOLUMES)):
        spec[key] = [each for each in spec.get(key) or [] if each["name"] not in names]
        _drop_empty(spec, key)
    if record.grace is None:
        spec.pop("terminationGracePeriodSeconds", None)
    else:
        spec["terminationGracePeriodSeconds"] = record.grace
    tool = next(each for each in spec["containers"] if each["name"] == record.container)
    _restore_hooks(tool, record)
    if record.name:
        port = next(each for each in tool["ports"] if each["containerPort"] == record.port)
        port["name"] = record.name
        for place in record.renamed:
            _set(tool, place, record.name)


def _restore_hooks(tool: Manifest, record: Record) -> None:
    lifecycle = tool.get("lifecycle") or {}
    if record.stop and "preStop" in lifecycle:
        if record.sleep is None:
            del lifecycle["preStop"]
        else:
            lifecycle["preStop"] = {"sleep": {"seconds": record.sleep}}
        _drop_empty(tool, "lifecycle")
    if record.probe:
        tool.pop("readinessProbe", None)


def _set(container: Manifest, place: Sequence[str], value: str) -> None:
    found = container
    for key in place[:-1]:
        found = found[key]
    found[place[-1]] = value


def _drop_empty(mapping: Manifest, key: str) -> None:
    if key in mapping and not mapping[key]:
        del mapping[key]


@value_class
class TakenBack:
    """Manifests without the sidecar, those of Services first, each with its number in the stream; the ConfigMaps that
    nothing uses any more, as `namespace/name`; and the notes for the operator."""

    manifests: list[tuple[int, Manifest]]
    config_maps: list[str]
    notes: list[str]


def take_back_all(manifests: Sequence[Manifest]) -> TakenBack:
    """Takes everything back. Raises InjectionError where there is nothing to take back."""
    made, used, notes = list[tuple[int, Manifest]](), list[str](), list[str]()
    for index, manifest in enumerate(manifests):
        before = manifest
        if is_injected(manifest):
            used += _list_config_maps(manifest)
            before = forget_version(take_back(manifest))
        elif is_workload(manifest):
            notes.append(f"{describe(manifest)} is left as it is: inject has put nothing into it")
        made.append((index, before))
    if not any(is_injected(manifest) for manifest in manifests):
        raise InjectionError(f"nothing here has the annotation {BEFORE}, by which inject knows what it put in")
    kept = [entry for entry in made if not _is_config_map(entry[1], used)]
    return TakenBack(sorted(kept, key=lambda entry: not is_service(entry[1])), used, notes)


def _list_config_maps(manifest: Manifest) -> list[str]:
    if not is_workload(manifest):
        return []
    namespace = (manifest.get("metadata") or {}).get("namespace", "")
    volumes = [each for each in find_pod(manifest)["spec"].get("volumes") or [] if each["name"] == VOLUMES[0]]
    return [f"{namespace}/{each['projected']['sources'][0]['configMap']['name']}" for each in volumes]


def _is_config_map(manifest: Manifest, names: Sequence[str]) -> bool:
    metadata = manifest.get("metadata") or {}
    return manifest.get("kind") == "ConfigMap" and f"{metadata.get('namespace', '')}/{metadata.get('name')}" in names


def forget_version(manifest: Manifest) -> Manifest:
    """A copy without `resourceVersion`: `kubectl apply` would refuse it once the server has written a rollout's
    state."""
    kept = {key: value for key, value in (manifest.get("metadata") or {}).items() if key != "resourceVersion"}
    return manifest | {"metadata": kept}
