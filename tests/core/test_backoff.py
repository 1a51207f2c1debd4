"""When the same payload is sent again: the house's rules, and every row of GoMind's retry tables held against them."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.contract.policy import ResendPolicy
from proxy.core.model import codes
from proxy.core.model.codes import ErrorCode
from proxy.core.model.values import Executed, Failure, Headers, JsonValue, UpstreamFault, UpstreamReply
from proxy.core.tool_errors.backoff import (
    RULES,
    Budget,
    BudgetPolicy,
    Reason,
    add_idempotency_key,
    compute_pause,
    find_resend_reason,
    read_wait,
)
from proxy.core.tool_errors.classify import classify_answer, make_fault_failure

NOON = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT

PLAIN = ResendPolicy()
IDEMPOTENT = ResendPolicy(idempotent=True)
WAITING = ResendPolicy(on_retry_after=True)
DECLARED = ResendPolicy(idempotent=True, on_retry_after=True)


def reply(status: int, body: JsonValue = None, *headers: tuple[str, str]) -> UpstreamReply:
    return UpstreamReply(status, headers, b"" if body is None else json.dumps(body).encode())


def fault(token: str, executed: Executed, code: ErrorCode = codes.UPSTREAM_UNAVAILABLE) -> UpstreamFault:
    return UpstreamFault(code, token, executed, "upstream 'w': gone")


def reason(
    answer: UpstreamReply | UpstreamFault, policy: ResendPolicy = PLAIN, *, keyed: bool = False
) -> Reason | None:
    failure = make_fault_failure(answer) if isinstance(answer, UpstreamFault) else classify_answer(answer, NOON)
    return None if failure is None else find_resend_reason(answer, failure, policy, keyed)


REFUSED = fault("connection_refused", Executed.NO)
RESET = fault("connection_terminated", Executed.UNKNOWN, codes.UPSTREAM_BAD_ANSWER)
LATE = fault("http_response_timeout", Executed.UNKNOWN, codes.UPSTREAM_TIMEOUT)
AFTER_A_MINUTE = ("Retry-After", "60")


# --- GoMind ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Row:
    """One row of a table of GoMind's "Intelligent Error Handling".

    `gomind` is its statement about the same payload. `plain` is the proxy's decision for a tool without declarations.
    `declared` is the decision for an `idempotent: on` tool on a route with `on_retry_after: on`. `stricter` says why
    that is less. `retryable` is the text for the model about calling again.
    """

    name: str
    answer: UpstreamReply | UpstreamFault
    gomind: str
    plain: Reason | None
    declared: Reason | None
    retryable: bool | None = None
    stricter: str = ""


def enveloped(code: str, category: str, retryable: bool, **details: str) -> JsonValue:
    error = {"code": code, "message": "m", "category": category, "retryable": retryable, "details": details}
    return {"success": False, "error": error}


NOT_TWICE = "a tool that is not declared idempotent may have run already"
MUST_ASK = "only where the route opts in, and where the tool says how long"

DECISION_FLOW = [
    Row("2xx (Success) -> No retry needed", reply(200, {"ok": 1}), "no", None, None),
    Row("401 (Auth) -> NOT retryable", reply(401), "no", None, None, False),
    Row("403 (Auth) -> NOT retryable", reply(403), "no", None, None, False),
    Row(
        "429 (Rate Limit) -> Retry after backoff (check retry_after)",
        reply(429, enveloped("RATE_LIMIT_EXCEEDED", "RATE_LIMIT", True, retry_after="60s")),
        "yes", None, Reason.RETRY_AFTER, True, MUST_ASK,
    ),
    Row("5xx (Server) -> Retry with SAME payload", reply(500), "yes", None, Reason.IDEMPOTENT, True, NOT_TWICE),
    Row(
        "4xx (Client) -> Check ToolError.Retryable: true",
        reply(404, enveloped("LOCATION_NOT_FOUND", "NOT_FOUND", True)), "no", None, None, True,
    ),
    Row(
        "4xx (Client) -> Check ToolError.Retryable: false",
        reply(400, enveloped("INVALID_REQUEST", "INPUT_ERROR", False)), "no", None, None, False,
    ),
    Row("network error -> the same payload: not sent", REFUSED, "yes", Reason.UNSENT, Reason.UNSENT, True),
    Row("network error: the connection broke", RESET, "yes", None, Reason.IDEMPOTENT, True, NOT_TWICE),
    Row("network error: no answer in time", LATE, "yes", None, Reason.IDEMPOTENT, True, NOT_TWICE),
]  # fmt: skip

DECISION_MATRIX = [
    Row("2xx | N/A", reply(204), "no", None, None),
    Row("401/403 | Don't retry: 401", reply(401, {"detail": "no"}), "no", None, None, False),
    Row("401/403 | Don't retry: 403", reply(403, {"detail": "no"}), "no", None, None, False),
    Row(
        "429 | Yes (after backoff), with Retry-After",
        reply(429, None, AFTER_A_MINUTE), "yes", None, Reason.RETRY_AFTER, True, MUST_ASK,
    ),
    Row("429 | Yes (after backoff), without", reply(429), "yes", None, None, True, MUST_ASK),
    Row("5xx | Yes (after backoff): 500", reply(500), "yes", None, Reason.IDEMPOTENT, True, NOT_TWICE),
    Row("5xx | Yes (after backoff): 502", reply(502), "yes", None, Reason.IDEMPOTENT, True, NOT_TWICE),
    Row("5xx | Yes (after backoff): 503", reply(503), "yes", None, Reason.IDEMPOTENT, True, NOT_TWICE),
    Row("5xx | Yes (after backoff): 504", reply(504), "yes", None, Reason.IDEMPOTENT, True, NOT_TWICE),
    Row(
        "5xx | Yes (after backoff): 501", reply(501), "yes", None, None, False,
        "the service says that it cannot do this at all",
    ),
    Row("4xx + Retryable | No: 400", reply(400), "no", None, None, True),
    Row("4xx + Retryable | No: 409", reply(409), "no", None, None, True),
    Row("4xx + Retryable | No: 422", reply(422), "no", None, None, True),
    Row("4xx + Not Retryable | Don't retry", reply(410), "no", None, None, False),
]  # fmt: skip

CATEGORIES = [
    Row(
        "CategoryInputError | 400 | Maybe (with corrected input)",
        reply(400, enveloped("MISSING_LOCATION", "INPUT_ERROR", True)), "no", None, None, True,
    ),
    Row(
        "CategoryNotFound | 404 | Maybe (with corrected input)",
        reply(404, enveloped("LOCATION_NOT_FOUND", "NOT_FOUND", True)), "no", None, None, True,
    ),
    Row(
        "CategoryAuthError | 401 | No",
        reply(401, enveloped("API_KEY_INVALID", "AUTH_ERROR", False)), "no", None, None, False,
    ),
    Row(
        "CategoryRateLimit | 429 | Yes (after waiting)",
        reply(429, enveloped("RATE_LIMIT_EXCEEDED", "RATE_LIMIT", True, retry_after="60s")),
        "yes", None, Reason.RETRY_AFTER, True, MUST_ASK,
    ),
    Row(
        "CategoryServiceError | 503 | Yes (transient)",
        reply(503, enveloped("SERVICE_UNAVAILABLE", "SERVICE_ERROR", True)),
        "yes", None, Reason.IDEMPOTENT, True, NOT_TWICE,
    ),
    Row(
        "503 with a semantic error inside | same payload is no use",
        reply(503, enveloped("LOCATION_NOT_FOUND", "NOT_FOUND", True)), "no", None, None, True,
    ),
    Row(
        "503 of a tool that says retryable: false",
        reply(503, enveloped("SERVICE_UNAVAILABLE", "SERVICE_ERROR", False)), "yes", None, None, False,
        "only a model's verdict overrides what the tool says, and no model was asked",
    ),
]  # fmt: skip

TABLES = [*DECISION_FLOW, *DECISION_MATRIX, *CATEGORIES]


@pytest.mark.parametrize("row", TABLES, ids=lambda row: row.name)
def test_a_row_of_gominds_tables_is_kept_or_said_to_be_stricter(row: Row) -> None:
    assert (row.plain, row.declared) == (reason(row.answer), reason(row.answer, DECLARED))
    same_payload = "yes" if row.plain is not None else "no"
    assert (same_payload != row.gomind) == bool(row.stricter), "where this proxy does less, the row says why"


@pytest.mark.parametrize("row", TABLES, ids=lambda row: row.name)
def test_the_model_hears_whether_calling_again_can_help(row: Row) -> None:
    answer = row.answer
    failure = make_fault_failure(answer) if isinstance(answer, UpstreamFault) else classify_answer(answer, NOON)
    assert row.retryable == (None if failure is None else failure.may_retry)


# --- the rules --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "token",
    ["dns_error", "connection_refused", "destination_ip_unroutable", "destination_unavailable", "tls_protocol_error",
     "tls_certificate_error", "tls_alert_received"],
)  # fmt: skip
def test_resends_an_unsent_call_of_any_tool(token: str) -> None:
    assert Reason.UNSENT == reason(fault(token, Executed.NO))
    assert Reason.UNSENT == reason(fault("connection_timeout", Executed.NO, codes.UPSTREAM_TIMEOUT))


@pytest.mark.parametrize(
    "answer",
    [
        fault("destination_unavailable", Executed.NO, codes.CIRCUIT_OPEN),
        fault("connection_limit_reached", Executed.NO, codes.OVERLOADED),
        fault("http_request_error", Executed.NO, codes.BAD_REQUEST),
        fault("proxy_configuration_error", Executed.NO),
        fault("connection_terminated", Executed.UNKNOWN, codes.RESTARTING),
    ],
    ids=lambda answer: answer.code.name,
)
def test_a_fault_of_our_own_making_is_not_tried_again(answer: UpstreamFault) -> None:
    assert [None] * 2 == [reason(answer), reason(answer, IDEMPOTENT, keyed=True)]


@pytest.mark.parametrize("status", [500, 502, 503, 504, 507, 599])
def test_resends_after_a_server_error_if_the_tool_may_run_twice(status: int) -> None:
    assert [None, Reason.IDEMPOTENT, Reason.KEY] == [
        reason(reply(status)),
        reason(reply(status), IDEMPOTENT),
        reason(reply(status), keyed=True),
    ]


@pytest.mark.parametrize("status", [501, 505, *range(400, 430), 451])
def test_never_resends_if_the_same_request_cannot_change_the_answer(status: int) -> None:
    assert reason(reply(status), IDEMPOTENT, keyed=True) is None


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (reply(429, None, AFTER_A_MINUTE), Reason.RETRY_AFTER),
        (reply(503, None, AFTER_A_MINUTE), Reason.RETRY_AFTER),
        (reply(503, None, ("Retry-After", "Tue, 14 Nov 2023 22:14:20 GMT")), Reason.RETRY_AFTER),
        (reply(503, None, ("Retry-After", "soon")), None),
        (reply(503), None),
        (reply(500, None, AFTER_A_MINUTE), None),
        (reply(404, None, AFTER_A_MINUTE), None),
    ],
)
def test_waits_for_a_retry_after_if_the_route_opts_in(answer: UpstreamReply, expected: Reason | None) -> None:
    assert (None, expected) == (reason(answer), reason(answer, WAITING))


@pytest.mark.parametrize(
    ("text", "seconds"), [("60", 60.0), ("60s", 60.0), (" 1.5 s", 1.5), ("", None), ("soon", None), ("-1", None)]
)
def test_how_long_to_wait_is_read_as_gomind_tools_write_it(text: str, seconds: float | None) -> None:
    assert seconds == read_wait(Failure(codes.RATE_LIMIT_EXCEEDED, "", details={"retry_after": text}))


def test_a_success_is_not_sent_again_though_it_holds_an_error() -> None:
    assert reason(reply(200, enveloped("SERVICE_UNAVAILABLE", "SERVICE_ERROR", True)), IDEMPOTENT, keyed=True) is None


def test_every_rule_has_its_own_reason() -> None:
    assert list(Reason) == [rule.reason for rule in RULES]


# --- waiting ----------------------------------------------------------------------------------------------------------
def test_the_bound_of_the_wait_doubles_up_to_the_longest() -> None:
    policy = ResendPolicy(backoff=0.025, max_backoff=0.15)

    assert [0.0125, 0.025, 0.05, 0.075, 0.075] == [compute_pause(policy, resent, 0.5) for resent in range(5)]


@given(st.integers(0, 10), st.floats(0, 1, exclude_max=True), st.none() | st.floats(0, 1e6))
def test_a_wait_is_never_shorter_than_asked_for_and_never_much_longer(
    resent: int, chance: float, wait: float | None
) -> None:
    waited = compute_pause(PLAIN, resent, chance, wait)

    assert (wait or 0.0) <= waited <= (wait or 0.0) + PLAIN.max_backoff


# --- idempotency keys -------------------------------------------------------------------------------------------------
KEYED = ResendPolicy(key_header="idempotency-key")
MINTED = ResendPolicy(key_header="idempotency-key", mint_key=True)
OWN: Headers = (("idempotency-key", "own"), ("x", "1"))


@pytest.mark.parametrize(
    ("policy", "headers", "expected"),
    [
        (PLAIN, OWN, (OWN, False)),
        (KEYED, OWN, (OWN, True)),
        (KEYED, (("x", "1"),), ((("x", "1"),), False)),
        (MINTED, OWN, (OWN, True)),
        (MINTED, (("x", "1"),), ((("x", "1"), ("idempotency-key", "new")), True)),
        (MINTED, (("idempotency-key", ""),), ((("idempotency-key", "new"),), True)),
    ],
)
def test_a_key_is_the_clients_own_or_minted_if_the_route_says_so(
    policy: ResendPolicy, headers: Headers, expected: tuple[Headers, bool]
) -> None:
    assert expected == add_idempotency_key(headers, policy, lambda: "new")


# --- the budget -------------------------------------------------------------------------------------------------------
def drawn(budget: Budget, now: float) -> tuple[Budget, int]:
    """The budget after as many resends as it gives at once, and how many these are."""
    given_out = 0
    while (left := budget.draw(now)) is not None:
        budget, given_out = left, given_out + 1
    return budget, given_out


def test_ten_resends_are_saved_up_and_then_one_comes_each_second() -> None:
    budget, first = drawn(Budget.of(BudgetPolicy(), 100.0), 100.0)
    budget, later = drawn(budget, 103.0)

    assert (10, 3) == (first, later)


def test_a_fifth_of_the_requests_may_be_resends() -> None:
    budget = Budget.of(BudgetPolicy(per_second=0), 0.0)
    assert 0 == drawn(budget, 0.0)[1]
    for _ in range(20):
        budget = budget.paid_in(0.0)

    assert 4 == drawn(budget, 0.0)[1]


def test_a_budget_of_nothing_gives_nothing() -> None:
    budget = Budget.of(BudgetPolicy(0, 0), 0.0)
    for second in range(1000):
        budget = budget.paid_in(second)

    assert budget.draw(1e9) is None


def test_a_full_budget_costs_a_request_nothing() -> None:
    budget = Budget.of(BudgetPolicy(), 0.0)

    assert budget is budget.paid_in(5.0)


@given(st.lists(st.tuples(st.floats(0, 5), st.booleans()), max_size=200))
def test_resends_never_exceed_what_requests_and_time_pay_in(steps: list[tuple[float, bool]]) -> None:
    budget, now, requests, resends = Budget.of(BudgetPolicy(), 0.0), 0.0, 0, 0
    for passed, again in steps:
        now += passed
        if again and (left := budget.draw(now)) is not None:
            budget, resends = left, resends + 1
        elif not again:
            budget, requests = budget.paid_in(now), requests + 1

    assert resends <= 10 + 0.2 * requests + now + 1e-6
