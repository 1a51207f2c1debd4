"""The wire formats: whole answers as their clients read them, each held against its published schema."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest
from hypothesis import given

from proxy.core.contract import attempts as contract
from proxy.core.contract import container
from proxy.core.contract.policy import ToolPolicy
from proxy.core.envelope import FORMATS, Detail, choose_format, render_failure
from proxy.core.envelope.parts import make_repair_headers, make_warning_headers, read_retry_after, show_text
from proxy.core.json.jsontext import LosslessFloat
from proxy.core.model import codes
from proxy.core.model.codes import ERROR_CODES
from proxy.core.model.values import (
    ABSENT,
    Attempt,
    Container,
    ContainerFunction,
    Conversation,
    Document,
    Failure,
    FeedbackLimits,
    JsonValue,
    Repair,
    Rung,
    ToolCall,
    ToolResult,
    Violation,
)
from tests.core.values import results, slow_data
from tests.tables import each_row

SCHEMAS = Path(__file__).parents[2] / "schemas" / "envelopes"
NAMES = ("Add", "Multiply", "Abs", "Square", "Subtract", "Min", "SolveQuadratic")
MATH = Container("Math", "plugin", tuple(ContainerFunction(name) for name in NAMES))
LATITUDE = Violation(
    codes.TYPE_MISMATCH,
    ("lat",),
    "Type mismatch: expected number, got string",
    "number",
    "Send a number without quotes.",
    value="abc",
)


def call(tool: str = "get_weather", sent: JsonValue = ABSENT) -> ToolCall:
    return ToolCall(tool, Document(b"", sent), "call_abc123", Conversation("c-1", Rung.HEADER))


def refused(*violations: Violation, **more: Any) -> ToolResult:
    failure = Failure(codes.INVALID_ARGUMENTS, codes.INVALID_ARGUMENTS.meaning, violations, sent={"lat": "abc"})
    return ToolResult(call(), failure, attempt=Attempt(1, 3), **more)


def escalated(failure: Failure, tool: str = "get_weather") -> ToolResult:
    recorded = None
    for number in range(3):
        attempt = contract.make_failed_attempt(failure, str(number))
        recorded = contract.add(recorded.episode if recorded else None, attempt)
    return contract.grant_attempt(call(tool), failure, recorded, ToolPolicy(tool, None, "f"))


@cache
def validator(name: str) -> jsonschema.Draft202012Validator:
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def checked(result: ToolResult, name: str, error_status: str = "category", detail: Detail = "full") -> Any:
    """The answer in one format, held against its schema."""
    reply = render_failure(result, name, error_status, detail=detail)
    body = json.loads(reply.body)
    validator(name).validate(body)
    return body


CASES = {
    "refused": refused(LATITUDE),
    "warning": refused(replace(LATITUDE, severity=codes.Severity.WARNING)),
    "repeated": refused(LATITUDE, repeated=True),
    "container": ToolResult(
        call("Math"), container.make_misuse_failure(MATH, {"function": "Add", "a": 5}), Attempt(1, 3)
    ),
    "escalation": escalated(refused(LATITUDE).failure),
    "container escalation": escalated(container.make_misuse_failure(MATH, {"a": 1}), "Math"),
    "blocked": ToolResult(call(), Failure(codes.ATTEMPTS_EXHAUSTED, ""), Attempt(4, 3), escalated=True),
    "unreadable": refused(Violation(codes.INVALID_JSON, (), "Invalid JSON: EOF while parsing an object")),
    **{f"bare {name}": ToolResult(call(), Failure(code, code.meaning)) for name, code in ERROR_CODES.items()
       if code.error_type is not codes.ErrorType.CONTAINER and code is not codes.ATTEMPTS_EXHAUSTED},
}  # fmt: skip


# --- every format -----------------------------------------------------------------------------------------------------
def test_every_format_has_a_schema_and_every_schema_a_format() -> None:
    assert set(FORMATS) == {path.name.removesuffix(".schema.json") for path in SCHEMAS.iterdir()}


@each_row("case", CASES)
@each_row("name", FORMATS)
@each_row("detail", get_args(Detail))
def test_every_answer_satisfies_the_published_schema_of_its_format(name: str, case: str, detail: Detail) -> None:
    assert checked(CASES[case], name, detail=detail)


@pytest.mark.large
@pytest.mark.parametrize("name", FORMATS)
@slow_data
@given(results)
def test_an_answer_can_always_be_written_and_read(name: str, result: ToolResult) -> None:
    reply = render_failure(result, name, "category")
    json.loads(reply.body.decode())
    assert all(value.isprintable() for _, value in reply.headers)


@pytest.mark.parametrize("name", FORMATS)
def test_no_format_shows_a_secret(name: str) -> None:
    broken = Violation(
        codes.PATTERN_MISMATCH,
        ("api_key",),
        "Value 's3cr3t-value' is wrong",
        hint="not s3cr3t-value",
        value="s3cr3t-value",
    )
    failure = Failure(codes.INVALID_ARGUMENTS, "", (broken,), sent={"api_key": "s3cr3t-value"})
    leaky = Failure(
        codes.SERVICE_UNAVAILABLE, "Bearer s3cr3t-value0", details={"original_error": "api_key=s3cr3t-value"}
    )
    misused = container.make_misuse_failure(MATH, {"password": "s3cr3t-value"})
    for result in (escalated(failure), ToolResult(call(), leaky), ToolResult(call("Math"), misused)):
        assert b"s3cr3t" not in render_failure(result, name, "category").body


# --- tool_result ------------------------------------------------------------------------------------------------------
def test_tool_result_carries_all_four_systems_at_once() -> None:
    assert {
        "role": "tool",
        "tool_call_id": "call_abc123",
        "is_error": True,
        "content": (
            "Validation failed for tool 'get_weather' (attempt 1/3):\n\nErrors:\n"
            "• /lat (VAL-002): Type mismatch: expected number, got string. Send a number without quotes.\n"
            '  Expected: number\n  Actual: "abc"\n\nPlease correct /lat and call the tool again.'
        ),
        "success": False,
        "error": {
            "error_type": "validation_error",
            "code": "INVALID_ARGUMENTS",
            "message": "The arguments break the tool's schema.",
            "category": "INPUT_ERROR",
            "retryable": True,
            "errors": [
                {
                    "code": "VAL-002",
                    "path": "/lat",
                    "message": "Type mismatch: expected number, got string",
                    "severity": "error",
                    "expected": "number",
                    "actual": '"abc"',
                    "hint": "Send a number without quotes.",
                }
            ],
            "retry_guidance": (
                "The provided arguments are invalid. Please review the errors, correct the arguments based on the "
                "function schema, and try again."
            ),
            "attempt": 1,
            "max_attempts": 3,
            "status": "retry",
            "details": {"hint": "Send a number without quotes."},
        },
        "remediation_hint": "Send a number without quotes.",
        "format_version": 2,
    } == checked(refused(LATITUDE), "tool_result")


def test_the_escalation_is_blocked_and_carries_history_call_and_summary() -> None:
    error = checked(CASES["escalation"], "tool_result")["error"]
    line = "Type mismatch on 'lat' (got: string)"
    assert {
        "error_type": "escalation",
        "code": "ATTEMPTS_EXHAUSTED",
        "retryable": False,
        "status": "blocked",
        "attempt": 3,
        "summary": "Tool 'get_weather' validation failed after 3 attempts.",
        "history": [f"Attempt {number}: {line}" for number in (1, 2, 3)],
        "original_call": {"tool": "get_weather", "arguments": {"lat": "abc"}},
    } == {key: error[key] for key in (
        "error_type", "code", "retryable", "status", "attempt", "summary", "history", "original_call"
    )}  # fmt: skip
    assert [found["code"] for found in error["errors"]] == ["VAL-002"]


@pytest.mark.parametrize("name", FORMATS)
def test_an_escalation_says_blocked_in_every_format(name: str) -> None:
    assert "blocked" in json.dumps(checked(CASES["escalation"], name)).lower()


def test_a_container_error_holds_exactly_hpds_keys() -> None:
    error = checked(CASES["container"], "tool_result")["error"]
    assert {"container_name", "attempted_parameters", "available_functions", "error_message", "retry_guidance"} == (
        set(error) - set(checked(refused(LATITUDE), "tool_result")["error"])
    ) | {"retry_guidance"}


def test_beyond_the_limit_the_details_count_what_is_left_out() -> None:
    many = [replace(LATITUDE, path=(f"f{number}",)) for number in range(12)]
    error = checked(refused(*many, limits=FeedbackLimits(max_errors=10)), "tool_result")["error"]
    assert (10, "2") == (len(error["errors"]), error["details"]["more_errors"])


def test_by_default_the_part_for_machines_holds_each_error_in_short() -> None:
    content = checked(refused(LATITUDE), "tool_result")["content"]
    error = {
        "error_type": "validation_error",
        "code": "INVALID_ARGUMENTS",
        "message": "The arguments break the tool's schema.",
        "category": "INPUT_ERROR",
        "retryable": True,
        "errors": [
            {
                "code": "VAL-002",
                "path": "/lat",
                "severity": "error",
                "message": "Type mismatch: expected number, got string",
                "expected": "number",
                "actual": '"abc"',
            }
        ],
        "attempt": 1,
        "max_attempts": 3,
        "status": "retry",
        "details": {},
    }
    assert {
        "role": "tool",
        "tool_call_id": "call_abc123",
        "is_error": True,
        "content": content,
        "success": False,
        "error": error,
        "format_version": 2,
    } == checked(refused(LATITUDE), "tool_result", detail="compact")
    assert {"toolcall-proxy/feedback": error} == checked(refused(LATITUDE), "mcp", detail="compact")["_meta"]


def test_a_compact_container_error_names_the_container_and_its_functions() -> None:
    error = checked(CASES["container"], "tool_result", detail="compact")["error"]
    assert ("Math", list(NAMES)) == (error["container_name"], error["available_functions"])
    assert not {"attempted_parameters", "error_message", "retry_guidance"} & set(error)


def test_counts_errors_that_a_compact_answer_leaves_out() -> None:
    many = [replace(LATITUDE, path=(f"{number}{'f' * 100}",)) for number in range(12)]
    error = checked(refused(*many), "tool_result", detail="compact")["error"]
    assert (7, "5") == (len(error["errors"]), error["details"]["more_errors"])


# --- the seeds --------------------------------------------------------------------------------------------------------
def test_hpds_container_error_is_verbatim() -> None:
    failure = container.make_misuse_failure(MATH, {"function": "Add", "a": 5, "b": 10})
    assert {
        "error_type": "container_invocation_error",
        "container_name": "Math",
        "attempted_parameters": {"function": "Add", "a": 5, "b": 10},
        "available_functions": ["Add", "Multiply", "Abs", "Square", "Subtract", "Min", "SolveQuadratic"],
        "error_message": (
            "'Math' is a container function that groups related functions. It cannot be called with parameters."
        ),
        "retry_guidance": (
            "This requires TWO separate tool calls: (1) First call 'Math' with NO arguments to expand it. (2) After "
            "expansion succeeds, call the individual function you need. Available functions: Add, Multiply, Abs, "
            "Square, Subtract, ..."
        ),
    } == checked(ToolResult(call("Math"), failure, Attempt(1, 3)), "hpd")


def test_hpds_validation_error_is_verbatim() -> None:
    missing = Violation(codes.REQUIRED_MISSING, ("file_path",), "Required field 'file_path' is missing", "string")
    assert {
        "error_type": "validation_error",
        "errors": [
            {
                "property": "file_path",
                "attempted_value": None,
                "error_message": "file_path is required",
                "error_code": "REQUIRED_FIELD",
            }
        ],
        "retry_guidance": (
            "The provided arguments are invalid. Please review the errors, correct the arguments based on the "
            "function schema, and try again."
        ),
    } == checked(refused(missing), "hpd")


def test_hpd_shows_what_was_attempted_as_a_value() -> None:
    deep = Violation(codes.CONSTRAINT, ("a", 0, "b"), "Value out of range: at most 9", value=LosslessFloat(b"10.50"))
    [error] = checked(refused(deep), "hpd")["errors"]
    assert {
        "property": "a.0.b",
        "attempted_value": 10.5,
        "error_message": "Value out of range: at most 9",
        "error_code": "CONSTRAINT_VIOLATION",
    } == error


def test_gominds_error_is_its_tool_response_with_flat_details() -> None:
    details = {"original_location": "Flower Mound, TX", "hint": "Try 'City, Country' format"}
    failure = Failure(codes.LOCATION_NOT_FOUND, "Location 'Flower Mound, TX' not found", details=details)
    body = checked(ToolResult(call(), failure), "gomind")
    feedback = body["error"]["details"].pop("feedback")
    assert {
        "success": False,
        "error": {
            "code": "LOCATION_NOT_FOUND",
            "message": "Location 'Flower Mound, TX' not found",
            "category": "NOT_FOUND",
            "retryable": True,
            "details": details,
        },
    } == body
    assert feedback.startswith("Tool 'get_weather' failed (LOCATION_NOT_FOUND): Location 'Flower Mound, TX' not found")


def test_acode_openai_and_anthropic_carry_only_the_feedback() -> None:
    content = checked(refused(LATITUDE), "tool_result")["content"]
    assert {"role": "tool", "tool_call_id": "call_abc123", "content": content, "is_error": True} == checked(
        refused(LATITUDE), "acode"
    )
    assert {"role": "tool", "tool_call_id": "call_abc123", "content": content} == checked(refused(LATITUDE), "openai")
    assert {"type": "tool_result", "tool_use_id": "call_abc123", "content": content, "is_error": True} == checked(
        refused(LATITUDE), "anthropic"
    )


def test_compozys_error_has_code_message_details_and_a_remediation_hint() -> None:
    body = checked(refused(LATITUDE), "compozy")
    assert ("INVALID_ARGUMENTS", "VAL-002", "Send a number without quotes.") == (
        body["error"]["code"],
        body["error"]["details"]["errors"][0]["code"],
        body["remediation_hint"],
    )


def test_problem_details_state_the_status_that_is_sent() -> None:
    assert checked(refused(LATITUDE), "problem")["status"] == 400
    assert checked(refused(LATITUDE), "problem", "ok")["status"] == 200


@each_row("code", ERROR_CODES.values(), ids=str)
def test_shows_the_meaning_of_a_code_unchanged(code: codes.ErrorCode) -> None:
    assert code.meaning == show_text(code.meaning, ToolResult(call(), Failure(code, code.meaning)))


# --- status, headers, choice ------------------------------------------------------------------------------------------
@each_row("name", ERROR_CODES)
def test_the_status_is_the_codes_unless_the_route_says_always_200(name: str) -> None:
    result = ToolResult(call(), Failure(ERROR_CODES[name], ""))
    assert ERROR_CODES[name].status == render_failure(result, "openai", "category").status
    assert render_failure(result, "openai", "ok").status == 200


def test_an_upstreams_own_status_is_kept() -> None:
    assert (
        render_failure(
            ToolResult(call(), Failure(codes.SERVICE_UNAVAILABLE, "", status=500)), "auto", "category"
        ).status
        == 500
    )


def test_the_headers_say_what_happened_without_the_body() -> None:
    failure = Failure(
        codes.RATE_LIMIT_EXCEEDED, "", details={"retry_after": "60s"}, headers=(("Proxy-Status", "toolcall-proxy"),)
    )
    result = ToolResult(call(), failure, Attempt(2, 3), repairs=(Repair("string_to_number", ("lat",)),))
    assert (
        ("Content-Type", "application/json"),
        ("Cache-Control", "no-store"),
        ("Tool-Error", "RATE_LIMIT_EXCEEDED"),
        ("Tool-Format", "tool_result/2"),
        ("Tool-Attempt", "2/3"),
        ("Retry-After", "60"),
        ("Tool-Repairs", "string_to_number;path=/lat"),
        ("Proxy-Status", "toolcall-proxy"),
    ) == render_failure(result, "auto", "category").headers


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("60", "60"),
        ("60", "60s"),
        ("2", "1.5"),
        ("60", "1m0s"),
        ("120", "2m"),
        ("3661", "1h1m1s"),
        ("1", "500ms"),
        ("", "m"),
        ("Wed, 21 Oct 2026 07:28:00 GMT", "Wed, 21 Oct 2026 07:28:00 GMT"),
        ("", "soon"),
        ("", "-1"),
        ("", "60\r\nX: y"),
        ("", ""),
    ],
)
def test_retry_after_is_passed_on_in_seconds_or_as_a_date(header: str, said: str) -> None:
    assert header == read_retry_after(said)


def test_repairs_and_warnings_are_listed_up_to_twenty() -> None:
    repairs = [Repair("key_case", ("a b", index, "ü,;")) for index in range(22)]
    [(name, value)] = make_repair_headers(repairs)
    entries = value.split(", ")
    assert ("Tool-Repairs", "key_case;path=/a%20b/0/%C3%BC%2C%3B", 21, "more=2") == (
        name,
        entries[0],
        len(entries),
        entries[-1],
    )
    warning = replace(LATITUDE, severity=codes.Severity.WARNING)
    expected = f'VAL-002;path=/lat;severity=warning;message="{LATITUDE.message}"'
    assert (("Tool-Warnings", expected),) == make_warning_headers([warning], FeedbackLimits())
    assert () == make_repair_headers([]) == make_warning_headers([], FeedbackLimits())


def test_messages_in_headers_are_quoted_masked_and_bounded() -> None:
    def header(message: str, name: str = "a", number: int = 1) -> str:
        warnings = [
            Violation(codes.PATTERN_MISMATCH, (f"{name}{index or ''}",), message, severity=codes.Severity.WARNING)
            for index in range(number)
        ]
        return dict(make_warning_headers(warnings, FeedbackLimits()))["Tool-Warnings"]

    start = "VAL-007;path=/a;severity=warning;message="
    assert start + r'"say \"a\\b\""' == header('say "a\\b"')
    assert start + '%"gr%C3%BC%C3%9Fe, %25%22"' == header('grüße, %"')
    assert start + r'"a\\nb"' == header("a\nb")
    assert "sk-" not in header("no sk-abcdefghijklmnopqrstuvwxyz0123456789ABCDEF here")
    assert header("x" * 500).endswith('..."')
    assert len(header("x" * 500)) < 250
    many = header("x" * 100, number=50)
    assert many.endswith(", more=30")
    assert many.count("VAL-007") == 20
    wide = header("ü" * 160, number=20)
    assert len(wide) < 4100
    assert wide.count("VAL-007") + int(wide.rpartition("more=")[2]) == 20


@pytest.mark.parametrize(
    ("chosen", "accept"),
    [
        ("tool_result", ""),
        ("tool_result", "*/*"),
        ("tool_result", "application/json"),
        ("problem", "application/problem+json"),
        ("problem", "application/json;q=0.5, Application/Problem+JSON"),
        ("problem", "application/json, application/problem+json"),
        ("tool_result", "application/json, application/problem+json;q=0.5"),
        ("tool_result", "application/problem+json;q=0"),
        ("tool_result", "application/problem+json;q=x"),
    ],
)
def test_auto_returns_problem_details_on_request(chosen: str, accept: str) -> None:
    assert chosen == choose_format("auto", accept)


def test_a_named_format_is_not_overruled_by_the_accept_header() -> None:
    assert choose_format("gomind", "application/problem+json") == "gomind"
    assert render_failure(refused(LATITUDE), "problem", "ok").headers[0] == ("Content-Type", "application/problem+json")
