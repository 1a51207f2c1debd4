"""Workloads and Services in manifests: the place of a workload's pod template, names, and the pods that a Service
selects. Injection and its undoing both read them here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from proxy.core.model.value_class import value_class
from proxy.extensions.kubernetes.sidecar import CONTAINER, Manifest

# The path to the pod's template in each kind of workload.
POD_TEMPLATES: Final[dict[str, tuple[str, ...]]] = {
    "Deployment": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
    "Pod": (),
}
JOBS: Final = ("Job", "CronJob")
# The groups of the API that these kinds, and Services, belong to: others have kinds of the same names.
_GROUPS: Final = ("v1", "apps/v1", "batch/v1")
KNATIVE: Final = "serving.knative.dev/"

# Annotations. Those of a pod's template say how it is injected; `before` is the record of the former values, on the
# workload or Service itself.
INJECT: Final = "toolcall-proxy/inject"
OFF: Final = "disabled"
BEFORE: Final = "toolcall-proxy/before"
CHECKSUM: Final = "checksum/static"

Path = tuple[str | int, ...]


@value_class
class Obstacle:
    """An obstacle to an injection: the number of the manifest, the place in it, and a sentence with the remedy."""

    index: int
    path: Path
    message: str


class InjectionError(Exception):
    """Obstacles to the sidecar. Without any, the message has the mistake and the remedy."""

    def __init__(self, message: str = "", obstacles: tuple[Obstacle, ...] = ()) -> None:
        super().__init__(message or "\n".join(each.message for each in obstacles))
        self.obstacles = obstacles


@dataclass(slots=True)
class Findings:
    """The findings of an injection: obstacles, and notes for the operator."""

    obstacles: list[Obstacle] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def refuse(self, index: int, path: Path, message: str) -> None:
        """Adds an obstacle."""
        self.obstacles.append(Obstacle(index, path, message))


def is_workload(manifest: Manifest) -> bool:
    """Returns whether it is of a kind that can be injected."""
    return manifest.get("kind") in POD_TEMPLATES and manifest.get("apiVersion") in _GROUPS


def is_service(manifest: Manifest) -> bool:
    """Returns whether it is a Service of Kubernetes itself."""
    return manifest.get("kind") == "Service" and manifest.get("apiVersion") == "v1"


def has_unknown_pods(manifest: Manifest) -> bool:
    """Returns whether it has pods and is of another kind, such as Argo's Rollout or Knative's Service."""
    template = (manifest.get("spec") or {}).get("template") if isinstance(manifest.get("spec"), dict) else None
    spec = template.get("spec") if isinstance(template, dict) else None
    return not is_workload(manifest) and isinstance(spec, dict) and isinstance(spec.get("containers"), list)


def describe(manifest: Manifest) -> str:
    """A manifest as `kind/name`, in lower case."""
    return f"{manifest.get('kind', '')}/{(manifest.get('metadata') or {}).get('name', '')}".lower()


def get_namespace(manifest: Manifest, default: str = "") -> str:
    """The namespace that a manifest names, or the default."""
    return (manifest.get("metadata") or {}).get("namespace") or default


def find_pod_path(manifest: Manifest) -> tuple[str, ...]:
    """Returns the path to the pod's template."""
    return POD_TEMPLATES[manifest["kind"]] if is_workload(manifest) else ("spec", "template")


def find_pod(manifest: Manifest) -> Manifest:
    """The pod's template of a workload; of a Pod, itself. Raises InjectionError if it has no containers."""
    found = manifest
    for key in find_pod_path(manifest):
        found = found.get(key) or {}
    if not isinstance(found.get("spec"), dict) or not found["spec"].get("containers"):
        raise InjectionError(f"{describe(manifest)} has no containers")
    return found


def get_annotations(manifest: Manifest) -> dict[str, str]:
    """The annotations of a manifest or a pod's template."""
    return dict((manifest.get("metadata") or {}).get("annotations") or {})


def list_own_containers(spec: Manifest) -> list[Manifest]:
    """The sidecars of this proxy in a pod's spec."""
    return [each for each in spec.get("initContainers") or [] if each["name"] == CONTAINER]


def list_other_containers(spec: Manifest) -> Iterator[tuple[Path, Manifest]]:
    """The containers other than the sidecar, each with its place in the pod's spec."""
    for key in ("initContainers", "containers"):
        for index, each in enumerate(spec.get(key) or []):
            if each["name"] != CONTAINER:
                yield (key, index), each


def list_ports(container: Manifest) -> list[dict[str, Any]]:
    """The TCP ports that a container names."""
    return [each for each in container.get("ports") or [] if each.get("protocol", "TCP") == "TCP"]


def matches(service: Manifest, pod: Manifest) -> bool:
    """Returns whether a Service's selector fits a pod's labels, in any namespaces."""
    selector = service.get("spec", {}).get("selector") or {}
    labels = (pod.get("metadata") or {}).get("labels") or {}
    return bool(selector) and selector.items() <= labels.items()
