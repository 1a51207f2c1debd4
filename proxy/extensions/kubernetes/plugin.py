"""The plugin `kubernetes`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from proxy.plugin import AddsVerbs, Flag, HostsProcess, Verb

if TYPE_CHECKING:
    import argparse

    from proxy.config.model import Config
    from proxy.extensions.kubernetes.pod_serving import PodWatcher


class KubernetesPlugin(AddsVerbs, HostsProcess):
    """Writes the sidecar into manifests and shows troubles in its pod."""

    name = "kubernetes"
    adds = "the sidecar in Kubernetes manifests, and what a pod shows of it: `inject`"
    verbs = ("inject",)
    title = "in a Kubernetes pod"
    text = "The chart and `inject` set these options."

    def load_verb(self, verb: str) -> Verb:
        from proxy.extensions.kubernetes import cli

        return cli

    def list_flags(self) -> Sequence[Flag]:
        ports = "reject a config with other ports than those that the pod's Service, probes and preStop hook use"
        return (
            Flag("--pod-ports", ports, metavar="CALLS,PROBES,ADMIN", type=_read_ports),
            Flag("--pod-upstream", "reject a config without this upstream", metavar="NAME", default=""),
            Flag("--pod-events", "report errors as Events of the pod, too", action="store_true"),
        )

    def list_mistakes(self, config: Config, args: argparse.Namespace) -> list[str]:
        from proxy.extensions.kubernetes.pod_serving import list_mistakes

        return list_mistakes(config, args)

    def make_watcher(self, args: argparse.Namespace) -> PodWatcher:
        from proxy.extensions.kubernetes.pod_serving import make_watcher

        return make_watcher(args)

    def write_flags(self, args: argparse.Namespace) -> list[str]:
        from proxy.extensions.kubernetes.pod_serving import write_flags

        return write_flags(args)


def _read_ports(text: str) -> object:
    from proxy.extensions.kubernetes.pod_serving import read_pod_ports

    return read_pod_ports(text)
