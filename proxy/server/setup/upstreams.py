"""Makes the connections to one upstream from the config: its address, unix socket, TLS and limits."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from proxy import __version__
from proxy.config.files.secrets import reveal
from proxy.config.model import Command, JoinedServers, ServedOperations, UpstreamTls
from proxy.config.model import UpstreamConfig as UpstreamEntry
from proxy.interfaces import GuardedUpstream, Upstream
from proxy.upstream import UpstreamSettings
from proxy.upstream.http1 import Http1Upstream, make_client_context

if TYPE_CHECKING:
    from proxy.upstream.joined import JoinedUpstream
    from proxy.upstream.operations import OperationsUpstream
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
    from proxy.upstream.operations import OperationsSettings, OperationsUpstream

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
