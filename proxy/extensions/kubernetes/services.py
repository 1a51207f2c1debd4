"""Leads Services to the proxy, and finds those that would still lead past it.

A Service's port leads to a pod's port by number, or by the name that one of the pod's containers gives it. The port of
calls is led to the proxy. Other ports that containers name (metrics) may stay. A Service port to an unnamed port is
refused, because calls may come there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from proxy.core.model.value_class import value_class
from proxy.extensions.kubernetes.sidecar import PROBES_NAME, Manifest, Sidecar
from proxy.extensions.kubernetes.undo import forget_version, set_annotation, take_back
from proxy.extensions.kubernetes.workloads import (
    BEFORE,
    Findings,
    describe,
    get_namespace,
    list_other_containers,
    list_ports,
    matches,
)


@value_class
class Workload:
    """A workload of the stream: its name as `kind/name`, its namespace ('' if it names none), its pod's template,
    and the names by which its port of calls was known. `injected`: whether it has the sidecar; `by_this_run`: whether
    this run has put it in."""

    name: str
    namespace: str
    pod: Manifest
    injected: bool
    by_this_run: bool = False
    port_names: frozenset[str] = frozenset()

    def list_named(self) -> Iterator[Any]:
        """The ports that its containers name, as numbers and as names."""
        for _, container in list_other_containers(self.pod["spec"]):
            for port in list_ports(container):
                yield port["containerPort"]
                yield port.get("name")


def redirect_service(
    index: int, manifest: Manifest, sidecar: Sidecar, workloads: Sequence[Workload], findings: Findings, default: str
) -> Manifest:
    """The Service with each port of calls leading to the proxy: by number, because Services find names of an init
    container's ports only from Kubernetes 1.32 on. `default` is the namespace of manifests that name none."""
    service = take_back(manifest)
    selected = _select(index, service, workloads, findings, default)
    if not any(each.by_this_run for each in selected):
        return manifest
    name = describe(service)
    if bare := [each.name for each in selected if not each.injected]:
        findings.refuse(
            index, ("spec", "selector"),
            f"{name} selects {', '.join(bare)} too, which has no proxy: inject it as well, or narrow the selector",
        )  # fmt: skip
        return manifest
    record: dict[str, Any] = {}
    for place, port in enumerate(service["spec"].get("ports") or []):
        if port.get("protocol", "TCP") != "TCP":
            continue
        target = port.get("targetPort", port["port"])
        calls = {sidecar.tool_port, *(known for each in selected for known in each.port_names)}
        if target in calls:
            record[f"{port['port']}/TCP"] = port.get("targetPort")
            port["targetPort"] = sidecar.port
        elif target not in (sidecar.port, sidecar.probes, PROBES_NAME):
            _check_other(index, place, name, target, selected, sidecar, findings)
    if service["spec"].get("clusterIP") == "None":
        findings.notes.append(
            f"{name} is headless: clients that look the pods up choose the port themselves, and past the proxy's "
            f"({sidecar.port}) they reach the tool"
        )
    if record:
        set_annotation(service, BEFORE, json.dumps(record, separators=(",", ":")))
        service = forget_version(service)
    return service


def _select(
    index: int, service: Manifest, workloads: Sequence[Workload], findings: Findings, default: str
) -> list[Workload]:
    """The workloads whose pods a Service selects. If only one of the two names its namespace, the match is unknown."""
    own, found = get_namespace(service, default), []
    for each in workloads:
        if not matches(service, each.pod):
            continue
        there = each.namespace or default
        if own == there:
            found.append(each)
        elif each.by_this_run and not (own and there):
            findings.refuse(
                index, ("metadata",),
                f"{describe(service)} and {each.name}: only one of them names its namespace: write it in both, or say "
                "with --namespace what the others mean",
            )  # fmt: skip
    return found


def _check_other(
    index: int,
    place: int,
    name: str,
    target: object,
    selected: Sequence[Workload],
    sidecar: Sidecar,
    findings: Findings,
) -> None:
    """Refuses a port that leads neither to the proxy nor to a port that a container names."""
    lost = [each.name for each in selected if target not in set(each.list_named())]
    if lost:
        findings.refuse(
            index, ("spec", "ports", place),
            f"{name} leads to port {target} of {', '.join(lost)}, past the proxy. If calls come there, the config's "
            f"upstream {sidecar.upstream!r} has to lead there (it leads to {sidecar.tool_port}). If not, name it in "
            "the container's `ports`",
        )  # fmt: skip


def find_unserved(manifests: Sequence[Manifest], workloads: Sequence[Workload], default: str) -> Iterator[Workload]:
    """The injected workloads that no Service of the stream selects."""
    for each in workloads:
        there = each.namespace or default
        if each.by_this_run and not any(
            matches(service, each.pod) and get_namespace(service, default) == there for service in manifests
        ):
            yield each
