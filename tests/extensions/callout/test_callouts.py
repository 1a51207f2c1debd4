"""Call-outs in the real app: their questions, their decisions, and that no call gets past the decision of the proxy."""

from __future__ import annotations

import gzip
import hashlib
import json

import pytest

from proxy.telemetry.console_log import format_call
from tests.extensions.callout.service import OK, PLAIN, asked, says
from tests.serving.proxied import code, told
from tests.serving.wire import JSON_TYPE, answer, exchange, replies, tool

ALLOW, PASS = {"action": "allow"}, {"action": "pass"}
AFTER = ", at: [after_answer]"
TOKEN = "clerk-token-0123456789"


# --- before a call ----------------------------------------------------------------------------------------------------
async def test_shows_the_call_as_it_is_sent_and_changes_no_byte() -> None:
    async with asked(says(ALLOW), more=", headers: [X-Role]") as there:
        seen = await there.pay(b'{ "amount": 5.50 }', "X-Role: clerk", "X-Other: no", "X-Conversation-Id: c")
        call = there.questions[0]["call"]
    assert (200, [b'{ "amount": 5.50 }']) == (seen.status, there.sent)
    assert b'"arguments":{ "amount": 5.50 }' in there.service.seen[0].body
    assert ("/pay", "pay", {"x-role": "clerk"}, {"token": ""}) == (
        call["route"], call["tool"], call["headers"], call["caller"],
    )  # fmt: skip
    assert "c" != call["conversation"]
    assert "POST / HTTP/1.1" == there.service.seen[0].start


async def test_shows_repaired_arguments_and_is_not_asked_about_refused_calls() -> None:
    async with asked(says(ALLOW)) as there:
        await there.pay(b'{"amount": "7"}')
        refused = await there.pay(b'{"amount": "much"}')
        questions = there.questions
    assert [{"amount": 7}] == [question["call"]["arguments"] for question in questions]
    assert (400, "INVALID_ARGUMENTS") == code(refused)


async def test_a_refusal_reaches_the_model_and_costs_no_attempt() -> None:
    refusal = {"action": "refuse", "message": "Only managers may pay.", "hint": "Ask a manager."}
    async with asked(says(refusal)) as there:
        seen = [await there.pay(b'{"amount": 5}', "X-Conversation-Id: c") for _ in range(5)]
        lines = there.proxy.lines()
    assert [] == there.sent
    assert {(403, "CALL_NOT_ALLOWED")} == {code(one) for one in seen}
    assert {None} == {one.header("tool-attempt") for one in seen}
    assert "Only managers may pay." in told(seen[0])["content"]
    assert "Ask a manager." in told(seen[0])["content"]
    assert {("policy refuse", "policy")} == {(line["callout"], line["refused_by"]) for line in lines}
    assert "CALL_NOT_ALLOWED by policy" in format_call(lines[0])


@pytest.mark.parametrize(("more", "named"), [("", "policy"), (", on_failure: open", None), (AFTER, "policy")])
async def test_names_the_service_whose_failure_ended_a_call(more: str, named: str | None) -> None:
    async with asked(replies(answer("500 Internal Server Error", b"")), more=more) as there:
        seen = await there.pay()
        (line,) = [line for line in there.proxy.lines() if "outcome" in line]
        (entry,) = json.loads((await there.proxy.ask_admin("/-/calls")).body)["calls"]
    assert (503 if named else 200, named, named) == (seen.status, line.get("refused_by"), entry.get("refused_by"))
    assert (f"{named} wrong_status" if named else None) == line.get("callout")
    assert ("delivered" if not named else "withheld" if more == AFTER else "refused") == line["outcome"]


@pytest.mark.parametrize("retryable", [True, False])
async def test_a_refusal_says_whether_another_call_can_succeed(retryable: bool) -> None:
    async with asked(says({"action": "refuse", "message": "No.", "retryable": retryable})) as there:
        seen = await there.pay()
    assert retryable is told(seen)["error"]["retryable"]


async def test_replaced_arguments_are_validated_repaired_and_named() -> None:
    async with asked(says({"action": "replace", "arguments": {"amount": "2.50", "to": "n"}})) as there:
        seen = await there.pay()
    assert [b'{"amount":2.50,"to":"n"}'] == there.sent
    assert "hook;path=, string_to_number;path=/amount" == seen.header("tool-repairs")


@pytest.mark.parametrize(
    "arguments",
    [None, [], "x", {}, {"amount": "much"}, {"amount": 101}, {"amount": 1, "more": 1}, {"to": "x"}, {"amount": None},
     {"amount": 1, "to": "x" * 2_000_000}],
)  # fmt: skip
@pytest.mark.parametrize("on_failure", ["closed", "open"])
async def test_rejects_replaced_arguments_that_the_tool_does_not_take(arguments: object, on_failure: str) -> None:
    more = f", on_failure: {on_failure}, max_answer: 1MiB"
    async with asked(says({"action": "replace", "arguments": arguments}), more=more) as there:
        seen = await there.pay()
        sent = there.sent
    if len(json.dumps(arguments)) > 1_000_000 and on_failure == "open":  # the answer itself is too large to count
        assert [b'{"amount": 5.50}'] == sent
        return
    assert ([], (503, "HOOK_FAILED")) == (sent, code(seen))


async def test_a_report_only_call_may_be_refused_and_is_never_changed() -> None:
    script = says({"action": "replace", "arguments": {"amount": 1}}, {"action": "refuse", "message": "No."})
    async with asked(script, route="mode: report") as there:
        seen = [await there.pay(b'{"amount": "7"}'), await there.pay(b'{"amount": 7}')]
    assert [b'{"amount": "7"}'] == there.sent
    assert [200, 403] == [one.status for one in seen]


async def test_shows_the_text_of_arguments_that_are_not_json() -> None:
    async with asked(says(ALLOW), route="mode: report") as there:
        await there.pay(b'{"amount": NaN')
        call = there.questions[0]["call"]
    assert ('{"amount": NaN', False) == (call["text"], "arguments" in call)
    assert [b'{"amount": NaN'] == there.sent


async def test_asks_in_order_and_shows_what_the_one_before_left() -> None:
    both = "[{name: a, upstream: policy}, {name: b, upstream: policy, path: /b}]"
    script = says({"action": "replace", "arguments": {"amount": 1}}, {"action": "refuse", "message": "No."})
    async with asked(script, callout=both) as there:
        await there.pay()
        questions = there.questions
    assert [{"amount": 5.5}, {"amount": 1}] == [question["call"]["arguments"] for question in questions]
    assert ["POST / HTTP/1.1", "POST /b HTTP/1.1"] == [seen.start for seen in there.service.seen]
    assert [] == there.sent


async def test_the_hooks_of_the_config_run_first_and_see_the_final_decision() -> None:
    from tests.hooks.samples import TOLD

    TOLD.clear()
    hooks = '[{use: "tests.hooks.samples:Says", settings: {change: {amount: 3}}}, {use: "tests.hooks.samples:Witness"}]'
    async with asked(says({"action": "refuse", "message": "No."}), hooks=hooks) as there:
        await there.pay()
        questions = there.questions
    assert [{"amount": 3}] == [question["call"]["arguments"] for question in questions]
    verdicts = [value for _, point, value in TOLD if point == "after_decision"]
    assert ["CALL_NOT_ALLOWED"] == [verdict.code for verdict in verdicts]  # type: ignore[attr-defined]
    TOLD.clear()


@pytest.mark.parametrize(("tools", "count"), [("[pay]", 1), ("['p*']", 1), ("[plain]", 0)])
async def test_asks_about_the_named_tools_only(tools: str, count: int) -> None:
    async with asked(says(ALLOW), more=f", tools: {tools}", routes=PLAIN) as there:
        await there.pay()
        assert count == len(there.questions)


async def test_a_route_without_a_call_out_keeps_the_quick_path() -> None:
    async with asked(says(ALLOW), more=", routes: [/pay]", routes=PLAIN) as there:
        for _ in range(3):
            await there.proxy.post("/plain", b"{}")
        fast = there.proxy.serving.handler.counted_fast
        await there.pay()
        assert (fast, 1) == (there.proxy.serving.handler.counted_fast, len(there.questions))
    assert fast >= 2


# --- after an answer --------------------------------------------------------------------------------------------------
async def test_an_answer_that_passes_keeps_every_byte() -> None:
    async with asked(says(PASS), more=AFTER) as there:
        seen = await there.pay()
        question = there.questions[0]
    assert OK.endswith(seen.body)
    assert ("after_answer", 200, "4111") == (
        question["event"], question["answer"]["status"], question["answer"]["value"]["card"],
    )  # fmt: skip


async def test_masks_the_named_places_and_nothing_else() -> None:
    paths = ["/log/1/ssn", "/card", "/log/1/ssn"]
    async with asked(says({"action": "mask", "paths": paths}), more=AFTER) as there:
        seen = await there.pay()
        lines = there.proxy.lines()
    assert b'{"paid": true, "card": "***", "log": [{"ssn": "1"}, {"ssn": "***"}]}' == seen.body
    assert ["policy mask"] == [line["callout"] for line in lines]


@pytest.mark.parametrize(
    ("paths", "body"),
    [([""], b'"***"'), (["", "/card"], b'"***"'),
     (["/log", "/log/0/ssn"], b'{"paid": true, "card": "4111", "log": "***"}')],
)  # fmt: skip
async def test_a_mask_covers_what_is_inside_it(paths: list[str], body: bytes) -> None:
    reply = answer("200 OK", b'{"paid": true, "card": "4111", "log": [{"ssn": "1"}]}', JSON_TYPE)
    async with asked(says({"action": "mask", "paths": paths}), reply, more=AFTER) as there:
        assert body == (await there.pay()).body


async def test_masks_a_coded_answer_and_drops_what_described_its_bytes() -> None:
    coded = answer("200 OK", gzip.compress(b'{"card": "4111"}'), JSON_TYPE, "Content-Encoding: gzip", 'ETag: "x"')
    async with asked(says({"action": "mask", "paths": ["/card"]}), coded, more=AFTER) as there:
        seen = await there.pay()
    assert (b'{"card": "***"}', None, None) == (seen.body, seen.header("content-encoding"), seen.header("etag"))


async def test_masks_an_answer_that_streams() -> None:
    body = b'{"card": "4111", "note": "' + b"x" * 100_000 + b'"}'
    chunked = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunked += b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    for paths, expected in ([], body), (["/card"], body.replace(b"4111", b"***")):
        said = {"action": "mask", "paths": paths} if paths else PASS
        async with asked(says(said), chunked, more=AFTER + ", max_shown: 1MiB") as there:
            assert expected == (await there.pay()).body


async def test_a_refused_answer_says_that_the_tool_did_run() -> None:
    async with asked(says({"action": "refuse", "message": "Holds a secret."}), more=AFTER) as there:
        seen = await there.pay()
    assert (403, "CALL_NOT_ALLOWED") == code(seen)
    assert ("yes", False) == (told(seen)["error"]["details"]["executed"], told(seen)["error"]["retryable"])
    assert "Holds a secret." in told(seen)["content"]
    assert "did run" in told(seen)["content"]
    assert b"4111" not in seen.body
    assert 1 == len(there.sent)


async def test_a_masked_answer_has_to_fit_the_response_schema() -> None:
    promise = "response_schema: {type: object, properties: {paid: {type: boolean}}}\n    response_mode: report"
    async with asked(says({"action": "mask", "paths": ["/paid"]}), route=promise, more=AFTER) as there:
        seen = await there.pay()
    assert (502, "UPSTREAM_UNFIT_ANSWER") == code(seen)


@pytest.mark.parametrize(
    ("reply", "paths"),
    [(OK, ["/nowhere"]), (OK, ["/log/2"]), (OK, ["/log/-"]), (OK, ["/card", "/log/x"]),
     (answer("200 OK", b"4111", "Content-Type: text/plain"), [""]),
     (answer("200 OK", b'{"card": 4111, "card": 1}', JSON_TYPE), ["/card"])],
)  # fmt: skip
async def test_a_mask_of_what_is_not_there_hands_nothing_on(reply: bytes, paths: list[str]) -> None:
    async with asked(says({"action": "mask", "paths": paths}), reply, more=AFTER) as there:
        seen = await there.pay()
    assert (503, "HOOK_FAILED") == code(seen)
    assert "yes" == told(seen)["error"]["details"]["executed"]
    assert b"4111" not in seen.body


@pytest.mark.parametrize(("on_failure", "status"), [("closed", 503), ("open", 200)])
async def test_an_answer_too_long_to_be_shown_counts_as_a_failure(on_failure: str, status: int) -> None:
    long = answer("200 OK", b'{"card": "' + b"4" * 5000 + b'"}', JSON_TYPE)
    more = f"{AFTER}, max_shown: 4KiB, on_failure: {on_failure}"
    async with asked(says(PASS), long, more=more) as there:
        seen = await there.pay()
        assert ([], status) == (there.questions, seen.status)
        assert 'outcome="not_shown"' in await there.metrics()
    assert (status == 200) is (b"4444" in seen.body)


async def test_a_long_stream_arrives_whole_if_the_call_out_fails_open() -> None:
    body = b"x" * 50_000
    chunked = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunked += b"%x\r\n%b\r\n" % (len(body), body) * 3 + b"0\r\n\r\n"
    async with asked(says(PASS), chunked, more=f"{AFTER}, max_shown: 4KiB, on_failure: open") as there:
        assert body * 3 == (await there.pay()).body


async def test_masks_the_result_among_server_sent_events() -> None:
    events = b'event: message\ndata: {"jsonrpc":"2.0","method":"notifications/progress"}\n\n'
    events += b'event: message\ndata: {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"4111"}]}}\n\n'
    reply = answer("200 OK", events, "Content-Type: text/event-stream")
    said = {"action": "mask", "paths": ["/result/content/0/text"]}
    async with asked(says(said), reply, more=AFTER) as there:
        seen = await there.pay()
    assert events.replace(b"4111", b"***") == seen.body


async def test_is_not_asked_about_an_error_of_the_tool() -> None:
    async with asked(says(PASS), answer("500 Oops", b"{}", JSON_TYPE), more=AFTER) as there:
        await there.pay()
        assert [] == there.questions


async def test_counts_what_services_say_and_shows_no_value() -> None:
    more = ", at: [before_call, after_answer]"
    script = says(ALLOW, PASS, ALLOW, {"action": "mask", "paths": ["/card"]})
    async with asked(script, more=more) as there:
        await there.pay(b'{"amount": 5, "to": "SECRET"}')
        await there.pay()
        metrics, log = await there.metrics(), there.proxy.log.getvalue()
    label = 'toolproxy_callouts_total{{callout="policy",outcome="{}",point="{}"}} {}'
    assert label.format("allow", "before_call", "2.0") in metrics
    assert label.format("pass", "after_answer", "1.0") in metrics
    assert label.format("mask", "after_answer", "1.0") in metrics
    assert 'toolproxy_callout_seconds_count{callout="policy",point="before_call"} 2.0' in metrics
    assert "SECRET" not in metrics + log
    assert "4111" not in metrics + log


async def test_a_tool_is_not_called_while_its_service_is_away() -> None:
    async with tool(replies(OK)) as server:
        gone = server.url
    async with asked(says(ALLOW), headers=lambda _: f'{{url: "{gone}"}}') as there:
        seen = await there.pay()
        assert ([], (503, "HOOK_FAILED")) == (there.sent, code(seen))
        assert 'outcome="unreachable"' in await there.metrics()


# --- with other parts of the proxy ------------------------------------------------------------------------------------
async def test_replaced_arguments_have_to_keep_the_rules_of_access() -> None:
    rules = "allow: [{when: {token: clerk}, tools: [pay], arguments: {properties: {amount: {maximum: 10}}}}]"
    bearer = f"auth: {{bearer: {{clerk: 'sha256:{hashlib.sha256(TOKEN.encode()).hexdigest()}'}}}}"
    script = says({"action": "replace", "arguments": {"amount": 50}}, ALLOW)
    async with asked(script, route=f"{rules}\n    {bearer}") as there:
        seen = [await there.pay(b'{"amount": 5}', f"Authorization: Bearer {TOKEN}") for _ in range(2)]
        callers = [question["call"]["caller"]["token"] for question in there.questions]
    assert [(403, "CALL_NOT_ALLOWED"), (200, [b'{"amount": 5}'])] == [code(seen[0]), (seen[1].status, there.sent)]
    assert ["clerk", "clerk"] == callers


async def test_a_hook_of_the_config_still_sets_headers_and_replaces_answers() -> None:
    hooks = (
        '[{use: "tests.hooks.samples:Headers", settings: {x_seen: "yes"}},'
        ' {use: "tests.hooks.samples:Replaces", settings: {value: {card: "1"}}}]'
    )
    script = says({"action": "mask", "paths": ["/card"]})
    async with asked(script, more=AFTER, hooks=hooks) as there:
        seen = await there.pay()
        question = there.questions[0]
    assert ("yes", b'{"card":"***"}') == (there.tool.seen[0].header("x-seen"), seen.body)
    assert {"card": "1"} == question["answer"]["value"]


async def test_headers_and_queries_of_any_bytes_make_a_question() -> None:
    body = b'{"amount": 1}'
    head = b"POST /pay?a=%FF&b=\xc3\xa9 HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    head += b"X-Role: a\xff\xc3\xa9\r\nX-Role: b\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with asked(says(ALLOW), more=", headers: [X-Role, X-None]") as there:
        seen = await exchange(there.proxy.port, head.replace(b"&b=\xc3\xa9", b""), body)
        call = there.questions[0]["call"]
    assert 200 == seen.status
    assert ("a=%FF", ["x-role"]) == (call["query"], [*call["headers"]])
    assert call["headers"]["x-role"].endswith(", b")


async def test_two_call_outs_may_both_see_an_answer() -> None:
    both = "[{name: a, upstream: policy, at: [after_answer]}, {name: b, upstream: policy, at: [after_answer]}]"
    script = says({"action": "mask", "paths": ["/card"]}, {"action": "mask", "paths": ["/log"]})
    async with asked(script, callout=both) as there:
        seen = await there.pay()
        questions = there.questions
    assert b'{"paid": true, "card": "***", "log": "***"}' == seen.body
    assert ["4111", "***"] == [question["answer"]["value"]["card"] for question in questions]
