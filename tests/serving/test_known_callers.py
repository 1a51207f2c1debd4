"""A call that meets no earlier failure asks the store nothing, and is answered as if it had."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from proxy.interfaces import Episode
from proxy.server.handler import Snapshot
from proxy.state.memory import MemoryStore
from tests.serving.proxied import Proxied, proxied
from tests.serving.wire import JSON_TYPE, answer, replies, tool

ROUTES = """
  - path: /by_id
    upstream: tools
    tool: by_id
    schema: &schema
      type: object
      properties: {lat: {type: number}}
      required: [lat]
  - {path: /hard, upstream: tools, tool: hard, schema: *schema, attempts: {block: hard}}
  - {path: /budget, upstream: tools, tool: budget, schema: *schema, attempts: {tool_errors: {max: 2, window: 60}}}
  - {path: /counted, upstream: tools, tool: counted, schema: *schema, attempts: {address: count}}
  - {path: /report, upstream: tools, tool: report, schema: *schema, mode: report}
"""
PATHS = ("/by_id", "/hard", "/budget", "/counted", "/report")
BODIES = (b'{"lat": 1}', b'{"lat": "3"}', b'{"lat": "north"}', b"{")
CALLERS = (
    (),
    ("X-Conversation-Id: c",),
    (f"traceparent: 00-{32 * 'a'}-{16 * 'b'}-01",),
)
ANSWERS = (
    answer("200 OK", b'{"sun": true}', JSON_TYPE),
    answer("200 OK", b'{"rain": 1}', JSON_TYPE),
    answer("400 Bad Request", b'{"error": "no such account"}', JSON_TYPE),
    answer("500 Oops", b'{"error": "down"}', JSON_TYPE),
)


class _AskedStore(MemoryStore):
    """A store that has to look up every call, and counts the lookups."""

    looks = 0

    def is_known(self, key: str) -> bool:  # noqa: ARG002 - of every key
        return True

    async def look(self, key: str, if_known: bool = False) -> Episode | None:
        self.looks += 1
        return await super().look(key, if_known)


class _CountingStore(MemoryStore):
    """The real store, which counts its lookups."""

    looks = 0

    async def look(self, key: str, if_known: bool = False) -> Episode | None:
        self.looks += 1
        return await super().look(key, if_known)


def _exchange_store(proxy: Proxied, kind: type[MemoryStore]) -> MemoryStore:
    handler = proxy.serving.handler
    snapshot: Snapshot = handler.snapshot
    store = kind(snapshot.services.clock, 1000)
    handler.exchange(replace(snapshot, services=replace(snapshot.services, store=store)))
    return store


async def _run(seed: int, kind: type[MemoryStore]) -> list[Any]:
    """Returns what clients, the tool, the log and the store see of some calls."""
    chance = Random(seed)
    refused = [("/by_id", BODIES[0], CALLERS[1])] * 4  # by the tool, before anything else has failed
    calls = [*refused, *((path, chance.choice(BODIES), chance.choice(CALLERS)) for path in PATHS for _ in range(24))]
    answers = [*([ANSWERS[2]] * 4), *(chance.choice(ANSWERS) for _ in calls)]
    async with tool(replies(*answers)) as server, proxied(ROUTES, server.url) as proxy:
        store = _exchange_store(proxy, kind)
        heard = []
        for number, (path, body, caller) in enumerate(calls):
            seen = await proxy.post(path, body, f"X-Request-Id: r{number}", *caller)
            headers = [entry for entry in seen.headers if entry[0] not in ("date", "server-timing")]
            heard.append((seen.status, headers, seen.body))
        lines = [{name: line[name] for name in line if not _is_time(name)} for line in proxy.lines()]
        reached = [(one.start, one.body) for one in server.seen]
        return [heard, lines, reached, sorted(await store.list_episodes())]


def _is_time(name: str) -> bool:
    return name in ("timestamp", "time", "span_id") or name.endswith(("_ms", "seconds", "duration"))


@pytest.mark.parametrize("seed", range(3))
async def test_calls_are_answered_logged_and_counted_as_if_the_store_were_asked_about_each(seed: int) -> None:
    asked, usual = await _run(seed, _AskedStore), await _run(seed, MemoryStore)
    assert asked == usual
    outcomes = {line["outcome"] for line in usual[1]}
    assert {"delivered", "repaired", "refused", "tool_error"} <= outcomes


async def test_a_clean_call_asks_the_store_nothing_although_others_have_failed() -> None:
    async with tool(replies(ANSWERS[0])) as server, proxied(ROUTES, server.url) as proxy:
        store = _exchange_store(proxy, _CountingStore)
        assert isinstance(store, _CountingStore)
        await proxy.post("/by_id", b"{}", "X-Conversation-Id: c")
        looks = [store.looks]
        clean = await proxy.post("/by_id", b'{"lat": 1}', "X-Conversation-Id: d")
        looks.append(store.looks)
        ends = await proxy.post("/by_id", b'{"lat": 1}', "X-Conversation-Id: c")
        looks.append(store.looks)
    assert ([0, 0, 1], None, "2/3") == (looks, clean.header("tool-attempt"), ends.header("tool-attempt"))
