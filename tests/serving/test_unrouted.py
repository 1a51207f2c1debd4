"""A request that no route takes: the operator reads its path and the nearest route, and the client neither."""

from __future__ import annotations

import json

import pytest

from proxy.telemetry.console_log import format_call
from tests.serving.proxied import RELAY, WEATHER, Proxied, proxied
from tests.serving.wire import exchange, replies, tool

NESTED = WEATHER.replace("path: /weather", "path: /tools/weather")
# Two paths that are spelled like `/trips/7`.
TRIPS = """
  - {path: /trips, upstream: tools, tool: trips, validation: off}
  - {path: "/trips/{id}", upstream: tools, tool: trip, validation: off}
"""


@pytest.mark.parametrize(
    ("line", "status", "path", "nearest"),
    [
        ("GET /weather?key=s3cret", 404, "/weather", "POST /tools/weather"),
        ("POST /tools/wether", 404, "/tools/wether", "POST /tools/weather"),
        ("POST /tools/weather/", 404, "/tools/weather/", "POST /tools/weather"),
        ("GET /tools/weather", 405, "/tools/weather", "POST /tools/weather"),
        ("GET /trips/7", 405, "/trips/7", "POST /trips/{id}"),
        ("POST /api/tools/weather", 404, "/api/tools/weather", "POST /tools/weather"),
        ("GET /favicon.ico", 404, "/favicon.ico", ""),
        ("GET /a%0Ab%1B[31m", 404, None, ""),
        ("GET /" + "x" * 900, 404, None, ""),
    ],
)
async def test_the_log_names_the_path_and_the_nearest_route(
    line: str, status: int, path: str | None, nearest: str
) -> None:
    async with tool(replies()) as server, proxied(NESTED + RELAY + TRIPS, server.url) as proxy:
        head = f"{line} HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()
        answer = await exchange(proxy.port, head)
        (logged,) = proxy.lines()
        listed = await list_calls(proxy)
    assert status == answer.status
    assert b"nearest" not in answer.body
    for entry in (logged, *listed):
        assert path is None or path == entry["url.path"]
        assert nearest == entry.get("nearest_route", "")
        assert "s3cret" not in json.dumps(entry)
        shown = format_call(entry)
        assert shown.isprintable()
        assert len(shown) < 400
        assert path is None or path in shown
        assert (f"nearest route: {nearest}" in shown) is bool(nearest)


async def list_calls(proxy: Proxied) -> list[dict[str, object]]:
    """The kept calls, as `/-/calls` lists them."""
    answer = await proxy.ask_admin("/-/calls")
    found: list[dict[str, object]] = json.loads(answer.body)["calls"]
    return found
