"""The retry contract: what counts as an attempt, what is remembered of it, when a model is told to stop."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.core import codes, contract
from proxy.core.codes import ERROR_CODES, ErrorCode, ViolationCode
from proxy.core.jsontext import parse
from proxy.core.model import (
    ABSENT,
    Attempt,
    Conversation,
    Document,
    Episode,
    FailedAttempt,
    Failure,
    FailureRecorded,
    JsonProblem,
    JsonValue,
    Rung,
    ToolCall,
    ToolResult,
    Violation,
)
from proxy.core.policy import AttemptsPolicy, Block, ToolPolicy

CONVERSATION = Conversation("c-1", Rung.HEADER)
SHARED = Conversation("c-1", Rung.ADDRESS)
POLICY = ToolPolicy("read_file", None, "f1")
HARD = replace(POLICY, attempts=AttemptsPolicy(block=Block.HARD))


def call(body: bytes = b'{"path": 5}', conversation: Conversation = CONVERSATION) -> ToolCall:
    return ToolCall("read_file", Document(body, parse(body)), "call_1", conversation)


def violation(
    code: ViolationCode, path: str = "path", expected: str = "string", value: JsonValue = ABSENT
) -> Violation:
    return Violation(code, (path,), "words", expected, value=value)


def failure(*violations: Violation, code: ErrorCode = codes.INVALID_ARGUMENTS) -> Failure:
    return Failure(code, code.meaning, violations or (violation(codes.REQUIRED_MISSING),), sent={"path": 5})


def after(*digests: str) -> FailureRecorded:
    """What the store says after one failure for each digest."""
    first, *others = digests
    recorded = contract.add(None, contract.remember(failure(), first))
    for sent in others:
        recorded = contract.add(recorded.episode, contract.remember(failure(), sent))
    return recorded


# --- keys -----------------------------------------------------------------------------------------------------------
def test_an_attempt_belongs_to_a_conversation_and_a_tool() -> None:
    keys = {
        contract.attempt_key(conversation, tool, POLICY)
        for conversation in (CONVERSATION, Conversation("c-2", Rung.HEADER), SHARED)
        for tool in ("read_file", "write_file")
    }
    assert len(keys) == 6


def test_all_unknown_tools_of_a_conversation_share_one_key() -> None:
    assert contract.attempt_key(CONVERSATION, "a", None) == contract.attempt_key(CONVERSATION, "b", None)
    assert contract.attempt_key(CONVERSATION, "a", None) != contract.attempt_key(CONVERSATION, "a", POLICY)


def test_a_key_is_short_and_does_not_show_the_conversation() -> None:
    key = contract.attempt_key(Conversation("secret-session\udcff" * 1000, Rung.SESSION), "read_file", POLICY)
    assert len(key) == 32 + len("/read_file")
    assert "secret" not in key


def test_the_tool_call_id_never_links_or_separates_attempts() -> None:
    first, second = call(), replace(call(), call_id="call_2")
    assert contract.digest_of(first, POLICY) == contract.digest_of(second, POLICY)


def test_the_same_bytes_under_another_policy_are_judged_anew() -> None:
    assert contract.digest_of(call(), POLICY) != contract.digest_of(call(), replace(POLICY, fingerprint="f2"))


def test_unreadable_arguments_are_told_apart_by_their_text() -> None:
    problem = JsonProblem("EOF while parsing an object", 1, 1, True)
    broken = [ToolCall("t", problem, "id", CONVERSATION, raw) for raw in (b"{", b"{ ")]
    assert contract.digest_of(broken[0], POLICY) != contract.digest_of(broken[1], POLICY)


def test_an_unknown_name_counts_as_part_of_what_was_sent() -> None:
    first, second = replace(call(), tool="a"), replace(call(), tool="b")
    assert contract.digest_of(first, None) != contract.digest_of(second, None)


def test_an_episode_on_the_last_rung_lasts_five_minutes_and_elsewhere_thirty() -> None:
    assert contract.ttl_of(SHARED, POLICY) == 300.0
    assert contract.ttl_of(CONVERSATION, POLICY) == 1800.0
    assert contract.ttl_of(CONVERSATION, None) == 1800.0


# --- what counts ----------------------------------------------------------------------------------------------------
def test_only_what_the_model_can_mend_raises_the_attempt() -> None:
    assert {
        "INVALID_ARGUMENTS",
        "CONTAINER_INVOCATION",
        "CONTAINER_NOT_EXPANDED",
        "UNKNOWN_TOOL",
        "UPSTREAM_REJECTED_ARGUMENTS",
    } == {name for name, code in ERROR_CODES.items() if contract.raises_attempt(Failure(code, ""))}


def test_a_failure_that_does_not_count_is_answered_without_attempt() -> None:
    timeout = Failure(codes.UPSTREAM_TIMEOUT, "No answer.")
    assert ToolResult(call(), timeout) == contract.grant(call(), timeout, None, POLICY)


def test_each_different_failure_raises_the_attempt_by_one() -> None:
    assert Attempt(1, 3) == contract.grant(call(), failure(), after("a"), POLICY).attempt
    assert Attempt(2, 3) == contract.grant(call(), failure(), after("a", "b"), POLICY).attempt


def test_an_identical_resend_counts_once_and_is_marked() -> None:
    recorded = after("a", "a")
    assert (1, 1, True) == (recorded.episode.count, recorded.episode.repeats, recorded.repeated)
    result = contract.grant(call(), failure(), recorded, POLICY)
    assert (Attempt(1, 3), True, False) == (result.attempt, result.repeated, result.blocked)


def test_arguments_sent_before_others_are_still_known_as_a_resend() -> None:
    assert after("a", "b", "a").repeated
    assert after("a", "b", "a").episode.count == 2


# --- escalation -----------------------------------------------------------------------------------------------------
def test_the_answer_to_the_last_attempt_is_the_escalation_and_keeps_its_errors() -> None:
    lines = ("Missing required field 'path'",)
    assert ToolResult(
        call(),
        Failure(
            codes.ATTEMPTS_EXHAUSTED,
            codes.INVALID_ARGUMENTS.meaning,
            (violation(codes.REQUIRED_MISSING),),
            details={"failed_with": "INVALID_ARGUMENTS"},
            sent={"path": 5},
        ),
        attempt=Attempt(3, 3),
        escalated=True,
        blocked=True,
        history=tuple(f"Attempt {number}: {lines[0]}" for number in (1, 2, 3)),
    ) == contract.grant(call(), failure(), after("a", "b", "c"), POLICY)


def test_an_escalation_is_not_retryable_and_answers_400_whatever_failed() -> None:
    result = contract.grant(call(), failure(code=codes.UNKNOWN_TOOL), after("a", "b", "c"), None)
    assert (400, False) == (result.failure.http_status, result.failure.may_retry)


def test_the_number_of_attempts_is_the_routes() -> None:
    policy = replace(POLICY, attempts=AttemptsPolicy(max_attempts=1))
    assert contract.grant(call(), failure(), after("a"), policy).blocked
    assert not contract.grant(call(), failure(), after("a", "b"), POLICY).blocked


def test_as_many_resends_as_attempts_exhaust_an_episode_too() -> None:
    assert not contract.grant(call(), failure(), after("a", "a", "a"), POLICY).blocked
    result = contract.grant(call(), failure(), after("a", "a", "a", "a"), POLICY)
    assert result.blocked
    assert (
        "Attempt 1: Missing required field 'path'",
        "Arguments that had already been refused were sent again 3 times.",
    ) == result.history


def test_on_the_address_rung_escalation_is_words_only() -> None:
    shared = call(conversation=SHARED)
    result = contract.grant(shared, failure(), after("a", "b", "c"), HARD)
    assert (True, False, codes.INVALID_ARGUMENTS, True) == (
        result.escalated,
        result.blocked,
        result.failure.code,
        result.failure.may_retry,
    )
    assert contract.look(shared, after("a", "b", "c").episode, "a", HARD) is None


# --- before the work ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("answered", "digests", "sent", "policy"),
    [
        (False, ("a", "b"), "a", POLICY),
        (False, ("a", "b", "c"), "d", POLICY),
        (True, ("a", "b", "c"), "a", POLICY),
        (True, ("a", "b", "c"), "d", HARD),
        (False, ("a", "b"), "a", HARD),
        (True, ("a", "a", "a", "a"), "a", POLICY),
    ],
    ids=["attempts left", "new arguments", "refused arguments", "blocked hard", "hard with attempts left", "repeated"],
)
def test_after_the_last_attempt_refused_arguments_are_answered_without_work(
    answered: bool, digests: tuple[str, ...], sent: str, policy: ToolPolicy
) -> None:
    assert answered == (contract.look(call(), after(*digests).episode, sent, policy) is not None)


def test_a_first_call_is_always_judged() -> None:
    assert contract.look(call(), None, "a", HARD) is None


def test_an_answer_without_work_says_what_is_blocked() -> None:
    result = contract.look(call(), after("a", "b", "c").episode, "a", POLICY)
    assert result is not None
    assert (codes.ATTEMPTS_EXHAUSTED, {"blocked": "these arguments"}, True, True, Attempt(3, 3)) == (
        result.failure.code,
        result.failure.details,
        result.blocked,
        result.repeated,
        result.attempt,
    )


# --- history --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("line", "broken"),
    [
        ("Missing required field 'path'", violation(codes.REQUIRED_MISSING)),
        ("Type mismatch on 'path' (got: integer)", violation(codes.TYPE_MISMATCH, value=5)),
        ("String too long for 'path' (max: 4096)",
         violation(codes.STRING_LENGTH, expected="string with max length 4096", value="x" * 5000)),
        ("String too short for 'path' (min: 3)", violation(codes.STRING_LENGTH, expected="min length 3", value="x")),
        ("Value out of range for 'path' (expected: at most 9)",
         violation(codes.CONSTRAINT, expected="at most 9", value=10)),
        ("Invalid JSON", Violation(codes.INVALID_JSON, (), "words")),
        ("Unknown field 'path'", violation(codes.UNKNOWN_FIELD, value=1)),
        ("Wrong items in 'path' (expected: at most 2 items)",
         violation(codes.ARRAY_LENGTH, expected="at most 2 items", value=[1, 2, 3])),
        ("Pattern mismatch on 'path'", violation(codes.PATTERN_MISMATCH, value="x")),
        ("Invalid enum value for 'path' (expected: one of 'a', 'b')",
         violation(codes.ENUM_MISMATCH, expected="one of 'a', 'b'", value="x")),
        ("Invalid format for 'path' (expected: date)", violation(codes.FORMAT_MISMATCH, expected="date", value="x")),
        ("No alternative fits 'path'", violation(codes.NO_BRANCH, value="x")),
        ("Ambiguous value for 'path'", violation(codes.AMBIGUOUS, value="x")),
        ("Type mismatch on 'a/0/b' (got: null)", Violation(codes.TYPE_MISMATCH, ("a", 0, "b"), "words", value=None)),
        ("Type mismatch on the arguments (got: array)", Violation(codes.TYPE_MISMATCH, (), "words", value=[])),
    ],
)  # fmt: skip
def test_a_history_line_is_made_of_code_path_expectation_and_type(line: str, broken: Violation) -> None:
    assert line == contract.history_line(failure(broken))


def test_every_violation_code_has_its_line() -> None:
    assert set(codes.VIOLATION_CODES) == set(contract._LINES)


def test_a_failure_without_violations_has_a_line_too() -> None:
    assert contract.history_line(Failure(codes.UNKNOWN_TOOL, "")) == "Unknown tool"
    assert contract.history_line(Failure(codes.CONTAINER_INVOCATION, "")) == "Container called with parameters"


def test_a_history_line_shows_three_errors_and_counts_the_rest() -> None:
    broken = [violation(codes.REQUIRED_MISSING, name) for name in "abcde"]
    assert (
        "Missing required field 'a'; Missing required field 'b'; Missing required field 'c'; (+2 more)"
        == contract.history_line(failure(*broken))
    )


def test_a_history_never_holds_a_value() -> None:
    secret = "hunter2-in-the-value"
    for code in codes.VIOLATION_CODES.values():
        broken = Violation(code, ("path",), f"got {secret}", "min length 3", f"try {secret}", value=secret)
        assert secret not in contract.history_line(failure(broken))


def test_a_history_keeps_the_last_ten_attempts_with_their_numbers() -> None:
    recorded = after(*[f"digest {number}" for number in range(30)])
    lines = contract.history(recorded.episode)
    assert (30, 10, 16) == (recorded.episode.count, len(lines), len(recorded.episode.digests))
    assert lines[0].startswith("Attempt 21: ")
    assert lines[-1].startswith("Attempt 30: ")


def test_adding_a_failure_makes_a_new_episode() -> None:
    first = Episode(1, (FailedAttempt("a", ("x",)),), ("a",))
    contract.add(first, FailedAttempt("b", ("y",)))
    assert Episode(1, (FailedAttempt("a", ("x",)),), ("a",)) == first
