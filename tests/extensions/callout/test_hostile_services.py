"""Services that fail or mean harm: what they say counts only if it fits, in time and in size, and no call gets past the
schema of its tool."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tests.extensions.callout.service import asked, says
from tests.generated import examples
from tests.serving.proxied import code
from tests.serving.wire import JSON_TYPE, Script, Seen, answer, exchange_together, post, replies
from tests.steady import until

ALLOW = b'{"action": "allow"}'
SHORT = ", timeout: 50ms"
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


def raw(data: bytes) -> Script:
    return replies(data)


def body(text: bytes, *headers: str) -> Script:
    return replies(answer("200 OK", text, JSON_TYPE, *headers))


async def never(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter, _seen: Seen) -> None:
    """Takes a question and never answers."""
    await asyncio.Event().wait()


async def trickle(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
    """Sends the head of an answer, and its body byte by byte without end."""
    writer.write(CHUNKED)
    while not writer.transport.is_closing():
        writer.write(b"1\r\n \r\n")
        await asyncio.sleep(0.005)


async def endless(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
    """Sends blanks as fast as they are taken."""
    writer.write(CHUNKED)
    while not writer.transport.is_closing():
        writer.write(b"10000\r\n" + b" " * 65536 + b"\r\n")
        await writer.drain()
        await asyncio.sleep(0)


async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
    writer.transport.abort()


FAILING: dict[str, tuple[Script, str, str]] = {
    "silent": (never, SHORT, "timeout"),
    "trickling": (trickle, SHORT, "timeout"),
    "endless": (endless, "", "too_large"),
    "huge": (body(b'{"action": "allow"' + b" " * 70_000 + b"}"), "", "too_large"),
    "said to be huge": (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n" + b" " * 70_000), "", "too_large"),
    "cut off": (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\nConnection: close\r\n\r\n{"), SHORT, "timeout"),
    "hanging up": (hang_up, "", "unreachable"),
    "no HTTP": (raw(b"SSH-2.0-OpenSSH_9.6\r\n"), "", "unreachable"),
    "two answers": (raw(answer("200 OK", ALLOW) + answer("200 OK", ALLOW)), "", "unreachable"),
    "a redirect": (raw(answer("302 Found", ALLOW, JSON_TYPE, "Location: /allow")), "", "wrong_status"),
    "a kept redirect": (raw(answer("307 Temporary Redirect", ALLOW, "Location: http://x.test/")), "", "wrong_status"),
    "created": (raw(answer("201 Created", ALLOW, JSON_TYPE)), "", "wrong_status"),
    "no content": (raw(b"HTTP/1.1 204 No Content\r\n\r\n"), "", "wrong_status"),
    "an error": (raw(answer("500 Oops", ALLOW, JSON_TYPE)), "", "wrong_status"),
    "empty": (body(b""), "", "wrong_answer"),
    "coded": (body(gzip.compress(ALLOW), "Content-Encoding: gzip"), "", "wrong_answer"),
    "no JSON": (body(b"allow"), "", "wrong_answer"),
    "broken JSON": (body(b'{"action": "allow"'), "", "wrong_answer"),
    "two values": (body(ALLOW + ALLOW), "", "wrong_answer"),
    "a byte order mark": (body(b"\xef\xbb\xbf" + ALLOW), "", "wrong_answer"),
    "no UTF-8": (body(b'{"action": "allow\xff"}'), "", "wrong_answer"),
    "duplicate keys": (body(b'{"action": "refuse", "message": "no", "action": "allow"}'), "", "wrong_answer"),
    "deeply nested": (body(b'{"action": "replace", "arguments": %b}' % (b"[" * 20_000 + b"]" * 20_000)), "",
                      "wrong_answer"),
    "not a number": (body(b'{"action": "replace", "arguments": {"amount": NaN}}'), "", "wrong_answer"),
    "a huge number": (body(b'{"action": "replace", "arguments": {"amount": 1e999}}'), "", "wrong_answer"),
    "a list": (body(b"[" + ALLOW + b"]"), "", "wrong_answer"),
    "another case": (body(b'{"Action": "allow"}'), "", "wrong_answer"),
    "an unknown action": (body(b'{"action": "maybe"}'), "", "wrong_answer"),
    "an action of the other point": (body(b'{"action": "pass"}'), "", "wrong_answer"),
    "a member too many": (body(b'{"action": "allow", "arguments": {"amount": 1}}'), "", "wrong_answer"),
    "a refusal without a message": (body(b'{"action": "refuse"}'), "", "wrong_answer"),
    "a blank message": (body(b'{"action": "refuse", "message": " "}'), "", "wrong_answer"),
    "an endless message": (body(b'{"action": "refuse", "message": "%b"}' % (b"x" * 2001)), "", "wrong_answer"),
}  # fmt: skip


@pytest.mark.parametrize("on_failure", ["closed", "open"])
@pytest.mark.parametrize("name", FAILING)
async def test_a_service_that_fails_decides_nothing(name: str, on_failure: str) -> None:
    script, more, reason = FAILING[name]
    async with asked(script, more=f"{more}, on_failure: {on_failure}") as there:
        seen = await there.pay()
        metrics, log = await there.metrics(), there.proxy.log.getvalue()
        sent = there.sent
    assert (200 if on_failure == "open" else 503) == seen.status
    assert sent == ([b'{"amount": 5.50}'] if on_failure == "open" else [])
    assert f'outcome="{reason}"' in metrics
    failure = next(line for line in map(json.loads, log.splitlines()) if line["message"] == "Call-out failed")
    assert ("policy", "before_call", reason, on_failure) == (
        failure["callout"], failure["point"], failure["reason"], failure["on_failure"],
    )  # fmt: skip


@pytest.mark.parametrize("name", ["silent", "endless", "a redirect", "duplicate keys", "no JSON"])
async def test_a_service_that_fails_hands_no_answer_on(name: str) -> None:
    script, more, _ = FAILING[name]
    async with asked(script, more=f"{more}, at: [after_answer]") as there:
        seen = await there.pay()
    assert (503, "HOOK_FAILED") == code(seen)
    assert b"4111" not in seen.body


async def test_asks_no_more_than_so_many_questions_at_once() -> None:
    open_now, most = 0, 0
    go_on = asyncio.Event()

    async def script(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        await go_on.wait()
        open_now -= 1
        writer.write(answer("200 OK", ALLOW, JSON_TYPE))

    async with asked(script, more=", concurrency: 3, timeout: 30s") as there:
        calls = asyncio.gather(*(there.pay() for _ in range(12)))
        await until(lambda: open_now == 3)
        go_on.set()
        assert {200} == {seen.status for seen in await calls}
    assert 3 == most


async def test_a_call_that_finds_no_place_in_time_counts_as_busy() -> None:
    async with asked(never, more=", concurrency: 1, timeout: 100ms") as there:
        seen = await exchange_together(there.proxy.port, [post("/pay", b'{"amount": 1}') for _ in range(4)])
        metrics = await there.metrics()
    assert {503} == {one.status for one in seen}
    assert 'outcome="busy"' in metrics
    assert [] == there.sent


async def test_asks_again_when_an_idle_connection_ends_under_the_question() -> None:
    asked_on: list[asyncio.StreamWriter] = []

    async def script(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        """Hangs up on the second question of a connection."""
        if writer in asked_on:
            writer.transport.abort()
            return
        asked_on.append(writer)
        writer.write(answer("200 OK", ALLOW, JSON_TYPE))
        await writer.drain()

    async with asked(script) as there:
        assert [200, 200] == [(await there.pay()).status for _ in range(2)]
    assert (3, 2) == (len(there.service.seen), len(there.sent))


async def test_a_client_that_leaves_ends_the_question() -> None:
    ended = asyncio.Event()

    async def script(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter, _seen: Seen) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read()
        ended.set()

    async with asked(script, more=", timeout: 60s") as there:
        _, writer = await asyncio.open_connection("127.0.0.1", there.proxy.port)
        writer.write(post("/pay", b'{"amount": 1}'))
        await there.service.arrived.wait()
        writer.transport.abort()
        await ended.wait()
        assert [] == there.sent


# --- random answers ---------------------------------------------------------------------------------------------------
def make_value(random: Random, depth: int = 0) -> Any:
    """A JSON value of any kind."""
    leaves: list[Callable[[], Any]] = [
        lambda: None, lambda: random.choice([True, False]), lambda: random.randint(-200, 200),
        lambda: random.choice([1e308, -0.0, 100.5, 1e-9, 10**30]),
        lambda: random.choice(["", "5", "100", "1e2", "101", "\U0001f600\u0000"]),
    ]  # fmt: skip
    if depth < 3 and random.random() < 0.3:
        return [make_value(random, depth + 1) for _ in range(random.randint(0, 3))]
    if depth < 3 and random.random() < 0.6:
        names = ["amount", "to", "Amount", "amount ", "more", "__proto__", ""]
        return {random.choice(names): make_value(random, depth + 1) for _ in range(random.randint(0, 3))}
    return random.choice(leaves)()


def make_answer(random: Random) -> bytes:
    """An answer near the protocol: a decision with any members, sometimes with broken bytes."""
    action = random.choice(["replace"] * 9 + ["allow", "refuse", "pass", "mask", None])
    value: dict[str, Any] = {"action": action}
    if action == "replace" and random.random() < 0.95:
        arguments = {"amount": make_value(random, 2)} if random.random() < 0.8 else make_value(random)
        if isinstance(arguments, dict) and random.random() < 0.3:
            arguments["to"] = make_value(random, 2)
        value["arguments"] = arguments
    if action == "refuse":
        value = {"action": action, "message": make_value(random)}
    text = json.dumps(value, ensure_ascii=random.random() < 0.5).encode("utf-8", "surrogatepass")
    if random.random() < 0.1:  # a duplicate key behind what was judged
        text = text[:-1] + b', "arguments": {"amount": 1, "amount": "x"}}'
    if random.random() < 0.1:
        at = random.randrange(len(text) + 1)
        text = text[:at] + bytes(random.randrange(256) for _ in range(random.randint(0, 3))) + text[at + 1 :]
    return text


def read_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The members of an object, each of which is there once."""
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def is_valid(text: bytes) -> bool:
    """Returns True if the tool takes these arguments, decided without the code of the proxy."""
    value = json.loads(text.decode("utf-8"), object_pairs_hook=read_once)
    amount = value.get("amount") if isinstance(value, dict) else None
    if not isinstance(amount, int | float) or isinstance(amount, bool):
        return False
    return amount <= 100 and value.keys() <= {"amount", "to"} and isinstance(value.get("to", ""), str)


@pytest.mark.parametrize("on_failure", ["closed", "open"])
async def test_no_answer_of_thousands_gets_an_invalid_call_to_the_tool(on_failure: str) -> None:
    random, count = Random(58), examples(4000)
    answers: list[bytes] = []

    async def script(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        answers.append(make_answer(random))
        writer.write(answer("200 OK", answers[-1], JSON_TYPE))
        await writer.drain()

    statuses = dict[int, int]()
    async with asked(script, more=f", on_failure: {on_failure}", telemetry="{log: {level: error}}") as there:
        for _ in range(count):
            seen = await there.pay()
            statuses[seen.status] = statuses.get(seen.status, 0) + 1
        sent = there.sent
    assert count == len(answers)
    assert [] == [text for text in sent if not is_valid(text)]
    replaced = [text for text in sent if text != b'{"amount": 5.50}']
    assert len(replaced) > count / 50  # valid ones do get through
    assert {200, 403, 503} == statuses.keys()
    assert len(sent) == statuses[200]


async def test_no_random_answer_about_an_answer_shows_what_it_did_not_pass() -> None:
    random, count = Random(85), examples(1000)
    said: list[bytes] = []
    paths = ["", "/", "/card", "/log", "/log/0", "/log/0/ssn", "/log/1/ssn", "/log/9", "/paid/x", "card", "/~2"]

    async def script(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        some = [random.choice(paths) for _ in range(random.randint(0, 4))]
        value = {"action": random.choice(["mask"] * 5 + ["pass", "allow", "refuse"]), "paths": some}
        if value["action"] == "pass" and random.random() < 0.7:
            del value["paths"]
        said.append(json.dumps(value).encode())
        writer.write(answer("200 OK", said[-1], JSON_TYPE))
        await writer.drain()

    async with asked(script, more=", at: [after_answer]", telemetry="{log: {level: error}}") as there:
        for _ in range(count):
            seen = await there.pay()
            value = json.loads(said[-1])
            if seen.status != 200:
                assert b"4111" not in seen.body
                assert value != {"action": "pass"}
            elif value["action"] == "mask":
                got = json.loads(seen.body)
                for path in value["paths"]:
                    place = got
                    for step in path.split("/")[1:]:
                        place = place if place == "***" else place[int(step) if isinstance(place, list) else step]
                    assert place == "***"
            else:
                assert (value, True) == ({"action": "pass"}, b"4111" in seen.body)


async def test_random_answers_never_break_the_proxy_itself() -> None:
    random = Random(5)
    for _ in range(examples(40)):
        noise = bytes(random.randrange(256) for _ in range(random.randint(0, 400)))
        async with asked(raw(noise + b"\r\n\r\n"), more=SHORT) as there:
            assert (503, "HOOK_FAILED") == code(await there.pay())


async def test_a_service_cannot_answer_for_the_tool() -> None:
    async with asked(says({"action": "answer", "value": {"paid": True}})) as there:
        assert (503, "HOOK_FAILED") == code(await there.pay())
