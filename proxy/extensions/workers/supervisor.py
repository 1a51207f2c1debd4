"""Several processes behind one port (`workers`): the kernel spreads connections over them (SO_REUSEPORT).

Each worker is an ordinary proxy with a separate operator's port on loopback, protected by a token that only the worker
and the supervisor know. The supervisor serves no calls. It starts workers, replaces one that dies, passes signals on,
and answers the real operator's port with the workers' pages (`pages.py`); metrics are summed (`merged.py`).

    start.start_workers    opens the shared port, the workers, the operator's port
    WorkerPool             keeps the processes running
      Worker               one process; it prints the address of its operator's port on standard output
    pages.make_pool_pages  the operator's pages, made of those of the workers
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import prometheus_client
from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from proxy.core.json.jsontext import dumps
from proxy.core.model.values import JsonValue, UpstreamReply
from proxy.interfaces import Upstream, UpstreamRequest
from proxy.plugin import Loaded, Log
from proxy.server.admin.page import Page, Readers, Role
from proxy.server.listener import Port
from proxy.upstream import UpstreamSettings
from proxy.upstream.http1 import Http1Upstream

# --- merges the metrics pages of several workers into one -------------------------------------------------------------
# Merges the metrics pages of several workers into one, as if one process had counted.
#
# Counters and histograms are summed. The last page of an ended worker still counts: otherwise the sum would fall,
# Prometheus would take that for a restart, and `rate` would count everything again. Gauges are summed too, except
# those that show a state, for which the worst worker decides.

Merge = Callable[[Iterable[float]], float]

# Gauges that are not summed, by sample name.
_STATES: Final[Mapping[str, Merge]] = {
    "toolproxy_config_last_reload_successful": min,
    "toolproxy_config_last_reload_success_timestamp_seconds": min,
    "toolproxy_config_restart_needed": max,
    "toolproxy_draining": max,
    "toolproxy_state_backend_up": min,
    "toolproxy_upstream_breaker_state": max,
    "process_start_time_seconds": min,
    "process_max_fds": min,
}
_INFO: Final = "_info"
_LASTING: Final = frozenset({"counter", "histogram", "summary"})


def merge_pages(living: Iterable[bytes], ended: Iterable[bytes] = ()) -> tuple[str, bytes]:
    """Content type and text of one page for all workers. `living` are the pages of the running workers, `ended` the
    last pages of the others, of which only counters and histograms count."""
    found = _Merged()
    for text in living:
        found.add(text, lambda _: True)
    for text in ended:
        found.add(text, lambda metric: metric.type in _LASTING and not metric.name.startswith("process_"))
    return prometheus_client.CONTENT_TYPE_LATEST, generate_latest(found)


class _Merged:
    """A collector of metrics in order of appearance, with samples by name and labels."""

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}
        self._values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], list[float]]] = {}

    def add(self, text: bytes, counts: Callable[[Metric], bool]) -> None:
        for metric in text_string_to_metric_families(text.decode()):
            if not counts(metric):
                continue
            self._metrics.setdefault(metric.name, metric)
            values = self._values.setdefault(metric.name, {})
            for sample in metric.samples:
                values.setdefault((sample.name, tuple(sample.labels.items())), []).append(sample.value)

    def collect(self) -> Iterable[Metric]:
        for name, metric in self._metrics.items():
            whole: Any = Metric(metric.name, metric.documentation, metric.type)
            for (sample, labels), values in self._values[name].items():
                merge: Merge = max if sample.endswith(_INFO) else _STATES.get(sample, sum)
                whole.add_sample(sample, dict(labels), merge(values))
            yield whole


# --- several processes behind one port (`workers`) --------------------------------------------------------------------
# How long to wait before a dead worker is replaced, in seconds, so that workers that die at once do not use up a core.
AGAIN_AFTER: Final = 1.0
STARTS_WITHIN: Final = 60.0
_ANSWERS_WITHIN: Final = 10.0
# The longest page of a worker in bytes. The metrics of many tools and the latest calls are far shorter.
_LONGEST_PAGE: Final = 64 * 1024 * 1024


@dataclass(slots=True)
class Worker:
    """One worker process. `port` is its own operator's port; `page` holds its metrics as last read."""

    process: asyncio.subprocess.Process
    port: Upstream
    page: bytes = b""


@dataclass(slots=True)
class WorkerPool:
    """The running workers. `ended_metrics` are those of workers that died. `reserved` is the socket that keeps the
    workers' port reserved; `ports` are the operator's port and the probes' port of this process."""

    loaded: Loaded
    command: Sequence[str]
    log: Log
    token: str
    workers: list[Worker] = field(default_factory=list)
    ended_metrics: bytes = b""
    ending: bool = False
    readers: Readers = field(default_factory=Readers)
    reserved: socket.socket | None = None
    ports: list[Port] = field(default_factory=list)
    _watching: list[asyncio.Task[None]] = field(default_factory=list)

    async def start(self) -> None:
        """Starts as many workers as the config says. Raises OSError where a worker does not start."""
        for _ in range(self.loaded.config.workers):
            self.workers.append(await self._start_worker())

    def watch(self) -> None:
        """Begins to replace each worker that dies."""
        self._watching = [asyncio.create_task(self._keep(index)) for index in range(len(self.workers))]

    @property
    def url(self) -> str:
        """The address of the workers."""
        scheme = "https" if self.loaded.config.listen.tls else "http"
        return f"{scheme}://{self.command[self.command.index('--listen') + 1]}"

    @property
    def admin_url(self) -> str | None:
        """The address of the operator's port, or None without one."""
        return self.ports[0].url if self.ports else None

    @property
    def probes_url(self) -> str | None:
        """The address of the probes' port, or None without one."""
        return self.ports[1].url if len(self.ports) > 1 else None

    def signal(self, number: signal.Signals) -> None:
        """Passes a signal on to every worker. A signal that ends them also ends this process."""
        self.ending = self.ending or number is not signal.SIGHUP
        self.readers.ending = self.ending
        for worker in self.workers:
            if worker.process.returncode is None:
                worker.process.send_signal(number)

    async def wait_ended(self) -> int:
        """Waits until all workers have ended, then closes the ports. Returns the highest exit code."""
        await asyncio.gather(*self._watching)
        await self.stop()
        return max(abs(worker.process.returncode or 0) for worker in self.workers)

    async def stop(self) -> None:
        """Kills the workers that still run and closes the ports."""
        self.ending = self.readers.ending = True
        for task in self._watching:
            task.cancel()
        for worker in self.workers:
            if worker.process.returncode is None:
                worker.process.kill()
            await worker.process.wait()
            await worker.port.close()
        for port in self.ports:
            await port.close()
            await port.listener.shutdown(1.0)
        if self.reserved is not None:
            self.reserved.close()
        await asyncio.to_thread(self.log.close)

    async def ask(
        self, worker: Worker, method: str, path: str, body: JsonValue = None, role: Role = "operator"
    ) -> Page | None:
        """Returns a worker's answer to a request in the given role, or None where the worker does not answer."""
        data = dumps(body) if body is not None else b""
        token = ("authorization", f"Bearer {self.token if role == 'operator' else readers_token(self.token)}")
        reply = await worker.port.relay(UpstreamRequest("worker", method, path, (token,), data, _ANSWERS_WITHIN), None)
        if not isinstance(reply, UpstreamReply) or not isinstance(reply.body, bytes):
            return None
        kind = reply.header("content-type")
        return Page(reply.body, reply.status, kind)

    async def _start_worker(self) -> Worker:
        """Starts a process and waits until it serves. Raises OSError where it does not start."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*self.command, stdin=pipe, stdout=pipe, start_new_session=True)
        if process.stdin is None or process.stdout is None:
            raise OSError("a worker without pipes")
        process.stdin.write(f"{self.token}\n".encode())
        with suppress(TimeoutError):
            async with asyncio.timeout(STARTS_WITHIN):
                async for line in process.stdout:
                    listener, _, where = line.decode().strip().partition(" on ")
                    if listener == "admin":
                        return Worker(process, Http1Upstream(UpstreamSettings("worker", where, buffer=_LONGEST_PAGE)))
        if process.returncode is None:
            process.kill()
        raise OSError(f"a worker did not start (exit code {await process.wait()})")

    async def _keep(self, index: int) -> None:
        """Replaces the worker whenever it dies, until the pool ends."""
        while True:
            worker = self.workers[index]
            status = await worker.process.wait()
            if self.ending:
                return
            self.ended_metrics = merge_pages((), (self.ended_metrics, worker.page))[1]
            self.log.event("worker died", "error", worker=index, exit_code=status)
            while not self.ending:
                await asyncio.sleep(AGAIN_AFTER)
                try:
                    self.workers[index] = await self._start_worker()
                    await worker.port.close()
                    break
                except OSError as error:
                    self.log.event("worker does not start", "error", worker=index, reason=str(error))


def readers_token(token: str) -> str:
    """Returns the token that the supervisor sends to a worker on behalf of a reader. `token` is the one that it sends
    on behalf of the operator."""
    return f"{token}-reader"
