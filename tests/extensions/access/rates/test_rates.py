"""Rates over real sockets: who may call how often, and the answer to a call that comes too early."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

import pytest

from tests.extensions.access.issuer import ROUTE as JWT_ROUTE
from tests.extensions.access.issuer import guarded
from tests.extensions.mcp.conversation import BOTH, feedback, text
from tests.extensions.mcp.server import McpServer, call
from tests.serving.proxied import Proxied, code, proxied_by, told
from tests.serving.test_clocks import Clocks
from tests.serving.wire import JSON_TYPE, Seen, Tool, answer, replies, tool

OK = answer("200 OK", b'{"t": 20.50}', JSON_TYPE)
BODY = b'{"lat": 59.9}'
SCHEMA = "{type: object, properties: {lat: {type: number}}, required: [lat]}"
TOKENS = {name: f"token-of-{name}-0123456789abcdef" for name in ("ann", "bob")}
HASHES = ", ".join(f"{name}: 'sha256:{sha256(token.encode()).hexdigest()}'" for name, token in TOKENS.items())
ANN, BOB = (f"Authorization: Bearer {token}" for token in TOKENS.values())


@asynccontextmanager
async def limited(
    rate: str, more: str = "", script: bytes = OK, **keys: str
) -> AsyncIterator[tuple[Proxied, Tool, Clocks]]:
    """The app on a test's clock, with one route of this `limits.rate`."""
    clock = Clocks()
    more = more and f", {more}"
    route = f"  - {{path: /weather, upstream: tools, tool: weather, schema: {SCHEMA}, limits: {{rate: {rate}}}{more}}}"
    async with tool(replies(script)) as server, proxied_by(clock, route, server.url, **keys) as proxy:
        yield proxy, server, clock


async def statuses(proxy: Proxied, number: int, *headers: str, path: str = "/weather", body: bytes = BODY) -> list[int]:
    return [(await proxy.post(path, body, *headers)).status for _ in range(number)]


async def test_a_call_that_comes_too_early_learns_when_to_come_again() -> None:
    async with limited("{calls: 5, per: 1m, burst: 2}") as (proxy, server, clock):
        assert [200, 200] == await statuses(proxy, 2)
        clock.monotonic += 0.5
        seen = await proxy.post("/weather", BODY)

        assert (429, "CALL_RATE_EXCEEDED") == code(seen)
        named = ("retry-after", "ratelimit-policy", "ratelimit", "tool-error")
        assert ("12", '"caller";q=5;w=60', '"caller";r=0;t=12', "CALL_RATE_EXCEEDED") == tuple(map(seen.header, named))
        assert (
            "Tool 'weather' was not called: the limit is 5 calls from this caller per 60 seconds, 2 of them at "
            "once.\n\nWait 12 seconds before the next call.\n\nWait, then make the same call again."
        ) == told(seen)["content"]
        assert 2 == len(server.seen)


async def test_the_retry_after_of_a_rejected_call_is_true() -> None:
    async with limited("{calls: 7, per: 100s, burst: 1}") as (proxy, _server, clock):
        await proxy.post("/weather", BODY)
        for _ in range(5):
            clock.monotonic += 3.7
            wait = (await proxy.post("/weather", BODY)).header("retry-after")
            clock.monotonic += int(wait or "")
            assert [200] == await statuses(proxy, 1)


async def test_only_calls_that_would_be_sent_are_counted() -> None:
    async with limited("{calls: 2}") as (proxy, server, _clock):
        assert [400] * 4 == await statuses(proxy, 4, "X-Conversation-Id: c", body=b'{"lat": "north"}')
        assert [200, 200, 429, 429] == await statuses(proxy, 4)
        assert 2 == len(server.seen)


async def test_a_repaired_call_is_counted_like_any_other() -> None:
    async with limited("{calls: 1}") as (proxy, server, _clock):
        assert [200, 429] == await statuses(proxy, 2, body=b'{"lat": "59.9"}')
        assert [b'{"lat":59.9}'] == [seen.body for seen in server.seen]


async def test_a_call_that_comes_too_early_is_no_attempt() -> None:
    async with limited("{calls: 1}", more="attempts: {max: 2}") as (proxy, _server, clock):
        assert [200] + [429] * 5 == await statuses(proxy, 6, "X-Conversation-Id: c")
        clock.monotonic += 60
        assert [200] == await statuses(proxy, 1, "X-Conversation-Id: c")


async def test_a_call_that_its_cap_refuses_uses_up_no_rate_and_the_other_way_round() -> None:
    async with limited("{calls: 2, per: 1m, by: tool}", more="caps: {default: 1}") as (proxy, _server, clock):
        first = [*await statuses(proxy, 3, "X-Conversation-Id: a")]
        assert [200, 400, 400] == first
        assert [200, 429] == [
            *await statuses(proxy, 1, "X-Conversation-Id: b"),
            *await statuses(proxy, 1, "X-Conversation-Id: c"),
        ]
        clock.monotonic += 60
        assert [200] == await statuses(proxy, 1, "X-Conversation-Id: c")


async def test_the_proxys_own_resends_are_not_counted() -> None:
    failing = answer("503 Service Unavailable", b"{}", JSON_TYPE)
    async with limited("{calls: 2}", more="idempotent: on, resend: {max: 2, backoff: 1ms}", script=failing) as (
        proxy,
        server,
        _clock,
    ):
        assert [503, 503, 429] == await statuses(proxy, 3)
        assert 6 == len(server.seen)


A, B = ("X-Conversation-Id: " + name for name in "ab")
HERE, THERE = (f"X-Forwarded-For: 192.0.2.{number}" for number in (1, 2))
SIX, SAME = (f"X-Forwarded-For: 2001:db8::{number}" for number in ("1", "f:2"))
ALONE, TOGETHER = [200, 429, 200, 429], [200, 429, 429, 429]


@pytest.mark.parametrize(
    ("by", "left", "right", "expected"),
    [
        ("caller", [ANN], [BOB], ALONE),
        ("[caller, conversation]", [ANN, A], [ANN, B], ALONE),
        ("conversation", [ANN, A], [BOB, A], TOGETHER),
        ("tool", [ANN], [BOB], TOGETHER),
        ("address", [ANN, HERE], [ANN, THERE], ALONE),
        ("address", [ANN, SIX], [ANN, SAME], TOGETHER),
    ],
)
async def test_calls_are_counted_by_what_the_config_says(
    by: str, left: list[str], right: list[str], expected: list[int]
) -> None:
    more, forwarded = f"auth: {{bearer: {{{HASHES}}}}}", "{trusted: [127.0.0.0/8]}"
    async with limited(f"{{calls: 1, by: {by}}}", more=more, forwarded=forwarded) as (proxy, _server, _clock):
        assert expected == [*await statuses(proxy, 2, *left), *await statuses(proxy, 2, *right)]


async def test_a_caller_is_whom_a_signed_token_names_wherever_it_comes_from() -> None:
    async with guarded(
        f"{JWT_ROUTE}    limits: {{rate: {{calls: 1}}}}\n", forwarded="{trusted: [127.0.0.0/8]}"
    ) as there:
        ada, bob = (there.issuer.sign(sub=name) for name in ("ada", "bob"))
        again = there.issuer.sign(sub="ada", iat=1)
        calls = [(ada, HERE), (again, THERE), (bob, HERE), (bob, HERE)]
        assert [200, 429, 200, 429] == [(await there.call(token, where)).status for token, where in calls]


TWO_TOOLS = """
  - path: /tools/{tool}
    upstream: tools
    limits: {rate: {calls: 3}}
"""
CATALOGUE = f"""{{
  slow: {{schema: {SCHEMA}}}, fast: {{schema: {SCHEMA}}}
}}"""


async def test_a_routes_limit_counts_its_tools_together_and_a_tools_limit_counts_one() -> None:
    catalogue = f"{{slow: {{schema: {SCHEMA}, limits: {{rate: {{calls: 1}}}}}}, fast: {{schema: {SCHEMA}}}}}"
    open_route = "  - {path: '/tools/{tool}', upstream: tools}\n  - {path: '/more/{tool}', upstream: tools}\n"
    async with tool(replies(OK)) as server:
        async with proxied_by(Clocks(), TWO_TOOLS, server.url, tools=CATALOGUE) as proxy:
            assert [200, 200] == await statuses(proxy, 2, path="/tools/slow")
            assert [200, 429] == await statuses(proxy, 2, path="/tools/fast")
        keys = {"tools": catalogue, "defaults": "{limits: {rate: {calls: 2}}}"}
        async with proxied_by(Clocks(), open_route, server.url, **keys) as proxy:
            assert [200, 429] == await statuses(proxy, 2, path="/tools/slow")
            assert [429] == await statuses(proxy, 1, path="/more/slow")
            assert [200, 200, 429] == [
                *await statuses(proxy, 1, path="/tools/fast"),
                *await statuses(proxy, 2, path="/more/fast"),
            ]


async def test_of_several_limits_the_strictest_holds_and_is_named() -> None:
    rates = "[{calls: 100, per: 1h}, {calls: 2, per: 10s}, {calls: 3, per: 1m, by: [caller, tool]}]"
    async with limited(rates) as (proxy, _server, clock):
        assert [200, 200] == await statuses(proxy, 2)
        seen = await proxy.post("/weather", BODY)
        assert ('"caller-2";q=2;w=10', "5") == (seen.header("ratelimit-policy"), seen.header("retry-after"))
        clock.monotonic += 5
        assert [200] == await statuses(proxy, 1)
        clock.monotonic += 5
        seen = await proxy.post("/weather", BODY)
        assert ('"caller-tool";q=3;w=60', "10") == (seen.header("ratelimit-policy"), seen.header("retry-after"))


async def test_a_route_without_limits_and_a_report_only_route_refuse_nothing() -> None:
    routes = f"""
  - {{path: /limited, upstream: tools, tool: limited, schema: {SCHEMA}, limits: {{rate: {{calls: 1}}}}}}
  - {{path: /open, upstream: tools, tool: open, schema: {SCHEMA}, limits: {{rate: off}}}}
  - {{path: /report, upstream: tools, tool: report, schema: {SCHEMA}, mode: report}}
"""
    async with tool(replies(OK)) as server:
        keys = {"defaults": "{limits: {rate: {calls: 1}}}"}
        async with proxied_by(Clocks(), routes, server.url, **keys) as proxy:
            assert [200, 429] == await statuses(proxy, 2, path="/limited")
            assert [200, 200] == await statuses(proxy, 2, path="/open")
            assert [200, 200] == await statuses(proxy, 2, path="/report")


# --- over MCP ---------------------------------------------------------------------------------------------------------
async def ask(proxy: Proxied, message: object) -> tuple[Seen, Any]:
    seen = await proxy.post("/mcp", json.dumps(message).encode(), BOTH)
    return seen, json.loads(seen.body)


async def test_over_mcp_a_call_that_comes_too_early_is_a_tools_result() -> None:
    rules = "mcp: {tools: {now: {limits: {rate: {calls: 1, per: 10s}}}}}"
    route = f"  - {{path: /mcp, upstream: tools, protocol: mcp, limits: {{rate: {{calls: 2}}}}, {rules}}}"
    async with tool(McpServer()) as server, proxied_by(Clocks(), route, server.url) as proxy:
        sums = [await ask(proxy, call("add", {"a": 1, "b": 2})) for _ in range(3)]
        nows = [await ask(proxy, call("now", {})) for _ in range(2)]

    assert [False, False, True] == [found["result"].get("isError", False) for _, found in sums]
    assert [False, True] == [found["result"].get("isError", False) for _, found in nows]
    seen, found = nows[-1]
    assert (200, "10", "CALL_RATE_EXCEEDED") == (seen.status, seen.header("retry-after"), feedback(found)["code"])
    assert (
        "Tool 'now' was not called: the limit is 1 call from this caller per 10 seconds.\n\n"
        "Wait 10 seconds before the next call.\n\n"
        "Wait, then make the same call again."
    ) == text(found)
