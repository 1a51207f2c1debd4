"""The real app on free loopback ports, for the tests: started from config text, with its log at hand."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from proxy.config.load import load
from proxy.interfaces import Clock
from proxy.plugin import ExtendsCalls
from proxy.plugins import find_plugins
from proxy.server import Serving, start_serving
from tests.serving.wire import Seen, exchange, post

# Keys by which no call is sampled, where an extension would judge it again by chance.
UNSAMPLED = {"second_judge": "off"} if any(each.always for each in find_plugins(ExtendsCalls)) else {}
WEATHER = """
  - path: /weather
    upstream: tools
    tool: weather
    schema:
      type: object
      properties: {lat: {type: number}, lon: {type: number}, note: {type: string}}
      required: [lat]
"""
FREE = """
  - {path: /free, upstream: tools, tool: free, validation: off}
"""
RELAY = """
  - {path: /relay, methods: [GET, HEAD, POST, PUT], upstream: tools, passthrough: true}
"""


@dataclass
class Proxied:
    """A running proxy. `port` is the client's, `admin` the operator's."""

    serving: Serving
    log: io.StringIO = field(repr=False)

    @property
    def port(self) -> int:
        """The client's port."""
        return urlsplit(self.serving.url).port or 0

    @property
    def admin(self) -> int:
        """The operator's port."""
        return urlsplit(self.serving.admin_url or "").port or 0

    def lines(self) -> list[dict[str, Any]]:
        """The lines of finished requests so far, parsed."""
        return [line for line in map(json.loads, self.log.getvalue().splitlines()) if "outcome" in line]

    async def post(self, path: str, body: bytes, *headers: str, content_type: str | None = "application/json") -> Seen:
        """Posts a body and gives the answer as it was on the wire."""
        return await exchange(self.port, post(path, body, *headers, content_type=content_type))

    async def get(self, path: str, *headers: str) -> Seen:
        """Gets a path of the client's port."""
        return await exchange(self.port, _get(path, *headers))

    async def ask_admin(self, path: str, *headers: str, method: str = "GET", host: str = "127.0.0.1") -> Seen:
        """Asks the admin port."""
        return await exchange(self.admin, _get(path, *headers, method=method, host=host))


def _get(path: str, *headers: str, method: str = "GET", host: str = "tools.test") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: {host}", *headers, "", ""]).encode()


def proxied(
    routes: str, upstream: str = "http://127.0.0.1:9", **keys: str
) -> contextlib.AbstractAsyncContextManager[Proxied]:
    """The app with these routes (YAML list items) in front of `upstream`; `keys` are further top-level lines."""
    return proxied_by(None, routes, upstream, **keys)


@contextlib.asynccontextmanager
async def proxied_by(clock: Clock | None, routes: str, upstream: str, **keys: str) -> AsyncIterator[Proxied]:
    """The same by a clock; None: the system's."""
    usual = {
        "upstreams": f'{{tools: {{url: "{upstream}"}}}}',
        "listen": "127.0.0.1:0",
        "admin": "{listen: 127.0.0.1:0}",
    }
    more = "\n".join(f"{name}: {value}" for name, value in (usual | keys).items())
    text = f"""
version: 1
{more}
routes:
{routes}
"""
    log = io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(text)
        serving = await start_serving(load(path, {}), clock=clock, log_to=log)
    try:
        yield Proxied(serving, log)
    finally:
        await _left(serving)
        await serving.stop(grace=0.5)


async def _left(serving: Serving) -> None:
    """Waits a moment until the proxy has heard that its clients are gone: else it gives them time for last words."""
    listener = serving.ports[0].listener
    for _ in range(10):
        if not listener.connections:
            return
        await asyncio.sleep(0.001)


def told(seen: Seen) -> dict[str, Any]:
    """The JSON body of an answer."""
    value: dict[str, Any] = json.loads(seen.body)
    return value


def code(seen: Seen) -> tuple[int, str]:
    """Status and error code of a failure of ours."""
    return seen.status, told(seen)["error"]["code"]
