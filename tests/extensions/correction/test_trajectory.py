"""The memory of a conversation for layer 4: only if it is switched on, bounded, for a time, without secrets."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator, Callable

import pytest

from proxy.core.contract.policy import ToolPolicy
from proxy.core.decide import decide
from proxy.core.model.values import (
    CheckedCall,
    Conversation,
    Document,
    FeedbackLimits,
    Forward,
    Headers,
    JsonValue,
    Rung,
    ToolCall,
    UpstreamReply,
)
from proxy.extensions.correction.core.settings import TrajectoryLimits
from proxy.extensions.correction.trajectory import GatheredStream, Trajectories, Trajectory
from tests.extensions.correction.model import failed, rig, says
from tests.serving.wire import JSON_TYPE, answer, replies

LIMITS = TrajectoryLimits(steps=2, max_chars=60, conversations=2, ttl=100.0)
HIDDEN = FeedbackLimits()
JSON: Headers = (("Content-Type", "application/json"),)


class Time:
    """A clock that moves only when a test moves it."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def checked(arguments: bytes = b'{"id": 1}', key: str = "c", rung: Rung = Rung.HEADER) -> CheckedCall:
    call = ToolCall("t", Document(arguments, json.loads(arguments)), "id", Conversation(key, rung))
    decision = decide(call, ToolPolicy("t", None, ""))
    assert isinstance(decision, Forward)
    return decision.checked


def remembered(body: bytes, *, headers: Headers = JSON, status: int = 200, arguments: bytes = b"{}") -> Trajectory:
    kept, call = Trajectories(Time()), checked(arguments)
    kept.add(call, UpstreamReply(status, headers, body), "sell", LIMITS, HIDDEN)
    return kept.find(call.call.conversation)


def test_a_delivered_call_is_remembered_with_its_result_and_the_users_wish() -> None:
    found = remembered(b'{"price": 468.285}', arguments=b'{"symbol": "TSLA"}')
    assert "sell" == found.query
    assert '[{"tool":"t","arguments":{"symbol":"TSLA"},"result":{"price":468.285}}]' == found.write_json()


def test_secrets_are_not_remembered() -> None:
    found = remembered(b'{"token": "abc", "id": 2}', arguments=b'{"password": "x"}')
    assert '[{"tool":"t","arguments":{"password":"***"},"result":{"token":"***","id":2}}]' == found.write_json()
    assert '"result":"token=***"' in remembered(b"token=abcdef").write_json()


def test_long_results_are_cut() -> None:
    result = remembered(json.dumps({"text": "x" * 200}).encode()).steps[0].result
    assert ('{"text":"' + "x" * 48 + "...") == result


def test_remembers_only_short_texts() -> None:
    assert Trajectory() == remembered(b"")
    assert Trajectory() == remembered(b"x" * 70_000)
    assert Trajectory() == remembered(b'{"moved": 1}', status=302)
    assert Trajectory() == remembered(b"no gzip", headers=(*JSON, ("Content-Encoding", "gzip")))


RESULT = {"content": [{"type": "text", "text": '{"price": 7}'}]}
EVENTS: Headers = (("Content-Type", "text/event-stream"),)


def message(result: JsonValue) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode()


def as_events(result: JsonValue) -> bytes:
    progress = b'{"jsonrpc": "2.0", "method": "notifications/progress", "params": {}}'
    return b": hello\n\nevent: message\ndata: " + progress + b"\n\nid: 4\ndata: " + message(result) + b"\n\n"


@pytest.mark.parametrize("body", [message(RESULT), as_events(RESULT)], ids=["json", "events"])
@pytest.mark.parametrize("streamed", [False, True])
async def test_of_a_result_of_mcp_what_the_tool_said_is_remembered(body: bytes, streamed: bool) -> None:
    headers, said = JSON if body.startswith(b"{") else EVENTS, bytearray()
    if not streamed:
        assert {"price": 7} == remembered(body, headers=headers).steps[0].result
        return
    async for piece in GatheredStream(pieces(body[:9], body[9:]), said.extend):
        assert piece
    assert body == bytes(said)


def test_a_structured_result_and_one_of_several_parts_are_remembered_as_they_are() -> None:
    structured = {"content": [], "structuredContent": {"price": 7}}
    parts = {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    assert {"price": 7} == remembered(as_events(structured), headers=EVENTS).steps[0].result
    assert "plain words" == remembered(message({"content": [{"type": "text", "text": "plain words"}]})).steps[0].result
    kept = Trajectories(Time())
    wide = TrajectoryLimits(steps=2, max_chars=600, conversations=2, ttl=100.0)
    kept.add(checked(), UpstreamReply(200, JSON, message(parts)), "", wide, HIDDEN)
    assert parts == kept.find(Conversation("c", Rung.HEADER)).steps[0].result


@pytest.mark.parametrize("make", [message, as_events])
def test_an_error_of_the_tool_is_no_result(make: Callable[[JsonValue], bytes]) -> None:
    body = make(RESULT | {"isError": True})
    assert Trajectory() == remembered(body, headers=JSON if body.startswith(b"{") else EVENTS)


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def test_a_stream_that_its_client_leaves_with_the_last_event_has_ended() -> None:
    seen: list[bytes] = []
    stream = GatheredStream(pieces(b"all", b"never asked for"), seen.append)
    assert b"all" == await anext(stream)
    await stream.aclose()
    await stream.aclose()
    assert [b"all"] == seen


async def test_a_stream_that_is_no_short_text_is_not_gathered() -> None:
    seen: list[bytes] = []
    assert 70 == len([piece async for piece in GatheredStream(pieces(*[b"x" * 1000] * 70), seen.append)])
    assert [] == seen


def test_a_compressed_result_is_read() -> None:
    body = gzip.compress(b'{"price": 1}')
    assert '"result":{"price":1}' in remembered(body, headers=(*JSON, ("content-encoding", "gzip"))).write_json()


def test_the_last_steps_of_the_last_conversations_are_kept_for_a_time() -> None:
    time = Time()
    kept = Trajectories(time)

    def add(key: str, price: int) -> None:
        kept.add(checked(key=key), UpstreamReply(200, JSON, b"%d" % price), "", LIMITS, HIDDEN)

    def prices(key: str) -> list[object]:
        return [step.result for step in kept.find(Conversation(key, Rung.HEADER)).steps]

    for price in (1, 2, 3):
        add("a", price)
    add("b", 4)
    assert ([2, 3], [4]) == (prices("a"), prices("b"))
    add("c", 5)
    assert ([], [4], [5]) == (prices("a"), prices("b"), prices("c"))
    time.now = 99.0
    add("c", 6)
    time.now = 100.0
    assert ([], [5, 6]) == (prices("b"), prices("c"))


def test_a_conversation_that_several_users_may_share_is_not_remembered() -> None:
    kept = Trajectories(Time())
    kept.add(checked(rung=Rung.ADDRESS), UpstreamReply(200, JSON, b"1"), "sell", LIMITS, HIDDEN)
    assert Trajectory() == kept.find(Conversation("c", Rung.ADDRESS))


ROUTES = """
  - {path: /a, upstream: tools, tool: a, schema: {type: object}, correct: {semantic_retry: on, %s}}
  - {path: /b, upstream: tools, tool: b, schema: {type: object}, correct: {semantic_retry: on, %s}}
"""
GOT = answer("200 OK", b'{"price": 7}', JSON_TYPE)
NO = failed("404 Not Found", "SYMBOL_NOT_FOUND", "no such symbol", "NOT_FOUND")
STOP = {"should_retry": False}
QUERY = "query: [{header: x-ask}, {meta: wish}, {body: /said}]"


async def told(on: str, *requests: tuple[str, bytes, tuple[str, ...]]) -> str:
    """The prompt of the only question in a conversation."""
    async with rig(says(STOP), replies(GOT, NO), ROUTES % (on, on), endpoint=QUERY) as it:
        for path, body, headers in requests:
            await it.proxy.post(path, body, *headers)
    return it.prompts()[0]


async def test_the_wish_is_found_where_the_config_says() -> None:
    said = "X-Conversation-Id: c"
    for body, headers in [
        (b"{}", (said, "X-Ask: sell 100")),
        (b'{"_meta": {"wish": "sell 100"}}', (said,)),
        (b'{"params": {"_meta": {"wish": "sell 100"}}}', (said,)),
        (b'{"said": "sell 100"}', (said,)),
    ]:
        prompt = await told("trajectory: on", ("/a", b"{}", (said,)), ("/b", body, headers))
        assert "User's wish: sell 100" in prompt
        assert '"result":{"price":7}' in prompt


async def test_the_wish_of_an_earlier_call_is_remembered() -> None:
    said = "X-Conversation-Id: c"
    assert "User's wish: buy" in await told(
        "trajectory: on", ("/a", b"{}", (said, "X-Ask: buy")), ("/b", b"{}", (said,))
    )


async def test_keeps_and_shows_nothing_if_it_is_off() -> None:
    said = ("X-Conversation-Id: c", "X-Ask: sell 100")
    prompt = await told("trajectory: off", ("/a", b"{}", said), ("/b", b"{}", said))
    assert "User's wish: unknown\n\nEarlier calls and their results, oldest first:\nnone" in prompt


async def test_two_conversations_never_meet() -> None:
    prompt = await told(
        "trajectory: on", ("/a", b"{}", ("X-Conversation-Id: c",)), ("/b", b"{}", ("X-Conversation-Id: d",))
    )
    assert "oldest first:\nnone" in prompt


async def test_shows_no_calls_of_other_clients_known_only_by_their_address() -> None:
    assert "oldest first:\nnone" in await told("trajectory: on", ("/a", b"{}", ()), ("/b", b"{}", ()))
