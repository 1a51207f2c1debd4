"""A question requests an answer in the form of the tool's schema, and no form if the endpoint does not support it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from proxy.extensions.correction.core.words import AnswerFormat, Layer
from proxy.extensions.correction.questions import NO_FORM, find_forms
from tests.collected_schemas import policy, real_tools
from tests.extensions.correction.model import completion, rig, says
from tests.serving.wire import JSON_TYPE, Script, answer, replies

OK = answer("200 OK", b'{"ok": true}', JSON_TYPE)
FIXED = {"can_fix": True, "analysis": "a", "corrected_payload": {"unit": "kelvin"}}
ROUTE = """
  - path: /w
    upstream: tools
    tool: weather
    schema: {type: object, properties: {unit: {enum: [celsius, kelvin]}}, required: [unit], additionalProperties: false}
    correct: {validation_feedback: on}
"""
WRONG = b'{"unit": "rankine"}'


def refuses(words: str, *statuses: str) -> Script:
    """An endpoint that answers so to its first questions, and with a correction to the others."""
    error = json.dumps({"error": {"message": words}}).encode()
    return replies(*(answer(status, error, JSON_TYPE) for status in statuses), completion(FIXED))


async def test_requests_the_answer_in_the_form_of_the_tools_schema() -> None:
    async with rig(says(FIXED), replies(OK), ROUTE) as it:
        assert 200 == (await it.proxy.post("/w", WRONG)).status
    (asked,) = it.asked()
    told = asked["response_format"]["json_schema"]
    assert ("json_schema", "correction", True) == (asked["response_format"]["type"], told["name"], told["strict"])
    Draft202012Validator.check_schema(told["schema"])
    takes = Draft202012Validator(told["schema"]).is_valid
    assert [True, True, False, False] == [
        takes(FIXED),
        takes({"can_fix": False, "analysis": "a", "corrected_payload": None}),
        takes({"can_fix": True, "analysis": "a", "corrected_payload": {"unit": "rankine"}}),
        takes({"unit": "kelvin"}),
    ]
    assert AnswerFormat.STRICT is it.questions()[0].format
    fields = json.loads(next(line for line in it.proxy.log.getvalue().splitlines() if "correction.questions" in line))
    question = fields["correction.questions"][0]
    assert (True, True) == (question["forced_json_mode"], question["structured_output_strict"])


@pytest.mark.parametrize("words", ["unknown field `response_format`", "'json_schema' is not supported", "bad grammar"])
async def test_stops_requesting_a_form_that_the_endpoint_does_not_support(words: str) -> None:
    async with rig(refuses(words, "400 Bad Request", "422 Unprocessable"), replies(OK), ROUTE) as it:
        seen = [await it.proxy.post("/w", WRONG) for _ in range(2)]
    assert ["json_schema", "json_object", None, None] == [
        asked.get("response_format", {}).get("type") for asked in it.asked()
    ]
    assert ([200, 200], AnswerFormat.TEXT) == ([each.status for each in seen], it.questions()[0].format)


@pytest.mark.parametrize("status", ["400 Bad Request", "401 Unauthorized", "500 Internal Server Error"])
async def test_another_error_of_the_endpoint_is_none_of_the_form(status: str) -> None:
    async with rig(refuses("your key is spent", status, status), replies(OK), ROUTE) as it:
        seen = await it.proxy.post("/w", WRONG)
    assert (400, 1, [("validation_feedback", "endpoint_error")]) == (seen.status, len(it.asked()), it.outcomes())


@pytest.mark.parametrize(
    ("keys", "form"),
    [
        ("structured_output: off", None),
        ("body: {response_format: null}", None),
        ("body: {response_format: {type: json_object}}", {"type": "json_object"}),
    ],
)
async def test_uses_the_form_that_the_operator_configured(keys: str, form: Any) -> None:
    async with rig(says(FIXED), replies(OK), ROUTE, endpoint=keys) as it:
        assert 200 == (await it.proxy.post("/w", WRONG)).status
    assert [form] == [asked.get("response_format") for asked in it.asked()]


def test_the_form_takes_every_verdict_about_every_real_tool() -> None:
    for name, tool in real_tools().items():
        assert tool.check is not None
        for layer in Layer:
            *forms, last = find_forms(layer, tool)
            assert (NO_FORM, AnswerFormat.OBJECT) == (last, forms[-1].kind)
            if len(forms) == 1:  # too long a schema
                continue
            schema = json.loads(forms[0].key)["json_schema"]["schema"]
            Draft202012Validator.check_schema(schema)
            stop = {
                Layer.VALIDATION_FEEDBACK: {"can_fix": False, "analysis": "", "corrected_payload": None},
                Layer.SEMANTIC_RETRY: {
                    "should_retry": False, "is_transient_error": False, "analysis": "", "suggested_changes": {},
                },
            }[layer]  # fmt: skip
            assert Draft202012Validator(schema).is_valid(stop), name


def test_arguments_that_are_no_object_have_no_schema_form() -> None:
    forms = list(find_forms(Layer.VALIDATION_FEEDBACK, policy({"type": "array", "items": {"type": "string"}}, "t")))
    assert [AnswerFormat.OBJECT, AnswerFormat.TEXT] == [form.kind for form in forms]
