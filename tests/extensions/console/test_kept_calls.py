"""The kept last calls, and their view on the operator's port: entries, filters, one call, counts."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from typing import Any

import pytest

from proxy.call_record import CallRecord, ReplacedAnswer, Trace
from proxy.core.contract.attempts import hash_conversation
from proxy.core.model import codes
from proxy.core.model.values import Conversation, Document, Failure, Rung, ToolCall, ToolResult, Violation
from proxy.core.rules.rules import LEVEL_MEANINGS
from proxy.extensions.console.kept_calls import CallFilter, read_figures, select_calls
from proxy.telemetry.ring import KeptCall, KeptValues, RecentCalls, make_entry
from tests.serving.proxied import WEATHER, Proxied, proxied, told
from tests.serving.wire import JSON_TYPE, answer, replies, tool

OK = answer("200 OK", b"{}", JSON_TYPE)
SECRET = "planted-7b2f9c-planted"
TOKEN = "a-token-of-the-operator"
READER = "a-token-of-the-readers"
REMINDERS = """
  - path: /reminders
    upstream: tools
    tool: add_reminder
    schema:
      type: object
      properties:
        text: {type: string}
        at: {type: string, format: date-time}
        repeat: {enum: [daily, weekly]}
      required: [text, at]
      additionalProperties: false
"""


async def get(proxy: Proxied, path: str, token: str = "") -> Any:
    headers = (f"Authorization: Bearer {token}",) if token else ()
    return told(await proxy.ask_admin(path, *headers))


async def remind(proxy: Proxied, conversation: str = "c1", **arguments: Any) -> None:
    await proxy.post("/reminders", json.dumps(arguments).encode(), f"X-Conversation-Id: {conversation}")


async def test_the_figures_of_summaries_are_those_that_the_entries_show() -> None:
    def list_shown(kept: KeptCall) -> tuple[Any, ...]:
        entry = make_entry(kept)
        return (
            entry["http.route"], entry.get("gen_ai.tool.name", ""), entry["duration_ms"], entry.get("overhead_ms"),
            entry.get("conversation.source", ""), entry.get("server.address", ""),
            entry.get("upstream.duration_ms", 0.0),
            entry.get("error.type", "") if entry["outcome"] == "upstream_error" else "",
        )  # fmt: skip

    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy:
        for body in (b'{"lat": 1}', b'{"lat": "1"}', b'{"lat": []}', b"no JSON"):
            await proxy.post("/weather", body)
        assert proxy.serving.console is not None
        kept = list(select_calls(proxy.serving.console.recent, CallFilter()))
    outcomes = {make_entry(each)["outcome"] for each in kept}
    assert {"delivered", "repaired", "refused"} <= outcomes
    assert list(map(list_shown, kept)) == [tuple(read_figures(each)) for each in kept]


async def test_every_outcome_is_kept_newest_first_and_filters_choose() -> None:
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy:
        await proxy.post("/weather", b'{"lat": 1}', "X-Request-ID: r-1")
        await proxy.post("/weather", b'{"lat": "1"}', "X-Request-ID: r-2")
        await proxy.post("/weather", b'{"lat": []}', "X-Request-ID: r-3")
        everything = await get(proxy, "/-/calls")
        repaired = await get(proxy, "/-/calls?outcome=repaired&path=/lat")
        later = await get(proxy, f"/-/calls?after={everything['cursor']}")
        few = await get(proxy, f"/-/calls?after={everything['calls'][-1]['id']}&limit=1")
        unknown = await proxy.ask_admin("/-/calls?outcom=refused")
        nowhere = [await proxy.ask_admin(f"/-/calls?{name}={place}") for name in ("after", "before")
                   for place in ("abc", "-1", "1.2.3", "a.b", "1,2", "1" * 16)]  # fmt: skip

    assert [("r-3", "refused"), ("r-2", "repaired"), ("r-1", "delivered")] == [
        (entry["correlation_id"], entry["outcome"]) for entry in everything["calls"]
    ]
    assert (3, 2000, 0) == (everything["kept"], everything["bound"], everything["missed"])
    assert ["r-2"] == [entry["correlation_id"] for entry in repaired["calls"]]
    assert [] == later["calls"]
    assert (["r-3"], 1) == ([entry["correlation_id"] for entry in few["calls"]], few["missed"])
    assert {(400, f"`{name}` is a number, or the `cursor` of an answer") for name in ("after", "before")} == {
        (each.status, told(each)["error"]) for each in nowhere
    }
    assert (400, True) == (unknown.status, "`outcom` is not a filter" in told(unknown)["error"])


async def test_an_entry_of_a_usual_call_says_what_its_log_line_says() -> None:
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy:
        await proxy.post("/weather", b'{"lat": 1}', "X-Conversation-Id: c1")
        (entry,) = (await get(proxy, "/-/calls"))["calls"]
        (line,) = proxy.lines()

    own = {"id", "seq", "timestamp", "conversation"}
    assert {key: line[key] for key in line if key not in {"timestamp", "level", "message"}} == {
        key: entry[key] for key in entry if key not in own
    }
    assert own <= set(entry)


async def test_one_call_is_opened_with_what_its_model_read_and_every_value_masked() -> None:
    async with proxied(REMINDERS) as proxy:
        await remind(proxy, text=SECRET, at=SECRET)
        (entry,) = (await get(proxy, "/-/calls"))["calls"]
        seen = await proxy.ask_admin(f"/-/calls/{entry['id']}")
        gone = await proxy.ask_admin("/-/calls/0000.1")
        metrics = await proxy.ask_admin("/metrics")

    call = told(seen)
    assert [("/at", "VAL-010", f"text of {len(SECRET)}")] == [
        (error["path"], error["code"], error["got"]) for error in call["errors"]
    ]
    assert "Validation failed for tool 'add_reminder' (attempt 1/3)" in call["model_read"]
    assert "Actual: <***>" in call["model_read"]
    assert {"read", "decode", "decide"} <= set(call["stages_ms"])
    assert SECRET.encode() not in seen.body + metrics.body
    assert SECRET not in proxy.log.getvalue()
    assert 404 == gone.status


async def test_shows_values_only_to_the_operator_and_only_if_the_config_says_so() -> None:
    admin = f"{{listen: 127.0.0.1:0, token: {TOKEN}, readers: {READER}, values: preview}}"
    async with proxied(REMINDERS, admin=admin) as proxy:
        await remind(proxy, text="tea", at="tomorrow", password=SECRET)
        (entry,) = (await get(proxy, "/-/calls", TOKEN))["calls"]
        mine = await get(proxy, f"/-/calls/{entry['id']}", TOKEN)
        theirs = await get(proxy, f"/-/calls/{entry['id']}", READER)

    assert {"text": "tea", "at": "tomorrow", "password": "<***>"} == mine["came"]
    assert ("preview", "off") == (mine["values"], theirs["values"])
    assert "came" not in theirs
    assert SECRET not in json.dumps([mine, theirs])


async def test_shows_the_operator_what_the_model_read_and_readers_a_masked_text() -> None:
    admin = f"{{listen: 127.0.0.1:0, token: {TOKEN}, readers: {READER}, values: preview}}"
    refusal = answer("422 Unprocessable Entity", b'{"error": "no room for mocha"}', JSON_TYPE)
    async with tool(replies(refusal)) as server, proxied(REMINDERS, server.url, admin=admin) as proxy:
        await remind(proxy, text="mocha", at="tomorrow", password=SECRET)
        await remind(proxy, "c2", text="mocha", at="2026-12-01T09:00:00Z")
        said, refused = (await get(proxy, "/-/calls", TOKEN))["calls"]
        mine = [await get(proxy, f"/-/calls/{entry['id']}", TOKEN) for entry in (refused, said)]
        theirs = [await get(proxy, f"/-/calls/{entry['id']}", READER) for entry in (refused, said)]

    assert 'Actual: "tomorrow"' in mine[0]["model_read"]
    assert "no room for mocha" in mine[1]["model_read"]
    assert [False, False, True, True] == [each.get("masked", False) for each in (*mine, *theirs)]
    assert "mocha" not in json.dumps(theirs)
    assert "tomorrow" not in json.dumps(theirs)
    assert SECRET not in json.dumps([mine, theirs])


async def test_readers_change_nothing_and_wrong_tokens_have_to_wait_while_the_right_one_is_taken() -> None:
    admin = f"{{listen: 127.0.0.1:0, token: {TOKEN}, readers: {READER}}}"
    async with proxied(REMINDERS, admin=admin) as proxy:
        reset = await proxy.ask_admin("/-/attempts/reset", f"Authorization: Bearer {READER}", method="POST")
        wrong = [await proxy.ask_admin("/-/calls", "Authorization: Bearer nonsense") for _ in range(11)]
        right = await proxy.ask_admin("/-/calls", f"Authorization: Bearer {TOKEN}")

    assert 403 == reset.status
    assert [401] * 10 + [429] == [seen.status for seen in wrong]
    assert 200 == right.status


async def test_counts_mistakes_of_models_by_place_with_the_shape_of_texts() -> None:
    async with tool(replies(OK)) as server, proxied(REMINDERS, server.url) as proxy:
        for number in range(7):
            await remind(proxy, f"c{number}", text="tea", at=f"0{number + 1}.12.2026, 09:00")
            await remind(proxy, f"c{number}", text="tea", at="2026-12-01T09:00:00Z")
        for number in range(6):
            await remind(proxy, f"d{number}", text="tea", when="2026-12-01T09:00:00Z")
        page = await get(proxy, "/-/tools/%2Freminders/add_reminder")
        overview = await get(proxy, "/-/overview")

    assert f"standard ({LEVEL_MEANINGS['standard']})" == page["repair"]
    worst = page["mistakes"][0]
    assert ("/at", "VAL-010", 7, 7, 7, 7, {"00.00.0000, 00:00": 7}) == tuple(
        worst[name] for name in ("path", "code", "calls", "alone", "retried", "right", "shapes")
    )
    assert [("when", 6, {"at": 6})] == [(key["name"], key["calls"], key["beside"]) for key in page["invented"]]
    changes = {change["rule"]: change for change in page["changes"]}
    assert (7, 6) == (changes["format_missed"]["passes"], changes["key_invented"]["passes"])
    assert {"type": "string"} == changes["format_missed"]["schema"]["properties"]["at"]
    assert ["text", "when"] == changes["key_invented"]["schema"]["required"]
    (row,) = overview["tools"]
    assert ("add_reminder", 20, "/at") == (row["tool"], row["calls"], row["worst"]["path"])
    assert {"delivered": 7, "refused": 13} == overview["totals"] == overview["bars"][-1]["outcomes"]


async def test_an_escalated_conversation_waits_for_a_human_and_is_found_by_its_name() -> None:
    async with proxied(REMINDERS) as proxy:
        for number in range(3):
            await remind(proxy, "mine", text="tea", at=str(number))
        overview = await get(proxy, "/-/overview")
        (waiting,) = (await get(proxy, "/-/conversations?waiting=true"))["attempts"]
        (named,) = (await get(proxy, "/-/conversations?conversation=mine"))["attempts"]

    assert ["waiting"] == [need["what"] for need in overview["needs"]]
    assert waiting == named
    assert (True, "add_reminder", 3, "header") == tuple(
        waiting[name] for name in ("waiting", "tool", "attempts", "source")
    )


async def test_a_conversation_that_waits_at_two_tools_is_counted_once() -> None:
    second = WEATHER.replace("/weather", "/climate").replace("tool: weather", "tool: climate")
    async with proxied(WEATHER + second) as proxy:
        for path in ("/weather", "/climate"):
            for number in range(3):
                await proxy.post(path, b'{"lat": "x%d"}' % number, "X-Conversation-Id: mine")
        overview = await get(proxy, "/-/overview")
        rows = (await get(proxy, "/-/conversations?waiting=true"))["attempts"]

    assert ["climate", "weather"] == sorted(row["tool"] for row in rows)
    assert ["1 conversation waits for a human"] == [need["text"] for need in overview["needs"]]


async def test_a_page_of_another_origin_is_refused_and_the_own_one_is_served() -> None:
    async with proxied(WEATHER) as proxy:
        own = f"Host: 127.0.0.1:{proxy.admin}"
        refused = [
            await proxy.ask_admin("/-/calls", "Origin: http://elsewhere.test"),
            await proxy.ask_admin("/-/calls", "Sec-Fetch-Site: cross-site"),
            await proxy.ask_admin("/-/calls", "Sec-Fetch-Site: same-site"),
            await proxy.ask_admin("/-/calls", "Origin: null"),
            await proxy.ask_admin("/-/calls", host="rebound.test"),
        ]
        served = await proxy.ask_admin("/-/calls", "Origin: http://127.0.0.1", "Sec-Fetch-Site: same-origin")
        form = await proxy.ask_admin("/-/reload", "Content-Type: text/plain", method="POST")

    assert [403] * 5 == [seen.status for seen in refused]
    assert (200, 415, True) == (served.status, form.status, own.startswith("Host"))


async def test_with_the_console_off_only_failed_calls_are_kept() -> None:
    async with (
        tool(replies(OK)) as server,
        proxied(WEATHER, server.url, admin="{listen: 127.0.0.1:0, console: off}") as proxy,
    ):
        await proxy.post("/weather", b'{"lat": 1}')
        await proxy.post("/weather", b'{"lat": []}')
        kept = await get(proxy, "/-/calls")
        overview = await proxy.ask_admin("/-/overview")

    assert (["refused"], 500) == ([entry["outcome"] for entry in kept["calls"]], kept["bound"])
    assert 400 <= overview.status < 500


def test_a_kept_call_holds_the_hash_of_its_conversation_and_a_cut_name_of_its_tool() -> None:
    kept = RecentCalls(lambda: 0.0)
    conversation = Conversation("c" * 900_000, Rung.META, sent=True)
    call = ToolCall("t" * 900_000, Document(b"{}", {}), "call-1", conversation)
    refused = ToolResult(call, Failure(codes.UNKNOWN_TOOL, codes.UNKNOWN_TOOL.meaning))
    kept.finished(CallRecord("r-1", "/tools", tool="w", call=call, outcome="delivered"))
    kept.finished(CallRecord("r-2", "/tools", tool="t", call=call, outcome="refused", result=refused))
    entries = list(select_calls(kept, CallFilter(conversation=hash_conversation(conversation)[:8])))

    assert ["r-2", "r-1"] == [make_entry(entry)["correlation_id"] for entry in entries]
    assert {hash_conversation(conversation)} == {entry.conversation for entry in entries}
    assert all(len(pickle.dumps((entry.content, entry.stages, entry.failure))) < 8_000 for entry in entries)


@pytest.mark.parametrize("name", ["repos/get", "repos~get", "~1/~0", "get\nsecret", "t" * 300])
def test_a_tool_has_one_spelling_in_kept_calls(name: str) -> None:
    kept = RecentCalls(lambda: 0.0)
    kept.finished(CallRecord("r-1", "/tools", call_id="1", tool=name, outcome="delivered"))
    kept.finished(CallRecord("r-2", "/tools", call_id="2", tool=name, outcome="refused"))
    shown = {make_entry(entry)["gen_ai.tool.name"] for entry in select_calls(kept, CallFilter())}
    figures = {read_figures(entry).tool for entry in select_calls(kept, CallFilter())}
    found = [make_entry(entry)["correlation_id"] for entry in select_calls(kept, CallFilter(tool=frozenset(shown)))]

    assert [1, shown] == [len(shown), figures]
    assert ["r-2", "r-1"] == found
    assert shown == {name} or not name.isprintable() or len(name) > 100


def test_calls_with_long_errors_push_the_oldest_out_before_they_fill_memory() -> None:
    kept = RecentCalls(lambda: 0.0)
    call = ToolCall("t", Document(b"{}", {}), "call-1", Conversation("c", Rung.META, sent=True))
    wrong = Violation(codes.CONSTRAINT, ("k" * 900_000,), "Too long")
    refused = ToolResult(call, Failure(codes.INVALID_ARGUMENTS, "", (wrong,)))
    for _ in range(20):
        record = CallRecord("r", "/t", tool="t", call=call, outcome="refused", result=refused, violations=(wrong,))
        kept.finished(record)
    assert [(20, 4)] == [(kept.last, kept.size)]


async def test_a_refusal_has_its_own_time_and_the_wait_for_parallel_calls_is_named() -> None:
    async with tool(replies(OK)) as server, proxied(REMINDERS, server.url) as proxy:
        await remind(proxy, text="tea", at="soon")
        overview = await get(proxy, "/-/overview")
        (entry,) = (await get(proxy, "/-/calls"))["calls"]
        opened = await get(proxy, f"/-/calls/{entry['id']}")

    times = opened["stages_ms"]
    assert (entry["overhead_ms"], entry["overhead_ms"]) == (overview["own_p95_ms"], times["total"])
    assert times["total"] >= times["gather"] >= 0


async def test_a_renamed_key_is_shown_with_its_new_name_and_what_was_sent_under_it() -> None:
    async with tool(replies(OK)) as server, proxied(REMINDERS, server.url) as proxy:
        await remind(proxy, Text="tea", at="2026-12-01T09:00:00Z")
        (entry,) = (await get(proxy, "/-/calls"))["calls"]

    (repair,) = entry["repairs"]
    assert ("/Text", "/text", "text of 3", "text of 3") == tuple(
        repair[name] for name in ("path", "renamed", "got", "became")
    )


async def test_a_call_after_the_last_attempt_says_why_and_what_was_wrong_before() -> None:
    async with tool(replies(OK)) as server, proxied(REMINDERS, server.url) as proxy:
        for number in (1, 2, 3, 3):
            await remind(proxy, text="tea", at=f"{SECRET}{number}")
        entry = (await get(proxy, "/-/calls"))["calls"][0]

    assert "ATTEMPTS_EXHAUSTED" == entry["error.code"]
    assert "Tool 'add_reminder' is blocked in this conversation." == entry["reason"]
    assert [
        f"Attempt {number}: Invalid format for 'at' (expected: string (format date-time))" for number in (1, 2, 3)
    ] == entry["earlier"]
    assert SECRET not in json.dumps(entry)


def test_keeps_only_the_ids_of_a_usual_calls_trace() -> None:
    """The state of a trace is as long as the client likes."""
    recent = RecentCalls(lambda: 0.0)
    trace = Trace("0af7", "b7ad", "", 1, "vendor=" + "x" * 15_000, str)
    recent.finished(CallRecord("r-1", "/weather", tool="weather", outcome="delivered", trace=trace))
    (kept,) = select_calls(recent, CallFilter())

    assert replace(trace, state="") in kept.content
    assert "b7ad" == make_entry(kept)["span_id"]


def test_answers_that_others_took_the_place_of_push_the_oldest_out_before_they_fill_memory() -> None:
    values = KeptValues("full", room=100_000)
    recent = RecentCalls(lambda: 0.0, values=values)
    sent = ToolCall("weather", Document(b'"%b"' % (b"x" * 9_000), "x" * 9_000), "1", Conversation("", Rung.HEADER))
    before = CallRecord("r-1", "/v1", tool="weather", outcome="delivered", call=sent)
    for number in range(20):
        answer = ReplacedAnswer([before, before], "w" * 300_000, 5)
        recent.finished(CallRecord(f"r-{number}", "/v1", outcome="passthrough", replaced=[answer]))

    assert (20, 6) == (recent.last, recent.size)
    assert (9_002, 0) == tuple(len(text) for text in (values.read(20) or ())[3:])
    assert [*range(11, 21)] == [seq for seq in range(21) if values.read(seq) is not None]
