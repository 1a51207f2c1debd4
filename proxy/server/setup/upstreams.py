"""Makes the connections to one upstream from the config: its address, unix socket, TLS and limits.

The connection pools of the upstreams. A reload keeps those whose settings are the same, with their connections.

Whether an upstream is ready: it takes connections, or its own health path answers (`upstreams.NAME.health`).

Asked by the probes' port (`/readyz/upstream/NAME`), so that a tool on loopback, which kubelet cannot reach, has a
readiness probe, and by a drain that ends with the tools of this machine. The upstream's breaker and bound have no say:
a busy tool is ready.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from proxy import __version__
from proxy.config.files.secrets import reveal
from proxy.config.model import (
    Command,
    Config,
    HeaderChanges,
    JoinedServers,
    ServedOperations,
    UpstreamConfig,
    UpstreamTls,
)
from proxy.config.model import UpstreamConfig as UpstreamEntry
from proxy.core.model.values import UpstreamReply
from proxy.interfaces import GuardedUpstream, Upstream, UpstreamRequest
from proxy.upstream import UpstreamGuard, UpstreamSettings
from proxy.upstream.faults import close_body
from proxy.upstream.http1 import Http1Upstream, make_client_context

if TYPE_CHECKING:
    from proxy.upstream.joined import JoinedUpstream
    from proxy.upstream.operations_upstream import OperationsUpstream
    from proxy.upstream.stdio import StdioSettings


# What the specification's SDKs hand on to a server that they start, and what says how to write texts and times.
_INHERITED: Final = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
    "APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROCESSOR_ARCHITECTURE", "PROGRAMFILES",
    "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "USERNAME", "USERPROFILE",
)  # fmt: skip


def make_upstream(entry: UpstreamEntry, stderr: Callable[[int, str], None]) -> Upstream:
    """Makes connections, or processes; `stderr` receives what these write there. Must be called inside the event
    loop."""
    if entry.command is not None:
        from proxy.upstream.stdio import StdioUpstream

        return StdioUpstream(make_stdio_settings(entry.name, entry.command, stderr))
    return Http1Upstream(make_settings(entry))


def make_stdio_settings(name: str, command: Command, stderr: Callable[[int, str], None]) -> StdioSettings:
    """What the processes of a command are made from. They inherit the few variables that programs need to run."""
    from proxy.upstream.stdio import StdioSettings

    inherited = {key: os.environ[key] for key in _INHERITED if key in os.environ}
    return StdioSettings(
        name,
        command.words,
        {**inherited, **command.environment},
        cwd=command.cwd or None,
        max_children=command.max_children,
        idle=command.idle,
        shared=command.shared,
        stderr=stderr,
    )


def make_joined(
    name: str, entry: JoinedServers, upstreams: Mapping[str, GuardedUpstream], report: Callable[[str, str], None]
) -> JoinedUpstream:
    """Several servers as one upstream, over their own connections; `report` is told who is out of reach."""
    from proxy.upstream.joined import JoinedServer, JoinedSettings, JoinedUpstream

    servers = tuple(
        JoinedServer(
            one.name,
            one.upstream,
            one.path,
            one.prefix,
            tuple((key, reveal(value)) for key, value in one.headers.set),
            one.headers.remove,
            one.credentials,
        )
        for one in entry.servers
    )
    settings = JoinedSettings(name, servers, __version__, entry.always, entry.wait, report=report)
    return JoinedUpstream(settings, upstreams)


def make_operations(name: str, entry: ServedOperations, upstream: GuardedUpstream) -> OperationsUpstream:
    """Operations as one MCP server; `upstream` leads to the service."""
    from proxy.upstream.operations_upstream import OperationsSettings, OperationsUpstream

    return OperationsUpstream(OperationsSettings(name, entry.tools, __version__), upstream)


def make_settings(entry: UpstreamEntry) -> UpstreamSettings:
    """What every implementation of `UpstreamConfig` is made from. Reads certificates, which `load` has read before."""
    return UpstreamSettings(
        entry.name,
        reveal(entry.url),
        socket=entry.socket or None,
        tls=None if entry.tls is None else _context(entry.tls),
        server_name=(entry.tls.server_name or None) if entry.tls is not None else None,
        connect_timeout=entry.connect_timeout,
        keepalive=entry.pool_idle,
        idle_timeout=entry.idle_timeout,
        connections=entry.pool_connections,
        buffer=entry.buffer,
    )


def _context(tls: UpstreamTls) -> ssl.SSLContext:
    return make_client_context(_path(tls.ca), _path(tls.cert), _path(tls.key), verify=tls.verify)


def _path(text: str) -> Path | None:
    return Path(text) if text else None


MakeUpstream = Callable[[UpstreamEntry, Callable[[int, str], None]], Upstream]


@dataclass(slots=True)
class Pools:
    """Makes pools with their guards, keeps them while they are wanted, and closes them after their last call.

    `changed` is told the name of an upstream and the new state of its breaker; `make` makes the connections to one;
    `stderr` is told the name of an upstream that is a command, the process id, and a line that it wrote there;
    `unreachable` the name of one that is several servers, a server, and why it is out of reach ('': it answers again).
    """

    now: Callable[[], float]
    changed: Callable[[str, str], None]
    make: MakeUpstream
    stderr: Callable[[str, int, str], None]
    unreachable: Callable[[str, str, str], None] = lambda name, server, reason: None  # noqa: ARG005
    _joined: dict[str, JoinedUpstream] = field(default_factory=dict)
    _made: dict[str, tuple[UpstreamEntry, UpstreamGuard]] = field(default_factory=dict)
    _closing: set[asyncio.Task[None]] = field(default_factory=set)

    def of(self, config: Config) -> tuple[dict[str, UpstreamGuard], list[UpstreamGuard]]:
        """The upstreams of a config by name, and those that no later config knows; they are not closed yet."""
        before, after = self._made, dict[str, tuple[UpstreamEntry, UpstreamGuard]]()
        for name, entry in sorted(config.upstreams.items(), key=lambda item: bool(_parts(item[1]))):
            # Headers belong to the routes and the health path to the probes, not to the connections.
            same = replace(entry, headers=HeaderChanges(), health="")
            kept = before.get(name)
            as_before = all(after.get(part) is before.get(part) for part in _parts(entry))
            after[name] = kept if kept and kept[0] == same and as_before else (same, self._make(entry, after))
        self._made = after
        gone = [made[1] for name, made in before.items() if after.get(name) is not made]
        return {name: upstream for name, (_, upstream) in after.items()}, gone

    def _make(self, entry: UpstreamEntry, made: Mapping[str, tuple[UpstreamEntry, UpstreamGuard]]) -> UpstreamGuard:
        upstream: Upstream
        if entry.joined is not None:
            upstreams = {name: guard for name, (_, guard) in made.items()}
            joined = make_joined(entry.name, entry.joined, upstreams, partial(self.unreachable, entry.name))
            self._joined[entry.name] = joined
            upstream = joined
        elif entry.operations is not None:
            upstream = make_operations(entry.name, entry.operations, made[entry.operations.upstream][1])
        else:
            upstream = self.make(entry, partial(self.stderr, entry.name))
        return UpstreamGuard(upstream, entry.name, entry.guard, self.now, self.changed)

    def find_unguarded(self, name: str) -> Upstream | None:
        """An upstream without its breaker and bound, for what is neither a call nor a client's request."""
        made = self._made.get(name)
        return made[1].unguarded if made is not None else None

    def breaker_states(self) -> dict[str, int]:
        """Upstream -> 0 closed, 1 half-open, 2 open; of those that have a breaker."""
        states = {name: upstream.breaker_state for name, (_, upstream) in self._made.items()}
        return {name: state for name, state in states.items() if state is not None}

    def list_servers_down(self, name: str) -> dict[str, str]:
        """Of an upstream that is several servers: those that are out of reach, and why."""
        joined = self._joined.get(name)
        return dict(joined.down) if joined is not None and name in self._made else {}

    def retire(self, gone: Iterable[Upstream], last: frozenset[asyncio.Task[object]]) -> None:
        """Closes pools when the last requests that may use them are over."""
        for upstream in gone:
            task = asyncio.create_task(_close_after(upstream, last))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Closes everything at once."""
        for task in list(self._closing):
            task.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)
        for _, upstream in self._made.values():
            await upstream.close()


def _parts(entry: UpstreamEntry) -> tuple[str, ...]:
    """The upstreams that an upstream is made of; none where it has connections of its own."""
    if entry.joined is not None:
        return tuple(server.upstream for server in entry.joined.servers)
    return (entry.operations.upstream,) if entry.operations is not None else ()


async def _close_after(upstream: Upstream, last: frozenset[asyncio.Task[object]]) -> None:
    try:
        if last:
            await asyncio.wait(last)
    finally:
        await upstream.close()


# Kubelet gives a probe 1 s where nothing else is written.
_ANSWERS_WITHIN: Final = 0.9
_LOOK_EVERY: Final = 0.25
# One refused connection may be a tool's full backlog.
_TIMES_GONE: Final = 3


async def find_trouble(entry: UpstreamConfig, upstream: Upstream) -> str:
    """Why an upstream is not ready; '' where it is.

    A process of ours is ready: its first session starts it. So are joined servers: each has a name of its own.
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
    """Whether an upstream runs on this machine, or in this pod."""
    if not entry.url:
        return False  # a process of ours ends with the proxy
    host, _ = _host_and_port(entry)
    try:
        return bool(entry.socket) or host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


async def await_gone(entries: Iterable[UpstreamConfig]) -> None:
    """Returns when no upstream of this machine takes connections any more; never, where there is none."""
    local = [entry for entry in entries if is_local(entry)]
    gone = 0
    while not local or gone < _TIMES_GONE:
        await asyncio.sleep(_LOOK_EVERY)
        troubles = [await _connect(entry) for entry in local]
        gone = gone + 1 if all(troubles) else 0
