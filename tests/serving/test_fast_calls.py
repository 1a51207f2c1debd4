"""Calls that run without a task give the same answers, log lines, metrics and kept calls as those that run in one.

In each test the same clients speak to three proxies over real sockets. The first may run calls without a task, the
second may not, and the third gives each call that waits for its tool to a task. The tests compare everything that
clients, tool, log, metrics and the page of calls show, except times. The clean calls are counted: no test passes
because none ran without a task.
"""

from __future__ import annotations

import asyncio
import gc
import json
import re
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, cast

import pytest

from proxy.call_record import CallRecord
from proxy.server.connection import Connection
from proxy.server.request_cycle import RequestCycle
from tests.serving.keys import authority, certificate
from tests.serving.proxied import UNSAMPLED, Proxied, proxied
from tests.serving.wire import JSON_TYPE, Seen, Tool, answer, post, tool
from tests.steady import until, until_still

ROUTES: Final = """
  - path: /weather
    upstream: tools
    tool: weather
    timeout: 5
    schema:
      type: object
      properties: {lat: {type: number}, note: {type: string}}
      required: [lat]
  - path: /brief
    upstream: tools
    tool: brief
    timeout: 0.3
    schema: {type: object, properties: {note: {type: string}}}
  - path: /capped
    upstream: tools
    tool: capped
    caps: {default: 2}
    schema: {type: object}
  - path: /watched
    upstream: tools
    tool: watched
    mode: report
    schema: {type: object, properties: {lat: {type: number}}}
  - {path: /page, upstream: tools, tool: page, cors: {origins: ["https://a.test"]}, schema: {type: object}}
  - path: "/at/{place}"
    upstream: tools
    upstream_path: "/{place}/at"
    tool: at
    query: forward
    schema: {type: object}
  - {path: /relay, methods: [GET, POST], upstream: tools, passthrough: true}
"""
CLEAN: Final = b'{"lat": 1}'
# The differences from one run to the next: times, and names and ids that a process gives.
_TIMES: Final = re.compile(rb"Date: [^\r]*|toolcall-proxy-[0-9a-f]{8}|127\.0\.0\.1:\d+")
_OF_TIME: Final = re.compile(
    r"timestamp|.*_ms|duration.*|overhead.*|.*seconds|at|started|stages|boot|id|conversation|took|time|older|newer"
)
_SERIES: Final = re.compile(r"toolproxy_(?!.*(_bucket|_seconds_sum|_lag|info|config|uptime|start|memory|idle)).*")


@dataclass
class Parties:
    """A proxy, its tool, and what the clients have read so far. The tool waits for `hold` where a call says so."""

    proxy: Proxied
    tool: Tool
    hold: asyncio.Event
    tls: ssl.SSLContext | None = None
    said: list[bytes] = field(default_factory=list)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Opens a connection."""
        name = None if self.tls is None else "localhost"
        return await asyncio.open_connection("127.0.0.1", self.proxy.port, ssl=self.tls, server_hostname=name)

    async def say(self, *packets: bytes, answers: int = 1, end: bool = False) -> None:
        """Sends packets on its own connection and reads so many answers; with `end`, all until the connection
        ends."""
        reader, writer = await self.connect()
        for packet in packets:
            writer.write(packet)
            await self.pause()
        async with asyncio.timeout(300):
            if end:
                self.said.append(await reader.read())
            for _ in range(0 if end else answers):
                self.said.append(await read_raw(reader))
        writer.close()

    async def pause(self) -> None:
        """Lets what was sent arrive."""
        await asyncio.sleep(0.01)

    async def wait_arrived(self, count: int) -> None:
        """Waits until the tool has seen so many requests."""
        await until(lambda: len(self.tool.seen) >= count)

    def is_half_closed(self) -> bool:
        """Returns whether the proxy has heard that a client sends no more."""
        return any(cast(Connection, each).half_closed for each in self.proxy.serving.ports[0].listener.connections)

    async def wait_logged(self, count: int) -> None:
        """Waits until so many requests are over."""
        await until(lambda: len(self.proxy.lines()) >= count)


async def read_raw(reader: asyncio.StreamReader) -> bytes:
    """One answer as it was on the wire, framed by its length or in chunks."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    if length is not None:
        return head + await reader.readexactly(int(length[1]))
    if b" 204 " in head or b" 100 " in head:
        return head
    return head + await reader.readuntil(b"0\r\n\r\n")


Scenario = Callable[[Parties], Awaitable[None]]


def call(body: bytes = CLEAN, *headers: str, path: str = "/weather", number: int = 0) -> bytes:
    """The bytes of a call with its own id."""
    return post(path, body, f"X-Request-Id: r-{number}", f"X-Conversation-Id: c-{number}", *headers)


def note(text: str, number: int = 0, path: str = "/weather") -> bytes:
    """A call to which the tool answers as `text` says."""
    return call(json.dumps({"lat": 1, "note": text}).encode(), path=path, number=number)


ANSWERS: Final = {
    "fail": answer("500 Internal Server Error", b'{"error": "boom"}', JSON_TYPE),
    "refuse": answer("422 Unprocessable Entity", b'{"detail": "no such city"}', JSON_TYPE),
    "complain": answer("200 OK", b'{"success": false, "error": "no"}', JSON_TYPE),
    "success": answer("200 OK", b'{"success": true}', JSON_TYPE),
    "empty": b"HTTP/1.1 204 No Content\r\n\r\n",
    "chunks": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"2\r\n{}\r\n0\r\n\r\n",
    "events": b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"8\r\ndata: 1\n\r\n0\r\n\r\n",
    "fields": answer("201 Created", b"{}", "content-type: application/json", "Set-Cookie: a=b", "X-A: 1", "x-a: 2",
                     "Date: Mon, 01 Jan 2024 00:00:00 GMT", "Connection: keep-alive, X-Hop", "X-Hop: 1"),
    "moved": answer("302 Found", b"", "Location: /elsewhere"),
    "nonsense": b"HTP/1.1 200 OK\r\n\r\n",
    "surplus": answer("200 OK", b"{}", JSON_TYPE) + b"more",
    "last": answer("200 OK", b"{}", JSON_TYPE, "Connection: close"),
}  # fmt: skip


def make_script(hold: asyncio.Event) -> Any:
    """The tool: it does what the call's `note` says."""

    async def script(_: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Seen) -> None:
        told = json.loads(seen.body or b"{}").get("note", "")
        if told == "hold":
            await hold.wait()
        if told in ("die", "die in the middle"):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{" if told != "die" else b"")
            await writer.drain()
            writer.transport.close()
            raise ConnectionResetError
        if told == "to the end":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{}")
            await writer.drain()
            writer.transport.close()
            raise ConnectionResetError
        if told == "in parts":
            whole = answer("200 OK", b'{"a": 1}', JSON_TYPE)
            for part in (whole[:20], whole[20:-3], whole[-3:]):
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.01)
            return
        writer.write(ANSWERS.get(told, answer("200 OK", b'{"a": 1}', JSON_TYPE)))
        await writer.drain()

    return script


async def record(
    scenario: Scenario, fast: bool, tls: tuple[Path, ssl.SSLContext] | None = None, forced: bool = False
) -> tuple[list[str], int]:
    """Plays a scenario before a proxy: what all parties saw, and how many calls ran without a task. `forced`: a call
    that waits continues in a task, whatever it waits for."""
    hold = asyncio.Event()
    keys = dict(UNSAMPLED)
    if tls is not None:
        keys["listen"] = f"{{host: 127.0.0.1, port: 0, tls: {{cert: {tls[0]}/server.pem, key: {tls[0]}/server.key}}}}"
    async with tool(make_script(hold)) as behind, proxied(ROUTES, behind.url, **keys) as proxy:
        proxy.serving.handler.fast = fast
        if forced:
            _force_waits(proxy)
        parties = Parties(proxy, behind, hold, None if tls is None else tls[1])
        await scenario(parties)
        hold.set()
        await until(lambda: not proxy.serving.handler.inflight)
        await until_still(lambda: len(proxy.log.getvalue()))
        assert 0 == proxy.serving.handler.memory.held
        kept = json.loads((await proxy.ask_admin("/-/calls")).body)
        shown = [
            *[_TIMES.sub(b"*", said).decode() for said in parties.said],
            *[_TIMES.sub(b"*", repr(seen).encode()).decode() for seen in behind.seen],
            *[json.dumps(_without_times(line)) for line in (*proxy.lines(), *kept["calls"])],
            *await _read_metrics(proxy),
        ]
        return shown, proxy.serving.handler.counted_fast


def _force_waits(proxy: Proxied) -> None:
    """Lets each request that has begun without a task go on in one."""
    listener = proxy.serving.ports[0].listener
    begin = listener.service.begin
    assert begin is not None

    def begin_and_wait(message: Any, content: Any, client: Connection) -> None:
        held, client.held = client.held, None  # without it, no answer is written and no task begun
        begin(message, content, client)
        client.held = held
        client.hand_over()

    listener.service = replace(listener.service, begin=begin_and_wait)


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_times(inner) for name, inner in value.items() if not _OF_TIME.fullmatch(name)}
    return [_without_times(inner) for inner in value] if isinstance(value, list) else value


async def _read_metrics(proxy: Proxied) -> list[str]:
    page = (await proxy.ask_admin("/metrics")).body.decode()
    return [line for line in page.splitlines() if _SERIES.fullmatch(line)]


async def compare(scenario: Scenario, tls: tuple[Path, ssl.SSLContext] | None = None) -> int:
    """Holds the three ways against each other; gives how many calls ran without a task."""
    usual, none = await record(scenario, fast=False, tls=tls)
    found, count = await record(scenario, fast=True, tls=tls)
    assert usual == found
    forced, none_either = await record(scenario, fast=True, tls=tls, forced=True)
    assert usual == forced
    assert (0, 0) == (none, none_either)
    return count


async def warm(parties: Parties, *others: str) -> None:
    """Leaves an idle connection to the tool. The code of the tool's checks is written by then, and of the `others`."""
    for number, path in enumerate(("/weather", *others)):
        await parties.say(call(path=path, number=900 + number))


# --- calls that need no task --------------------------------------------------------------------------------------
async def test_clean_calls_on_one_connection_and_on_several() -> None:
    async def scenario(parties: Parties) -> None:
        await warm(parties)
        reader, writer = await parties.connect()
        for number in range(5):
            writer.write(call(number=number))
            parties.said.append(await read_raw(reader))
        writer.close()
        await parties.say(call(number=5))

    assert 6 == await compare(scenario)


async def test_paths_with_parameters_and_queries_and_targets_that_are_too_long_to_remember() -> None:
    async def scenario(parties: Parties) -> None:
        await warm(parties, "/at/warm")
        long = f"/at/{'e' * 300}"
        targets = ("/at/a", "/at/b?x=1", "/at/a", "/at/c%20d", "/at/b?x=2", long, f"{long}?x=1")
        for number, target in enumerate(targets):
            await parties.say(call(path=target, number=number))

    assert 7 == await compare(scenario)


async def test_repaired_calls_and_calls_of_a_report_only_route() -> None:
    async def scenario(parties: Parties) -> None:
        await warm(parties, "/watched")
        await parties.say(call(b'{"lat": "1.5"}', number=1))
        await parties.say(call(b'{"lat": "x"}', path="/watched", number=2))
        await parties.say(call(b'{"lat": 1}', path="/watched", number=3))

    assert 3 == await compare(scenario)


async def test_ten_headers_a_page_of_a_browser_and_headers_of_every_kind() -> None:
    async def scenario(parties: Parties) -> None:
        await warm(parties, "/page")
        ten = [f"X-Field-{number}: {number}" for number in range(10)]
        await parties.say(call(CLEAN, *ten, number=1))
        await parties.say(call(CLEAN, "traceparent: 00-" + "a" * 32 + "-" + "b" * 16 + "-01", number=2))
        await parties.say(call(CLEAN, "Origin: https://a.test", path="/page", number=3))
        await parties.say(call(CLEAN, "X-Real-IP: 1.2.3.4", "Via: 1.1 other", "x-a: 1", "X-A: 2", number=4))

    assert 4 == await compare(scenario)


async def test_a_clean_call_while_other_conversations_have_failed_and_after_its_own_failure() -> None:
    async def scenario(parties: Parties) -> None:
        await warm(parties)
        await parties.say(call(b"{}", number=1))
        await parties.say(call(number=2))  # needs no task
        await parties.say(call(number=1))  # ends the attempts of its conversation

    assert 3 == await compare(scenario)


async def test_a_head_and_a_body_in_parts() -> None:
    async def scenario(parties: Parties) -> None:
        await warm(parties)
        whole = call(number=1)
        await parties.say(whole[:30], whole[30:])
        await parties.say(whole[:-5], whole[-5:])
        await parties.say(*[whole[at : at + 40] for at in range(0, len(whole), 40)])

    assert 2 <= await compare(scenario)


# The number of two calls that run without a task: the one that is answered so, and a clean one after it. If the first
# leaves no connection to the tool, the second has to wait for one.
@pytest.mark.parametrize(
    ("told", "count"),
    [
        ("fail", 2), ("refuse", 2), ("complain", 2), ("success", 2), ("empty", 2), ("chunks", 2), ("events", 2),
        ("fields", 2), ("moved", 2), ("nonsense", 1), ("surplus", 1), ("last", 1), ("die", 1),
        ("die in the middle", 1), ("to the end", 1), ("in parts", 2),
    ],
)  # fmt: skip
async def test_each_answer_of_a_tool(told: str, count: int) -> None:
    async def scenario(parties: Parties) -> None:
        await warm(parties)
        reader, writer = await parties.connect()
        writer.write(note(told, 1))
        parties.said.append(await read_raw(reader))
        writer.write(call(number=2))
        parties.said.append(await read_raw(reader))
        writer.close()

    assert count == await compare(scenario)


# --- rejected calls, and calls that a task continues ----------------------------------------------------------------
async def test_refusals_repeated_refusals_and_requests_that_are_no_calls() -> None:
    async def scenario(parties: Parties) -> None:
        await warm(parties, "/page")
        for _ in range(4):
            await parties.say(call(b'{"lat": "north"}', number=1))
        await parties.say(call(b"{", number=2))
        await parties.say(call(b"[1]", number=3))
        for number, body in ((11, b"{"), (12, b"[1]"), (13, b'{"a": 1}')):
            await parties.say(call(body, "Origin: https://a.test", path="/page", number=number))
        await parties.say(call(CLEAN, "Origin: https://b.test", path="/page", number=14))
        await parties.say(post("/nowhere", CLEAN, "X-Request-Id: r-4"))
        await parties.say(post("/weather?a=1", CLEAN, "X-Request-Id: r-5"))
        await parties.say(post("/weather", CLEAN, "X-Request-Id: r-6", content_type="text/plain"))
        await parties.say(b"GET /weather HTTP/1.1\r\nHost: a\r\nX-Request-Id: r-7\r\n\r\n")
        await parties.say(post("/relay", CLEAN, "X-Request-Id: r-8"))
        for number in (10, 10, 10):
            await parties.say(call(b"{}", path="/capped", number=number))

    assert 13 == await compare(scenario)  # among them the rejected calls


async def test_requests_in_one_packet_and_requests_sent_while_one_is_under_way() -> None:
    async def scenario(parties: Parties) -> None:
        await warm(parties)
        await parties.say(call(number=1) + call(number=2) + call(number=3), answers=3)
        reader, writer = await parties.connect()
        writer.write(note("hold", 4))
        await parties.wait_arrived(5)
        writer.write(call(number=5)[:25])
        await parties.pause()
        writer.write(call(number=5)[25:] + call(b"{}", number=6))
        await parties.pause()
        parties.hold.set()
        for _ in range(3):
            parties.said.append(await read_raw(reader))
        writer.close()

    assert 0 == await compare(scenario)


async def test_bytes_that_are_not_http_while_a_call_is_under_way_and_after_it() -> None:
    async def scenario(parties: Parties) -> None:
        await warm(parties)
        reader, writer = await parties.connect()
        writer.write(note("hold", 1))
        await parties.wait_arrived(2)
        writer.write(b"nonsense\r\n\r\n")
        await parties.pause()
        parties.hold.set()
        parties.said.append(await read_raw(reader))
        writer.write_eof()
        await parties.wait_logged(3)
        writer.close()

    usual, none = await record(scenario, fast=False)
    found, _ = await record(scenario, fast=True)
    made_up = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f-]+")  # the id of a request that could not be read
    assert ([made_up.sub("*", text) for text in usual], 0) == ([made_up.sub("*", text) for text in found], none)


async def test_a_client_that_closes_its_sending_side() -> None:
    async def scenario(parties: Parties) -> None:
        await warm(parties)
        reader, writer = await parties.connect()
        writer.write(note("hold", 1))
        await parties.wait_arrived(2)
        writer.write_eof()
        await until(parties.is_half_closed)
        parties.hold.set()
        parties.said.append(await reader.read())
        writer.close()
        reader, writer = await parties.connect()
        writer.write(call(number=2))
        parties.said.append(await read_raw(reader))
        writer.write_eof()
        parties.said.append(await reader.read())
        writer.close()

    assert 1 == await compare(scenario)


async def test_a_client_that_goes_before_the_answer_and_one_that_goes_after_it() -> None:
    async def scenario(parties: Parties) -> None:
        await warm(parties)
        _, writer = await parties.connect()
        writer.write(note("hold", 1))
        await parties.wait_arrived(2)
        writer.transport.abort()
        await parties.wait_logged(2)
        await parties.say(call(number=2))
        reader, writer = await parties.connect()
        writer.write(call(number=3))
        await read_raw(reader)
        writer.transport.abort()
        await parties.wait_logged(4)

    assert 1 == await compare(scenario)


async def test_an_upstream_that_has_closed_its_idle_connection_is_not_sent_a_call() -> None:
    async def scenario(parties: Parties) -> None:
        await warm(parties)
        parties.tool.end()
        await parties.say(call(number=1))
        await parties.say(call(number=2))

    assert 1 == await compare(scenario)


async def test_an_answer_that_does_not_come_in_time() -> None:
    async def scenario(parties: Parties) -> None:
        await warm(parties)
        await parties.say(call(b'{"note": "hold"}', path="/brief", number=1))
        await parties.say(call(number=2))

    assert 0 == await compare(scenario)


async def test_the_last_request_of_a_connection_and_http_1_0() -> None:
    async def scenario(parties: Parties) -> None:
        await warm(parties)
        await parties.say(call(CLEAN, "Connection: close", number=1), end=True)
        await parties.say(call(number=2).replace(b"HTTP/1.1", b"HTTP/1.0"), end=True)
        await parties.say(call(CLEAN, "Expect: 100-continue", number=3), answers=2)

    assert 0 == await compare(scenario)


async def test_a_drain_waits_for_a_call_that_is_under_way() -> None:
    async def scenario(parties: Parties) -> None:
        await warm(parties)
        reader, writer = await parties.connect()
        writer.write(note("hold", 1))
        await parties.wait_arrived(2)
        draining = parties.proxy.serving.begin_drain(0)
        await parties.pause()
        assert not draining.done()
        parties.hold.set()
        parties.said.append(await read_raw(reader))
        await draining
        writer.close()

    assert 0 == await compare(scenario)


async def test_a_stop_ends_a_call_that_does_not_end_by_itself() -> None:
    async def scenario(parties: Parties) -> None:
        await warm(parties)
        reader, writer = await parties.connect()
        writer.write(note("hold", 1))
        await parties.wait_arrived(2)
        await parties.proxy.serving.handler.abandon()
        parties.said.append(await read_raw(reader))
        writer.close()

    assert 1 == await compare(scenario)


async def test_a_reload_lets_a_call_end_by_the_rules_it_began_with() -> None:
    async def scenario(parties: Parties) -> None:
        await warm(parties)
        handler = parties.proxy.serving.handler
        reader, writer = await parties.connect()
        writer.write(note("hold", 1))
        await parties.wait_arrived(2)
        running = handler.exchange(handler.snapshot)
        assert 1 == len(running)
        parties.hold.set()
        parties.said.append(await read_raw(reader))
        await asyncio.wait(running)
        writer.close()

    assert 1 == await compare(scenario)


async def test_behind_tls(tmp_path: Path) -> None:
    certificate(authority(tmp_path), "server", "DNS:localhost,IP:127.0.0.1")
    client = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))

    async def scenario(parties: Parties) -> None:
        await warm(parties)
        await parties.say(call(number=1))
        await parties.say(call(b"{}", number=2))

    assert 2 == await compare(scenario, (tmp_path, client))


# --- what is left of a call ---------------------------------------------------------------------------------------
def _reset(client: socket.socket) -> None:
    """Resets a connection."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


async def test_nothing_of_a_call_whose_client_has_gone_is_left_to_the_collector() -> None:
    hold = asyncio.Event()
    async with tool(make_script(hold)) as behind, proxied(ROUTES, behind.url, **UNSAMPLED) as proxy:
        parties = Parties(proxy, behind, hold)
        await warm(parties)
        gc.collect()
        gc.disable()
        try:
            with socket.create_connection(("127.0.0.1", proxy.port)) as client:
                client.setblocking(False)
                await asyncio.get_running_loop().sock_sendall(client, note("hold", 1))
                await parties.wait_arrived(2)
                _reset(client)
            await parties.wait_logged(2)
            await until(lambda: not any(isinstance(each, RequestCycle) for each in gc.get_objects()), within=5)
            assert [] == [each for each in gc.get_objects() if isinstance(each, RequestCycle)]
        finally:
            gc.enable()
            hold.set()


async def test_a_stream_that_begins_as_its_client_goes_gives_its_connection_back() -> None:
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        async with proxied(ROUTES, f"http://127.0.0.1:{listening.getsockname()[1]}", **UNSAMPLED) as proxy:
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(call(number=1))
            behind, _ = await loop.sock_accept(listening)
            await loop.sock_recv(behind, 65536)
            await loop.sock_sendall(behind, answer("200 OK", b"{}", JSON_TYPE))
            await read_raw(reader)
            writer.close()
            gc.collect()
            gc.disable()
            try:
                with behind, socket.create_connection(("127.0.0.1", proxy.port)) as client:
                    client.setblocking(False)
                    await loop.sock_sendall(client, call(number=2))
                    await loop.sock_recv(behind, 65536)
                    _reset(client)  # the proxy hears of both in one turn of its loop
                    behind.send(ANSWERS["events"].removesuffix(b"0\r\n\r\n"))
                    async with asyncio.timeout(10):
                        assert b"" == await loop.sock_recv(behind, 1)
                    await until(lambda: "client_gone" == proxy.lines()[-1]["outcome"])
            finally:
                gc.enable()


class _Broken:
    def finished(self, record: CallRecord) -> None:
        raise LookupError(record.request_id)


async def test_an_observer_that_fails_ends_no_connection_to_the_tool_and_leaves_others_their_record() -> None:
    hold = asyncio.Event()
    async with tool(make_script(hold)) as behind, proxied(ROUTES, behind.url, **UNSAMPLED) as proxy:
        parties = Parties(proxy, behind, hold)
        await warm(parties)
        proxy.serving.handler.observers = (_Broken(), *proxy.serving.handler.observers)
        for number in (1, 2):
            await parties.say(call(number=number))
        await parties.wait_logged(3)
        assert (1, 2) == (behind.connections, proxy.serving.handler.counted_fast)
        assert "LookupError" in proxy.log.getvalue()
