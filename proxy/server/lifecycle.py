"""A running proxy: its parts, the way it applies a changed config, and its end.

`start.py` opens the ports; `drain` and `stop` close them in the order that loses no call (docs/operations.md). First
readiness turns 503 and every answer ends its connection. New calls are still taken, because load balancers learn late.
Then new calls are answered that the proxy restarts. Only then the port is closed.
"""

from __future__ import annotations

import asyncio
import secrets
import shlex
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

from proxy.call.judging import Elsewhere
from proxy.config.model import AdminConfig as AdminEntry
from proxy.config.model import Config
from proxy.core import decide
from proxy.core.tool_errors import complaints
from proxy.interfaces import GuardedUpstream, Services
from proxy.routing import Route
from proxy.server.admin.page import Readers, make_console_data
from proxy.server.handler import Handler, Snapshot
from proxy.server.http.body import find_room
from proxy.server.http.framing import SERVER
from proxy.server.http.headers import Hop
from proxy.server.http.request_head import make_id
from proxy.server.listed_routes import ListedRoutes, Reports
from proxy.server.listener import Port, renew
from proxy.server.reload import Compiled, Reloaded, Reloader, list_served
from proxy.server.setup.added import (
    FLUSH,
    ExtensionObservers,
    ExtensionServices,
    list_unpinned,
    make_answers,
    make_tool_texts,
    make_tracer,
)
from proxy.server.setup.services import warn_of_addresses, warn_of_null
from proxy.server.setup.upstreams import Pools, await_gone
from proxy.telemetry.logs import LibraryLog, Log
from proxy.telemetry.metric_table import OTHER
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.watches import (
    NEEDS_RESTART,
    NOT_TAKEN_OVER,
    AddressWatch,
    LoopLag,
    Notices,
    NullWatch,
    UnpinnedWatch,
)

# How long calls under way may still take once the port is to be closed.
GRACE: Final = 5.0
# A client with a kept connection may be about to send a request, and one that has just connected surely is: closing
# now would lose the call. How long each has for that, in seconds.
_KEPT_WAIT: Final = 0.2
_FRESH_WAIT: Final = 2.0
# How long a connection may take to be closed.
_CLOSING: Final = 1.0
# Seconds without a call after which load balancers have learned of the end, or there are none.
_QUIET: Final = 0.5
# Writing one check takes 2 to 10 ms of the interpreter; so long it then leaves it to the calls.
PAUSE: Final = 0.02


class Warming:
    """Compiles what reads the complaints of tools, once the ports are open. With `prepare: all` it also writes the code
    of each check, in a thread with a pause after each; else the first call does (`call/judging.py`). `report_error`
    gets each defect: what was going on, and the exception."""

    def __init__(self, report_error: Callable[[str, BaseException], None]) -> None:
        self._report_error = report_error
        self.task: asyncio.Task[None] | None = None

    def begin(self, compiled: Compiled) -> None:
        """Starts to make a config ready, in place of the one before. Needs a running event loop."""
        self.end()
        routes = compiled.table.routes if compiled.loaded.config.prepare == "all" else ()
        self.task = asyncio.create_task(self._warm(routes))

    def end(self) -> None:
        """Stops writing checks."""
        if self.task is not None:
            self.task.cancel()

    async def _warm(self, routes: tuple[Route, ...]) -> None:
        try:
            # Each policy once: several routes may lead to one tool.
            policies = {id(policy): policy for route in routes for policy in route.tools.values()}
            for policy in policies.values():
                await asyncio.to_thread(decide.prepare, policy)
                await asyncio.sleep(PAUSE)
            await asyncio.to_thread(complaints.compile_dialects)
        except Exception as error:  # noqa: BLE001 - a defect of the writer, which the tool's first call meets as well
            self._report_error("warming up", error)


class Serving:
    """A running proxy; `start.py` makes it and opens its ports. `admin`: the operator's port, perhaps of its worker."""

    def __init__(
        self, compiled: Compiled, base: Services, environ: Mapping[str, str], log: Log, admin: AdminEntry | None
    ) -> None:
        self.log, self.notices = log, Notices(log, base.clock.now)
        self.metrics = Metrics(list_served(compiled), compiled.loaded.digest)
        self.console = make_console_data(admin, lambda: self.metrics.settle().requests.series, base.clock.wall)
        self.readers, self.comparing = Readers(), asyncio.Lock()
        self._added = ExtensionObservers(base.clock, base.pacing, self.metrics, log)
        self._lag = LoopLag(self.metrics.lag.observe)
        self._base, config = base, compiled.loaded.config
        self._tracer = make_tracer(config.telemetry.traces, environ, log, self.metrics, base.clock)
        self.pools = Pools(base.clock.now, self._breaker_changed, log)
        self._extending = ExtensionServices(base, log, self.metrics)
        self.unpinned = UnpinnedWatch(self._tool_unpinned)
        self.listed = ListedRoutes(base.clock, make_id, Reports(log, self.metrics, self.unpinned))
        self.nulls = NullWatch(partial(warn_of_null, log))
        self._addresses = AddressWatch(lambda: self.metrics.settle().sources, partial(warn_of_addresses, log))
        self.handler = Handler(
            self._make_snapshot(compiled, self.pools.of(config)[0]),
            (),
            # How this process signs in `Via` (RFC 9110 section 7.6.3), unlike others of its kind in the same chain.
            Hop(f"{SERVER}-{secrets.token_hex(4)}", config.trusted.networks, config.trusted.unix),
            make_id,
            log.defect,
            config.listen.hosts,
            None if self._tracer is None else self._tracer.begin,
            self.listed,
            find_room(config.workers) if config.memory is None else max(1, config.memory // config.workers),
        )
        self.reloader = Reloader(compiled, environ, self._adopt, self._note_reload, log.defect)
        self.drained = False
        self.library_log = LibraryLog(log)
        self.ports, self.operator_ports = list[Port](), list[Port]()
        self._draining: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self.warming = Warming(log.defect)
        handler, breakers = self.handler, self.pools.breaker_states
        self.metrics.watch(lambda: handler.inflight, lambda: handler.draining, breakers, lambda: log.dropped)
        self._tell_metrics(compiled)

    def begin(self, *, watch: bool) -> None:
        """Begins what runs beside the calls, once the ports are open. `watch`: takes over changed files."""
        self.warming.begin(self.reloader.served)
        self._lag.begin()
        self._addresses.begin()
        if self.console is not None:
            if self.console.counts is not None:
                self.console.counts.begin()
            self.console.changes.add_reload("started", self.reloader.served.loaded.digest, (), ())
        if watch:
            self._watching = asyncio.create_task(self.reloader.watch())

    @property
    def config(self) -> Config:
        """The config being served."""
        return self.reloader.served.loaded.config

    @property
    def url(self) -> str:
        """Returns where the proxy listens, such as http://127.0.0.1:8080."""
        return self.ports[0].url

    @property
    def admin_url(self) -> str | None:
        """Returns where the admin port listens, or None without one."""
        return self.operator_ports[0].url if self.operator_ports else None

    @property
    def probes_url(self) -> str | None:
        """Returns where the probes' port listens, or None without one."""
        return self.operator_ports[1].url if len(self.operator_ports) > 1 else None

    async def drain(self, seconds: float | None = None, *, until_quiet: bool = False) -> None:
        """Announces the end, serves for `seconds` (default: the config's), then refuses new calls and waits for calls
        under way. The process lives on. A second call waits for the first drain. `until_quiet`: stops serving as soon
        as no calls arrive, unless the config has `drain`."""
        written = self.config.written
        says = isinstance(written, dict) and "drain" in written
        until = self._await_quiet if until_quiet and not says else None
        await asyncio.shield(self.begin_drain(seconds, until=until))

    def begin_drain(
        self,
        seconds: float | None = None,
        *,
        with_tools: bool = False,
        until: Callable[[], Awaitable[None]] | None = None,
    ) -> asyncio.Task[None]:
        """Like `drain`, but does not wait for it. `with_tools`: it stops serving as soon as no upstream of this machine
        takes connections; `until`: as soon as that returns."""
        if self._draining is None:
            self.handler.draining = True
            seconds = self.config.drain if seconds is None else seconds
            self.log.event("draining", inflight=self.handler.inflight, seconds=seconds)
            if with_tools:
                until = partial(await_gone, self.config.upstreams.values())
            self._draining = asyncio.create_task(self._drain(seconds, until or partial(asyncio.sleep, seconds)))
            if self.console is not None:
                self.console.changes.add("drain")
        return self._draining

    async def _drain(self, seconds: float, until: Callable[[], Awaitable[None]]) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await until()
        self.handler.closing = True
        with suppress(TimeoutError):
            async with asyncio.timeout(self.config.finish):
                await self.handler.wait_settled()
        if self._tracer is not None:
            await self._tracer.flush(FLUSH)
        self.drained = True
        self.log.event("drained", inflight=self.handler.inflight)

    async def _await_quiet(self) -> None:
        """Returns once no call was under way or arrived for a moment."""
        before, seen = -1.0, 0.0
        while self.handler.inflight or seen != before:
            await self.handler.idle()
            before = sum(self.metrics.settle().requests.series.values(), 0.0)
            await asyncio.sleep(_QUIET)
            seen = sum(self.metrics.settle().requests.series.values(), 0.0)

    async def stop(self, grace: float = GRACE) -> None:
        """Stops accepting, waits up to `grace` seconds for calls under way, and closes everything."""
        self.handler.draining = True
        self.warming.end()
        self._lag.end()
        self._addresses.end()
        self.readers.ending = True
        if self.console is not None and self.console.counts is not None:
            self.console.counts.end()
        for task in filter(None, (self._watching, self._draining)):
            task.cancel()
        for port in self.ports:
            await port.close()
            if grace:
                await port.listener.await_requests(_KEPT_WAIT, min(_FRESH_WAIT, grace))
        try:
            async with asyncio.timeout(grace):
                await self._answer_all()
        except TimeoutError:
            await self.handler.abandon()
        for port in (*self.ports, *self.operator_ports):
            await port.close()
            await port.listener.shutdown(_CLOSING)
        await self._extending.close()
        await self.notices.settle()
        await self.listed.close()
        await self.pools.close()
        if isinstance(self._base.elsewhere, Elsewhere):
            await self._base.elsewhere.close()
        await self._base.store.close()
        if self._tracer is not None:
            await self._tracer.close(FLUSH)
        await self._added.close()
        self.library_log.detach()
        await asyncio.to_thread(self.log.close)

    async def _answer_all(self) -> None:
        """Returns when no request is under way, parsed, or waiting in a connection's buffer."""
        while True:
            for port in self.ports:
                await port.listener.await_responses()
            if not self.handler.inflight:
                return
            await self.handler.idle()

    def _tool_unpinned(self, route: str, tool: str, effect: str, change: str) -> None:
        self.metrics.unpinned.series[route, tool if self.metrics.knows(route, tool) else OTHER] += 1
        approve = self.write_approval(route, tool)
        fields = {"route": route, "tool": tool, "effect": effect, "change": change, "approve": approve}
        self.log.event("tool is not defined as pinned", "warning", **fields)

    def write_approval(self, route: str, tool: str) -> str:
        """The command that approves a tool as it is listed now."""
        config = str(self.reloader.served.loaded.files[0])
        return f"toolcall-proxy pin {shlex.quote(config)} --route {shlex.quote(route)} --only {shlex.quote(tool)}"

    def _adopt(self, compiled: Compiled) -> None:
        """Serves another config from here on. Nothing in it waits, so no request sees a half of it."""
        before, after = self.config.telemetry.log_level, compiled.loaded.config.telemetry.log_level
        upstreams, gone = self.pools.of(compiled.loaded.config)
        last = self.handler.exchange(self._make_snapshot(compiled, upstreams))
        self.pools.retire(gone, last)
        self.unpinned.forget()
        self.warming.begin(compiled)
        tls, port_tls = compiled.loaded.config.listen.tls, self.ports[0].tls if self.ports else None
        if tls is not None and port_tls is not None:
            try:
                renew(port_tls, tls)
            except OSError as error:  # ssl.SSLError is one: the files changed once more since the config was read
                reason = getattr(error, "reason", None) or error.strerror
                self.log.event("certificate not renewed", "error", reason=reason)
        self._tell_metrics(compiled)
        if before != after:  # else what the operator has set by hand stays
            self.log.level = after

    def _tell_metrics(self, compiled: Compiled) -> None:
        loaded = compiled.loaded
        added = self._added.adopt(loaded.config, compiled.table, loaded.digest)
        # An observer that is off is left out, so it costs no call anything.
        kept = () if self.console is None else (self.console.observer,)
        traced = () if self._tracer is None else (self._tracer,)
        self.handler.observers = (self.metrics, self.log, self.nulls, *kept, *added, *traced)
        self.metrics.note_config(list_served(compiled), loaded.digest, self._base.clock.wall(), loaded.files_digest)
        for unpinned in list_unpinned(loaded.config):
            self.unpinned(*unpinned)

    def _make_snapshot(self, compiled: Compiled, upstreams: Mapping[str, GuardedUpstream]) -> Snapshot:
        config = compiled.loaded.config
        services = self._extending.extend(config, replace(self._base, upstreams=upstreams))
        answers, texts = make_answers(config), make_tool_texts(config)
        return Snapshot(compiled.table, compiled.bindings, services, compiled.loaded.digest, answers, texts)

    def _breaker_changed(self, upstream: str, state: str) -> None:
        self.metrics.breaker_changes.series[upstream, state] += 1
        if self.console is not None:
            self.console.changes.add("breaker", upstream=upstream, state=state)
        self.log.event(
            "Circuit breaker changed", "info" if state == "closed" else "warning", upstream=upstream, state=state
        )

    def _note_reload(self, reloaded: Reloaded) -> None:
        self.metrics.count_reload(reloaded.result, len(reloaded.restart_needed))
        if self.console is not None and reloaded.result != "unchanged":
            self.console.changes.add_reload(reloaded.result, reloaded.digest, reloaded.mistakes, reloaded.changed)
        if reloaded.result == "failure":
            for mistake in reloaded.mistakes:
                self.log.event("config not taken over", "error", mistake=mistake, serving=reloaded.digest)
            self.notices.tell(NOT_TAKEN_OVER, "", "\n".join(("the config is not taken over:", *reloaded.mistakes)))
            return
        if self.notices.clear(NOT_TAKEN_OVER, "") and reloaded.result == "unchanged":
            self.log.event("config valid again", digest=reloaded.digest)
        if reloaded.result == "success":
            self.log.event("config taken over", digest=reloaded.digest)
            for note in reloaded.notes:
                self.log.event("config note", note=note)
            for section in reloaded.restart_needed:
                self.log.event("config needs a restart", "warning", section=section)
                self.notices.tell(NEEDS_RESTART, section, f"`{section}` of the config counts only after a restart")
