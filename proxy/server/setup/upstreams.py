"""The upstreams of a config: their connections, which a reload keeps if the settings are the same, and whether each is
ready.

    Pools             makes, keeps and closes the upstreams of the served config
    make_settings     one upstream: its address, unix socket, TLS and limits
    find_trouble      readiness: the upstream takes connections, or its health path answers (`upstreams.NAME.health`)

The probes' port asks for readiness (`/readyz/upstream/NAME`), so that a tool on loopback, which kubelet cannot reach,
has a readiness probe. A drain that ends with the tools of this machine asks too (`await_gone`). The circuit breaker and
the connection limit do not count: a busy tool is ready.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from proxy.config.files.secrets import reveal
from proxy.config.model import Config, HeaderChanges, UpstreamConfig
from proxy.core.model.values import UpstreamReply
from proxy.interfaces import GuardedUpstream, Upstream, UpstreamRequest
from proxy.plugin import SpeaksProtocol
from proxy.plugins import find_plugins
from proxy.telemetry.logs import Log
from proxy.upstream import UpstreamGuard, UpstreamSettings
from proxy.upstream.faults import close_body
from proxy.upstream.http1 import Http1Upstream, make_client_context


class UpstreamKind(Protocol):
    """Makes the upstreams that have no URL: a plugin's processes, and those that represent other upstreams."""

    def make(self, entry: UpstreamConfig, upstreams: Mapping[str, GuardedUpstream], *, is_known: bool) -> Upstream:
        """One upstream; `upstreams` are those that it may represent. `is_known`: the config before had its name."""

    def list_servers_down(self, name: str) -> dict[str, str]:
        """For an upstream of several servers, returns those out of reach: name -> why."""

    def take_leaving(self) -> set[asyncio.Task[object]]:
        """The requests under way to servers that an upstream has dropped."""


@dataclass(slots=True)
class Pools:
    """Makes upstreams with their guards, keeps them while a config names them, and closes them after their last call.
    `changed` gets the name of an upstream and the new state of its breaker."""

    now: Callable[[], float]
    changed: Callable[[str, str], None]
    log: Log
    _kind: UpstreamKind | None = None
    _made: dict[str, tuple[UpstreamConfig, UpstreamGuard]] = field(default_factory=dict)
    _last_calls: set[asyncio.Task[None]] = field(default_factory=set)
    _closing: set[asyncio.Task[None]] = field(default_factory=set)

    def of(self, config: Config) -> tuple[dict[str, UpstreamGuard], list[UpstreamGuard]]:
        """The upstreams of a config by name, and those that the config no longer has; the caller retires these."""
        before, after = self._made, dict[str, tuple[UpstreamConfig, UpstreamGuard]]()
        for name, entry in sorted(config.upstreams.items(), key=lambda item: bool(_parts(item[1]))):
            # Headers belong to the routes and the health path to the probes, not to the connections.
            same = replace(entry, headers=HeaderChanges(), health="")
            kept = before.get(name)
            as_before = all(after.get(part) is before.get(part) for part in _parts(entry))
            after[name] = kept if kept and kept[0] == same and as_before else (same, self._make(entry, after))
        self._made = after
        kept_on = {id(made[1].unguarded) for made in after.values()}
        gone = [guard for _, guard in before.values() if id(guard.unguarded) not in kept_on]
        return {name: upstream for name, (_, upstream) in after.items()}, gone

    def _make(self, entry: UpstreamConfig, made: Mapping[str, tuple[UpstreamConfig, UpstreamGuard]]) -> UpstreamGuard:
        if entry.url:
            upstream: Upstream = Http1Upstream(make_settings(entry))
        else:
            upstreams = {name: guard for name, (_, guard) in made.items()}
            plugin = next((each for each in find_plugins(SpeaksProtocol) if each.upstream_keys), None)
            if self._kind is None and plugin is not None:
                self._kind = plugin.make_upstreams(self.log)
            if self._kind is None:
                raise LookupError("no plugin makes upstreams without a URL")
            upstream = self._kind.make(entry, upstreams, is_known=entry.name in self._made)
        return UpstreamGuard(upstream, entry.name, entry.guard, self.now, self.changed)

    def find_unguarded(self, name: str) -> Upstream | None:
        """Finds an upstream without its breaker and limit, for requests that are neither a call nor a client's."""
        made = self._made.get(name)
        return made[1].unguarded if made is not None else None

    def breaker_states(self) -> dict[str, int]:
        """Upstream -> 0 closed, 1 half-open, 2 open; only upstreams with a breaker."""
        states = {name: upstream.breaker_state for name, (_, upstream) in self._made.items()}
        return {name: state for name, state in states.items() if state is not None}

    def list_servers_down(self, name: str) -> dict[str, str]:
        """The servers of a joined upstream that are out of reach: name -> why."""
        return self._kind.list_servers_down(name) if self._kind is not None and name in self._made else {}

    def retire(self, gone: Iterable[Upstream], last: frozenset[asyncio.Future[Any]]) -> None:
        """Closes upstreams once the requests in `last`, which may still use them, are over."""
        if self._kind is not None:
            last = last.union(self._kind.take_leaving())
        last_calls = _start(_await_all(last), self._last_calls)
        for upstream in gone:
            _start(_close_after(upstream, last_calls), self._closing)

    async def close(self) -> None:
        """Closes everything at once. A closing that has begun continues to its end."""
        for task in self._last_calls:
            task.cancel()
        await asyncio.gather(*self._last_calls, *self._closing, return_exceptions=True)
        for _, upstream in self._made.values():
            await upstream.close()


def _parts(entry: UpstreamConfig) -> tuple[str, ...]:
    """The upstreams that an upstream consists of; none if it has direct connections."""
    return entry.added.parts if entry.added is not None else ()


def _start(work: Coroutine[Any, Any, None], kept: set[asyncio.Task[None]]) -> asyncio.Task[None]:
    task = asyncio.create_task(work)
    kept.add(task)
    task.add_done_callback(kept.discard)
    return task


async def _await_all(last: frozenset[asyncio.Future[Any]]) -> None:
    if last:
        await asyncio.wait(last)


async def _close_after(upstream: Upstream, last_calls: asyncio.Task[None]) -> None:
    await asyncio.wait([last_calls])
    await upstream.close()


# --- one upstream -----------------------------------------------------------------------------------------------------
def make_settings(entry: UpstreamConfig) -> UpstreamSettings:
    """Makes the settings of the connections to one upstream. Reads certificates, which `load` has checked before."""
    tls = entry.tls
    certificates = () if tls is None else (Path(text) if text else None for text in (tls.ca, tls.cert, tls.key))
    return UpstreamSettings(
        entry.name,
        reveal(entry.url),
        socket=entry.socket or None,
        tls=None if tls is None else make_client_context(*certificates, verify=tls.verify),
        server_name=(tls.server_name or None) if tls is not None else None,
        connect_timeout=entry.connect_timeout,
        keepalive=entry.pool_idle,
        idle_timeout=entry.idle_timeout,
        connections=entry.pool_connections,
        buffer=entry.buffer,
    )


# --- readiness --------------------------------------------------------------------------------------------------------
# Seconds. Kubelet gives a probe 1 s by default.
_ANSWERS_WITHIN: Final = 0.9
_LOOK_EVERY: Final = 0.25
# Consecutive looks that find an upstream gone: one refused connection may only mean a full backlog.
_TIMES_GONE: Final = 3


async def find_trouble(entry: UpstreamConfig, upstream: Upstream) -> str:
    """Says why an upstream is not ready; '' if it is.

    A process of ours is always ready: its first session starts it. Joined servers are too: each is probed by its own
    name.
    """
    if not entry.url:
        return ""
    if not entry.health:
        return await _connect(entry)
    request = UpstreamRequest(entry.name, "GET", entry.health, (), b"", _ANSWERS_WITHIN)
    reply = await upstream.relay(request, None)
    if not isinstance(reply, UpstreamReply):
        return f"{entry.health} is not answered"
    await close_body(reply)
    return "" if reply.status < 400 else f"{entry.health} is answered {reply.status}"


async def _connect(entry: UpstreamConfig) -> str:
    try:
        async with asyncio.timeout(_ANSWERS_WITHIN):
            if entry.socket:
                _, writer = await asyncio.open_unix_connection(entry.socket)
            else:
                _, writer = await asyncio.open_connection(*_host_and_port(entry))
    except TimeoutError:
        return "no connection in time"
    except OSError as error:
        return f"takes no connection: {os.strerror(error.errno) if error.errno else type(error).__name__}"
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return ""


def _host_and_port(entry: UpstreamConfig) -> tuple[str, int]:
    url = urlsplit(reveal(entry.url))
    return url.hostname or "", url.port or (443 if url.scheme == "https" else 80)


def is_local(entry: UpstreamConfig) -> bool:
    """Returns whether an upstream runs on this machine, or in this pod."""
    if not entry.url:
        return False  # a process of ours ends with the proxy
    host, _ = _host_and_port(entry)
    try:
        return bool(entry.socket) or host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


async def await_gone(entries: Iterable[UpstreamConfig]) -> None:
    """Returns once no upstream of this machine takes connections any more; never returns without such an upstream."""
    local = [entry for entry in entries if is_local(entry)]
    gone = 0
    while not local or gone < _TIMES_GONE:
        await asyncio.sleep(_LOOK_EVERY)
        troubles = [await _connect(entry) for entry in local]
        gone = gone + 1 if all(troubles) else 0
