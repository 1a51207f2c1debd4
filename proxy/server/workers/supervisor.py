"""Several processes behind one port (`workers`): the kernel spreads connections over them (SO_REUSEPORT).

Each worker is an ordinary proxy with an operator's port of its own on loopback, protected by a token that only the two
processes know. The process above the workers serves no call. It starts workers, replaces one that dies,
passes signals on, and answers the real operator's port with their pages: metrics are summed (`telemetry/merged.py`),
changes go to all workers, and other requests go to one.

    WorkerPool.start  opens the shared port, the workers, the operator's port
      Worker      one process; it prints the address of its operator's port on standard output
    make_pool_pages  the operator's pages, made of those of the workers
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TextIO

from proxy.config.files.secrets import reveal_again
from proxy.config.files.source import read_file
from proxy.config.load import Loaded
from proxy.config.mistakes import ConfigError
from proxy.config.model import Address
from proxy.core.json.jsontext import dumps
from proxy.core.model.values import JsonValue, UpstreamReply
from proxy.interfaces import CallRecord, Upstream, UpstreamRequest
from proxy.server.admin.event_stream import Readers
from proxy.server.admin.operator_access import OperatorAccess, Role, readers_token
from proxy.server.admin.page import Page
from proxy.server.admin.port import Admin
from proxy.server.http.checks import BadRequest
from proxy.server.http.framing import Response
from proxy.server.http.responses import answer_unrouted
from proxy.server.identity import SystemClock, make_id
from proxy.server.listener import Listener
from proxy.server.ports import Port, open_port
from proxy.server.setup.hooks import check_hooks
from proxy.server.setup.notes import tell_notes
from proxy.telemetry.logs import Log, make_log
from proxy.telemetry.merged import merge_pages
from proxy.upstream import UpstreamSettings
from proxy.upstream.http1 import Http1Upstream

# The seconds before a dead worker is started again, so that a config that ends workers does not use up a core.
AGAIN_AFTER: Final = 1.0
STARTS_WITHIN: Final = 60.0
_ANSWERS_WITHIN: Final = 10.0
_TOKEN_BYTES: Final = 32
# The longest page: far more than the metrics of many tools, or the latest calls that the operator may see.
_LONGEST_PAGE: Final = 64 * 1024 * 1024


@dataclass(slots=True)
class Worker:
    """One process. `port` is its own operator's port; `page` holds its metrics as last read."""

    process: asyncio.subprocess.Process
    port: Upstream
    page: bytes = b""


@dataclass(slots=True)
class WorkerPool:
    """Running workers and the port above them. `start` makes it; `ended` waits for the last worker. `gone` holds the
    counts of workers that died."""

    loaded: Loaded
    command: Sequence[str]
    log: Log
    token: str
    workers: list[Worker] = field(default_factory=list)
    gone: bytes = b""
    ending: bool = False
    readers: Readers = field(default_factory=Readers)
    _port: socket.socket | None = None
    _ports: list[Port] = field(default_factory=list)
    _watching: list[asyncio.Task[None]] = field(default_factory=list)

    @classmethod
    async def start(cls, loaded: Loaded, listen: Address | None = None, log_to: TextIO | None = None) -> WorkerPool:
        """Starts as many workers as the config says. Raises OSError where a port cannot be opened or no worker starts,
        ConfigError where a hook cannot be found."""
        config = loaded.config
        if mistakes := check_hooks(loaded):
            raise ConfigError(mistakes)
        log = make_log(
            log_to or sys.stderr, config.telemetry.log_format, config.telemetry.log_level, SystemClock().wall
        )
        token = secrets.token_hex(_TOKEN_BYTES)
        port, address = _reserved(listen or config.listen)
        words = ["-m", "proxy", "serve", str(loaded.files[0]), "--listen", str(address), "--worker"]
        worker_pool = cls(loaded, (sys.executable, *words), log, token, _port=port)
        try:
            for _ in range(config.workers):
                worker_pool.workers.append(await worker_pool._worker())
            await worker_pool._open_ports()
        except BaseException:
            await worker_pool.stop()
            raise
        tell_notes(log, loaded, watched=True)
        worker_pool._watching = [asyncio.create_task(worker_pool._keep(index)) for index in range(config.workers)]
        return worker_pool

    @property
    def url(self) -> str:
        """The address of the workers."""
        scheme = "https" if self.loaded.config.listen.tls else "http"
        return f"{scheme}://{self.command[self.command.index('--listen') + 1]}"

    @property
    def admin_url(self) -> str | None:
        """The address of the operator's port, or None without one."""
        return self._ports[0].url if self._ports else None

    @property
    def probes_url(self) -> str | None:
        """The address of the probes' port, or None without one."""
        return self._ports[1].url if len(self._ports) > 1 else None

    def signal(self, number: signal.Signals) -> None:
        """Passes a signal on to every worker. A signal that ends them also ends this process."""
        self.ending = self.ending or number is not signal.SIGHUP
        self.readers.ending = self.ending
        for worker in self.workers:
            if worker.process.returncode is None:
                worker.process.send_signal(number)

    async def ended(self) -> int:
        """Waits until no worker lives any more; gives the worst exit code."""
        await asyncio.gather(*self._watching)
        await self.stop()
        return max(abs(worker.process.returncode or 0) for worker in self.workers)

    async def stop(self) -> None:
        """Ends what is still running and closes the ports."""
        self.ending = self.readers.ending = True
        for task in self._watching:
            task.cancel()
        for worker in self.workers:
            if worker.process.returncode is None:
                worker.process.kill()
            await worker.process.wait()
            await worker.port.close()
        for port in self._ports:
            await port.close()
            await port.listener.shutdown(1.0)
        if self._port is not None:
            self._port.close()
        await asyncio.to_thread(self.log.close)

    async def ask(
        self, worker: Worker, method: str, path: str, body: JsonValue = None, role: Role = "operator"
    ) -> Page | None:
        """A worker's answer to an operator or a reader; None where it gives none."""
        data = dumps(body) if body is not None else b""
        token = ("authorization", f"Bearer {self.token if role == 'operator' else readers_token(self.token)}")
        reply = await worker.port.relay(UpstreamRequest("worker", method, path, (token,), data, _ANSWERS_WITHIN), None)
        if not isinstance(reply, UpstreamReply) or not isinstance(reply.body, bytes):
            return None
        kind = next((value for name, value in reply.headers if name.lower() == "content-type"), "")
        return Page(reply.body, reply.status, kind)

    async def _open_ports(self) -> None:
        from proxy.server.workers.pages import make_pool_pages

        admin = self.loaded.config.admin
        if admin is None:
            return
        reveal_now = partial(reveal_again, folder=self.loaded.files[0].parent, environ=os.environ, read=read_file)
        desk = Admin(make_pool_pages(self), OperatorAccess(admin, SystemClock().now, reveal_now))
        self._ports.append(await open_port(Listener(desk.handle, _refuse_head), admin.listen, key="admin.listen"))
        if admin.probes is not None:
            probes = Listener(desk.probe, _refuse_head)
            self._ports.append(await open_port(probes, admin.probes, key="admin.probes"))

    async def _worker(self) -> Worker:
        """Starts a process and waits until it serves. Raises OSError where it does not."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*self.command, stdin=pipe, stdout=pipe, start_new_session=True)
        if process.stdin is None or process.stdout is None:
            raise OSError("a worker without pipes")
        process.stdin.write(f"{self.token}\n".encode())
        with suppress(TimeoutError):
            async with asyncio.timeout(STARTS_WITHIN):
                async for line in process.stdout:
                    said, _, where = line.decode().strip().partition(" on ")
                    if said == "admin":
                        return Worker(process, Http1Upstream(UpstreamSettings("worker", where, buffer=_LONGEST_PAGE)))
        if process.returncode is None:
            process.kill()
        raise OSError(f"a worker did not start (exit code {await process.wait()})")

    async def _keep(self, index: int) -> None:
        """Starts the worker again whenever it dies, until the pool ends."""
        while True:
            worker = self.workers[index]
            status = await worker.process.wait()
            if self.ending:
                return
            self.gone = merge_pages((), (self.gone, worker.page))[1]
            self.log.event("worker died", "error", worker=index, exit_code=status)
            while not self.ending:
                await asyncio.sleep(AGAIN_AFTER)
                try:
                    self.workers[index] = await self._worker()
                    await worker.port.close()
                    break
                except OSError as error:
                    self.log.event("worker does not start", "error", worker=index, reason=str(error))


def _refuse_head(why: BadRequest) -> Response:
    """The response to an operator's request that is not valid HTTP."""
    return answer_unrouted(why.code, why.message, CallRecord(make_id(), ""), status=why.status)


def _reserved(listen: Address) -> tuple[socket.socket | None, Address]:
    """Finds a free port for all workers where the config says port 0. The returned socket keeps the port reserved;
    nothing listens on it. Raises OSError."""
    if listen.port:
        return None, Address(listen.host, listen.port)
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    port = socket.socket(family, socket.SOCK_STREAM)
    port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    port.bind((listen.host, 0))
    return port, Address(listen.host, port.getsockname()[1])
