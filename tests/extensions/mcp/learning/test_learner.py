"""The memory of lists and sessions: for how long, and how much of it. The clock only moves when a test moves it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from proxy.core.model.codes import UPSTREAM_UNAVAILABLE
from proxy.core.model.values import Executed, UpstreamFault, UpstreamReply
from proxy.extensions.mcp.adapters.mcplist import ToolsPage
from proxy.extensions.mcp.core.listed_tools import ListedTool
from proxy.extensions.mcp.server.lists.learner import (
    MAX_BYTES,
    MAX_KEYS,
    MAX_SESSIONS,
    NEW,
    Key,
    Known,
    Learner,
    ListRefused,
    Unlearned,
)
from tests.upstream.scripted import ScriptedUpstream, Time

JSON = (("Content-Type", "application/json"),)


@pytest.fixture
def time() -> Time:
    return Time(at=1000.0)


@pytest.fixture
def learner(time: Time) -> Learner:
    return Learner(time, time.fresh_key)


class Upstream(ScriptedUpstream):
    """An upstream as the app has it: the same only as itself."""

    __hash__ = object.__hash__
    __eq__ = object.__eq__


UPSTREAM = Upstream([], Time())


def key(credentials: str = "") -> Key:
    return Key(UPSTREAM, "/mcp", credentials)


def page(name: str = "a", ttl: float | None = None) -> ToolsPage:
    return ToolsPage((ListedTool(name),), None, ttl)


def listing(request_id: str, *names: str) -> UpstreamReply:
    result = {"tools": [{"name": name} for name in names]}
    return UpstreamReply(200, JSON, json.dumps({"jsonrpc": "2.0", "id": request_id, "result": result}).encode())


def test_a_list_is_used_for_as_long_as_the_route_says_or_its_server_says_longer(time: Time, learner: Learner) -> None:
    silent, vouched = key("a"), key("b")
    learner.keep(silent, [page()], 1)
    learner.keep(vouched, [page(ttl=600.0)], 1)
    found = []
    for _ in range(3):
        found.append((learner.find_known(silent, 300) is not None, learner.find_known(vouched, 300) is not None))
        time.at += 299.0 if len(found) == 1 else 2.0
    time.at += 400

    assert [(True, True), (True, True), (False, True)] == found
    assert learner.find_known(vouched, 300) is None
    assert learner.last(silent) is not None


def test_nothing_is_refused_by_a_list_that_is_neither_new_nor_vouched_for(time: Time, learner: Learner) -> None:
    silent = learner.keep(key("a"), [page()], 1)
    vouched = learner.keep(key("b"), [page(ttl=60.0)], 1)
    disowned = learner.keep(key("c"), [page(ttl=0.0)], 1)
    fresh = [learner.is_fresh(one) for one in (silent, vouched, disowned)]
    time.at += NEW

    assert [True, True, True] == fresh
    assert [False, True, False] == [learner.is_fresh(one) for one in (silent, vouched, disowned)]
    assert [False, False, False] == [learner.is_new(one) for one in (silent, vouched, disowned)]


def test_of_several_pages_the_shortest_promise_counts(time: Time, learner: Learner) -> None:
    known = learner.keep(key(), [page("a", 60.0), page("b")], 1)

    assert (["a", "b"], time.at) == (list(known.listing.tools), known.fresh_until)


def test_an_outdated_list_is_requested_again_but_still_better_than_none(learner: Learner) -> None:
    learner.keep(key(), [page(ttl=1e9)], 1)
    learner.mark_outdated(key(), surely=False)
    seems = learner.find_known(key(), 300)
    learner.mark_outdated(key())

    assert seems is not None  # it was new
    assert learner.find_known(key(), 300) is None
    assert learner.last(key()) is not None


def test_a_list_that_changed_for_one_credential_is_doubted_for_those_that_share_it(learner: Learner) -> None:
    for credentials in ("a", "b"):
        learner.keep(key(credentials), [page("old")], 1)
    learner.keep(key("c"), [page("other")], 1)
    learner.keep(key("a"), [page("new")], 1)

    assert [True, False, True] == [learner.find_known(key(name), 300) is not None for name in "abc"]


@pytest.mark.large
def test_equal_lists_are_kept_once_and_the_least_recently_used_go_first(learner: Learner) -> None:
    for number in range(MAX_KEYS + 10):
        learner.keep(key(str(number)), [page()], 100)
        learner.find_known(key("0"), 300)
    kept = [known for number in range(MAX_KEYS + 10) if (known := learner.last(key(str(number)))) is not None]

    assert (MAX_KEYS, 1) == (len(kept), len({id(known.listing) for known in kept}))
    assert learner.last(key("0")) is not None
    assert learner.last(key("1")) is None


def test_lists_take_no_more_memory_than_they_may(learner: Learner) -> None:
    for number in range(10):
        learner.keep(key(str(number)), [page(str(number))], MAX_BYTES // 4)

    assert ["6", "7", "8", "9"] == [str(n) for n in range(10) if learner.last(key(str(n))) is not None]


def test_sessions_are_remembered_for_each_credential_and_not_for_ever(learner: Learner) -> None:
    one, other = key("a"), key("b")
    learner.accept(one, "s")
    before = (learner.accepts(one, "s"), learner.accepts(one, ""), learner.accepts(other, "s"))
    learner.forget(one, "s")
    learner.forget(one, "never seen")
    for number in range(MAX_SESSIONS + 1):
        learner.accept(other, str(number))

    assert (True, False, False) == before
    assert not learner.accepts(one, "s")
    assert (False, True) == (learner.accepts(other, "0"), learner.accepts(other, "1"))


# --- asking -----------------------------------------------------------------------------------------------------------
async def test_those_who_ask_at_once_share_one_answer(learner: Learner) -> None:
    asked: list[str] = []

    async def ask(_cursor: str | None, request_id: str) -> UpstreamReply:
        asked.append(request_id)
        await asyncio.sleep(0)
        return listing(request_id, "a")

    found = await asyncio.gather(*[learner.learn(key(), ask, 1.0) for _ in range(5)])

    assert ["key-1"] == asked
    assert all(isinstance(one, Known) and list(one.listing.tools) == ["a"] for one in found)


async def test_a_caller_that_shares_a_refused_list_requests_it_again(learner: Learner) -> None:
    async def dead(_cursor: str | None, _request_id: str) -> UpstreamReply:
        await asyncio.sleep(0)
        return UpstreamReply(404, JSON, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32001}}')

    async def alive(_cursor: str | None, request_id: str) -> UpstreamReply:
        return listing(request_id, "a")

    first, second = await asyncio.gather(
        learner.learn(key(), dead, 1.0), learner.learn(key(), alive, 1.0)
    )  # fmt: skip

    assert isinstance(first, ListRefused)
    assert isinstance(second, Known)


async def test_a_client_that_leaves_does_not_take_the_question_with_it(learner: Learner) -> None:
    go = asyncio.Event()

    async def ask(_cursor: str | None, request_id: str) -> UpstreamReply:
        await go.wait()
        return listing(request_id, "a")

    leaver = asyncio.create_task(learner.learn(key(), ask, 5.0))
    stayer = asyncio.create_task(learner.learn(key(), ask, 5.0))
    await asyncio.sleep(0)
    leaver.cancel()
    go.set()

    assert isinstance(await stayer, Known)


async def test_a_learner_that_is_closed_asks_nobody_any_more(learner: Learner) -> None:
    async def ask(_cursor: str | None, _request_id: str) -> UpstreamReply:
        await asyncio.Event().wait()
        raise AssertionError

    asking = asyncio.create_task(learner.learn(key(), ask, 60.0))
    await asyncio.sleep(0)
    await learner.close()

    with pytest.raises(asyncio.CancelledError):
        await asking


ANSWERS: list[tuple[int, bytes, type]] = [
    (200, b"{}", Unlearned),
    (200, b"not json", Unlearned),
    (200, b'{"jsonrpc":"2.0","id":"key-1","error":{"code":-32601,"message":"no"}}', Unlearned),
    (404, b'{"jsonrpc":"2.0","id":"key-1","error":{"code":-32601,"message":"no"}}', Unlearned),
    (404, b'{"jsonrpc":"2.0","id":"key-1","error":{"code":-32001,"message":"session"}}', ListRefused),
    (404, b"<html>", ListRefused),
    (400, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no session"}}', ListRefused),
    (401, b"", ListRefused),
    (403, b"", ListRefused),
    (405, b"", Unlearned),
    (429, b"", Unlearned),
    (500, b"", Unlearned),
    (503, b"busy", Unlearned),
]


@pytest.mark.parametrize(("status", "body", "kind"), ANSWERS)
async def test_an_answer_without_a_list_means_that_there_is_none_or_that_one_is_not_welcome(
    learner: Learner, status: int, body: bytes, kind: type
) -> None:
    async def ask(_cursor: str | None, _request_id: str) -> UpstreamReply:
        return UpstreamReply(status, JSON, body)

    assert isinstance(await learner.learn(key(), ask, 1.0), kind)


async def test_an_upstream_out_of_reach_has_no_list(learner: Learner) -> None:
    async def ask(_cursor: str | None, _request_id: str) -> UpstreamFault:
        return UpstreamFault(UPSTREAM_UNAVAILABLE, "connection_refused", Executed.NO, "upstream 'tools': refused")

    found = await learner.learn(key(), ask, 1.0)

    assert Unlearned("the upstream did not list its tools: upstream 'tools': refused") == found


class Stream:
    """A body in pieces that never ends by itself."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = list(pieces)
        self.closed = False

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> bytes:
        if not self.pieces:
            await asyncio.Event().wait()
        return self.pieces.pop(0)

    async def aclose(self) -> None:
        """Notes that nobody reads on."""
        self.closed = True


async def test_a_stream_is_read_until_the_answer_is_there_and_no_further(learner: Learner) -> None:
    made: list[Stream] = []

    async def ask(_cursor: str | None, request_id: str) -> UpstreamReply:
        event: dict[str, Any] = {"jsonrpc": "2.0", "id": request_id, "result": {"tools": []}}
        ping = b'data: {"jsonrpc":"2.0","id":"' + request_id.encode() + b'","method":"ping"}\n\n'
        text = b"data: " + json.dumps(event).encode() + b"\r\n\r\n"
        made.append(Stream(b": hello\n\n", ping, text[:20], text[20:]))
        return UpstreamReply(200, (("content-type", "text/event-stream; charset=utf-8"),), made[-1])

    assert isinstance(await learner.learn(key(), ask, 1.0), Known)
    assert [True] == [stream.closed for stream in made]
