"""What an upstream's answer means for the model: status -> `ErrorCode`, as a table (contract section 7).

An error that already says what it is (GoMind's `{success: false, error: {...}}`, Compozy's and our own envelopes)
keeps its code, category, words and verdict, also on a 2xx; everything else is judged by its status. What a tool says
about its arguments (`complaints/`) becomes violations with paths, like our own. The upstream's status is always kept,
and its words are in `details.original_error`: without what was sent as a secret, and at most 500 characters of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from proxy.core import codes
from proxy.core.codes import ERROR_CODES, STATUS_OF_CATEGORY, Category, ErrorCode, ErrorType
from proxy.core.complaints import STATUSES, Complaint, complaints
from proxy.core.complaints.findings import secrets_of, without_secrets
from proxy.core.contentcoding import Undecodable, decode, is_coded
from proxy.core.jsontext import parse
from proxy.core.model import (
    ABSENT,
    Failure,
    FeedbackLimits,
    Headers,
    JsonProblem,
    JsonValue,
    UpstreamFault,
    UpstreamReply,
)
from proxy.core.preview import hide, shown_text
from proxy.core.secrets import sensitive_names
from proxy.core.validation import Check

# Bytes of an answer that are looked at: an error is short, and a long success is not searched for one.
LOOKED_AT: Final = 64 * 1024
_LONGEST_WORDS: Final = 500
_SEARCHED: Final = 16 * 1024  # where secrets are looked for, far beyond what is shown
_LONGEST_MESSAGE: Final = 200
_MOST_DETAILS: Final = 20

# Statuses with a code of their own; the rest go by their hundreds.
_BY_STATUS: Final = {
    401: codes.UNAUTHORIZED,
    403: codes.UNAUTHORIZED,
    404: codes.RESOURCE_NOT_FOUND,
    429: codes.RATE_LIMIT_EXCEEDED,
    504: codes.REQUEST_TIMEOUT,
}
# Of the other 4xx, those that other arguments can mend.
_MENDABLE: Final = frozenset({400, 409, 422})

# Statuses by which a gateway says that it lost the tool on the way.
_LOST: Final = frozenset({502, 504})

# What a client needs of the upstream's headers although the body is replaced.
_KEPT_HEADERS: Final = frozenset({"retry-after", "www-authenticate"})

# Where error bodies keep their words, most specific first: GoMind, RFC 9457, FastAPI, Django, plain.
_WORDS_AT: Final = ("message", "detail", "error_description", "error", "title", "errors")

_CODE_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")


def classify(
    reply: UpstreamReply,
    wall: float,
    check: Check | None = None,
    sent: JsonValue = ABSENT,
    limits: FeedbackLimits | None = None,
) -> Failure | None:
    """The failure an upstream's answer stands for, or None for a delivered one (2xx and 3xx without an error inside).

    `wall` is the time of day in Unix seconds, for a Retry-After that is a date. `check` is the tool's compiled schema,
    `sent` the arguments that were forwarded (`ABSENT`: none), `limits` how they may be shown. A streamed body is not
    looked into.
    """
    if is_success(reply):
        return None
    status, headers = reply.status, reply.headers
    body = reply.body if isinstance(reply.body, bytes) else b""
    text = _readable(headers, body)
    value = _json(text)
    told = _told(value)
    if told is None and status < 400:
        return None
    words = _Words(sent, _limits(check) if limits is None else limits)
    said = _asked_status(told, status)
    found = complaints(said, _header(headers, "content-type"), text, check, sent, limits) if said else None
    failure = _by_status(status) if told is None else _enveloped(told, value, status, words)
    original = found.words if found is not None and found.words else words.shown(_spoken_or_text(value, text))
    if found is not None:
        failure = _complained(failure, found, sent, told is None)
    elif told is None and original:
        failure = replace(failure, message=f"{failure.message}: {shown_text(original, _LONGEST_MESSAGE)}")
    details = _details(failure, status, _retry_after(_header(headers, "retry-after"), wall), original)
    kept = tuple((name, item) for name, item in headers if name.lower() in _KEPT_HEADERS)
    return replace(failure, details=details, status=status, headers=kept)


def is_success(reply: UpstreamReply) -> bool:
    """Whether a glance shows that an answer is a delivered one; if not, `classify` tells."""
    body = reply.body
    return (
        reply.status < 400
        and not (isinstance(body, bytes) and body.find(b'"success"', 0, LOOKED_AT) >= 0)
        and not _header(reply.headers, "content-encoding")
    )


def _limits(check: Check | None) -> FeedbackLimits:
    return FeedbackLimits(secret_names=sensitive_names(check.schemas) if check is not None else frozenset())


def _details(failure: Failure, status: int, retry_after: str, original: str) -> dict[str, str]:
    """What the tool's own envelope holds, and what every failed answer tells."""
    return {
        **({"executed": "unknown"} if status in _LOST else {}),
        **failure.details,
        "upstream_status": str(status),
        **({"retry_after": retry_after} if retry_after else {}),
        **({"original_error": original} if original else {}),
    }


def fault_failure(fault: UpstreamFault, sends: int = 1) -> Failure:
    """The failure for a call that got no answer. Says whether the tool may have run, so that nobody calls it twice.

    `sends`: how often the call was sent in all.
    """
    details = {"executed": str(fault.executed), "reason": fault.token}
    if sends > 1:
        details["sends"] = str(sends)
    if fault.retry_after is not None:
        details["retry_after"] = str(fault.retry_after)
    return Failure(fault.code, f"{fault.code.meaning} ({fault.message})", details=details)


# --- what it says about the arguments ---------------------------------------------------------------------------------
def _asked_status(told: JsonValue, status: int) -> int | None:
    """The status to look for complaints with; None where the answer is not about the arguments (contract section 7).

    An envelope that says INPUT_ERROR inside a success has no status of its own.
    """
    category = _named_category(told)
    if status < 400:
        return 400 if category is Category.INPUT_ERROR else None
    return status if status in STATUSES and category in (None, Category.INPUT_ERROR) else None


def _named_category(told: JsonValue) -> Category | None:
    """The category an envelope states, or that its code is known for; None where it leaves that open."""
    if not isinstance(told, dict):
        return None
    if (named := told.get("category")) in list(Category):
        return Category(named)
    name = told.get("code")
    return ERROR_CODES[name].category if isinstance(name, str) and name in ERROR_CODES else None


def _complained(failure: Failure, found: Complaint, sent: JsonValue, bare: bool) -> Failure:
    """The failure with what the complaint says. `bare`: no envelope of the tool gave it a code and a message."""
    if not bare:
        return replace(failure, violations=found.violations, sent=sent)
    code = codes.UPSTREAM_REJECTED_ARGUMENTS
    words = "" if found.violations else shown_text(found.words, _LONGEST_MESSAGE)
    message = f"{code.meaning.rstrip('.')}: {words}" if words else code.meaning
    return Failure(code, message, found.violations, sent=sent)


# --- by status ------------------------------------------------------------------------------------------------------
def _by_status(status: int) -> Failure:
    message = f"The tool answered with HTTP status {status}"
    if status >= 500:
        return Failure(_BY_STATUS.get(status, codes.SERVICE_UNAVAILABLE), message)
    code = _BY_STATUS.get(status)
    if code is not None:
        return Failure(code, message)
    return Failure(codes.INVALID_REQUEST, message, retryable=status in _MENDABLE)


def _retry_after(value: str, wall: float) -> str:
    """Seconds to wait, as text; '' where the header is absent or unreadable (RFC 9110 section 10.2.3)."""
    if value.isascii() and value.isdigit() and len(value) < 10:
        return str(int(value))
    from email.utils import parsedate_to_datetime  # only here: who asks to wait nearly always counts seconds

    try:
        return str(max(0, round(parsedate_to_datetime(value).timestamp() - wall)))
    except (ValueError, TypeError, OverflowError):
        return ""


# --- errors that say what they are ----------------------------------------------------------------------------------
def _told(value: JsonValue) -> JsonValue:
    """The `error` of an enveloped failure: an object or a text. None where the answer is no such envelope.

    `{"success": false}` without an `error` is a tool's own result and stays one.
    """
    if not isinstance(value, dict) or value.get("success") is not False:
        return None
    error = value.get("error")
    return error if isinstance(error, dict | str) and error else None


def _enveloped(error: JsonValue, value: JsonValue, status: int, words: _Words) -> Failure:
    fallback = _by_status(status if status >= 400 else 500)
    if isinstance(error, str):
        return replace(fallback, message=words.shown(error) or fallback.message)
    code = _code(error, fallback.code)
    retryable = error.get("retryable")
    message = error.get("message")
    hint = value.get("remediation_hint")
    return Failure(
        code,
        (words.shown(message) if isinstance(message, str) else "") or fallback.message,
        hint=words.shown(hint) if isinstance(hint, str) else "",
        details=_flat(error.get("details"), words),
        retryable=retryable if isinstance(retryable, bool) else None,
    )


def _code(error: Mapping[str, JsonValue], fallback: ErrorCode) -> ErrorCode:
    """The tool's own code: one of the catalogue, or a new one of the category it names."""
    name = error.get("code")
    if not isinstance(name, str) or not _CODE_NAME.fullmatch(name):
        return fallback
    if name in ERROR_CODES:
        return ERROR_CODES[name]
    named = error.get("category")
    category = Category(named) if named in list(Category) else fallback.category
    return ErrorCode(
        name, category, STATUS_OF_CATEGORY[category], fallback.retryable, ErrorType.TOOL, "The tool reports an error.",
        "Read the tool's own words before you call it again.",
    )  # fmt: skip


def _flat(details: JsonValue, words: _Words) -> dict[str, str]:
    """`details` as GoMind clients decode it: text to text, bounded."""
    if not isinstance(details, dict):
        return {}
    pairs = [(key, item) for key, item in details.items() if isinstance(item, str)]
    return {key[:64]: words.shown(item) for key, item in pairs[:_MOST_DETAILS]}


# --- reading --------------------------------------------------------------------------------------------------------
def _header(headers: Headers, name: str) -> str:
    length = len(name)
    for key, value in headers:
        if len(key) == length and key.lower() == name:  # most names have another length, which is quicker to see
            return value
    return ""


def _readable(headers: Headers, body: bytes) -> bytes:
    """The body without its content coding; b"" where it cannot be decoded within the bound."""
    coding = _header(headers, "content-encoding")
    if not is_coded(coding):
        return body[:LOOKED_AT]
    decoded = decode(body, coding, LOOKED_AT)
    return b"" if isinstance(decoded, Undecodable) else decoded


def _json(text: bytes) -> JsonValue:
    """The JSON value of an error body, or None; anything but an object or array says nothing to us."""
    if text.lstrip()[:1] not in (b"{", b"["):
        return None
    value = parse(text)
    return None if isinstance(value, JsonProblem) else value


class _Words:
    """How a tool's words are shown: a tool that quotes its arguments must not quote a secret among them."""

    def __init__(self, sent: JsonValue, limits: FeedbackLimits) -> None:
        self._sent = sent
        self._limits = limits
        self._secrets = secrets_of(sent, limits)

    def shown(self, text: str) -> str:
        """At most 500 code points of a text; '' where the arguments hold more secrets than can be looked for."""
        if self._secrets is None:
            return ""
        text = hide(without_secrets(text[:_SEARCHED], self._secrets), self._sent, self._limits)
        return shown_text(text, _LONGEST_WORDS, self._limits)


def _spoken_or_text(value: JsonValue, text: bytes) -> str:
    """What the upstream says in its own words, on one line."""
    found = _spoken(value)
    return " ".join(text.decode("utf-8", "replace").split()) if found is None else found


def _spoken(value: JsonValue) -> str | None:
    """The first text at one of the places where error bodies keep their words."""
    if not isinstance(value, dict):
        return None
    for name in _WORDS_AT:
        item = value.get(name)
        if isinstance(item, str) and item.strip():
            return " ".join(item.split())
        if isinstance(item, dict) and (inner := _spoken(item)) is not None:
            return inner
    return None
