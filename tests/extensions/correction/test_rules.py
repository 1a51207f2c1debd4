"""Every row of the seeds' decision tables, over real sockets: the layer that is used, and the call that reaches the
tool."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.core.contract.policy import ToolPolicy
from proxy.core.model.values import UpstreamReply
from proxy.core.tool_errors.classify import classify_answer
from proxy.extensions.correction.core.settings import CorrectionPolicy
from proxy.extensions.correction.core.words import Layer
from proxy.extensions.correction.rules import ACTIVATION, MATRIX, Action, Why, asks
from tests.extensions.correction.model import failed, rig, says
from tests.serving.wire import JSON_TYPE, answer, replies

OK = answer("200 OK", b'{"ok": true}', JSON_TYPE)
PLACE = "{type: object, properties: {location: {type: string}, days: {type: integer}}, required: [location]}"
CALL = b'{"location": "Tokio"}'
FIXED = {"should_retry": True, "suggested_changes": {"location": "Tokyo"}}
NO = {"should_retry": False, "analysis": "no"}
CANNOT = {"can_fix": False, "analysis": "no"}
QUICK = "resend: {max: 1, backoff: 1ms, max_backoff: 1ms}"


def route(*keys: str, correct: str = "{validation_feedback: on, semantic_retry: on}") -> str:
    more = "".join(f", {key}" for key in (QUICK, *keys))
    return f"  - {{path: /w, upstream: tools, tool: weather, schema: {PLACE}, correct: {correct}{more}}}\n"


def bare(status: str) -> bytes:
    return answer(status, b'{"error": "no such place"}', JSON_TYPE)


def refused(status: str, category: str = "INPUT_ERROR", *, retryable: bool = True) -> bytes:
    return failed(status, "LOCATION_NOT_FOUND", "Location 'Tokio' not found", category, retryable=retryable)


# --- "When Semantic Retry Activates" ----------------------------------------------------------------------------------
ACTIVATES = [
    ("400 and layer 3 says cannot fix", bare("400 Bad Request"), "", True),
    ("404 and layer 3 says cannot fix", bare("404 Not Found"), "", True),
    ("409 and layer 3 says cannot fix", bare("409 Conflict"), "", True),
    ("422 and layer 3 says cannot fix", bare("422 Unprocessable"), "", True),
    ("500", bare("500 Internal Server Error"), "", False),
    ("502", bare("502 Bad Gateway"), "", False),
    ("504", bare("504 Gateway Timeout"), "", False),
    ("401", bare("401 Unauthorized"), "", False),
    ("403", bare("403 Forbidden"), "", False),
    ("429 waits, and is not a matter for a model", bare("429 Too Many Requests"), "", False),
    ("an independent step with an error", refused("404 Not Found", "NOT_FOUND"), "", True),
    ("an independent step, switched off", refused("404 Not Found", "NOT_FOUND"), "independent_steps: off", False),
    ("switched off", refused("404 Not Found", "NOT_FOUND"), "semantic_retry: off", False),
]  # fmt: skip


@pytest.mark.parametrize(("row", "error", "keys", "asked"), ACTIVATES, ids=[row[0] for row in ACTIVATES])
async def test_a_row_of_the_activation_table(row: str, error: bytes, keys: str, asked: bool) -> None:
    correct = {"validation_feedback": "on", "semantic_retry": "on", **dict([keys.split(": ")] if keys else [])}
    async with rig(says(CANNOT), replies(error, error, OK), route(correct=json.dumps(correct))) as it:
        await it.proxy.post("/w", CALL)
    layers = [layer for layer, _ in it.outcomes()]
    assert asked == ("semantic_retry" in layers)
    assert {"cannot_fix"} >= {outcome for _, outcome in it.outcomes()}


async def test_layer_4_is_not_used_if_layer_3_has_corrected_the_call() -> None:
    fixed = {"can_fix": True, "corrected_payload": {"location": "Tokyo"}}
    async with rig(says(fixed), replies(bare_type_error(), OK), route()) as it:
        seen = await it.proxy.post("/w", CALL)
    assert (200, [("validation_feedback", "delivered")]) == (seen.status, it.outcomes())
    assert "validation_feedback;path=/location" == seen.header("tool-corrections")
    assert ["validation_feedback_started", "validation_feedback_success"] == [name for name, _ in it.events()]


def bare_type_error() -> bytes:
    text = b'{"error": "json: cannot unmarshal number into Go struct field Weather.location of type string"}'
    return answer("400 Bad Request", text, JSON_TYPE)


# The union of the seeds' lists of error patterns (three of them, and "Validation errors (business logic)").
PATTERNS = [
    "cannot unmarshal string into", "cannot unmarshal number into", "cannot unmarshal bool into",
    "json: cannot unmarshal", "type mismatch", "invalid type", "expected number", "expected string",
    "expected boolean", "invalid value", "must be greater than", "must be positive", "is required", "cannot be empty",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("status", [400, 422])
def test_layer_3_handles_every_error_that_the_seed_knows(pattern: str, status: int) -> None:
    body = json.dumps({"error": f"location {pattern} x"}).encode()
    failure = classify_answer(UpstreamReply(status, (("content-type", "application/json"),), body), 0.0)
    assert failure is not None
    policy = ToolPolicy("t", None, "", added={"correct": CorrectionPolicy(validation_feedback=True)})
    assert asks(Layer.VALIDATION_FEEDBACK, failure, policy, independent=True)


# Those of them that are about a type (the first lists of both seeds).
TYPE_PATTERNS = PATTERNS[:9]


@pytest.mark.parametrize("pattern", TYPE_PATTERNS)
async def test_a_type_error_of_the_tools_is_marked_as_one(pattern: str) -> None:
    body = json.dumps({"error": f"location {pattern} x"}).encode()
    async with rig(says(CANNOT), replies(answer("400 Bad Request", body, JSON_TYPE)), route()) as it:
        await it.proxy.post("/w", CALL)
    started = [attributes for name, attributes in it.events() if name == "validation_feedback_started"]
    assert [True] == [attributes["type_error"] for attributes in started]


# --- "Retry Decision Matrix", the column "AI Correction?" -------------------------------------------------------------
MATRIX_ROWS = [
    ("2xx", OK, False),
    ("401", refused("401 Unauthorized", "AUTH_ERROR"), False),
    ("403", refused("403 Forbidden", "AUTH_ERROR"), False),
    ("429", refused("429 Too Many Requests", "RATE_LIMIT"), False),
    ("5xx", refused("500 Internal Server Error", "SERVICE_ERROR"), False),
    ("4xx + Retryable", refused("404 Not Found", "NOT_FOUND"), True),
    ("4xx + Not Retryable", refused("404 Not Found", "NOT_FOUND", retryable=False), False),
]


@pytest.mark.parametrize(("row", "error", "asked"), MATRIX_ROWS, ids=[row[0] for row in MATRIX_ROWS])
async def test_a_row_of_the_retry_decision_matrix(row: str, error: bytes, asked: bool) -> None:
    async with rig(says(FIXED), replies(error, OK), route()) as it:
        seen = await it.proxy.post("/w", CALL)
    assert asked == bool(it.asked())
    assert [CALL, b'{"location":"Tokyo"}'][: 1 + asked] == [hit.body for hit in it.tool.seen][: 1 + asked]
    assert (seen.header("tool-corrections") is not None) == asked


async def test_an_error_inside_a_success_counts_as_the_status_of_its_category() -> None:
    async with rig(says(FIXED), replies(refused("200 OK", "NOT_FOUND"), OK), route()) as it:
        seen = await it.proxy.post("/w", CALL)
    assert (200, b'{"ok": true}', 2) == (seen.status, seen.body, len(it.tool.seen))


# --- "Transient Error Handling", the decision matrix ------------------------------------------------------------------
TRANSIENT = [
    ("should_retry with changes: new parameters", FIXED, [CALL, b'{"location":"Tokyo"}'], 200),
    ("should_retry without changes: the same parameters", {"should_retry": True, "suggested_changes": {}},
     [CALL, CALL], 200),
    ("no retry but transient: back off and send the same", {"should_retry": False, "is_transient_error": True},
     [CALL, CALL], 200),
    ("neither: stop", {"should_retry": False, "is_transient_error": False}, [CALL], 503),
]  # fmt: skip


@pytest.mark.parametrize(("row", "verdict", "sent", "status"), TRANSIENT, ids=[row[0] for row in TRANSIENT])
async def test_a_row_of_the_transient_decision_matrix(row: str, verdict: Any, sent: list[bytes], status: int) -> None:
    """The tool said `retryable: false`, which a model's word that it will pass overrides (GoMind)."""
    down = refused("503 Service Unavailable", "SERVICE_ERROR", retryable=False)
    async with rig(says(verdict), replies(down, OK), route("idempotent: on")) as it:
        seen = await it.proxy.post("/w", CALL)
    assert (sent, status) == ([hit.body for hit in it.tool.seen], seen.status)


@pytest.mark.parametrize("verdict", [row[1] for row in TRANSIENT])
async def test_a_tool_that_may_not_be_called_twice_is_not_after_a_503(verdict: Any) -> None:
    down = refused("503 Service Unavailable", "SERVICE_ERROR", retryable=False)
    async with rig(says(verdict), replies(down, OK), route()) as it:
        seen = await it.proxy.post("/w", CALL)
    assert (1, 503, []) == (len(it.tool.seen), seen.status, it.asked())


async def test_a_503_that_says_nothing_of_itself_is_infrastructure_and_asked_about_nobody() -> None:
    async with rig(says(FIXED), replies(bare("503 Service Unavailable"), OK), route("idempotent: on")) as it:
        await it.proxy.post("/w", CALL)
    assert [] == it.asked()


@pytest.mark.parametrize("verdict", [row[1] for row in TRANSIENT[1:3]])
async def test_a_models_word_does_not_send_a_refused_call_again_as_it_was(verdict: Any) -> None:
    """After a 400 the rules of resends do not send the same payload again, so a model cannot have it sent either."""
    async with rig(says(verdict), replies(bare("400 Bad Request"), OK), route()) as it:
        seen = await it.proxy.post("/w", CALL)
    assert (400, 1) == (seen.status, len(it.tool.seen))


# --- the tables as data -----------------------------------------------------------------------------------------------
def test_the_tables_are_the_seeds() -> None:
    assert {400, 404, 409, 422} == {status for status, why in ACTIVATION.items() if why is Why.ARGUMENTS}
    assert {401, 403} == {status for status, why in ACTIVATION.items() if why is Why.CREDENTIALS}
    assert {Action.CHANGE} == {MATRIX[True, True, transient] for transient in (True, False)}
    assert {Action.AGAIN} == {MATRIX[True, False, transient] for transient in (True, False)}
    assert {Action.BACK_OFF} == {MATRIX[False, changes, True] for changes in (True, False)}
    assert {Action.STOP} == {MATRIX[False, changes, False] for changes in (True, False)}
