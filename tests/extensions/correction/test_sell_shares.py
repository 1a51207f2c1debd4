"""GoMind's example end to end: "Sell 100 Tesla shares and convert the proceeds to EUR" (Layer 4, "The Problem")."""

from __future__ import annotations

import json

from tests.extensions.correction.model import rig, says
from tests.serving.wire import JSON_TYPE, answer, replies

ROUTES = """
  - path: /stock
    upstream: tools
    tool: stock
    schema: {type: object, properties: {symbol: {type: string}}, required: [symbol]}
    correct: {semantic_retry: on, trajectory: on}
  - path: /currency
    upstream: tools
    tool: currency
    schema:
      type: object
      properties: {amount: {type: number}, from: {type: string}, to: {type: string}}
      required: [amount, from, to]
    correct: {validation_feedback: on, semantic_retry: on, trajectory: on}
"""
WISH = "Sell 100 Tesla shares and convert the proceeds to EUR"
SAID = ("X-Conversation-Id: c1", f"X-User-Query: {WISH}", "X-Tool-Call-Id: step-2")

PRICE = answer("200 OK", b'{"symbol": "TSLA", "price": 468.285}', JSON_TYPE)
ZERO = answer("400 Bad Request", b'{"error": "amount must be greater than 0"}', JSON_TYPE)
SOLD = answer("200 OK", b'{"amount": 46828.5, "result": 43081.22}', JSON_TYPE)

NOT_KNOWN = {"can_fix": False, "analysis": "I do not know what the amount should be"}
COMPUTED = {
    "should_retry": True,
    "corrected_parameters": {"amount": 46828.5},
    "analysis": "Computed 100 x 468.285 = 46828.5",
}


async def test_the_amount_is_computed_from_the_users_wish_and_the_earlier_result() -> None:
    async with rig(says(NOT_KNOWN, COMPUTED), replies(PRICE, ZERO, SOLD), ROUTES) as it:
        await it.proxy.post("/stock", b'{"symbol": "TSLA"}', *SAID)
        seen = await it.proxy.post("/currency", b'{"amount": 0, "from": "USD", "to": "EUR"}', *SAID)
        page = (await it.proxy.ask_admin("/metrics")).body.decode()

    assert [b'{"symbol": "TSLA"}', b'{"amount": 0, "from": "USD", "to": "EUR"}',
            b'{"amount":46828.5,"from":"USD","to":"EUR"}'] == [hit.body for hit in it.tool.seen]  # fmt: skip
    assert (200, b'{"amount": 46828.5, "result": 43081.22}') == (seen.status, seen.body)
    assert ("semantic_retry;path=/amount", None) == (seen.header("tool-corrections"), seen.header("tool-repairs"))

    feedback, contextual = it.prompts()
    assert WISH not in feedback
    assert "amount must be greater than 0" in feedback
    assert WISH in contextual
    step = {"tool": "stock", "arguments": {"symbol": "TSLA"}, "result": {"symbol": "TSLA", "price": 468.285}}
    assert json.dumps([step], separators=(",", ":")) in contextual
    assert ("tiny", 0.1, 1000) == tuple(it.asked()[1][key] for key in ("model", "temperature", "max_tokens"))
    assert "Bearer model-key-of-ours" == it.model.seen[0].header("authorization")

    which = {"capability": "currency", "step_id": "step-2"}
    assert [
        ("validation_feedback_started",
         {**which, "retry_number": 1, "type_error": False, "reason": "UPSTREAM_REJECTED_ARGUMENTS"}),
        ("validation_feedback_failed", {**which, "retry_number": 1, "reason": "cannot_fix"}),
        ("contextual_re_resolution.start",
         {**which, "retry_number": 1, "http_status": 400, "independent_step": False}),
        ("contextual_re_resolution.complete",
         {**which, "retry_number": 1, "should_retry": True, "is_transient_error": False, "parameter_count": 1,
          "independent_step": False, "reason": "proposed"}),
    ] == it.events()  # fmt: skip

    line = it.proxy.lines()[-1]
    assert ("corrected", [{"layer": "semantic_retry", "path": "/amount"}]) == (line["outcome"], line["corrections"])
    asked = [(each["layer"], each["outcome"]) for each in line["correction.questions"]]
    assert [("validation_feedback", "cannot_fix"), ("semantic_retry", "delivered")] == asked
    labels = 'independent="false",layer="semantic_retry",outcome="delivered",route="/currency",tool="currency"'
    assert f"toolproxy_correction_questions_total{{{labels}}} 1.0" in page
    assert 'toolproxy_correction_seconds_count{layer="semantic_retry"} 1.0' in page
    assert "46828" not in it.proxy.log.getvalue()
    assert 0 <= it.record.stages["correction"] < 5
