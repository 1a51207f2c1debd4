"""`serve` in a Kubernetes pod: the `--pod-` flags of its manifest, and troubles as they are seen from outside.

A trouble is the container's termination message, which `kubectl describe pod` shows once the container has ended, and
with `--pod-events` an Event of the pod, which it shows at once.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from proxy.config.model import Config
from proxy.core.model.value_class import value_class
from proxy.file_writing import overwrite_file

if TYPE_CHECKING:
    from proxy.plugin import Log

# --- checks of a config for a Kubernetes pod --------------------------------------------------------------------------
# Checks of a config for a Kubernetes pod: the Service, kubelet and the hooks must reach its addresses.
#
# `serve --pod-ports` checks at the start, so that an unreachable pod ends with the reason in its status; `inject`
# checks before it writes the pod.


@value_class
class Pod:
    """The proxy in a pod's manifest: the container ports of calls, of probes and of the operator. `upstream` is the one
    in the readiness probe of the tool's container ('' for none)."""

    calls: int
    probes: int
    admin: int
    upstream: str = ""


def find_pod_mistakes(config: Config, pod: Pod | None = None) -> Iterator[str]:
    """Every reason why a pod cannot serve the config, each with a remedy. Without `pod`, those that hold for every
    pod."""
    ports = pod or Pod(config.listen.port, 9091, 8081)
    if config.listen.unix or config.listen.address.is_loopback:
        yield f"`listen` is reached only from inside of the pod  (write `listen: 0.0.0.0:{ports.calls}`)"
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


# --- `serve` in a Kubernetes pod --------------------------------------------------------------------------------------
# --- events of the proxy's own pod ------------------------------------------------------------------------------------
# Events of the proxy's own pod, written to the Kubernetes API: `kubectl describe pod` and `kubectl events` show them.
#
# Needs the right to create events (docs/kubernetes.md has the Role), a token of the pod's service account, and the
# pod's name and uid in the environment (POD_NAME, POD_UID).

# The folder of a pod's service account (Kubernetes, "Accessing the Kubernetes API from a Pod").
ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_WITHIN: Final = 5.0
# Kubernetes refuses a longer note.
_LONGEST_NOTE: Final = 1024
_CREATED: Final = 201


class EventRefused(Exception):  # noqa: N818 - it says what happened
    """An Event that was not written; says why and what to do."""


@value_class
class PodEvents:
    """Writes Events of one pod. `host` and `port` are those of the API server; `account` is the folder with token,
    namespace and certificate of the authority."""

    host: str
    port: int
    pod: str
    uid: str
    account: Path = ACCOUNT

    @classmethod
    def of_pod(cls, environ: Mapping[str, str]) -> PodEvents:
        """The events of the pod in which this process runs. Raises ValueError where the environment says no pod."""
        names = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "POD_NAME", "POD_UID")
        if missing := [name for name in names if not environ.get(name)]:
            raise ValueError(
                f"--pod-events: not set in the environment: {', '.join(missing)}  (the chart's value `events.enabled` "
                "and `inject --events` set POD_NAME and POD_UID)"
            )
        host, port, pod, uid = (environ[name] for name in names)
        return cls(host, int(port), pod, uid)

    def post(self, reason: str, text: str) -> None:
        """Writes one Event of type Warning; blocks for at most a few seconds. Raises EventRefused."""
        try:
            namespace = (self.account / "namespace").read_text(encoding="utf-8").strip()
            token = (self.account / "token").read_text(encoding="utf-8").strip()
            trusted = ssl.create_default_context(cafile=str(self.account / "ca.crt"))
            connection = http.client.HTTPSConnection(self.host, self.port, timeout=_WITHIN, context=trusted)
            try:
                body = json.dumps(self._make_event(namespace, reason, text))
                headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
                connection.request("POST", f"/api/v1/namespaces/{namespace}/events", body, headers)
                status = connection.getresponse().status
            finally:
                connection.close()
        except (OSError, http.client.HTTPException) as error:
            raise EventRefused(f"the API server is not reached: {type(error).__name__}") from None
        if status != _CREATED:
            raise EventRefused(f"the API server answered {status}: may the pod's service account create events?")

    def _make_event(self, namespace: str, reason: str, text: str) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{self.pod[:200]}.", "namespace": namespace},
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": self.pod, "namespace": namespace,
                               "uid": self.uid},
            "type": "Warning",
            "reason": reason,
            "message": text[:_LONGEST_NOTE],
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": "toolcall-proxy"},
        }  # fmt: skip


# --- `serve` in a Kubernetes pod --------------------------------------------------------------------------------------
# Kubelet reads a container's last words here. It mounts the file, also on a read-only root, and takes 4096 bytes.
TERMINATION_LOG: Final = Path("/dev/termination-log")
_LONGEST: Final = 4096
# A tool that is starting is not a trouble yet. The probe in the pod's manifest gives it 10 s.
_HOLD: Final = 8.0


@dataclass(slots=True)
class PodWatcher:
    """Shows troubles in the pod's status and Events: a `TroubleWatcher` (telemetry/watches.py)."""

    termination: Path = TERMINATION_LOG
    events: PodEvents | None = None
    hold: float = _HOLD
    _posting: set[asyncio.Task[None]] = field(default_factory=set)

    def show_open(self, troubles: list[str]) -> None:
        """Makes the troubles the termination message."""
        with suppress(OSError):  # another path may be set in the manifest, or none
            overwrite_file(self.termination, "\n".join(troubles).encode()[:_LONGEST])

    def add_trouble(self, reason: str, text: str, log: Log) -> None:
        """Writes an Event of it."""
        if self.events is not None:
            task = asyncio.create_task(_post(self.events, reason, text, log))
            self._posting.add(task)
            task.add_done_callback(self._posting.discard)

    async def settle(self) -> None:
        """Waits for the Events that are being written."""
        await asyncio.gather(*self._posting)


async def _post(events: PodEvents, reason: str, text: str, log: Log) -> None:
    try:
        await asyncio.to_thread(events.post, reason, text)
    except EventRefused as refused:
        log.event("Event not written", "warning", reason=str(refused))


def read_pod_ports(text: str) -> Pod:
    """The value of `--pod-ports`. Raises ArgumentTypeError."""
    found = re.fullmatch(r"(\d{1,5}),(\d{1,5}),(\d{1,5})", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not three ports, such as 8080,9091,8081")
    calls, probes, admin = map(int, found.groups())
    return Pod(calls, probes, admin)


def list_mistakes(config: Config, args: argparse.Namespace) -> list[str]:
    """The contradictions between the pod's manifest and the config; with --pod-events also why there can be no
    Events."""
    found = list(find_pod_mistakes(config, replace(args.pod_ports, upstream=args.pod_upstream)))
    try:
        make_watcher(args)
    except ValueError as error:
        found.append(str(error))
    return found


def make_watcher(args: argparse.Namespace) -> PodWatcher:
    """The watcher that shows troubles in the pod. Raises ValueError where there can be no Events."""
    return PodWatcher(events=PodEvents.of_pod(os.environ) if args.pod_events else None)


def write_flags(args: argparse.Namespace) -> list[str]:
    """The words of the flags, for a worker's command line."""
    pod: Pod = args.pod_ports
    return ["--pod-ports", f"{pod.calls},{pod.probes},{pod.admin}", *(["--pod-events"] if args.pod_events else [])]
