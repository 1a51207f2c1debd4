"""Rates that several replicas share in a real Redis: one round trip, and local limits while it is away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis.crc import key_slot

from tests.extensions.access.rates.test_rates import OK, SCHEMA, statuses
from tests.extensions.redis.server import Server, server
from tests.serving.proxied import proxied
from tests.serving.wire import replies, tool

ROUTES = f"""
  - path: /limited
    upstream: tools
    tool: limited
    schema: {SCHEMA}
    limits: {{rate: [{{calls: 3, per: 1h}}, {{calls: 5, per: 24h, by: [tool, address]}}]}}
  - {{path: /open, upstream: tools, tool: open, schema: {SCHEMA}}}
"""


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Server]:
    with server(tmp_path) as running:
        yield running


def state(redis: Server) -> str:
    return f"{{backend: redis, url: '{redis.url}', timeouts: {{operation: 5s, connect: 2s}}}}"


async def test_replicas_share_a_rate(redis: Server) -> None:
    async with (
        tool(replies(OK)) as upstream,
        proxied(ROUTES, upstream.url, state=state(redis)) as one,
        proxied(ROUTES, upstream.url, state=state(redis)) as two,
    ):
        assert [200, 200] == await statuses(one, 2, path="/limited")
        assert [200, 429] == await statuses(two, 2, path="/limited")
        seen = await one.post("/limited", b'{"lat": 1}')

    assert (429, '"caller";q=3;w=3600') == (seen.status, seen.header("ratelimit-policy"))
    assert 1190 <= int(seen.header("retry-after") or "") <= 1200


async def test_the_keys_of_one_call_lie_in_one_slot_and_name_nobody(redis: Server) -> None:
    async with tool(replies(OK)) as upstream, proxied(ROUTES, upstream.url, state=state(redis)) as proxy:
        await statuses(proxy, 1, path="/limited")
        with redis.client() as client:
            names = [name for name in client.scan_iter() if b":r:" in name]

    assert 2 == len(names)
    assert 1 == len(set(map(key_slot, names)))
    assert not any(b"limited" in name or b"127.0.0.1" in name for name in names)


async def test_a_call_asks_for_all_its_rates_at_once_and_a_route_without_rates_does_not_ask(redis: Server) -> None:
    async with tool(replies(OK)) as upstream, proxied(ROUTES, upstream.url, state=state(redis)) as proxy:
        with redis.client() as client:
            await statuses(proxy, 1, path="/limited")
            await statuses(proxy, 1, path="/open")
            client.config_resetstat()
            await statuses(proxy, 3, path="/open")
            without = client.info("commandstats").get("cmdstat_time")
            await statuses(proxy, 2, path="/limited")
            asked = client.info("commandstats")["cmdstat_time"]["calls"]

    assert without is None
    assert 2 == asked


async def test_without_redis_each_replica_keeps_the_limit_by_itself_and_says_so_once(redis: Server) -> None:
    async with tool(replies(OK)) as upstream, proxied(ROUTES, upstream.url, state=state(redis)) as proxy:
        assert [200, 200] == await statuses(proxy, 2, path="/limited")
        redis.kill()
        assert [200, 429, 429] == await statuses(proxy, 3, path="/limited")
        said = [line for line in proxy.log.getvalue().splitlines() if "State store lost, counting locally" in line]

    assert 1 == len(said)
