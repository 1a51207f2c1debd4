"""The decision: a call is forwarded unchanged, forwarded repaired, or rejected, and the result names the cause."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from proxy.core.contract.policy import Mode, UnknownKeys
from proxy.core.decide import decide
from proxy.core.model import codes
from proxy.core.model.codes import Severity
from proxy.core.model.values import CheckedCall, Container, Document, Forward, JsonValue, Reject, Repair, Violation
from tests.core.repairing import call, judged, obj, policy, told

INT: Final[JsonValue] = {"type": "integer"}
STR: Final[JsonValue] = {"type": "string"}
NEEDS_A: Final[JsonValue] = {**obj(a=INT), "required": ["a"]}


def test_forwards_a_valid_call_as_the_very_bytes_that_came() -> None:
    sent = call(' {"a" : 1 , "b":1.10}\n')
    assert isinstance(sent.arguments, Document)
    assert Forward(CheckedCall(sent, b' {"a" : 1 , "b":1.10}\n', sent.arguments.value)) == decide(sent, policy(NEEDS_A))


def test_a_checked_call_cannot_be_changed_at_run_time() -> None:
    decision = decide(call(b'{"a": 1}'), policy(NEEDS_A))
    assert isinstance(decision, Forward)
    with pytest.raises(AttributeError, match="immutable"):
        decision.checked.arguments = b"{}"  # type: ignore[misc]  # mypy forbids what is tried here


def test_rewrites_a_repaired_call_and_lists_the_repairs() -> None:
    sent = call('{"a":"1"}')
    assert Forward(CheckedCall(sent, b'{"a":1}', {"a": 1}, (Repair("string_to_integer", ("a",)),))) == decide(
        sent, policy(NEEDS_A)
    )


def test_text_repairs_come_before_the_others_in_the_books() -> None:
    decision = judged('```json\n{"a":"1"}\n```', policy(NEEDS_A))
    assert isinstance(decision, Forward)
    assert (Repair("code_fence", ()), Repair("string_to_integer", ("a",))) == decision.checked.repairs
    assert b'{"a":1}' == decision.checked.arguments


def test_a_refused_call_says_what_was_sent_and_what_is_wrong() -> None:
    decision = judged('{"a":"x"}', policy(NEEDS_A))
    assert isinstance(decision, Reject)
    assert (codes.INVALID_ARGUMENTS, {"a": "x"}) == (decision.failure.code, decision.failure.sent)
    assert "VAL-002 /a" == told(decision)


def test_unreadable_json_ends_here_whatever_the_mode_of_validation() -> None:
    assert "VAL-004" == told(judged('{"a":1', policy(NEEDS_A)))
    assert "VAL-004" == told(judged('{"a":1', replace(policy(NEEDS_A), check=None)))


@pytest.mark.parametrize(
    ("expected", "schema", "sent", "level"),
    [
        ("{}", obj(a=INT), "", "standard"),
        ("{}", obj(a=INT), "null", "standard"),
        ("VAL-001 /a", NEEDS_A, "", "standard"),
        ("VAL-001 /a", NEEDS_A, "null", "standard"),
        ("null", {"type": ["object", "null"]}, "null", "standard"),
        ("VAL-004", obj(a=INT), "", "off"),
        ("VAL-002", obj(a=INT), "null", "off"),
        ("{}", True, "", "standard"),
    ],
)
def test_reads_missing_arguments_as_an_empty_object_only_if_none_are_required(
    expected: str, schema: JsonValue, sent: str, level: str
) -> None:
    assert expected == told(judged(sent, policy(schema, level)))


def test_forwards_a_readable_call_without_validation() -> None:
    assert '{"a":"x"}' == told(judged('{"a":"x"}', replace(policy(NEEDS_A), check=None)))


def test_a_container_takes_no_parameters_and_is_not_validated() -> None:
    container = replace(policy(NEEDS_A), container=Container("Math"))
    assert "{}" == told(judged("{}", container))
    decision = judged('{"a":1}', container)
    assert isinstance(decision, Reject)
    assert codes.CONTAINER_INVOCATION is decision.failure.code


# --- report-only ----------------------------------------------------------------------------------------------------
def test_report_only_sends_the_clients_bytes_and_keeps_what_would_have_been() -> None:
    reporting = policy(NEEDS_A, mode=Mode.REPORT)
    refused, repaired, clean = (judged(sent, reporting) for sent in ('{"a":"x"}', '{"a":"1"}', '{"a":1}'))
    assert isinstance(refused, Forward)
    assert isinstance(repaired, Forward)
    assert isinstance(clean, Forward)
    assert (b'{"a":"x"}', {"a": "x"}, False) == (
        refused.checked.arguments,
        refused.checked.value,
        refused.checked.enforced,
    )
    assert refused.checked.would is not None
    assert codes.INVALID_ARGUMENTS is refused.checked.would.code
    assert (b'{"a":"1"}', (Repair("string_to_integer", ("a",)),), False) == (
        repaired.checked.arguments, repaired.checked.repairs, repaired.checked.enforced,
    )  # fmt: skip
    assert (b'{"a":1}', (), True) == (clean.checked.arguments, clean.checked.repairs, clean.checked.enforced)


def test_report_only_forwards_unreadable_arguments_unchanged() -> None:
    decision = judged(b'{"a":\xff', policy(NEEDS_A, mode=Mode.REPORT))
    assert isinstance(decision, Forward)
    assert b'{"a":\xff' == decision.checked.arguments


# --- unknown keys ---------------------------------------------------------------------------------------------------
def test_unknown_keys_are_the_schemas_business_a_warning_or_an_error() -> None:
    sent = '{"a":1,"zzz":2}'
    assert sent == told(judged(sent, policy(NEEDS_A)))
    warned = judged(sent, policy(NEEDS_A, unknown_keys=UnknownKeys.WARN))
    assert isinstance(warned, Forward)
    assert [("zzz",)] == [violation.path for violation in warned.checked.warnings]
    assert "VAL-005 /zzz" == told(judged(sent, policy(NEEDS_A, unknown_keys=UnknownKeys.REFUSE)))


def test_a_forbidden_key_blocks_the_call_and_is_reported_once_if_unknown_keys_are_warnings() -> None:
    closed = {**NEEDS_A, "additionalProperties": False}
    decision = judged('{"a":1,"zzz":2}', policy(closed, unknown_keys=UnknownKeys.WARN))

    assert isinstance(decision, Reject)
    assert [(codes.UNKNOWN_FIELD, ("zzz",), codes.Severity.ERROR)] == [
        (one.code, one.path, one.severity) for one in decision.failure.violations
    ]


@pytest.mark.parametrize(
    ("expected", "schema", "sent"),
    [
        ('{"max_items":5}', obj(max_items=INT), '{"maxItems":5}'),
        ('{"max_items":5}', obj(max_items=INT), '{"maxItems":"5"}'),
        ('{"a":[{"max_items":5}]}', obj(a={"type": "array", "items": obj(max_items=INT)}), '{"a":[{"MaxItems":5}]}'),
        ("VAL-005 /maxItems", obj(max_items=INT), '{"maxItems":5,"max_items":6}'),
        ("VAL-005 /maxItem", obj(max_items=INT), '{"maxItem":5}'),
        ("VAL-005 /maxItems", obj(max_items=INT) | {"x-repair": "off"}, '{"maxItems":5}'),
        ('{"x":{"anyKey":1}}', obj(x={"type": "object"}), '{"x":{"anyKey":1}}'),
        (
            '{"startDate":1}',
            {"type": "object", "properties": {"start_date": INT}, "anyOf": [obj(startDate=INT)]},
            '{"startDate":1}',
        ),
    ],
)
def test_repairs_a_key_in_another_spelling_if_unknown_keys_are_refused(
    expected: str, schema: JsonValue, sent: str
) -> None:
    assert expected == told(judged(sent, policy(schema, unknown_keys=UnknownKeys.REFUSE)))


def test_records_a_key_in_another_spelling_only_if_unknown_keys_are_refused() -> None:
    sent = '{"maxItems":5}'
    decision = judged(sent, policy(obj(max_items=INT), unknown_keys=UnknownKeys.REFUSE))
    assert isinstance(decision, Forward)
    assert (Repair("key_case", ("maxItems",)),) == decision.checked.repairs
    assert sent == told(judged(sent, policy(obj(max_items=INT))))
    assert "VAL-005 /maxItems" == told(judged(sent, policy(obj(max_items=INT), "basic", None, UnknownKeys.REFUSE)))


# --- severities -----------------------------------------------------------------------------------------------------
def test_forwards_a_call_with_schema_warnings_and_reports_them() -> None:
    schema = obj(a={"type": "integer", "maximum": 5, "x-severity": {"maximum": "warning"}}, old={"deprecated": True})
    decision = judged('{"a":9,"old":1}', policy(schema))
    assert isinstance(decision, Forward)
    assert b'{"a":9,"old":1}' == decision.checked.arguments
    assert [
        Violation(codes.CONSTRAINT, ("a",), "Value out of range: must be at most 5", "integer (at most 5)",
                  "", severity=Severity.WARNING, value=9),
        Violation(codes.DEPRECATED_FIELD, ("old",), "Field 'old' is deprecated", severity=Severity.WARNING),
    ] == list(decision.checked.warnings)  # fmt: skip
    assert "VAL-002 /a" == told(judged('{"a":"x"}', policy(schema)))


def test_reports_a_deprecated_field_of_a_valid_call() -> None:
    decision = judged('{"old":1}', policy(obj(old={"deprecated": True})))
    assert isinstance(decision, Forward)
    assert [codes.DEPRECATED_FIELD] == [warning.code for warning in decision.checked.warnings]


def test_a_warning_about_a_missing_key_does_not_hide_an_unknown_one() -> None:
    schema: JsonValue = {
        "properties": {"path": STR}, "allOf": [{"required": ["path"], "x-severity": "warning"}],
        "additionalProperties": False,
    }  # fmt: skip
    assert "VAL-005 /file_path" in told(judged('{"file_path":"x"}', policy(schema)))


def test_rejects_a_call_that_is_too_large_to_repair_and_says_so() -> None:
    sent = "[" + ",".join(['"1"'] * 90_000) + "]"
    decision = judged(sent, policy({"items": {"anyOf": [INT, {"type": "object"}]}}))
    assert isinstance(decision, Reject)
    assert decision.failure.hint.startswith("The arguments are too large or too deeply nested to be repaired")
    assert {"VAL-002"} == {violation.code.name for violation in decision.failure.violations}
