"""The composition root: a loaded config becomes listeners, upstreams, state and telemetry, wired together.

`Serving.start` opens the ports, `drain` and `stop` close them in the order that loses no call (operations.md,
"Lifecycle"): first readiness turns 503 and every answer ends its connection, while new calls are still taken, because
load balancers learn late; then new calls are told that the proxy restarts; only then the port is closed.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final, TextIO

from proxy.app.admin import Admin
from proxy.app.correcting import Corrections
from proxy.app.handler import Handler, Snapshot
from proxy.app.headers import Hop
from proxy.app.identity import SystemClock, SystemPacing, fresh_id, fresh_pseudonym
from proxy.app.listener import Listener, patience_of
from proxy.app.mcp import Mcp, Reports
from proxy.app.middleware import hooks_of
from proxy.app.pages import pages_of
from proxy.app.pools import Pools
from proxy.app.ports import Port, open_port
from proxy.app.reload import Compiled, Reloaded, Reloader
from proxy.app.replies import NAME
from proxy.app.store import SharedStore
from proxy.app.tls import renew, server_context
from proxy.app.tracing import begin_tracing
from proxy.app.warming import Warming
from proxy.config.load import Loaded
from proxy.config.model import Address, Config, ServerTls
from proxy.config.model import Admin as AdminEntry
from proxy.config.secrets import reveal
from proxy.config.watch import warnings
from proxy.formatters import Formatters
from proxy.interfaces import Clock, GuardedUpstream, Services
from proxy.telemetry.batch import Batch
from proxy.telemetry.lag import LoopLag
from proxy.telemetry.logs import Log, make_log
from proxy.telemetry.metrics import Metrics, Served
from proxy.telemetry.recent import Recent

# How long calls under way may still take once the port is to be closed.
GRACE: Final = 5.0
# A client that has just connected is about to ask: closing its connection now would lose the call.
_LAST_WORDS: Final = 0.2
# How long a connection may take to be closed.
_CLOSING: Final = 1.0


class Serving:
    """A running proxy. Made by `start`."""

    def __init__(self, compiled: Compiled, base: Services, environ: Mapping[str, str], log: Log, hop: Hop) -> None:
        self.log = log
        self.metrics = Metrics(_tools(compiled), compiled.loaded.digest)
        self.recent = Recent(base.clock.wall)
        self._lag = LoopLag(self.metrics.lagged)
        traces = compiled.loaded.config.telemetry.traces
        self._tracing = begin_tracing(traces, environ, log, self.metrics, base.clock)
        self._base = base
        self._pools = Pools(base.clock.now, self._breaker_changed)
        self._corrections = Corrections(base, log)
        self._mcp = Mcp(base.clock, fresh_id, Reports(self.metrics.learned, self._schema_unusable))
        self.handler = Handler(
            _snapshot(compiled, self._served(compiled, self._pools.of(compiled.loaded.config)[0])),
            (Batch(self.metrics, log, self.recent, base.clock.wall), *self._tracing.observers),
            hop,
            fresh_id,
            log.defect,
            compiled.loaded.config.listen.hosts,
            self._tracing.begin,
            self._mcp,
        )
        self.reloader = Reloader(compiled, environ, self._adopt, self._reloaded, log.defect)
        self.drained = False
        self._ports: list[Port] = []
        self._draining: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self.warming = Warming(log.defect)
        self.metrics.watch(lambda: self.handler.inflight, lambda: self.handler.draining, self._pools.breaker_states)
        self.metrics.loaded(_tools(compiled), compiled.loaded.digest, base.clock.wall())

    @classmethod
    async def start(
        cls,
        loaded: Loaded,
        *,
        listen: Address | None = None,
        clock: Clock | None = None,
        log_to: TextIO | None = None,
        environ: Mapping[str, str] | None = None,
        watch: bool = False,
        worker: AdminEntry | None = None,
    ) -> Serving:
        """Opens the ports and serves. `listen` goes before the config's; port 0 takes any free one.

        `watch`: changed files are taken over while serving, with `environ` (default: the process's) for `${NAME}`.
        `worker`: this is one of several that share the port, with an operator's port of its own.
        Raises OSError where a port cannot be opened, ConfigError where a hook cannot be loaded; nothing is left open.
        """
        config, clock = loaded.config, clock or SystemClock()
        log = make_log(log_to or sys.stderr, config.telemetry.log_format, config.telemetry.log_level, clock.wall)
        formatters = Formatters.installed(log.formatter_failed)
        shared = SharedStore(log)
        hooks = hooks_of(loaded, log, clock)
        base = Services(shared.make(config.state, clock), clock, {}, SystemPacing(), formatters.lines, hooks=hooks)
        environ = os.environ if environ is None else environ
        hop = Hop(fresh_pseudonym(NAME), config.trusted.networks, config.trusted.unix)
        serving = cls(Compiled.of(loaded), base, environ, log, hop)
        serving.metrics.watch_state(lambda: shared.up)
        try:
            await base.store.open()
            await serving._open(listen or config.listen, worker or config.admin, shared=worker is not None)
        except OSError:
            await serving.stop(grace=0)
            raise
        if worker is None:  # of several, the one above them has said it
            tell_notes(log, loaded, watched=watch)
        serving.warming.begin(serving.reloader.served.table)
        serving._lag.begin()
        if watch:
            serving._watching = asyncio.create_task(serving.reloader.watch())
        return serving

    @property
    def config(self) -> Config:
        """The config being served."""
        return self.reloader.served.loaded.config

    @property
    def url(self) -> str:
        """Where the proxy listens, such as http://127.0.0.1:8080."""
        return self._ports[0].url

    @property
    def admin_url(self) -> str | None:
        """Where the admin port listens, or None without one."""
        return self._ports[1].url if len(self._ports) > 1 else None

    @property
    def probes_url(self) -> str | None:
        """Where the probes' port listens, or None without one."""
        return self._ports[2].url if len(self._ports) > 2 else None

    async def drain(self, seconds: float | None = None) -> None:
        """Announces the end and goes on serving for `seconds` (default: the config's), then refuses what is new and
        waits for what is under way. The process lives on. A second call waits for the first drain."""
        await asyncio.shield(self.begin_drain(seconds))

    def begin_drain(self, seconds: float | None = None) -> asyncio.Task[None]:
        """Like `drain`, but does not wait for it."""
        if self._draining is None:
            self.handler.draining = True
            seconds = self.config.drain if seconds is None else seconds
            self.log.event("draining", inflight=self.handler.inflight, seconds=seconds)
            self._draining = asyncio.create_task(self._drain(seconds))
        return self._draining

    async def _drain(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self.handler.closing = True
        with suppress(TimeoutError):
            async with asyncio.timeout(self.config.finish):
                await self.handler.settled()
        await self._tracing.flush()
        self.drained = True
        self.log.event("drained", inflight=self.handler.inflight)

    async def stop(self, grace: float = GRACE) -> None:
        """Stops accepting, waits up to `grace` seconds for calls under way, and closes everything."""
        self.handler.draining = True
        self.warming.end()
        self._lag.end()
        for task in filter(None, (self._watching, self._draining)):
            task.cancel()
        for port in self._ports[:1]:
            await port.close()
            if port.listener.connections and grace:
                await asyncio.sleep(_LAST_WORDS)
        try:
            async with asyncio.timeout(grace):
                await self.handler.idle()
        except TimeoutError:
            await self.handler.abandon()
        for port in self._ports:
            await port.close()
            await port.listener.shutdown(_CLOSING)
        await self._mcp.close()
        await self._pools.close()
        await self._base.store.close()
        await self._tracing.close()

    def _schema_unusable(self, route: str, tool: str, reason: str) -> None:
        self.log.event("tool schema cannot be used", "warning", route=route, tool=tool, reason=reason)

    async def _open(self, listen: Address, admin: AdminEntry | None, *, shared: bool) -> None:
        handler = self.handler
        inbound = self.config.listen
        listener = Listener(handler.handle, handler.refuse_head, patience_of(inbound))
        tls = server_context(inbound.tls) if inbound.tls is not None else None
        self._ports.append(await open_port(listener, listen, key="listen", shared=shared, tls=tls, mode=inbound.mode))
        if admin is None:
            return
        operator = Admin(pages_of(self), admin.listen.host, reveal(admin.token))
        self._ports.append(
            await open_port(Listener(operator.handle, handler.refuse_head), admin.listen, key="admin.listen")
        )
        if admin.probes is not None:
            probes = Listener(operator.probe, handler.refuse_head)
            self._ports.append(await open_port(probes, admin.probes, key="admin.probes"))

    def _adopt(self, compiled: Compiled) -> None:
        """Serves another config from here on. Nothing in it waits, so no request sees a half of it."""
        before, after = self.config.telemetry.log_level, compiled.loaded.config.telemetry.log_level
        upstreams, gone = self._pools.of(compiled.loaded.config)
        last = self.handler.exchange(_snapshot(compiled, self._served(compiled, upstreams)))
        self._pools.retire(gone, last)
        self.warming.begin(compiled.table)
        self._renew(compiled.loaded.config.listen.tls)
        self.metrics.loaded(_tools(compiled), compiled.loaded.digest, self._base.clock.wall())
        if before != after:  # else what the operator has set by hand stays
            self.log.level = after

    def _served(self, compiled: Compiled, upstreams: Mapping[str, GuardedUpstream]) -> Services:
        """What the calls of a config need of the outside world."""
        services = replace(self._base, upstreams=upstreams)
        return self._corrections.added(compiled.loaded.config.correction, services)

    def _renew(self, tls: ServerTls | None) -> None:
        """Shows the certificate that the files hold now; the port stays as it is."""
        context = self._ports[0].tls if self._ports else None
        if context is None or tls is None:
            return
        try:
            renew(context, tls)
        except OSError as error:  # ssl.SSLError is one: the files changed once more since the config was read
            self.log.event("certificate not renewed", "error", reason=getattr(error, "reason", None) or error.strerror)

    def _breaker_changed(self, upstream: str, state: str) -> None:
        self.metrics.breaker_changed(upstream, state)
        self.log.event(
            "Circuit breaker changed", "info" if state == "closed" else "warning", upstream=upstream, state=state
        )

    def _reloaded(self, reloaded: Reloaded) -> None:
        self.metrics.reloaded(reloaded.result, len(reloaded.restart_needed))
        if reloaded.result == "failure":
            for mistake in reloaded.mistakes:
                self.log.event("config not taken over", "error", mistake=mistake, serving=reloaded.digest)
        elif reloaded.result == "success":
            self.log.event("config taken over", digest=reloaded.digest)
            for section in reloaded.restart_needed:
                self.log.event("config needs a restart", "warning", section=section)


def tell_notes(log: Log, loaded: Loaded, *, watched: bool) -> None:
    """Writes down what the operator should know of a config, and of files whose changes would not be seen."""
    for note in loaded.config.notes:
        log.event("config note", note=note)
    for warning in warnings(loaded.files) if watched else ():
        log.event("config note", "warning", note=warning)


def _snapshot(compiled: Compiled, services: Services) -> Snapshot:
    return Snapshot(compiled.table, compiled.ways, services, compiled.loaded.digest)


def _tools(compiled: Compiled) -> list[Served]:
    return [
        Served(route.name, tool, route.kind, policy.mode.value, policy.schema_id)
        for route in compiled.table.routes
        for tool, policy in route.tools.items()
    ]
