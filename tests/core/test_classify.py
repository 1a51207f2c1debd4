"""Upstream answers and faults -> failures (docs/upstream.md)."""

from __future__ import annotations

import gzip
import json

import pytest

from proxy.core.check.validation import compile_check
from proxy.core.contract import attempts as contract
from proxy.core.model import codes
from proxy.core.model.codes import Category, ErrorCode
from proxy.core.model.values import (
    ABSENT,
    Executed,
    Failure,
    FeedbackLimits,
    Headers,
    JsonValue,
    Pointer,
    UpstreamFault,
    UpstreamReply,
)
from proxy.core.tool_errors.classify import classify_answer, make_fault_failure

NOON = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT


def failed(status: int, body: bytes = b"", *headers: tuple[str, str]) -> Failure:
    failure = classify_answer(UpstreamReply(status, headers, body), NOON)
    assert failure is not None
    return failure


@pytest.mark.parametrize("status", [200, 201, 202, 204, 301, 302, 304, 307])
def test_a_success_or_redirect_is_no_failure(status: int) -> None:
    assert classify_answer(UpstreamReply(status, (), b'{"error": "none"}'), NOON) is None


MEANINGS: list[tuple[int, ErrorCode, Category, bool]] = [
    (400, codes.INVALID_REQUEST, Category.INPUT_ERROR, True),
    (401, codes.UNAUTHORIZED, Category.AUTH_ERROR, False),
    (403, codes.UNAUTHORIZED, Category.AUTH_ERROR, False),
    (404, codes.RESOURCE_NOT_FOUND, Category.NOT_FOUND, True),
    (405, codes.INVALID_REQUEST, Category.INPUT_ERROR, False),
    (408, codes.REQUEST_TIMEOUT, Category.SERVICE_ERROR, True),
    (409, codes.INVALID_REQUEST, Category.INPUT_ERROR, True),
    (410, codes.INVALID_REQUEST, Category.INPUT_ERROR, False),
    (413, codes.INVALID_REQUEST, Category.INPUT_ERROR, False),
    (418, codes.INVALID_REQUEST, Category.INPUT_ERROR, False),
    (422, codes.INVALID_REQUEST, Category.INPUT_ERROR, True),
    (425, codes.SERVICE_UNAVAILABLE, Category.SERVICE_ERROR, True),
    (429, codes.RATE_LIMIT_EXCEEDED, Category.RATE_LIMIT, True),
    (500, codes.SERVICE_UNAVAILABLE, Category.SERVICE_ERROR, True),
    (502, codes.SERVICE_UNAVAILABLE, Category.SERVICE_ERROR, True),
    (503, codes.SERVICE_UNAVAILABLE, Category.SERVICE_ERROR, True),
    (504, codes.REQUEST_TIMEOUT, Category.SERVICE_ERROR, True),
    (599, codes.SERVICE_UNAVAILABLE, Category.SERVICE_ERROR, True),
]


@pytest.mark.parametrize(("status", "code", "category", "retryable"), MEANINGS)
def test_a_status_has_its_code_and_is_kept(status: int, code: ErrorCode, category: Category, retryable: bool) -> None:
    failure = failed(status)

    assert (code, category, retryable, status) == (
        failure.code,
        failure.code.category,
        failure.may_retry,
        failure.http_status,
    )


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("60", "60"),
        ("0", "0"),
        ("Tue, 14 Nov 2023 22:14:20 GMT", "60"),
        ("Tue, 14 Nov 2023 22:00:00 GMT", "0"),
        ("soon", None),
        ("-5", None),
        ("Tue, 99 Nov 2023", None),
    ],
)
def test_states_retry_after_in_seconds(value: str, seconds: str | None) -> None:
    failure = failed(429, b"", ("Retry-After", value))

    assert seconds == failure.details.get("retry_after")
    assert (("Retry-After", value),) == failure.headers


def test_keeps_only_headers_that_a_client_needs() -> None:
    headers: Headers = (("WWW-Authenticate", "Bearer"), ("ETag", "x"), ("Content-Type", "text/html"))

    assert (("WWW-Authenticate", "Bearer"),) == failed(401, b"", *headers).headers


WORDS = [
    (b"  it is\n  broken ", "it is\nbroken"),
    (b'{"message": "no such city"}', "no such city"),
    (b'{"detail": "off the map"}', "off the map"),
    (b'{"error": {"message": "inner"}}', "inner"),
    (b'{"error": "plain"}', "plain"),
    (b'{"type": "about:blank", "title": "Bad", "detail": "lat is wrong", "status": 400}', "lat is wrong"),
    (b'{"detail": [{"loc": ["body", "lat"]}]}', '{"detail": [{"loc": ["body", "lat"]}]}'),
    (b"\xff\xfe\x00", "\ufffd\ufffd\x00"),
]


@pytest.mark.parametrize(("body", "words"), WORDS)
def test_the_tools_own_words_are_in_the_details(body: bytes, words: str) -> None:
    assert words == failed(400, body).details["original_error"]


def test_keeps_a_title_once_when_an_entry_says_nothing_more() -> None:
    failure = failed(400, b'{"errors": [{"title": "Not  allowed"}, {"title": "Too  late"}]}')
    assert "Not allowed\nToo late" == failure.details["original_error"]


def test_the_tools_words_are_bounded_and_masked() -> None:
    long = failed(500, b"x" * 100_000).details["original_error"]
    secret = failed(500, b"bad token Bearer abcdefghijklmnop1234567890").details["original_error"]

    assert 1500 - len("(+100 more)") == len(long)
    assert "abcdefghijklmnop" not in secret


def test_a_compressed_error_is_read() -> None:
    failure = failed(400, gzip.compress(b'{"message": "packed"}'), ("Content-Encoding", "gzip"))

    assert "packed" == failure.details["original_error"]


def test_classifies_a_compressed_bomb_or_unknown_coding_by_its_status() -> None:
    bomb = failed(400, gzip.compress(b"x" * 10_000_000), ("Content-Encoding", "gzip"))
    unknown = failed(400, b"??", ("Content-Encoding", "br"))

    assert [codes.INVALID_REQUEST] * 2 == [bomb.code, unknown.code]
    assert ["original_error" in failure.details for failure in (bomb, unknown)] == [False, False]


# --- errors that say what they are ------------------------------------------------------------------------------------
GOMIND = {
    "success": False,
    "error": {
        "code": "LOCATION_NOT_FOUND",
        "message": "Location 'Flower Mound, TX' not found",
        "category": "NOT_FOUND",
        "retryable": True,
        "details": {"hint": "Try 'City, Country' format", "number": 5},
    },
}


@pytest.mark.parametrize("status", [200, 404, 500])
def test_a_gomind_error_keeps_its_meaning_whatever_the_status(status: int) -> None:
    failure = failed(status, json.dumps(GOMIND).encode())

    assert codes.LOCATION_NOT_FOUND == failure.code
    assert ("Location 'Flower Mound, TX' not found", True, status) == (
        failure.message,
        failure.may_retry,
        failure.http_status,
    )
    assert "Try 'City, Country' format" == failure.details["hint"]
    assert "5" == failure.details["number"]


def test_a_code_of_the_tools_own_keeps_its_name_and_category() -> None:
    error = {"code": "CITY_CLOSED", "message": "closed", "category": "AUTH_ERROR", "retryable": False}
    failure = failed(200, json.dumps({"success": False, "error": error}).encode())

    assert ("CITY_CLOSED", Category.AUTH_ERROR, False) == (failure.code.name, failure.code.category, failure.may_retry)


@pytest.mark.parametrize("code", ["", "no spaces please", "x" * 65, "a\r\nb", 5, None])
def test_classifies_a_code_that_is_no_name_by_the_status(code: object) -> None:
    body = json.dumps({"success": False, "error": {"code": code, "message": "m"}}).encode()

    assert codes.RESOURCE_NOT_FOUND == failed(404, body).code


def test_a_remediation_hint_is_kept() -> None:
    body = {"success": False, "error": {"code": "X", "message": "m"}, "remediation_hint": "Ask for a key."}

    assert "Ask for a key." == failed(400, json.dumps(body).encode()).hint


def test_an_error_that_is_a_text_is_the_message() -> None:
    assert "it broke" == failed(200, b'{"success": false, "error": "it broke"}').message


@pytest.mark.parametrize(
    "body",
    [
        b'{"success": true, "data": {"success": false}}',
        b'{"success": false, "reason": "no match"}',
        b'{"success": "false", "error": "x"}',
        b'[{"success": false, "error": "x"}]',
        b'{"success": false, "error": "x"',
    ],
)
def test_a_tools_own_result_is_no_failure(body: bytes) -> None:
    assert classify_answer(UpstreamReply(200, (("Content-Type", "application/json"),), body), NOON) is None


def test_a_fault_says_whether_the_tool_may_have_run() -> None:
    fault = UpstreamFault(codes.UPSTREAM_TIMEOUT, "http_response_timeout", Executed.UNKNOWN, "upstream 'w': late")

    assert Failure(
        codes.UPSTREAM_TIMEOUT,
        "The tool did not answer in time. (upstream 'w': late)",
        details={"executed": "unknown", "reason": "http_response_timeout"},
    ) == make_fault_failure(fault)


def test_a_fault_says_how_often_the_call_was_sent_and_when_to_come_back() -> None:
    fault = UpstreamFault(codes.CIRCUIT_OPEN, "destination_unavailable", Executed.NO, "upstream 'w': failing", 5)

    assert {
        "executed": "no",
        "reason": "destination_unavailable",
        "sends": "3",
        "retry_after": "5",
    } == make_fault_failure(fault, 3).details


@pytest.mark.parametrize(
    ("status", "executed"),
    [(500, "unknown"), (502, "unknown"), (504, "unknown"), (520, "unknown"), (503, None), (501, None), (429, None)],
)
def test_says_whether_the_tool_may_have_run(status: int, executed: str | None) -> None:
    assert executed == failed(status).details.get("executed")


def test_a_tool_that_may_be_called_twice_is_not_said_to_have_run_at_a_500() -> None:
    answers = [classify_answer(UpstreamReply(500, (), b""), 0.0, idempotent=idempotent) for idempotent in (True, False)]
    assert [None, "unknown"] == [each.details.get("executed") for each in answers if each is not None]


@pytest.mark.parametrize(("status", "retryable"), [(501, False), (505, False), (500, True), (503, True)])
def test_does_not_retry_statuses_that_are_final(status: int, retryable: bool) -> None:
    assert retryable == failed(status).may_retry


# --- complaints about the arguments -----------------------------------------------------------------------------------
CHECK = compile_check(
    {
        "type": "object",
        "properties": {"lat": {"type": "number"}, "city": {"type": "string"}, "pin": {"type": "string"}},
        "required": ["lat"],
    }
)
GO = "json: cannot unmarshal string into Go struct field WeatherRequest.lat of type float64"


def refused(status: int, body: JsonValue, sent: JsonValue = ABSENT, limits: FeedbackLimits | None = None) -> Failure:
    text = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    typed = "text/plain" if isinstance(body, str) else "application/json"
    reply = UpstreamReply(status, (("Content-Type", typed),), text)
    failure = classify_answer(reply, NOON, CHECK, {"lat": "48.8"} if sent is ABSENT else sent, limits)
    assert failure is not None
    return failure


def server_error(body: str, *, idempotent: bool, status: int = 500) -> Failure:
    reply = UpstreamReply(status, (("Content-Type", "text/plain"),), body.encode())
    failure = classify_answer(reply, NOON, CHECK, {"lat": "48.8"}, idempotent=idempotent)
    assert failure is not None
    return failure


def found(failure: Failure) -> list[tuple[str, Pointer]]:
    return [(violation.code.name, violation.path) for violation in failure.violations]


@pytest.mark.parametrize("status", [400, 404, 409, 422])
def test_a_tools_complaint_becomes_violations_with_paths(status: int) -> None:
    failure = refused(status, GO)

    assert (
        codes.UPSTREAM_REJECTED_ARGUMENTS,
        status,
        [("VAL-002", ("lat",))],
        GO,
        {"lat": "48.8"},
    ) == (
        failure.code,
        failure.http_status,
        found(failure),
        failure.details["original_error"],
        failure.sent,
    )
    assert "The tool itself refused the arguments." == failure.message
    assert contract.raises_attempt(failure)


@pytest.mark.parametrize("status", [401, 403, 405, 429, 500, 503])
def test_other_statuses_are_not_about_the_arguments(status: int) -> None:
    failure = refused(status, GO)

    assert () == failure.violations
    assert not contract.raises_attempt(failure)


def test_keeps_the_tools_words_of_a_complaint_that_names_no_argument() -> None:
    failure = refused(400, "type mismatch somewhere in there")

    assert (codes.UPSTREAM_REJECTED_ARGUMENTS, ()) == (failure.code, failure.violations)
    assert "The tool itself refused the arguments: type mismatch somewhere in there" == failure.message
    assert contract.raises_attempt(failure)


def enveloped(category: str | None, code: str = "BAD_LAT", message: str = GO) -> JsonValue:
    error = {"code": code, "message": message, "retryable": False, **({"category": category} if category else {})}
    return {"success": False, "error": error}


@pytest.mark.parametrize(("status", "category"), [(400, "INPUT_ERROR"), (422, None), (200, "INPUT_ERROR")])
def test_an_enveloped_complaint_keeps_the_tools_code_and_gains_the_violations(
    status: int, category: str | None
) -> None:
    failure = refused(status, enveloped(category))

    assert ("BAD_LAT", GO, False, [("VAL-002", ("lat",))]) == (
        failure.code.name,
        failure.message,
        failure.may_retry,
        found(failure),
    )
    assert contract.raises_attempt(failure)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, enveloped("NOT_FOUND")),
        (400, enveloped("SERVICE_ERROR")),
        (400, enveloped(None, "LOCATION_NOT_FOUND")),
        (200, enveloped(None)),
        (500, enveloped("INPUT_ERROR")),
    ],
)
def test_an_envelope_that_says_otherwise_is_believed(status: int, body: JsonValue) -> None:
    failure = refused(status, body)

    assert () == failure.violations
    assert not contract.raises_attempt(failure)


SECRET = {"lat": 1, "city": "x", "api_key": "k-31415926", "pin": "4711", "deep": {"password": 'a"b\nc d'}}


@pytest.mark.parametrize(
    "said",
    ["no access with k-31415926", "pin 4711 is wrong", 'bad: {"password": "a\\"b\\nc d"}', "k-31415926k-31415926"],
)
@pytest.mark.parametrize("status", [400, 403, 500])
def test_a_secret_that_was_sent_is_not_quoted_back(said: str, status: int) -> None:
    limits = FeedbackLimits(secret_names=frozenset({"pin"}))
    bodies: list[JsonValue] = [said, {"message": said}, {"success": False, "error": said}, enveloped(None, "X", said)]
    for body in bodies:
        shown = repr(refused(status, body, SECRET, limits))
        assert not [text for text in ("k-31415926", "4711", "nc d") if text in shown], shown


def test_words_of_a_call_with_more_secrets_than_can_be_looked_for_are_left_out() -> None:
    failure = refused(500, "boom s77", {"tokens": [f"s{number}" for number in range(1000)]})

    assert ("The tool answered with HTTP status 500", False) == (failure.message, "original_error" in failure.details)


@pytest.mark.parametrize("status", [500, 503])
def test_a_server_error_that_names_an_argument_is_a_complaint_of_an_idempotent_tool(status: int) -> None:
    failure = server_error(GO, idempotent=True, status=status)

    assert (codes.UPSTREAM_REJECTED_ARGUMENTS, status, [("VAL-002", ("lat",))], True) == (
        failure.code, failure.status, found(failure), failure.type_related,
    )  # fmt: skip
    assert f"The tool answered with HTTP status {status}, and by its words the arguments are the cause." == (
        failure.message
    )


@pytest.mark.parametrize(
    ("body", "idempotent", "status"),
    [
        (GO, False, 500),
        (GO, True, 502),
        (GO.replace(".lat", ".elsewhere"), True, 500),
        (GO.replace(".lat", ".city"), True, 500),
        ("'lat' must be a number", True, 500),
    ],
)
def test_any_other_server_error_is_the_tools_own(body: str, idempotent: bool, status: int) -> None:
    failure = server_error(body, idempotent=idempotent, status=status)

    assert (codes.SERVICE_UNAVAILABLE, []) == (failure.code, found(failure))
