"""Whether an upstream is ready: it takes connections, or its own health path answers (`upstreams.NAME.health`).

Asked by the probes' port (`/readyz/upstream/NAME`), so that a tool on loopback, which kubelet cannot reach, has a
readiness probe, and by a drain that ends with the tools of this machine. The upstream's breaker and bound have no say:
a busy tool is ready.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from proxy.config.files.secrets import reveal
from proxy.config.model import UpstreamConfig
from proxy.core.model.values import UpstreamReply
from proxy.interfaces import Upstream, UpstreamRequest
from proxy.upstream.faults import close_body

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
