"""Calls with signed tokens that run without a task: the same answers, log lines and requests to the tool as in one."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from tests.extensions.access.issuer import NOW, ROUTE, Guarded, guarded
from tests.serving.wire import Seen, exchange, post
from tests.steady import until

RULED = ROUTE.replace("/weather", "/ruled").replace("tool: weather", "tool: ruled") + (
    "    allow: [{when: {scope: a}, arguments: {properties: {lat: {maximum: 9}}}}]\n"
)
_CHANGES = re.compile(r'"(timestamp|[a-z_.]*(ms|duration|time|seconds)[a-z_]*)": ?[^,}]*|toolcall-proxy-[0-9a-f]{8}')
_IDS = re.compile(r'"[a-z_.]*(id|conversation)": ?"[^"]*"|127\.0\.0\.1:\d+')


async def ask(there: Guarded) -> list[Seen]:
    """Returns what callers get: with keys to be fetched, known, too old, refused, and where a rule decides."""
    good, scoped = there.issuer.sign(), there.issuer.sign(scope="a")
    seen = [
        await there.call(good),
        await there.call(good),
        await there.call(good, body=b'{"lat": "2"}'),
        await there.call(good, body=b'{"lat": "x"}'),
        await there.call(there.issuer.sign(exp=NOW - 99)),
        await there.call("a.b.c"),
        await there.proxy.post("/weather", b'{"lat": 1}'),
        await there.call(scoped, path="/ruled"),
        await there.call(scoped, path="/ruled", body=b'{"lat": 10}'),
        await there.call(good, path="/ruled"),
    ]
    there.clock.at += 601
    seen += [await there.call(good, "X-Request-Id: r1"), await there.call(there.issuer.sign(header={"kid": "none"}))]
    return seen


def mask(text: str) -> str:
    return _IDS.sub("", _CHANGES.sub("", text))


async def show(fast: bool) -> tuple[Any, int]:
    async with guarded(ROUTE + RULED) as there:
        there.proxy.serving.handler.fast = fast
        answers = [(each.status, each.body and mask(each.body.decode())) for each in await ask(there)]
        challenges = [each.header("www-authenticate") for each in await ask(there)]
        lines = [mask(json.dumps(line)) for line in there.proxy.lines()]
        sent = [(each.start, each.body, each.header("authorization")) for each in there.server.seen]
        return (answers, challenges, lines, sent), there.proxy.serving.handler.counted_fast


async def test_a_call_with_a_known_token_runs_without_a_task_and_shows_the_same() -> None:
    (slow, none), (fast, counted) = await show(False), await show(True)
    assert (slow, 0) == (fast, none)
    assert 200 == slow[0][0][0]
    assert 21 == counted  # all but one that has to wait for its keys


@pytest.mark.parametrize("fast", [False, True])
async def test_a_token_that_ends_or_whose_key_is_gone_does_not_count_in_the_next_call(fast: bool) -> None:
    async with guarded() as there:
        there.proxy.serving.handler.fast = fast
        short, long = there.issuer.sign(exp=NOW + 10), there.issuer.sign(exp=NOW + 9999)
        assert [200, 200, 200] == [(await there.call(each)).status for each in (short, short, long)]
        there.clock.at += 41
        assert [401, 200] == [(await there.call(each)).status for each in (short, long)]
        there.issuer.keys = there.issuer.keys[1:]
        unknown = there.issuer.sign(header={"kid": "unknown"})
        assert [401, 401] == [(await there.call(each)).status for each in (unknown, long)]


@pytest.mark.parametrize("fast", [False, True])
async def test_a_client_that_goes_away_while_keys_are_fetched_harms_nobody(fast: bool) -> None:
    async with guarded() as there:
        there.proxy.serving.handler.fast = fast
        head = f"Authorization: Bearer {there.issuer.sign()}"
        for _ in range(3):
            _, writer = await asyncio.open_connection("127.0.0.1", there.proxy.port)
            writer.write(post("/weather", b'{"lat": 1}', head))
            await writer.drain()
            writer.close()
        await until(lambda: not there.proxy.serving.handler.inflight)
        assert 200 == (await exchange(there.proxy.port, post("/weather", b'{"lat": 1}', head))).status
