"""The retry contract: the calls that count as attempts, the stored facts about them, and the attempt at which the model
has to stop."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from proxy.core.contract import attempts as contract
from proxy.core.contract import refusals
from proxy.core.contract.policy import AttemptsPolicy, Block, ByAddress, ToolErrors, ToolPolicy, UnknownTool
from proxy.core.json.jsontext import parse
from proxy.core.model import codes
from proxy.core.model.codes import ERROR_CODES, ErrorCode, ViolationCode
from proxy.core.model.values import (
    ABSENT,
    Attempt,
    Conversation,
    Document,
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


def fails(digest: str, call_id: str = "", seen: int | None = None, what: Failure | None = None) -> FailedAttempt:
    return contract.make_failed_attempt(what or failure(), digest, call_id, seen)


def after(*failed: str | FailedAttempt) -> FailureRecorded:
    """Returns what the store says after these failed calls, each given by its digest or whole."""
    first, *others = [fails(one) if isinstance(one, str) else one for one in failed]
    recorded = contract.add(None, first)
    for one in others:
        recorded = contract.add(recorded.episode, one)
    return recorded


def numbers(*failed: str | FailedAttempt) -> list[int]:
    """Returns the attempt number after each of these failed calls."""
    return [after(*failed[:end]).number for end in range(1, len(failed) + 1)]


# --- keys -----------------------------------------------------------------------------------------------------------
def test_an_attempt_belongs_to_a_conversation_and_a_tool() -> None:
    keys = {
        contract.make_attempt_key(conversation, tool, POLICY)
        for conversation in (CONVERSATION, Conversation("c-2", Rung.HEADER), SHARED)
        for tool in ("read_file", "write_file")
    }
    assert len(keys) == 6


def test_all_unknown_tools_of_a_conversation_share_one_key() -> None:
    assert contract.make_attempt_key(CONVERSATION, "a", UnknownTool()) == contract.make_attempt_key(
        CONVERSATION, "b", UnknownTool()
    )
    assert contract.make_attempt_key(CONVERSATION, "a", UnknownTool()) != contract.make_attempt_key(
        CONVERSATION, "a", POLICY
    )


def test_a_key_is_short_and_does_not_show_the_conversation() -> None:
    key = contract.make_attempt_key(Conversation("secret-session\udcff" * 1000, Rung.SESSION), "read_file", POLICY)
    assert len(key) == 32 + len("/read_file")
    assert "secret" not in key


def test_the_tool_call_id_is_no_part_of_what_was_sent() -> None:
    first, second = call(), replace(call(), call_id="call_2")
    assert contract.hash_call(first, POLICY) == contract.hash_call(second, POLICY)


def test_by_address_only_the_very_same_arguments_share_a_key() -> None:
    keys = [contract.make_attempt_key(SHARED, "read_file", POLICY, digest) for digest in ("a", "b", "a")]
    assert (keys[0], 2) == (keys[2], len(set(keys)))
    counting = replace(POLICY, attempts=AttemptsPolicy(address=ByAddress.COUNT))
    assert 1 == len({contract.make_attempt_key(SHARED, "read_file", counting, digest) for digest in ("a", "b")})
    assert ["read_file", True] == [contract.read_tool(keys[0]), contract.is_attempts(keys[0])]


def test_counts_nothing_by_address_if_the_config_says_so() -> None:
    off = replace(POLICY, attempts=AttemptsPolicy(address=ByAddress.OFF))
    assert (False, True) == (contract.is_counted(SHARED, off), contract.is_counted(CONVERSATION, off))


def test_another_policy_changes_the_hash_of_the_same_bytes() -> None:
    assert contract.hash_call(call(), POLICY) != contract.hash_call(call(), replace(POLICY, fingerprint="f2"))


def test_distinguishes_unreadable_arguments_by_their_text() -> None:
    problem = JsonProblem("EOF while parsing an object", 1, 1, True)
    broken = [ToolCall("t", problem, "id", CONVERSATION, raw) for raw in (b"{", b"{ ")]
    assert contract.hash_call(broken[0], POLICY) != contract.hash_call(broken[1], POLICY)


def test_an_unknown_name_counts_as_part_of_what_was_sent() -> None:
    first, second = replace(call(), tool="a"), replace(call(), tool="b")
    assert contract.hash_call(first, UnknownTool()) != contract.hash_call(second, UnknownTool())


def test_an_episode_on_the_last_rung_lasts_five_minutes_and_elsewhere_thirty() -> None:
    assert contract.find_ttl(SHARED, POLICY) == 300.0
    assert contract.find_ttl(CONVERSATION, POLICY) == 1800.0
    assert contract.find_ttl(CONVERSATION, UnknownTool()) == 1800.0


# --- what counts ----------------------------------------------------------------------------------------------------
def test_only_an_error_that_the_model_can_correct_raises_the_attempt() -> None:
    assert {
        "INVALID_ARGUMENTS",
        "CONTAINER_INVOCATION",
        "CONTAINER_NOT_EXPANDED",
        "UNKNOWN_TOOL",
        "UPSTREAM_REJECTED_ARGUMENTS",
        "BODY_TOO_LARGE",
    } == {name for name, code in ERROR_CODES.items() if contract.raises_attempt(Failure(code, ""))}


def test_a_failure_that_does_not_count_is_answered_without_attempt() -> None:
    timeout = Failure(codes.UPSTREAM_TIMEOUT, "No answer.")
    assert ToolResult(call(), timeout) == contract.grant_attempt(call(), timeout, None, POLICY)


def test_each_different_failure_raises_the_attempt_by_one() -> None:
    assert Attempt(1, 3) == contract.grant_attempt(call(), failure(), after("a"), POLICY).attempt
    assert Attempt(2, 3) == contract.grant_attempt(call(), failure(), after("a", "b"), POLICY).attempt


def test_counts_and_marks_the_same_arguments_sent_again() -> None:
    recorded = after("a", "a")
    assert (2, 2, True) == (recorded.number, recorded.episode.times("a"), recorded.repeated)
    assert contract.grant_attempt(call(), failure(), recorded, POLICY).repeated


def test_arguments_sent_before_others_are_still_known() -> None:
    assert after("a", "b", "a").repeated
    assert [1, 2, 3] == numbers("a", "b", "a")


def test_a_resend_with_the_same_bytes_and_call_id_counts_once() -> None:
    assert [1, 1, 2] == numbers(fails("a", "id-1"), fails("a", "id-1"), fails("a", "id-2"))
    resent = after(fails("a", "id-1"), fails("a", "id-1"))
    assert (after(fails("a", "id-1")).episode, False) == (resent.episode, resent.repeated)


def test_other_arguments_under_the_same_call_id_are_another_attempt() -> None:
    assert [1, 2] == numbers(fails("a", "id"), fails("b", "id"))


def test_calls_that_arrived_before_the_first_was_answered_are_one_attempt() -> None:
    turn = [fails("a", "1", 0), fails("b", "2", 0), fails("a", "3", 0), fails("c", "4", 0)]
    assert [1, 1, 1, 1] == numbers(*turn)
    assert [1, 1, 1, 1, 2, 2, 3] == numbers(*turn, fails("d", "5", 1), fails("d", "6", 1), fails("e", "7", 2))
    assert (False, 1, 4) == (after(*turn).repeated, after(*turn).episode.times("a"), after(*turn).episode.failed)


def test_the_calls_of_one_turn_share_a_line_of_the_history() -> None:
    other = failure(violation(codes.UNKNOWN_FIELD, "x", value=1))
    recorded = after(fails("a", "1", 0), fails("b", "2", 0, other), fails("c", "3", 0), fails("d", "4", 1))
    assert (
        "Attempt 1: Missing required field 'path'; Unknown field 'x'",
        "Attempt 2: Missing required field 'path'",
    ) == contract.write_history(recorded.episode)


def test_a_delivered_call_ends_the_attempts_and_refused_arguments_keep_their_count() -> None:
    recorded = after("a")
    told = [(recorded.number, recorded.repeated)]
    for _ in range(2):
        recorded = contract.add(contract.clear_episode(recorded.episode), fails("a"))
        told.append((recorded.number, recorded.repeated))
    assert [(1, False), (2, True), (3, True)] == told
    assert contract.grant_attempt(call(), failure(), recorded, POLICY).escalated
    assert 1 == contract.add(contract.clear_episode(recorded.episode), fails("b")).number


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
        history=tuple(f"Attempt {number}: {lines[0]}" for number in (1, 2, 3)),
    ) == contract.grant_attempt(call(), failure(), after("a", "b", "c"), POLICY)


def test_an_escalation_is_not_retryable_and_answers_400_whatever_failed() -> None:
    result = contract.grant_attempt(call(), failure(code=codes.UNKNOWN_TOOL), after("a", "b", "c"), UnknownTool())
    assert (400, False) == (result.failure.http_status, result.failure.may_retry)


def test_the_number_of_attempts_is_the_routes() -> None:
    policy = replace(POLICY, attempts=AttemptsPolicy(max_attempts=1))
    assert contract.grant_attempt(call(), failure(), after("a"), policy).escalated
    assert not contract.grant_attempt(call(), failure(), after("a", "b"), POLICY).escalated


def test_three_failures_escalate_whatever_the_mix() -> None:
    for mix in (("a", "a", "a"), ("a", "b", "a"), ("a", "b", "c")):
        told = [contract.grant_attempt(call(), failure(), after(*mix[:end]), POLICY) for end in (1, 2, 3)]
        assert [(Attempt(1, 3), False), (Attempt(2, 3), False), (Attempt(3, 3), True)] == [
            (one.attempt, one.escalated) for one in told
        ]


def test_calls_after_the_last_attempt_go_on_counting_and_the_limit_stays() -> None:
    result = contract.grant_attempt(call(), failure(), after("a", "b", "c", "d"), POLICY)
    assert (Attempt(4, 3), "3/3") == (result.attempt, str(result.attempt))


def test_by_address_an_escalation_is_whole_too() -> None:
    result = contract.grant_attempt(call(conversation=SHARED), failure(), after("a", "a", "a"), POLICY)
    assert (True, codes.ATTEMPTS_EXHAUSTED, False) == (result.escalated, result.failure.code, result.failure.may_retry)


# --- before the work ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("answered", "digests", "sent", "policy"),
    [
        (False, ("a", "b"), "a", POLICY),
        (False, ("a", "b", "c"), "d", POLICY),
        (True, ("a", "b", "c"), "a", POLICY),
        (True, ("a", "b", "c"), "d", HARD),
        (False, ("a", "b"), "a", HARD),
        (True, ("a", "a", "a"), "a", POLICY),
    ],
    ids=["attempts left", "new arguments", "refused arguments", "blocked hard", "hard with attempts left", "repeated"],
)
def test_after_the_last_attempt_refused_arguments_are_answered_without_work(
    answered: bool, digests: tuple[str, ...], sent: str, policy: ToolPolicy
) -> None:
    assert answered == (contract.look_up_attempt(call(), after(*digests).episode, sent, policy) is not None)


def test_a_first_call_is_always_validated() -> None:
    assert contract.look_up_attempt(call(), None, "a", HARD) is None


def test_an_answer_without_work_says_what_is_blocked() -> None:
    result = contract.look_up_attempt(call(), after("a", "b", "c").episode, "a", POLICY)
    assert result is not None
    assert (codes.ATTEMPTS_EXHAUSTED, {"blocked": "these arguments"}, True, True, Attempt(3, 3)) == (
        result.failure.code,
        result.failure.details,
        result.escalated,
        result.repeated,
        result.attempt,
    )


# --- history --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("line", "broken"),
    [
        ("Missing required field 'path'", violation(codes.REQUIRED_MISSING)),
        ("Type mismatch on 'path' (got: integer)", violation(codes.TYPE_MISMATCH, value=5)),
        ("String too long for 'path' (max: 10)",
         Violation(codes.STRING_LENGTH, ("path",), "words", "string (min length 3, max length 10, pattern {2,90})",
                   value="x" * 20, keyword="maxLength", limit=10)),
        ("String too short for 'path' (min: 3)",
         Violation(codes.STRING_LENGTH, ("path",), "words", value="x", keyword="minLength", limit=3)),
        ("Wrong string length for 'path'", violation(codes.STRING_LENGTH, value="x")),
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
        ("Markup of the call in 'path'", violation(codes.LEAKED_MARKUP)),
        ("Type mismatch on 'a/0/b' (got: null)", Violation(codes.TYPE_MISMATCH, ("a", 0, "b"), "words", value=None)),
        ("Type mismatch on the arguments (got: array)", Violation(codes.TYPE_MISMATCH, (), "words", value=[])),
    ],
)  # fmt: skip
def test_a_history_line_is_made_of_code_path_expectation_and_type(line: str, broken: Violation) -> None:
    assert (line,) == contract.write_history_lines(failure(broken))


def test_every_violation_code_has_its_line() -> None:
    assert set(codes.VIOLATION_CODES) == set(contract._LINES)


def test_a_failure_without_violations_has_a_line_too() -> None:
    assert contract.write_history_lines(Failure(codes.UNKNOWN_TOOL, "")) == ("Unknown tool",)
    assert contract.write_history_lines(Failure(codes.CONTAINER_INVOCATION, "")) == (
        "Container called with parameters",
    )


def test_a_history_keeps_all_errors_of_an_attempt_up_to_its_bound_and_counts_the_rest() -> None:
    broken = [violation(codes.REQUIRED_MISSING, name) for name in "abcdefghijkl"]
    assert (
        *(f"Missing required field '{name}'" for name in "abcdefghij"),
        "(+2 more)",
    ) == contract.write_history_lines(failure(*broken))
    long = [violation(codes.REQUIRED_MISSING, name * 48) for name in "abcdefghijkl"]
    assert (6, "(+6 more)") == (len(lines := contract.write_history_lines(failure(*long))) - 1, lines[-1])


def test_a_history_never_holds_a_value() -> None:
    secret = "hunter2-in-the-value"
    for code in codes.VIOLATION_CODES.values():
        broken = Violation(code, ("path",), f"got {secret}", "min length 3", f"try {secret}", value=secret)
        assert secret not in "".join(contract.write_history_lines(failure(broken)))


def test_a_history_keeps_the_last_ten_calls_with_their_numbers_and_says_what_it_dropped() -> None:
    recorded = after(*[f"digest {number}" for number in range(30)])
    lines = contract.write_history(recorded.episode)
    assert (30, 30, 11, 16) == (
        recorded.episode.count,
        recorded.episode.failed,
        len(lines),
        len(recorded.episode.digests),
    )
    assert "(20 earlier failed calls no longer kept)" == lines[0]
    assert lines[1].startswith("Attempt 21: ")
    assert lines[-1].startswith("Attempt 30: ")


def test_adding_a_failure_makes_a_new_episode() -> None:
    first = contract.add(None, fails("a")).episode
    again = contract.add(None, fails("a")).episode
    contract.add(first, fails("b"))
    assert again == first


# --- what the tool itself refuses -------------------------------------------------------------------------------------
def refused(status: int, **details: str) -> Failure:
    return Failure(codes.INVALID_REQUEST, "no", status=status, details=details)


@pytest.mark.parametrize("status", [400, 422])
def test_a_refusal_of_the_tool_without_retry_after_is_final(status: int) -> None:
    assert refusals.is_refusal(refused(status))
    assert not refusals.is_refusal(refused(status, retry_after="1"))


@pytest.mark.parametrize("status", [401, 403, 404, 408, 409, 425, 429, 500, 503, None])
def test_other_errors_of_a_tool_may_be_gone_when_it_is_called_again(status: int | None) -> None:
    assert not refusals.is_refusal(refused(status) if status else Failure(codes.INVALID_REQUEST, "no"))


def test_the_third_identical_call_is_answered_for_the_tool() -> None:
    error = FailedAttempt("a", contract.write_tool_error(refused(400, original_error="city code must have 3 letters")))
    one = contract.add(None, error).episode
    two = contract.add(one, error).episode
    assert refusals.refuse_repeated_call(call(), None, POLICY) is None
    assert refusals.refuse_repeated_call(call(), one, POLICY) is None
    result = refusals.refuse_repeated_call(call(), two, POLICY)
    assert result is not None
    assert (codes.ATTEMPTS_EXHAUSTED, True, "3/3") == (result.failure.code, result.escalated, str(result.attempt))
    assert "refused exactly these arguments 2 times" in result.failure.message
    assert "city code must have 3 letters" == result.failure.details["original_error"]
    assert (
        "Attempt 1: INVALID_REQUEST: The tool refused the request",
        "Attempt 2: INVALID_REQUEST: The tool refused the request",
        "Attempt 3: The same call again, which was not sent",
    ) == result.history


def test_a_budget_of_tool_errors_says_what_they_were() -> None:
    policy = replace(POLICY, attempts=AttemptsPolicy(tool_errors=ToolErrors(2)))
    details = {"original_error": "no town; api_key=sk-proj-1234567890abcdefghij"}
    lines = contract.write_tool_error(Failure(codes.RESOURCE_NOT_FOUND, "no", status=404, details=details))
    episode = contract.add(contract.add(None, FailedAttempt("a", lines)).episode, FailedAttempt("b", lines)).episode
    assert refusals.refuse_over_budget(call(), episode, POLICY) is None
    result = refusals.refuse_over_budget(call(), episode, policy)
    assert result is not None
    assert (
        codes.TOOL_ERROR_BUDGET,
        {
            "used": "2",
            "limit": "2",
            "errors": " | ".join(
                f"Error {number}: RESOURCE_NOT_FOUND: The tool did not find what was asked for; no town; api_key=***"
                for number in (1, 2)
            ),
        },
        "2/2",
    ) == (result.failure.code, result.failure.details, str(result.attempt))


@pytest.mark.parametrize("said", ["x" * 5000, "ü" * 5000, "漢" * 5000, "😀" * 5000, ""])
def test_the_history_of_a_tools_errors_stays_under_its_bound_whatever_the_tool_says(said: str) -> None:
    lines = contract.write_tool_error(refused(422, original_error=said))
    episode = after(*"abcdefghijkl").episode
    for digest in "abcdefghijkl":
        episode = contract.add(episode, FailedAttempt(digest, lines)).episode
    assert 10 * 1024 > sum(sys.getsizeof(line) - sys.getsizeof("") for one in episode.attempts for line in one.lines)
    assert not any("x" * 9 in line for line in contract.write_history(episode))


def test_an_escalation_is_the_first_failure_that_uses_the_attempts_up() -> None:
    def used(*failed: tuple[str, int | None, str]) -> list[bool]:
        episode, found = None, []
        for digest, seen, call_id in failed:
            recorded = contract.add(episode, FailedAttempt(digest, ("line",), call_id, seen))
            episode = recorded.episode
            found.append(contract.uses_up_attempts(recorded, POLICY))
        return found

    one_after_another = [(digest, None, "") for digest in "abcd"]
    assert [False, False, True, False] == used(*one_after_another)
    assert [False] * 2 + [True] + [False] * 2 == used(*[("a", None, "")] * 5)
    of_one_turn = [("a", None, ""), ("b", None, ""), *[(digest, 2, "") for digest in "cdc"]]
    assert [False, False, True, False, False] == used(*of_one_turn)
    resent = [("a", None, "1"), ("b", None, "2"), ("c", None, "3"), ("c", 2, "3")]
    assert [False, False, True, False] == used(*resent)


def test_the_same_arguments_escalate_once_though_good_calls_came_in_between() -> None:
    episode, found = None, []
    for _ in range(4):
        recorded = contract.add(episode, FailedAttempt("a", ("line",)))
        found.append(contract.uses_up_attempts(recorded, POLICY))
        episode = contract.clear_episode(recorded.episode)
    assert [False, False, True, False] == found
