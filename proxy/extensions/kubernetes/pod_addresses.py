"""Checks of a config for a Kubernetes pod: the Service, kubelet and the hooks must reach its addresses.

`serve --pod-ports` checks at the start, so that an unreachable pod ends with the reason in its status; `inject` checks
before it writes the pod.
"""

from __future__ import annotations

from collections.abc import Iterator

from proxy.config.model import Config
from proxy.core.model.value_class import value_class


@value_class
class Pod:
    """The proxy in a pod's manifest: the container ports of calls, of probes and of the operator, and the upstream in
    the readiness probe of the tool's container ('' for none)."""

    calls: int
    probes: int
    admin: int
    upstream: str = ""


def find_pod_mistakes(config: Config, pod: Pod | None = None) -> Iterator[str]:
    """Every reason why a pod cannot serve the config, each with a remedy. Without `pod`, those that hold for every
    pod."""
    ports = pod or Pod(config.listen.port, 9091, 9090)
    if config.listen.unix or config.listen.address.is_loopback:
        yield f"`listen` is reached from inside of the pod alone  (write `listen: 0.0.0.0:{ports.calls}`)"
    elif config.listen.port != ports.calls:
        yield (
            f"`listen` has port {config.listen.port}, and calls come to port {ports.calls} of the pod  "
            f"(write `listen: 0.0.0.0:{ports.calls}`, or give the pod's manifest the other port)"
        )
    if wrong := _find_admin_mistake(config, ports, given=pod is not None):
        yield wrong
    if pod is not None and pod.upstream and pod.upstream not in config.upstreams:
        yield (
            f"no upstream is called {pod.upstream!r}, by which the pod asks whether its tool is ready  "
            f"(there: {', '.join(config.upstreams) or 'none'}; the annotation toolcall-proxy/upstream names it)"
        )


def _find_admin_mistake(config: Config, ports: Pod, *, given: bool) -> str:
    """The first mistake in `admin`, or ''."""
    admin = config.admin
    written = f'`admin: {{listen: "127.0.0.1:{ports.admin}", probes: "0.0.0.0:{ports.probes}"}}`'
    if admin is None or admin.probes is None or admin.probes.is_loopback:
        return f"kubelet reaches no probes  (write {written})"
    if not admin.listen.is_loopback:
        return f"`admin.listen` is reached from outside of the pod  (write {written})"
    if given and admin.probes.port != ports.probes:
        return (
            f"`admin.probes` has port {admin.probes.port}, and kubelet asks port {ports.probes} of the pod  "
            f"(write {written}, or give the pod's manifest the other port)"
        )
    if given and admin.listen.port != ports.admin:
        return (
            f"`admin.listen` has port {admin.listen.port}, and the preStop hook asks port {ports.admin}  "
            f"(write {written}, or give the pod's manifest the other port)"
        )
    return ""
