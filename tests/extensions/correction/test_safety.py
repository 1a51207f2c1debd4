"""Actions that a correction never takes: send a call that was not validated, run a tool twice, change a right value,
show a secret."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from proxy.core.model.values import UpstreamReply
from proxy.extensions.correction.core.settings import CorrectionSettings
from proxy.extensions.correction.endpoint import Endpoint
from proxy.interfaces import UpstreamRequest
from tests.extensions.correction.model import BOTH, completion, failed, rig, says
from tests.serving.proxied import told
from tests.serving.wire import JSON_TYPE, Script, Seen, answer, exchange, post, replies
from tests.steady import until

OK = answer("200 OK", b'{"ok": true}', JSON_TYPE)
SCHEMA = (
    "{type: object, properties: {unit: {enum: [celsius, kelvin]}, lat: {type: number}, password: {type: string}}, "
    "required: [unit]}"
)
WRONG = b'{"unit": "rankine"}'
FIXED = {"can_fix": True, "corrected_payload": {"unit": "kelvin"}}
BOOM = answer("500 Internal Server Error", b'{"error": "disk"}', JSON_TYPE)


def route(*keys: str, correct: str = BOTH) -> str:
    more = "".join(f", {key}" for key in keys)
    return f"  - {{path: /w, upstream: tools, tool: weather, schema: {SCHEMA}, correct: {correct}{more}}}\n"


def whole(**arguments: Any) -> dict[str, Any]:
    return {"can_fix": True, "corrected_payload": arguments}


# --- who is asked -----------------------------------------------------------------------------------------------------
async def test_forwards_a_valid_call_unchanged_without_a_question() -> None:
    body = b'{ "unit": "kelvin", "lat": 1.10 }'
    async with rig(says(FIXED), replies(OK), route()) as it:
        seen = await it.proxy.post("/w", body)
    assert ([body], [], None) == (
        [hit.body for hit in it.tool.seen], it.asked(), seen.header("tool-corrections"),
    )  # fmt: skip


async def test_a_call_that_a_rule_repairs_is_not_asked_about() -> None:
    async with rig(says(FIXED), replies(OK), route()) as it:
        seen = await it.proxy.post("/w", b'{"unit": "Kelvin"}')
    assert ("enum_case;path=/unit", []) == (seen.header("tool-repairs"), it.asked())


@pytest.mark.parametrize(
    ("why", "path", "body", "keys"),
    [
        ("off is the default", "/w", WRONG, "correct: {}"),
        ("a report-only route", "/w", WRONG, f"correct: {BOTH}, mode: report"),
        ("what cannot be read", "/w", b'{"unit": "rank', f"correct: {BOTH}"),
        ("another body", "/w", b'{"unit": "kelvin"} {}', f"correct: {BOTH}"),
    ],
)
async def test_asks_no_model_for_other_calls(why: str, path: str, body: bytes, keys: str) -> None:
    routes = f"  - {{path: /w, upstream: tools, tool: weather, schema: {SCHEMA}, {keys}}}\n"
    async with rig(says(FIXED), replies(OK), routes) as it:
        await it.proxy.post(path, body)
    assert ([], ()) == (it.asked(), it.record.events)


async def test_a_dry_run_asks_nobody() -> None:
    async with rig(says(FIXED), replies(OK), route()) as it:
        question = json.dumps({"route": "/w", "body": {"unit": "rankine"}}).encode()
        request = post("/-/validate", question).replace(b"Host: tools.test", b"Host: 127.0.0.1")
        assert 200 == (await exchange(it.proxy.admin, request)).status
    assert [] == it.asked()


async def test_asks_no_model_about_a_call_that_went_through_a_container() -> None:
    routes = f"  - {{path: '/t/{{tool}}', upstream: tools, correct: {BOTH}}}\n"
    catalogue = (
        "{Math: {container: {functions: [add], auto_expand: dispatch}}, "
        "add: {schema: {type: object, properties: {a: {type: integer}}, required: [a]}}}"
    )
    no = failed("422 Unprocessable", "INVALID_FORMAT", "a is invalid", "INPUT_ERROR", field="a")
    async with rig(says(whole(a=2)), replies(no), routes, tools=catalogue) as it:
        seen = await it.proxy.post("/t/Math", b'{"function": "add", "a": 1}')
    assert (422, [], 1) == (seen.status, it.asked(), len(it.tool.seen))


# --- judged like any other --------------------------------------------------------------------------------------------
async def test_a_corrected_call_is_repaired_and_validated_by_the_same_rules() -> None:
    async with rig(says(whole(unit="Kelvin")), replies(OK), route()) as it:
        seen = await it.proxy.post("/w", WRONG)
    assert b'{"unit":"kelvin"}' == it.tool.seen[0].body
    assert ("validation_feedback;path=/unit", "enum_case;path=/unit") == (
        seen.header("tool-corrections"), seen.header("tool-repairs"),
    )  # fmt: skip


async def test_a_second_question_is_about_the_rejected_correction() -> None:
    async with rig(says(whole(unit="fahrenheit"), FIXED), replies(OK), route()) as it:
        seen = await it.proxy.post("/w", WRONG)
    assert 200 == seen.status
    assert [("validation_feedback", "refused"), ("validation_feedback", "delivered")] == it.outcomes()
    assert "fahrenheit" in it.prompts()[1]
    names = ["validation_feedback_started", "validation_feedback_failed", "validation_feedback_started"]
    assert [*names, "validation_feedback_success"] == [name for name, _ in it.events()]


async def test_at_most_two_corrected_calls_reach_the_tool() -> None:
    units = (
        whole(unit="celsius"),
        whole(unit="kelvin"),
        {"should_retry": True, "suggested_changes": {"unit": "celsius"}},
    )
    no = failed("422 Unprocessable", "INVALID_FORMAT", "unit is invalid", "INPUT_ERROR", field="unit")
    async with rig(says(*units), replies(no), route()) as it:
        seen = await it.proxy.post("/w", WRONG)
    assert (400, 2) == (seen.status, len(it.tool.seen))


async def test_a_hook_has_its_say_about_the_corrected_call_too() -> None:
    hooks = "[{use: 'tests.extensions.correction.gatekeeper:NoKelvin', timeout: 1s}]"
    async with rig(says(FIXED), replies(OK), route(), hooks=hooks) as it:
        seen = await it.proxy.post("/w", WRONG, "X-Tool-Call-Id: x")
    assert ([], 400, "INVALID_ARGUMENTS") == (it.tool.seen, seen.status, seen.header("tool-error"))
    assert [("validation_feedback", "refused")] == it.outcomes()


async def test_a_corrected_call_takes_one_slot_of_its_cap() -> None:
    async with rig(says(FIXED), replies(OK), route("caps: {default: 1}")) as it:
        seen = [await it.proxy.post("/w", WRONG, "X-Conversation-Id: c") for _ in range(2)]
    assert ([200, 400], 1) == ([each.status for each in seen], len(it.tool.seen))
    assert "INVALID_ARGUMENTS" == seen[1].header("tool-error")


# --- never twice ------------------------------------------------------------------------------------------------------
async def test_returns_the_tools_error_after_a_corrected_call() -> None:
    async with rig(says(FIXED), replies(BOOM), route()) as it:
        seen = await it.proxy.post("/w", WRONG)
    assert (500, 1) == (seen.status, len(it.tool.seen))
    assert "toolcall-proxy; received-status=500" == seen.header("proxy-status")


async def test_reports_a_lost_corrected_call_as_lost() -> None:
    async def lost(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter, _seen: Seen) -> None:
        raise ConnectionResetError

    async with rig(says(FIXED), lost, route()) as it:
        seen = await it.proxy.post("/w", WRONG)
    assert (502, "unknown", 1) == (seen.status, told(seen)["error"]["details"]["executed"], len(it.tool.seen))


# --- only what failed -------------------------------------------------------------------------------------------------
async def test_a_model_may_include_a_repair_that_a_rule_would_have_made() -> None:
    async with rig(says(whole(unit="kelvin", lat=35.6)), replies(OK), route()) as it:
        seen = await it.proxy.post("/w", b'{"unit": "rankine", "lat": "35.6"}')
    assert (200, b'{"unit":"kelvin","lat":35.6}') == (seen.status, it.tool.seen[0].body)


async def test_scope_any_lets_a_model_change_what_had_not_failed() -> None:
    correct = "{validation_feedback: on, scope: any}"
    async with rig(says(whole(unit="kelvin", lat=2)), replies(OK), route(correct=correct)) as it:
        seen = await it.proxy.post("/w", b'{"unit": "rankine", "lat": 1}')
    assert "validation_feedback;path=/unit, validation_feedback;path=/lat" == seen.header("tool-corrections")


async def test_restores_right_values_that_a_model_changed_and_delivers_the_rest() -> None:
    async with rig(says(whole(unit="kelvin", lat=2, more=True)), replies(OK), route()) as it:
        seen = await it.proxy.post("/w", b'{"unit": "rankine", "lat": 1.10}')
    assert (200, b'{"unit":"kelvin","lat":1.10}') == (seen.status, it.tool.seen[0].body)
    assert "validation_feedback;path=/unit" == seen.header("tool-corrections")


async def test_asks_once_more_when_a_model_changed_only_right_values() -> None:
    async with rig(says(whole(unit="rankine", lat=2), whole(unit="kelvin", lat=1)), replies(OK), route()) as it:
        seen = await it.proxy.post("/w", b'{"unit": "rankine", "lat": 1}')
    assert (200, ["out_of_scope", "delivered"]) == (seen.status, [outcome for _, outcome in it.outcomes()])
    assert "Your last answer also changed /lat" in it.prompts()[1]


# --- what the hint asks for belongs to what failed --------------------------------------------------------------------
OPEN = """
  - path: /f
    upstream: tools
    tool: read
    schema:
      type: object
      properties: {path: {type: string}, at: {type: object, properties: {line: {type: integer}}}, raw: {type: boolean}}
      required: [path]
    correct: {validation_feedback: on}
"""


@pytest.mark.parametrize(
    ("why", "sent", "meant"),
    [
        ("a key under a similar name", {"file_path": "/a/b.txt"}, {"path": "/a/b.txt"}),
        ("a key under another name", {"document": "/a/b.txt"}, {"path": "/a/b.txt"}),
        ("beside what stood right", {"file_path": "/a", "raw": True}, {"path": "/a", "raw": True}),
        ("a key in another place", {"at": {"path": "/a", "line": 1}}, {"path": "/a", "at": {"line": 1}}),
        ("everything in a wrapper", {"args": {"path": "/a", "raw": True}}, {"path": "/a", "raw": True}),
    ],
)
async def test_asks_once_when_a_model_follows_the_hint(why: str, sent: Any, meant: Any) -> None:
    async with rig(says(whole(**meant)), replies(OK), OPEN + "    repair: off\n") as it:
        seen = await it.proxy.post("/f", json.dumps(sent).encode())
    assert (200, [meant]) == (seen.status, [json.loads(hit.body) for hit in it.tool.seen])
    assert [("validation_feedback", "delivered")] == it.outcomes()


async def test_a_key_that_the_hint_offers_another_name_for_may_take_it() -> None:
    closed = (
        OPEN.replace("required: [path]", "required: [path]\n      additionalProperties: false") + "    repair: off\n"
    )
    async with rig(says(whole(path="/a", raw=True)), replies(OK), closed) as it:
        seen = await it.proxy.post("/f", b'{"path": "/a", "rawe": true}')
    assert (200, b'{"path":"/a","raw":true}') == (seen.status, it.tool.seen[0].body)


async def test_layer_4_may_change_every_argument_if_layer_3_was_not_enough() -> None:
    no = answer(
        "422 Unprocessable",
        b'{"detail": [{"loc": ["body", "unit"], "msg": "not here", "type": "value_error"}]}',
        JSON_TYPE,
    )
    verdicts = whole(unit="kelvin", lat=2), {"should_retry": True, "suggested_changes": {"unit": "kelvin", "lat": 2}}
    async with rig(says(*verdicts), replies(no, no, OK), route()) as it:
        seen = await it.proxy.post("/w", b'{"unit": "celsius", "lat": 1}')
    assert (200, [{"unit": "celsius", "lat": 1}, {"unit": "kelvin", "lat": 1}, {"unit": "kelvin", "lat": 2}]) == (
        seen.status, [json.loads(hit.body) for hit in it.tool.seen],
    )  # fmt: skip
    assert [("validation_feedback", "refused"), ("semantic_retry", "delivered")] == it.outcomes()


# --- secrets ----------------------------------------------------------------------------------------------------------
async def test_a_secret_is_kept_from_the_model_and_reaches_the_tool() -> None:
    async with rig(says(whole(unit="kelvin", password="***")), replies(OK), route()) as it:
        await it.proxy.post("/w", b'{"unit": "rankine", "password": "hunter2"}')
    assert "hunter2" not in it.model.seen[0].body.decode()
    assert b'{"unit":"kelvin","password":"hunter2"}' == it.tool.seen[0].body


async def test_a_masked_secret_in_another_place_is_not_sent() -> None:
    async with rig(says(whole(unit="***", password="***")), replies(OK), route()) as it:
        await it.proxy.post("/w", b'{"unit": "rankine", "password": "hunter2"}')
    assert ([], {"unusable"}) == (it.tool.seen, {outcome for _, outcome in it.outcomes()})


# --- every way of calling ---------------------------------------------------------------------------------------------
DISPATCH = f"""
  - path: /d
    upstream: tools
    dispatch: {{tool: /function/name, arguments: /function/arguments, arguments_encoding: json_string}}
    correct: {BOTH}
"""


async def test_corrected_arguments_take_the_place_of_the_old_ones_in_a_body() -> None:
    body = {"id": "c1", "function": {"name": "weather", "arguments": '{"unit": "rankine"}'}, "more": 1.10}
    catalogue = f"{{weather: {{schema: {SCHEMA}}}}}"
    async with rig(says(FIXED), replies(OK), DISPATCH, tools=catalogue) as it:
        seen = await it.proxy.post("/d", json.dumps(body).encode())
    sent = b'{"id": "c1", "function": {"name": "weather", "arguments": "{\\"unit\\":\\"kelvin\\"}"}, "more": 1.1}'
    assert (200, sent) == (seen.status, it.tool.seen[0].body)


async def test_a_route_without_upstream_answers_the_corrected_arguments() -> None:
    routes = f"  - {{path: /v, upstream: none, tool: weather, schema: {SCHEMA}, correct: {BOTH}}}\n"
    async with rig(says(FIXED), replies(OK), routes) as it:
        seen = await it.proxy.post("/v", WRONG)
    assert (200, b'{"unit":"kelvin"}') == (seen.status, seen.body)


async def test_a_call_without_a_body_can_be_corrected() -> None:
    async with rig(says(FIXED), replies(OK), route()) as it:
        seen = await it.proxy.post("/w", b"")
    assert (200, b'{"unit":"kelvin"}') == (seen.status, it.tool.seen[0].body)


async def test_a_tool_cannot_claim_that_its_call_was_corrected() -> None:
    forged = answer("200 OK", b"{}", JSON_TYPE, "Tool-Corrections: semantic_retry;path=/x")
    async with rig(says(FIXED), replies(forged), route()) as it:
        seen = await it.proxy.post("/w", b'{"unit": "kelvin"}')
    assert (200, None) == (seen.status, seen.header("tool-corrections"))


# --- how often and how long ----------------------------------------------------------------------------------------
NEVER = {"can_fix": False}


async def test_asks_only_once_about_the_same_arguments() -> None:
    async with rig(says(NEVER), replies(OK), route()) as it:
        seen = [await it.proxy.post("/w", WRONG, "X-Conversation-Id: c") for _ in range(2)]
    assert (["1/3", "2/3"], 2) == ([each.header("tool-attempt") for each in seen], len(it.asked()))


async def test_a_question_waits_for_a_place_while_as_many_as_may_be_are_under_way() -> None:
    free, under_way, most = asyncio.Event(), 0, 0

    async def slow(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await free.wait()
        under_way -= 1
        writer.write(completion(FIXED))

    async with rig(slow, replies(OK), route(), endpoint="concurrency: 2") as it:
        calls = [asyncio.create_task(it.proxy.post("/w", WRONG)) for _ in range(6)]
        await until(lambda: it.proxy.serving.handler.inflight >= 6 and under_way >= 2)
        free.set()
        assert [200] * 6 == [(await call).status for call in calls]
    assert 2 == most


async def test_a_question_that_finds_no_place_in_time_is_not_asked() -> None:
    async def exchange(_request: UpstreamRequest, _most: int) -> UpstreamReply:
        raise AssertionError("nobody is asked here")

    endpoint = Endpoint(CorrectionSettings("m", "m", concurrency=1), exchange)
    assert [True, False] == [await endpoint.enter(20), await endpoint.enter(0.01)]
    endpoint.leave()
    assert await endpoint.enter(20)


async def test_all_questions_about_one_call_share_a_deadline() -> None:
    script: Script = says(NEVER)
    is_first = True

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Seen) -> None:
        nonlocal is_first
        if not is_first:
            await asyncio.Event().wait()
        is_first = False
        await script(reader, writer, seen)

    async with rig(late, replies(OK), route(), endpoint="deadline: 1s") as it:
        await it.proxy.post("/w", WRONG)
    assert ["cannot_fix", "timeout"] == [outcome for _, outcome in it.outcomes()]


async def test_a_client_that_leaves_ends_the_question() -> None:
    never = asyncio.Event()

    async def slow(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter, _seen: Seen) -> None:
        await never.wait()

    async with rig(slow, replies(OK), route()) as it:
        asking = asyncio.create_task(it.proxy.post("/w", WRONG))
        await it.model.arrived.wait()
        asking.cancel()
        await until(lambda: not it.proxy.serving.handler.inflight)
    assert "client_gone" == it.record.outcome
