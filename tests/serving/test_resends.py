"""Failing upstreams over real sockets: killed and restarted, full, broken; who is called twice, and who never."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from tests.ports import hold_port
from tests.serving.proxied import WEATHER, code, proxied, proxied_by, told
from tests.serving.wire import JSON_TYPE, Script, Seen, answer, post, read_message, replies, tool
from tests.steady import LoopClock, pass_time, until

OK = answer("200 OK", b'{"t": 20.50}', JSON_TYPE)
BOOM = answer("500 Internal Server Error", b"boom")
QUICK = "resend: {max: 2, backoff: 1ms, max_backoff: 1ms}"


def route(*keys: str) -> str:
    schema = "{type: object, properties: {id: {type: integer}, lat: {type: number}}}"
    return f"  - {{path: /call, upstream: tools, tool: call, schema: {schema}, {', '.join(keys or (QUICK,))}}}\n"


def upstreams(url: str, *keys: str) -> str:
    return f'{{tools: {{url: "{url}", {", ".join(keys)}}}}}'


def in_turn(*scripts: bytes | None) -> Script:
    """A script that writes each answer in turn, the last one for ever; None breaks the connection off."""
    left = list(scripts)

    async def script(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        now = left.pop(0) if len(left) > 1 else left[0]
        if now is None:
            raise ConnectionResetError
        writer.write(now)
        await writer.drain()

    return script


# --- an upstream that is killed and restarted -------------------------------------------------------------------------
@dataclass
class Mortal:
    """A tool that counts how often each call ran, can be killed at any moment and started again at the same port."""

    port: int = field(default_factory=hold_port)
    ran: Counter[int] = field(default_factory=Counter)
    server: asyncio.Server | None = None
    writers: set[asyncio.StreamWriter] = field(default_factory=set)
    under_way: int = 0
    answered: int = 0  # since it was started last
    is_dying: bool = False  # from here on a call that has run is not answered

    async def start(self) -> None:
        self.answered, self.is_dying = 0, False
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", self.port)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.add(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                self.ran[json.loads(await reader.readexactly(length))["id"]] += 1
                self.under_way += 1
                await asyncio.sleep(0.002)
                self.under_way -= 1
                if self.is_dying:
                    break
                self.answered += 1
                writer.write(OK)
                await writer.drain()
        self.writers.discard(writer)
        writer.close()

    async def kill(self) -> None:
        assert self.server is not None
        self.is_dying = True
        for listening in self.server.sockets:
            asyncio.get_running_loop().remove_reader(listening.fileno())
        for _ in range(3):  # CPython 3.11 leaks what is accepted while the server closes: that gets its writer first
            await asyncio.sleep(0)
        self.server.close()
        for writer in list(self.writers):
            writer.transport.abort()
        await asyncio.sleep(0)


# A machine under load may need most of a life's 50 ms for a single call. No call would then succeed in ten sends. So a
# life lasts until it has answered a tenth of the calls.
_ANSWERS_A_LIFE = 20


@contextlib.asynccontextmanager
async def dying(mortal: Mortal) -> AsyncIterator[None]:
    """Kills the tool and starts it again, over and over, while the block runs."""

    async def fate() -> None:
        while True:
            await asyncio.sleep(0.05)
            await until(lambda: mortal.under_way and mortal.answered >= _ANSWERS_A_LIFE)
            await mortal.kill()
            await asyncio.sleep(0.03)
            await mortal.start()

    await mortal.start()
    task = asyncio.create_task(fate())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await mortal.kill()


async def under_load(mortal: Mortal, *keys: str) -> dict[int, Seen]:
    """200 calls, 10 at a time, while the tool dies and lives; gives the answer to each."""
    numbers = iter(range(200))
    answers: dict[int, Seen] = {}
    guarded = upstreams(f"http://127.0.0.1:{mortal.port}", "resend_budget: {percent: 1000, per_second: 1000}")

    async with dying(mortal), proxied(route(*keys), upstreams=guarded) as proxy:

        async def client() -> None:
            for number in numbers:
                answers[number] = await proxy.post("/call", json.dumps({"id": number}).encode())

        await asyncio.gather(*(client() for _ in range(10)))
    return answers


async def test_while_an_upstream_dies_and_lives_each_call_is_answered_and_none_runs_twice() -> None:
    mortal = Mortal()
    answers = await under_load(mortal, "resend: {max: 10, backoff: 10ms, max_backoff: 50ms}")

    assert 200 == len(answers)
    assert 1 == max(mortal.ran.values())
    failed = {number: told(seen)["error"] for number, seen in answers.items() if seen.status != 200}
    assert failed, "no call was under way when the tool died: the test shows nothing"
    assert all(mortal.ran[number] == 1 for number in answers if number not in failed)
    for number, error in failed.items():
        assert error["details"]["executed"] in ("no", "unknown")
        if error["details"]["executed"] == "no":
            assert 0 == mortal.ran[number]


async def test_resends_to_an_idempotent_tool_that_dies_and_lives_until_it_answers() -> None:
    mortal = Mortal()
    answers = await under_load(mortal, "idempotent: on", "resend: {max: 10, backoff: 20ms, max_backoff: 50ms}")

    assert [] == [seen.body for seen in answers.values() if seen.status != 200]
    assert set(range(200)) == set(mortal.ran)
    assert max(mortal.ran.values()) > 1, "no call was under way when the tool died: the test shows nothing"


# --- one call ---------------------------------------------------------------------------------------------------------
async def test_a_call_to_a_tool_that_is_just_starting_is_answered() -> None:
    mortal = Mortal()

    async def later() -> None:
        await asyncio.sleep(0.1)
        await mortal.start()

    async with proxied(route("resend: {max: 10, backoff: 50ms}"), f"http://127.0.0.1:{mortal.port}") as proxy:
        _, seen = await asyncio.gather(later(), proxy.post("/call", b'{"id": 1}'))
        line = proxy.lines()[0]
        metrics = (await proxy.ask_admin("/metrics")).body.decode()
    await mortal.kill()

    assert (200, {1: 1}) == (seen.status, mortal.ran)
    assert (line["http.request.resend_count"] >= 1, "unsent") == (True, line["resend.reason"])
    count = line["http.request.resend_count"]
    assert f'toolproxy_upstream_resends_total{{reason="unsent",upstream="tools"}} {count}.0' in metrics


async def test_a_call_that_may_have_run_is_not_sent_again() -> None:
    async with tool(in_turn(None, OK)) as server, proxied(route(), server.url) as proxy:
        seen = await proxy.post("/call", b"{}")

    assert (502, "UPSTREAM_BAD_ANSWER") == code(seen)
    assert ("unknown", 1) == (told(seen)["error"]["details"]["executed"], len(server.seen))


@pytest.mark.parametrize("first", [None, BOOM], ids=["reset", "500"])
async def test_resends_a_call_to_an_idempotent_tool(first: bytes | None) -> None:
    async with tool(in_turn(first, OK)) as server, proxied(route(QUICK, "idempotent: on"), server.url) as proxy:
        seen = await proxy.post("/call", b'{"lat": 1.50}')

    assert (200, [b'{"lat": 1.50}'] * 2) == (seen.status, [one.body for one in server.seen])


async def test_a_minted_key_lets_the_tool_recognise_the_call() -> None:
    keys = route(QUICK, "idempotency: {mint: on}")
    async with tool(in_turn(None, OK)) as server, proxied(keys, server.url) as proxy:
        seen = await proxy.post("/call", b"{}")
        await proxy.post("/call", b"{}", "Idempotency-Key: own")

    first, second, third = (one.header("idempotency-key") for one in server.seen)
    assert (200, True, "own") == (seen.status, first == second and bool(first), third)


async def test_without_a_word_on_keys_the_clients_key_is_handed_on_and_means_nothing() -> None:
    async with tool(in_turn(None, OK)) as server, proxied(route(), server.url) as proxy:
        seen = await proxy.post("/call", b"{}", "Idempotency-Key: own")

    assert (502, ["own"]) == (seen.status, [one.header("idempotency-key") for one in server.seen])


@pytest.mark.large
@pytest.mark.parametrize("status", ["503 Service Unavailable", "429 Too Many Requests"])
async def test_waits_for_a_retry_after_if_the_route_opts_in(status: str) -> None:
    busy = answer(status, b"", "Retry-After: 1")
    opted = route("resend: {on_retry_after: on, backoff: 1ms}")
    async with (
        tool(in_turn(busy, OK)) as server,
        tool(in_turn(busy, OK)) as other,
        proxied(opted, server.url) as proxy,
        proxied(route(), other.url) as plain,
    ):
        began = asyncio.get_running_loop().time()
        seen = await proxy.post("/call", b"{}")
        took = asyncio.get_running_loop().time() - began
        refused = await plain.post("/call", b"{}")

    assert (200, 2, True) == (seen.status, len(server.seen), took >= 1.0)
    assert (int(status[:3]), "1", 1) == (refused.status, refused.header("retry-after"), len(other.seen))


async def test_an_exhausted_budget_leaves_the_last_answer() -> None:
    async with (
        tool(replies(BOOM)) as server,
        proxied(
            route("idempotent: on", "resend: {max: 1, backoff: 1ms}"),
            upstreams=upstreams(server.url, "resend_budget: {percent: 50, per_second: 0}"),
        ) as proxy,
    ):
        seen = [await proxy.post("/call", b"{}") for _ in range(6)]
        metrics = (await proxy.ask_admin("/metrics")).body.decode()

    assert {500} == {one.status for one in seen}
    assert 6 + 3 == len(server.seen)
    assert 'toolproxy_upstream_resends_denied_total{upstream="tools",why="budget"} 3.0' in metrics


# --- breaker and bound ------------------------------------------------------------------------------------------------
async def test_a_breaker_opens_and_heals() -> None:
    breaker = "breaker: {failures: 2, open: 200s}"
    async with (
        tool(in_turn(BOOM, BOOM, OK)) as server,
        proxied_by(LoopClock(), route(), server.url, upstreams=upstreams(server.url, breaker)) as proxy,
    ):
        failed = [await proxy.post("/call", b"{}") for _ in range(2)]
        shut = await proxy.post("/call", b"{}")
        opened = (await proxy.ask_admin("/metrics")).body.decode()
        pass_time(250)
        healed = await proxy.post("/call", b"{}")
        closed = (await proxy.ask_admin("/metrics")).body.decode()

    assert [500, 500, 503, 200] == [seen.status for seen in (*failed, shut, healed)]
    assert (503, "CIRCUIT_OPEN") == code(shut)
    assert (True, "no", 3) == (
        190 <= int(shut.header("retry-after") or 0) <= 200,  # what is left of the 200 s
        told(shut)["error"]["details"]["executed"],
        len(server.seen),
    )
    assert "toolcall-proxy; error=destination_unavailable" == shut.header("proxy-status")
    assert 'toolproxy_upstream_breaker_state{upstream="tools"} 2.0' in opened
    assert 'toolproxy_upstream_breaker_state{upstream="tools"} 0.0' in closed
    states = ("open", "half_open", "closed")
    assert [] == [
        state
        for state in states
        if f'toolproxy_upstream_breaker_changes_total{{state="{state}",upstream="tools"}} 1.0' not in closed
    ]
    lines = [json.loads(line) for line in proxy.log.getvalue().splitlines() if "Circuit breaker changed" in line]
    assert [("warning", "open"), ("warning", "half_open"), ("info", "closed")] == [
        (line["level"], line["state"]) for line in lines
    ]


async def test_more_calls_than_the_upstream_may_get_wait_and_then_are_refused() -> None:
    gate = asyncio.Event()

    async def slow(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        await gate.wait()
        writer.write(OK)
        await writer.drain()

    bound = "concurrency: {limit: 1, wait: 5s, queue: 1}"
    async with tool(slow) as server, proxied(route(), upstreams=upstreams(server.url, bound)) as proxy:
        first = asyncio.create_task(proxy.post("/call", b"{}"))
        await server.arrived.wait()
        others = [asyncio.create_task(proxy.post("/call", b"{}")) for _ in range(2)]
        done, waiting = await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
        gate.set()
        answered = [await first, await waiting.pop()]
        refused = await done.pop()

    assert [200, 200] == [seen.status for seen in answered]
    assert ((503, "OVERLOADED"), "1", 2) == (code(refused), refused.header("retry-after"), len(server.seen))


# --- errors and successes ---------------------------------------------------------------------------------------------
GO = answer("400 Bad Request", b"json: cannot unmarshal string into Go struct field W.note of type float64\n")


async def test_a_tools_complaint_is_an_attempt_with_a_path() -> None:
    routes = WEATHER.replace("note: {type: string", "note: {type: [string, number]")
    async with tool(in_turn(GO, GO, OK)) as server, proxied(routes, server.url) as proxy:
        said = "X-Conversation-Id: c"
        first = await proxy.post("/weather", b'{"lat": 1, "note": "a"}', said)
        second = await proxy.post("/weather", b'{"lat": 1, "note": "b"}', said)
        good = await proxy.post("/weather", b'{"lat": 1}', said)
        after = await proxy.post("/weather", b'{"lat": "x"}', said)

    assert (400, "UPSTREAM_REJECTED_ARGUMENTS") == code(first)
    errors = told(first)["error"]["errors"]
    assert [("VAL-002", "/note")] == [(error["code"], error["path"]) for error in errors]
    assert 'Expected: number\n  Actual: "a"' in told(first)["content"]
    assert ["1/3", "2/3", "3/3", "1/3"] == [seen.header("tool-attempt") for seen in (first, second, good, after)]
    assert 'Shape of valid arguments: {"lat":1,"note":"<string>"}' in told(first)["content"]


async def test_upstream_errors_passthrough_keeps_the_answer_and_counts_no_attempt() -> None:
    body = b'{"success": false, "error": {"code": "X", "message": "m", "category": "INPUT_ERROR"}}'
    own = answer("400 Bad Request", body, JSON_TYPE, "X-Own: yes")
    schema = "{type: object, properties: {lat: {type: number}}}"
    routes = f"  - {{path: /w, upstream: tools, tool: w, upstream_errors: passthrough, schema: {schema}}}\n"
    async with tool(in_turn(own, OK)) as server, proxied(routes, server.url) as proxy:
        said = "X-Conversation-Id: c"
        ours = await proxy.post("/w", b'{"lat": "x"}', said)
        tools = await proxy.post("/w", b'{"lat": 1}', said)
        again = await proxy.post("/w", b'{"lat": "y"}', said)

    assert (400, body, "yes", None) == (
        tools.status,
        tools.body,
        tools.header("x-own"),
        tools.header("tool-error"),
    )
    assert ["1/3", None, "2/3"] == [seen.header("tool-attempt") for seen in (ours, tools, again)]


async def test_an_error_that_is_handed_on_takes_no_slot_of_a_cap() -> None:
    routes = route("upstream_errors: passthrough", "caps: {default: 1}")
    async with tool(in_turn(GO, OK)) as server, proxied(routes, server.url) as proxy:
        said = "X-Conversation-Id: c"
        seen = [await proxy.post("/call", b"{}", said) for _ in range(3)]

    assert [400, 200, 400] == [one.status for one in seen]
    assert (400, "CALL_CAP_EXCEEDED") == code(seen[2])


async def test_a_success_is_wrapped_without_touching_its_bytes() -> None:
    async with tool(replies(OK)) as server, proxied(route("wrap_success: on"), server.url) as proxy:
        seen = await proxy.post("/call", b"{}")

    assert b'{"success": true, "data": {"t": 20.50}}' == seen.body
    assert str(len(seen.body)) == seen.header("content-length")


# --- killed in the middle of an answer --------------------------------------------------------------------------------
# Answers the first request in full, begins to answer the second, and says so.
_HALF_AN_ANSWER = """
import socket
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
peer, _ = listening.accept()
listening.close()  # no later call waits for a process that is about to end
for length, body in ((2, b"{}"), (900_000, b"half")):
    request = b""
    while not request.endswith(b"{}"):
        request += peer.recv(65536)
    peer.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n" % length + body)
print("half", flush=True)
peer.recv(1)
"""


@pytest.mark.parametrize("kind", ["judged", "relayed"])
async def test_an_upstream_that_is_killed_in_mid_answer_mixes_up_no_pipelined_call(kind: str) -> None:
    relay = "  - {path: /call, methods: [POST], upstream: tools, passthrough: true}\n"
    upstream = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _HALF_AN_ANSWER, stdout=asyncio.subprocess.PIPE
    )
    assert upstream.stdout is not None
    port = int(await upstream.stdout.readline())
    routes = relay if kind == "relayed" else route("resend: {max: 0}")
    async with proxied(routes, f"http://127.0.0.1:{port}") as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(post("/call", b"{}") * 4)
        first = await read_message(reader)
        await upstream.stdout.readline()
        upstream.kill()
        await upstream.wait()
        seen, rest = list[Seen](), b""
        if kind == "judged":
            seen = [await read_message(reader) for _ in range(3)]
        else:
            rest = await reader.readuntil(b"half")
            with contextlib.suppress(ConnectionError):
                rest += await reader.read()
        writer.close()
        later = await proxy.post("/call", b"{}")

    assert (200, b"{}") == (first.status, first.body)
    assert (502, "UPSTREAM_UNAVAILABLE") == code(later)
    if kind == "relayed":  # half an answer cannot be taken back: the connection ends with it
        assert (1, b"half") == (rest.count(b"HTTP/1.1 "), rest[-4:])
    else:
        bad, unavailable = (502, "UPSTREAM_BAD_ANSWER"), (502, "UPSTREAM_UNAVAILABLE")
        assert [bad, unavailable, unavailable] == [code(one) for one in seen]
        assert ["unknown", "no", "no"] == [told(one)["error"]["details"]["executed"] for one in seen]
