"""Readiness of the tools behind the proxy, and drains as Kubernetes wants them."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from tests.serving.proxied import WEATHER, proxied, told
from tests.serving.wire import JSON_TYPE, Seen, answer, replies, tool
from tests.steady import pass_time, run_others, until

OK = answer("200 OK", b"{}", JSON_TYPE)


async def test_an_upstream_is_ready_while_it_takes_connections() -> None:
    async with proxied(WEATHER) as proxy:
        before = await proxy.ask_admin("/readyz/upstream/tools")
        unknown = await proxy.ask_admin("/readyz/upstream/tolls")
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy:
        listening = await proxy.ask_admin("/readyz/upstream/tools")
        own = await proxy.ask_admin("/readyz")

    assert [503, 404, 200, 200] == [seen.status for seen in (before, unknown, listening, own)]
    assert {"status": "not ready", "reason": "takes no connection: Connection refused"} == told(before)
    assert ["tools"] == told(unknown)["upstreams"]
    assert [] == server.seen, "a connection is enough"


@pytest.mark.parametrize(("status", "expected"), [("204 No Content", 200), ("302 Found", 200), ("503 Not Yet", 503)])
async def test_the_health_path_of_an_upstream_decides_its_readiness(status: str, expected: int) -> None:
    async with tool(replies(answer(status, b""))) as server:
        upstreams = f'{{tools: {{url: "{server.url}/api", health: /healthz}}}}'
        async with proxied(WEATHER, server.url, upstreams=upstreams) as proxy:
            seen = await proxy.ask_admin("/readyz/upstream/tools")

    assert expected == seen.status
    assert ["GET /api/healthz HTTP/1.1"] == [each.start for each in server.seen]


async def test_breaker_and_bound_have_no_say_in_the_readiness() -> None:
    go_on = asyncio.Event()

    async def slow(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Seen) -> None:
        if "healthz" not in seen.start:
            await go_on.wait()
        writer.write(OK)

    async with tool(slow) as server:
        upstreams = f'{{tools: {{url: "{server.url}", health: /healthz, concurrency: 1}}}}'
        async with proxied(WEATHER, server.url, upstreams=upstreams) as proxy:
            calling = asyncio.create_task(proxy.post("/weather", b'{"lat": 1}'))
            await server.arrived.wait()
            ready = await proxy.ask_admin("/readyz/upstream/tools")
            go_on.set()
            called = await calling

    assert (200, 200) == (ready.status, called.status)


async def test_a_proxy_that_stays_ready_is_ready_until_it_ends() -> None:
    async with proxied(WEATHER, drain="{serve: 60s, stay_ready: on}") as proxy:
        proxy.serving.begin_drain(0)
        ready = await proxy.ask_admin("/readyz")
        await until(lambda: proxy.serving.drained)
        still = await proxy.ask_admin("/readyz")

    assert (200, 200) == (ready.status, still.status)


async def test_a_drain_with_tools_is_over_when_the_tool_of_a_job_has_ended() -> None:
    async with contextlib.AsyncExitStack() as of_proxy, contextlib.AsyncExitStack() as of_tool:
        server = await of_tool.enter_async_context(tool(replies(OK)))
        proxy = await of_proxy.enter_async_context(proxied(WEATHER, server.url))
        draining = proxy.serving.begin_drain(3600, with_tools=True)
        served = await proxy.post("/weather", b'{"lat": 1}')
        over_before = draining.done()
        await of_tool.aclose()
        async with asyncio.timeout(300):
            await draining

    assert (200, False, True) == (served.status, over_before, proxy.serving.drained)


async def test_a_drain_with_tools_elsewhere_takes_its_time() -> None:
    async with proxied(WEATHER, "http://192.0.2.1:9") as proxy:
        draining = proxy.serving.begin_drain(3600, with_tools=True)
        pass_time(60)  # longer than it takes to find that a tool has gone
        await run_others()
        over = draining.done()

    assert over is False
