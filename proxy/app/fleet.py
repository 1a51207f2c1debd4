"""Several processes behind one port (`workers`): the kernel spreads connections over them (SO_REUSEPORT).

Each worker is an ordinary proxy with an operator's port of its own on loopback, opened by a token that only the two
know. The process above them, the fleet, serves no call. It starts them, starts them again when one dies, passes
signals on, and answers the real operator's port out of theirs: metrics are summed (`telemetry/merged.py`), what changes
something goes to all of them, what needs any of them to one.

    Fleet.start   the shared port, the workers, the operator's port
      _Worker     one process: its words on standard output say where its operator's port is
    fleet_pages   the operator's pages, made of those of the workers
"""

from __future__ import annotations

import asyncio
import secrets
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TextIO

from proxy.app.admin import Admin
from proxy.app.http1.answer import Answer
from proxy.app.identity import SystemClock, fresh_id
from proxy.app.listener import Listener
from proxy.app.middleware import check_hooks
from proxy.app.ports import Port, open_port
from proxy.app.question import Page
from proxy.app.replies import refused
from proxy.app.serving import tell_notes
from proxy.config.load import Loaded
from proxy.config.mistakes import ConfigError
from proxy.config.model import Address
from proxy.config.secrets import reveal
from proxy.core.codes import ErrorCode
from proxy.core.jsontext import dumps
from proxy.core.model import JsonValue, UpstreamReply
from proxy.interfaces import CallRecord, Upstream, UpstreamRequest
from proxy.telemetry.logs import Log, make_log
from proxy.telemetry.merged import merged
from proxy.upstream import UpstreamSettings
from proxy.upstream.http1 import Http1Upstream

# A worker that dies is started again after this long, so that a config it cannot bear costs no whole core.
AGAIN_AFTER: Final = 1.0
STARTS_WITHIN: Final = 60.0
_ANSWERS_WITHIN: Final = 10.0
_TOKEN_BYTES: Final = 32
# The metrics of many tools, and what the operator may see of the last calls: far below this.
_LONGEST_PAGE: Final = 64 * 1024 * 1024


@dataclass(slots=True)
class Worker:
    """One process. `port` is its own operator's port; `page` its metrics when they were last read."""

    process: asyncio.subprocess.Process
    port: Upstream
    page: bytes = b""


@dataclass(slots=True)
class Fleet:
    """Running workers and the port above them. Made by `start`; `ended` waits for the last of them. `gone` is what the
    workers that died have counted."""

    loaded: Loaded
    command: Sequence[str]
    log: Log
    token: str
    workers: list[Worker] = field(default_factory=list)
    gone: bytes = b""
    ending: bool = False
    _port: socket.socket | None = None
    _ports: list[Port] = field(default_factory=list)
    _watching: list[asyncio.Task[None]] = field(default_factory=list)

    @classmethod
    async def start(cls, loaded: Loaded, listen: Address | None = None, log_to: TextIO | None = None) -> Fleet:
        """Starts as many workers as the config says. Raises OSError where a port cannot be opened or none starts,
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
        fleet = cls(loaded, (sys.executable, *words), log, token, _port=port)
        try:
            for _ in range(config.workers):
                fleet.workers.append(await fleet._worker())
            await fleet._open_ports()
        except BaseException:
            await fleet.stop()
            raise
        tell_notes(log, loaded, watched=True)
        fleet._watching = [asyncio.create_task(fleet._keep(index)) for index in range(config.workers)]
        return fleet

    @property
    def url(self) -> str:
        """Where the workers listen."""
        scheme = "https" if self.loaded.config.listen.tls else "http"
        return f"{scheme}://{self.command[self.command.index('--listen') + 1]}"

    @property
    def admin_url(self) -> str | None:
        """Where the operator's port is, or None without one."""
        return self._ports[0].url if self._ports else None

    @property
    def probes_url(self) -> str | None:
        """Where the probes' port is, or None without one."""
        return self._ports[1].url if len(self._ports) > 1 else None

    def signal(self, number: signal.Signals) -> None:
        """Passes a signal on to every worker. One that ends them ends the fleet."""
        self.ending = self.ending or number is not signal.SIGHUP
        for worker in self.workers:
            if worker.process.returncode is None:
                worker.process.send_signal(number)

    async def ended(self) -> int:
        """Waits until no worker lives any more; gives the worst exit code."""
        await asyncio.gather(*self._watching)
        await self.stop()
        return max(abs(worker.process.returncode or 0) for worker in self.workers)

    async def stop(self) -> None:
        """Ends what still runs and closes the ports."""
        self.ending = True
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

    async def ask(self, worker: Worker, method: str, path: str, body: JsonValue = None) -> Page | None:
        """What a worker answers; None where it does not."""
        data = dumps(body) if body is not None else b""
        token = ("authorization", f"Bearer {self.token}")
        reply = await worker.port.relay(UpstreamRequest("worker", method, path, (token,), data, _ANSWERS_WITHIN), None)
        if not isinstance(reply, UpstreamReply) or not isinstance(reply.body, bytes):
            return None
        kind = next((value for name, value in reply.headers if name.lower() == "content-type"), "")
        return Page(reply.body, reply.status, kind)

    async def _open_ports(self) -> None:
        from proxy.app.fleetpages import fleet_pages

        admin = self.loaded.config.admin
        if admin is None:
            return
        desk = Admin(fleet_pages(self), admin.listen.host, reveal(admin.token))
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
        """Starts a worker again whenever it dies, until the fleet ends."""
        while True:
            worker = self.workers[index]
            status = await worker.process.wait()
            if self.ending:
                return
            self.gone = merged((), (self.gone, worker.page))[1]
            self.log.event("worker died", "error", worker=index, exit_code=status)
            while not self.ending:
                await asyncio.sleep(AGAIN_AFTER)
                try:
                    self.workers[index] = await self._worker()
                    await worker.port.close()
                    break
                except OSError as error:
                    self.log.event("worker does not start", "error", worker=index, reason=str(error))


def _refuse_head(code: ErrorCode, message: str, status: int | None = None) -> Answer:
    """The answer to an operator's request that is no HTTP."""
    return refused(code, message, CallRecord(fresh_id(), ""), status=status)


def _reserved(listen: Address) -> tuple[socket.socket | None, Address]:
    """Port 0 means any free one, but the same for all: it is taken here and shared. The socket is kept, not listened
    on. Raises OSError."""
    if listen.port:
        return None, Address(listen.host, listen.port)
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    port = socket.socket(family, socket.SOCK_STREAM)
    port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    port.bind((listen.host, 0))
    return port, Address(listen.host, port.getsockname()[1])
