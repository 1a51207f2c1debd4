"""`answer:` on plain HTTP routes, in front of a scripted service: bounds, masks, schemas, codings and streams."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import re
import zlib
from pathlib import Path
from typing import Any

import pytest

from proxy.config.load import load
from proxy.config.mistakes import ConfigError
from proxy.server import start_serving
from tests.serving.proxied import Proxied, code, proxied, told
from tests.serving.wire import JSON_TYPE, Seen, answer, exchange, post, replies, tool

ROUTE = """
  - path: /orders
    upstream: tools
    tool: orders
    schema: {type: object, properties: {limit: {type: integer}, status: {type: string}}}
    answer: %s
"""
CUT = ROUTE % "{max_bytes: 4KiB, on_large: cut}"
REFUSE = ROUTE % "{max_bytes: 4KiB}"
ROWS = [{"id": number, "name": "x" * 40} for number in range(500)]
EVENTS = "Content-Type: text/event-stream"


def chunked(*pieces: bytes, headers: tuple[str, ...] = (JSON_TYPE,)) -> bytes:
    """An answer without a length."""
    lines = "".join(f"{line}\r\n" for line in (*headers, "Transfer-Encoding: chunked"))
    return f"HTTP/1.1 200 OK\r\n{lines}\r\n".encode() + b"".join(
        f"{len(piece):x}\r\n".encode() + piece + b"\r\n" for piece in (*filter(None, pieces), b"")
    )


async def ask(route: str, reply: bytes, *headers: str, **keys: str) -> tuple[Seen, dict[str, float], dict[str, Any]]:
    """The answer to one call, the changes that were counted, and the log line."""
    async with tool(replies(reply)) as server, proxied(route, server.url, **keys) as proxy:
        seen = await proxy.post("/orders", b"{}", *headers)
        metrics = (await proxy.ask_admin("/metrics")).body.decode()
        lines = [line for line in metrics.splitlines() if line.startswith("toolproxy_answer_changes_total{")]
        counted = {line.split('change="')[1].split('"')[0]: float(line.rsplit(" ", 1)[1]) for line in lines}
        return seen, counted, proxy.lines()[0]


# --- nothing applies --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "body",
    [b'{ "a": 1.0000000000000000000001, "a": 2 }', b"[1e400, -0, NaN]", b'{"broken": ', b"\xff\xfe", b""],
    ids=["duplicate keys", "numbers", "broken", "not UTF-8", "empty"],
)
@pytest.mark.parametrize("is_chunked", [False, True])
async def test_keeps_every_byte_of_an_answer_within_the_bound(body: bytes, is_chunked: bool) -> None:
    seen, counted, _ = await ask(CUT, chunked(body) if is_chunked else answer("200 OK", body, JSON_TYPE))
    assert (200, body, {}) == (seen.status, seen.body, counted)


async def test_keeps_every_byte_if_no_mask_matches() -> None:
    body = b'{ "user": {"n\\u0061me": "Ann", "big": 1.10000000000000000000000000001} }\n'
    seen, counted, _ = await ask(ROUTE % "{mask: [secrets, /user/email]}", answer("200 OK", body, JSON_TYPE))
    assert (200, body, {}) == (seen.status, seen.body, counted)


async def test_keeps_the_bytes_of_a_coded_answer() -> None:
    body = gzip.compress(json.dumps(ROWS[:5]).encode())
    seen, _, _ = await ask(CUT, answer("200 OK", body, JSON_TYPE, "Content-Encoding: gzip"))
    assert (body, "gzip") == (seen.body, seen.header("content-encoding"))


# --- large answers ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("is_chunked", [False, True])
async def test_refuses_a_large_answer_and_says_how_to_ask_for_less(is_chunked: bool) -> None:
    body = json.dumps(ROWS).encode()
    seen, counted, line = await ask(REFUSE, chunked(body) if is_chunked else answer("200 OK", body, JSON_TYPE))

    assert (502, "ANSWER_TOO_LARGE") == code(seen)
    text = told(seen)["content"]
    assert "longer than 4,096 bytes" in text
    assert "call orders again with arguments that select less. Its arguments: limit, status." in text
    assert ("yes", True) == (told(seen)["error"]["details"]["executed"], told(seen)["error"]["retryable"])
    assert ({"too_large": 1.0}, "too_large") == (counted, line["answer.changes"])
    assert ("withheld", "ANSWER_TOO_LARGE") == (line["outcome"], line["error.type"])
    assert "Tool answer withheld" == line["message"]
    assert None is seen.header("tool-attempt")


async def test_a_withheld_answer_is_no_error_of_the_tool_and_its_text_is_not_masked() -> None:
    large = answer("200 OK", json.dumps(ROWS).encode(), JSON_TYPE)
    route = REFUSE + "    attempts: {tool_errors: {max: 1}}\n"
    async with tool(replies(large)) as server, proxied(route, server.url) as proxy:
        for _ in range(3):
            assert (502, "ANSWER_TOO_LARGE") == code(await proxy.post("/orders", b"{}", "X-Conversation-Id: c"))
        (entry, *_) = json.loads((await proxy.ask_admin("/-/calls?outcome=withheld")).body)["calls"]
        opened = json.loads((await proxy.ask_admin(f"/-/calls/{entry['id']}")).body)
        metrics = (await proxy.ask_admin("/metrics")).body.decode()
    assert "its answer is longer than 4,096 bytes" in entry["reason"]
    assert "its answer is longer than 4,096 bytes" in opened["model_read"]
    assert "***" not in opened["model_read"]
    assert re.search(r'toolproxy_requests_total{[^}]*outcome="withheld"[^}]*} 3.0', metrics)


async def test_tells_the_model_not_to_repeat_a_call_that_changes_something() -> None:
    route = REFUSE.replace("tool: orders", "tool: orders\n    methods: [PATCH]")
    large = answer("200 OK", b"[" + b"1," * 4000 + b"1]", JSON_TYPE)
    async with tool(replies(large)) as server, proxied(route, server.url) as proxy:
        seen = await exchange(proxy.port, post("/orders", b"{}").replace(b"POST", b"PATCH", 1))
    assert (False, "ANSWER_TOO_LARGE") == (told(seen)["error"]["retryable"], told(seen)["error"]["code"])
    assert "do not repeat it" in told(seen)["content"]


async def test_cuts_a_list_after_whole_items_and_says_what_is_missing() -> None:
    seen, counted, _ = await ask(CUT, answer("200 OK", json.dumps(ROWS).encode(), JSON_TYPE))

    *items, note = json.loads(seen.body)
    assert len(seen.body) <= 4096
    assert ROWS[: len(items)] == items
    assert len(items) > 50
    assert f"It shows the first {len(items)} of 500 items." in note
    assert "call orders again with arguments that select less. Its arguments: limit, status." in note
    assert {"cut": 1.0} == counted


async def test_cuts_the_largest_member_of_an_object_and_keeps_the_small_ones() -> None:
    seen, _, _ = await ask(
        CUT, answer("200 OK", json.dumps({"rows": ROWS, "total": 500, "_cut": 1}).encode(), JSON_TYPE)
    )

    shown = json.loads(seen.body)
    *items, mark = shown["rows"]
    assert (500, 1, f"[cut: {500 - len(items)} more items]") == (shown["total"], shown["_cut"], mark)
    assert f"the first {len(items)} of 500 items of /rows" in shown["__cut"]


async def test_cuts_a_text_at_the_end_of_a_line() -> None:
    seen, _, _ = await ask(CUT, answer("200 OK", b"one line of a log\n" * 900, "Content-Type: text/plain"))

    *lines, note = seen.body.decode().split("\n")
    assert {"one line of a log"} == set(lines)
    assert note.startswith("[Cut: the answer is longer than 4,096 bytes. It shows the first ")


async def test_reads_no_more_of_a_stream_than_the_bound() -> None:
    """The service would send without end; it sees that the proxy hangs up."""
    sent = 0
    has_left = asyncio.Event()

    async def endless(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        nonlocal sent
        writer.write(f"HTTP/1.1 200 OK\r\n{JSON_TYPE}\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n[\r\n".encode())
        item = json.dumps({"name": "x" * 8000}).encode() + b","
        try:
            while True:
                writer.write(f"{len(item):x}\r\n".encode() + item + b"\r\n")
                await writer.drain()
                sent += len(item)
        except ConnectionError:
            has_left.set()

    route = ROUTE % "{max_bytes: 64KiB, on_large: cut}"
    async with tool(endless) as server, proxied(route, server.url) as proxy:
        seen = await proxy.post("/orders", b"{}")
        await asyncio.wait_for(has_left.wait(), 10)

    *items, note = json.loads(seen.body)
    assert ("x" * 8000, True) == (items[0]["name"], len(seen.body) <= 65536)
    assert f"It shows the first {len(items)} items." in note  # nobody knows of how many
    assert sent < 16 * 1024 * 1024  # the buffers of the sockets, and the upstream's `buffer`


async def test_refuses_what_is_neither_json_nor_text_if_it_is_too_large() -> None:
    seen, _, _ = await ask(CUT, answer("200 OK", b"\x89PNG" * 2000, "Content-Type: image/png"))
    assert (502, "ANSWER_TOO_LARGE") == code(seen)


@pytest.mark.parametrize(
    ("coding", "pack"),
    [("gzip", gzip.compress), ("deflate", zlib.compress), ("deflate", lambda b: zlib.compress(b)[2:-4])],
)
async def test_stops_to_decode_at_the_bound(coding: str, pack: Any) -> None:
    bomb = pack(b"[" + b'"aaaaaaaa",' * 3_000_000 + b"1]")
    seen, _, _ = await ask(CUT, answer("200 OK", bomb, JSON_TYPE, f"Content-Encoding: {coding}"))

    assert (200, None) == (seen.status, seen.header("content-encoding"))
    assert len(seen.body) <= 4096
    assert "aaaaaaaa" == json.loads(seen.body)[0]


async def test_withholds_a_body_of_thousands_of_gzip_members() -> None:
    body = gzip.compress(b"") * 20_000
    seen, _, _ = await ask(CUT, answer("200 OK", body, JSON_TYPE, "Content-Encoding: gzip"))
    assert (502, "UPSTREAM_UNFIT_ANSWER") == code(seen)


async def test_asks_the_service_for_codings_that_it_can_read() -> None:
    async with tool(replies(answer("200 OK", b"{}", JSON_TYPE))) as server, proxied(CUT, server.url) as proxy:
        await proxy.post("/orders", b"{}", "Accept-Encoding: br, gzip;q=0.5")
        await proxy.post("/orders", b"{}", "Accept-Encoding: zstd")
        await proxy.post("/orders", b"{}")
        sent = [seen.header("accept-encoding") for seen in server.seen]
    assert ["gzip", "identity", None] == sent


async def test_withholds_an_answer_in_another_coding() -> None:
    seen, counted, _ = await ask(REFUSE, answer("200 OK", b"....", JSON_TYPE, "Content-Encoding: br"))
    assert ((502, "UPSTREAM_UNFIT_ANSWER"), {"unread": 1.0}) == (code(seen), counted)


# --- masks ------------------------------------------------------------------------------------------------------------
MASKED = ROUTE % "{mask: [/user/email, /items/*/card]}"


async def test_masks_places_under_any_spelling_and_keeps_all_other_bytes() -> None:
    body = (
        b'{ "us\\u0065r": {"\\u0065mail": "ann@x\\u002eorg", "n": 1.10}, '
        b'"items": [{"card": 4111}, {"card": {"no": "41"}}, {}] }'
    )
    seen, counted, line = await ask(MASKED, answer("200 OK", body, JSON_TYPE))

    assert seen.body == (
        b'{ "us\\u0065r": {"\\u0065mail": "***", "n": 1.10}, "items": [{"card": "***"}, {"card": "***"}, {}] }'
    )
    assert ({"masked": 1.0}, "masked") == (counted, line["answer.changes"])
    assert "ann@" not in json.dumps(line)


@pytest.mark.parametrize("media_type", ["text/plain", "application/octet-stream", ""])
async def test_masks_json_under_another_media_type_if_it_is_text(media_type: str) -> None:
    headers = (f"Content-Type: {media_type}",) if media_type else ()
    seen, _, _ = await ask(MASKED, answer("200 OK", b'{"user": {"email": "ann"}}', *headers))
    assert (b"ann" in seen.body) == (media_type == "application/octet-stream")


@pytest.mark.parametrize(
    "body",
    [b'{"user": {"email": "a", "email": "b"}}', b'{"user": {"email": NaN}}', b'{"user": 1} {"user": {"email": "a"}}',
     "{\"user\": {\"email\": \"a\"}}".encode("utf-16"), b'\xef\xbb\xbf{"user": {"email": "a"}}',
     b'{"x":' * 500 + b"1" + b"}" * 500],
    ids=["duplicate keys", "NaN", "two values", "UTF-16", "BOM", "deep"],
)  # fmt: skip
@pytest.mark.parametrize("media_type", ["application/json", "text/plain"])
async def test_withholds_json_in_which_places_are_not_certain(body: bytes, media_type: str) -> None:
    seen, counted, _ = await ask(MASKED, answer("200 OK", body, f"Content-Type: {media_type}"))
    assert ((502, "UPSTREAM_UNFIT_ANSWER"), {"unread": 1.0}) == (code(seen), counted)


async def test_masks_secrets_by_name_and_by_pattern() -> None:
    route = ROUTE % "{mask: secrets}"
    body = {
        "password": "tulip", "next_page_token": "abc", "has_password": True, "note": "use sk-live1234567890abcdefghij",
        "list": ["Bearer 0123456789abcdef"], "count": 3,
    }  # fmt: skip
    seen, _, _ = await ask(route, answer("200 OK", json.dumps(body).encode(), JSON_TYPE))

    shown = json.loads(seen.body)
    assert {"***", "abc", True, 3} == {
        shown["password"],
        shown["next_page_token"],
        shown["has_password"],
        shown["count"],
    }
    assert ("use ***", ["***"]) == (shown["note"], shown["list"])


async def test_shows_no_part_of_a_secret_at_the_bound() -> None:
    secret = "ghp_" + "0123456789abcdefghijklmnopqrstuvwxyz"
    for shift in range(0, 60, 7):
        text = "a " * 1700 + "b" * shift + " " + f"{secret} " * 40
        body = json.dumps({"log": text * 3}).encode()
        seen, _, _ = await ask(ROUTE % "{max_bytes: 4KiB, on_large: cut, mask: secrets}", chunked(body))
        assert b"ghp_" not in seen.body
        assert "[Cut:" in json.loads(seen.body)["_cut"]


async def test_masks_errors_that_are_handed_on() -> None:
    route = MASKED + "    upstream_errors: passthrough\n"
    seen, _, _ = await ask(route, answer("404 Not Found", b'{"user": {"email": "ann"}}', JSON_TYPE))
    assert (404, b'{"user": {"email": "***"}}') == (seen.status, seen.body)


# --- schemas ----------------------------------------------------------------------------------------------------------
PROMISED = """
  - path: /orders
    upstream: tools
    tool: orders
    schema: {type: object}
    response_schema: {type: array, items: {type: integer}}
    answer: {schema: %s, max_bytes: 64KiB}
"""


@pytest.mark.parametrize(
    ("mode", "body", "status", "outcome"),
    [
        ("enforce", b"[1]", 200, "passed"),
        ("enforce", b'["tulip"]', 502, "refused"),
        ("report", b'["tulip"]', 200, "broken"),
        ("enforce", b"[1, tulip]", 502, "unread"),
        ("report", b"[1, tulip]", 200, "unread"),
    ],
)
@pytest.mark.parametrize("buffer", ["2000", "1MiB"])
async def test_holds_an_answer_to_its_schema(mode: str, body: bytes, status: int, outcome: str, buffer: str) -> None:
    """Also one that the upstream streams."""
    body += b" " * 3000
    async with tool(replies(answer("200 OK", body, JSON_TYPE))) as server:
        upstreams = f'{{tools: {{url: "{server.url}", buffer: {buffer}}}}}'
        async with proxied(PROMISED % mode, server.url, upstreams=upstreams) as proxy:
            seen = await proxy.post("/orders", b"{}")
            metrics = (await proxy.ask_admin("/metrics")).body.decode()
    counted = [line for line in metrics.splitlines() if line.startswith("toolproxy_answers_total{")]

    assert (status, True) == (seen.status, f'outcome="{outcome}"' in counted[0])
    assert status == 200 or b"tulip" not in seen.body


# --- streams of events ------------------------------------------------------------------------------------------------
async def test_filters_events_one_by_one() -> None:
    route = ROUTE % "{mask: [secrets, /email]}"
    events = (b'id: 1\ndata: {"email":"ann"}\n\n', b": comment\n\n", b"data: sk-live1234567890abcdefghij\r\n\r\n",
              b"data: [DONE]\n\n")  # fmt: skip
    seen, counted, _ = await ask(route, chunked(*events, headers=(EVENTS,)))

    assert seen.body == b'id: 1\ndata: {"email":"***"}\n\n: comment\n\ndata: ***\n\ndata: [DONE]\n\n'
    assert {"masked": 2.0} == counted


async def test_masks_an_event_behind_a_byte_order_mark() -> None:
    body = b'\xef\xbb\xbfdata: {"email":"Zoe"}\r\rdata: {"email":\ndata: "Zoe"}\n\n'
    seen, _, _ = await ask(ROUTE % "{mask: [/email]}", chunked(body, headers=(EVENTS,)))
    assert seen.body == b'data: {"email":"***"}\n\ndata: {"email":\ndata: "***"}\n\n'


async def test_hands_on_an_event_before_the_next_one_comes() -> None:
    goes_on = asyncio.Event()

    async def slow(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\n{EVENTS}\r\nConnection: close\r\n\r\ndata: 1\n\n".encode())
        await writer.drain()
        await goes_on.wait()
        writer.write(b"data: 2\n\n")

    async with tool(slow) as server, proxied(CUT, server.url) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(post("/orders", b"{}"))
        first = await asyncio.wait_for(reader.readuntil(b"data: 1"), 10)
        goes_on.set()
        second = await asyncio.wait_for(reader.readuntil(b"data: 2"), 10)
        writer.close()
    assert (b"data: 2" in first, b"data: 1" in second) == (False, False)


@pytest.mark.parametrize("pieces", [[b"data: " + b"x" * 90 + b"\n\n"] * 100, [b"data: " + b"x" * 20_000 + b"\n\n"]])
async def test_ends_a_stream_at_the_bound_with_a_note(pieces: list[bytes]) -> None:
    seen, counted, _ = await ask(CUT, chunked(*pieces, headers=(EVENTS,)))

    *events, note, rest = seen.body.split(b"\n\n")
    assert (b"", {"cut": 1.0}) == (rest, counted)
    assert json.loads(note.removeprefix(b"data: ")).startswith("[Cut: the answer is longer than 4,096 bytes.")
    assert {b"data: " + b"x" * 90} >= set(events)


# --- the config -------------------------------------------------------------------------------------------------------
async def test_a_tool_overrides_the_defaults_key_by_key() -> None:
    keys = {"defaults": "{answer: {max_bytes: 4KiB, on_large: cut}}"}
    route = ROUTE % "{mask: [/email]}"
    body = json.dumps({"email": "ann", "rows": ROWS}).encode()
    seen, counted, _ = await ask(route, answer("200 OK", body, JSON_TYPE), **keys)
    assert ("***", {"masked": 1.0, "cut": 1.0}) == (json.loads(seen.body)["email"], counted)


async def test_one_tool_of_a_dispatch_route_may_have_rules() -> None:
    keys = {
        "tools": "{orders: {schema: {type: object}, answer: {mask: [/email]}}, free: {schema: {type: object}}}",
    }
    route = """
  - path: /call
    upstream: tools
    tools: [orders, free]
    dispatch: {tool: /tool, arguments: /arguments}
"""
    reply = answer("200 OK", b'{"email": "Zoe"}', JSON_TYPE)
    async with tool(replies(reply)) as server, proxied(route, server.url, **keys) as proxy:
        bodies = [b'{"tool": "%s", "arguments": {}}' % name for name in (b"orders", b"free")]
        shown = [(await proxy.post("/call", body)).body for body in bodies]
    assert [b'{"email": "***"}', b'{"email": "Zoe"}'] == shown


async def test_a_report_only_route_masks_but_withholds_nothing_for_its_schema() -> None:
    route = PROMISED % "enforce, mask: [/0]" + "    mode: report\n"
    seen, counted, _ = await ask(route, answer("200 OK", b'["tulip", "rose"]', JSON_TYPE))
    assert (200, b'["***", "rose"]', {"masked": 1.0}) == (seen.status, seen.body, counted)


async def test_wraps_the_filtered_answer() -> None:
    route = MASKED + "    wrap_success: on\n"
    seen, _, _ = await ask(route, answer("200 OK", b'{"user": {"email": "Zoe"}}', JSON_TYPE))
    assert {"success": True, "data": {"user": {"email": "***"}}} == json.loads(seen.body)


async def test_a_reload_begins_and_ends_to_filter(tmp_path: Path) -> None:
    path, shown = tmp_path / "config.yaml", list[bytes]()
    async with tool(replies(answer("200 OK", b'{"email": "Zoe"}', JSON_TYPE))) as server:
        text = f"""
version: 1
listen: 127.0.0.1:0
admin: {{listen: 127.0.0.1:0}}
upstreams: {{tools: {{url: "{server.url}"}}}}
routes:
"""
        path.write_text(text + ROUTE % "off")
        serving = await start_serving(load(path, {}), log_to=io.StringIO(), environ={})
        proxy = Proxied(serving, io.StringIO())
        for rules in ("off", "{mask: [/email]}", "off"):
            path.write_text(text + ROUTE % rules)
            await proxy.ask_admin("/-/reload", "Content-Length: 0", method="POST")
            shown.append((await proxy.post("/orders", b"{}")).body)
        await serving.stop(grace=0.5)
    assert [b'{"email": "Zoe"}', b'{"email": "***"}', b'{"email": "Zoe"}'] == shown


async def test_off_switches_the_defaults_off() -> None:
    keys = {"defaults": "{answer: {max_bytes: 4KiB}}"}
    body = json.dumps(ROWS).encode()
    seen, counted, _ = await ask(ROUTE % "off", answer("200 OK", body, JSON_TYPE), **keys)
    assert (body, {}) == (seen.body, counted)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("{max_bytes: 10}", "`max_bytes` expects a whole number of at least 2000"),
        ("{max_bytes: 1KiB}", "a size from 2KiB to 99MiB"),
        ("{mask: [user]}", "expects secrets, or a JSON Pointer such as /user/email"),
        ("{on_large: shrink}", "`on_large` expects 'refuse' or 'cut'"),
        ("{schema: maybe}", "`schema` expects 'report' or 'enforce'"),
    ],
)
async def test_rejects_mistakes(written: str, message: str) -> None:
    with pytest.raises(ConfigError) as found:
        async with proxied(ROUTE % written):
            pass
    assert message in str(found.value)


@pytest.mark.parametrize(
    "route",
    [
        "  - {path: /p, upstream: tools, passthrough: true, answer: {mask: secrets}}",
        "  - {path: /p, upstream: none, tool: t, schema: {type: object}, answer: {mask: secrets}}",
    ],
)
async def test_rejects_the_key_if_no_tool_answers(route: str) -> None:
    with pytest.raises(ConfigError, match="`answer` has no effect"):
        async with proxied(route):
            pass
