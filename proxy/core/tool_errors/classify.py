"""The meaning of an upstream's answer for the model: a table from status to `ErrorCode` (docs/upstream.md).

An error with a known form (GoMind's `{success: false, error: {...}}`, Compozy's and our own envelopes) keeps its code,
category, words and verdict, also on a 2xx. Every other answer is judged by its status. A tool's complaint about its
arguments (`complaints.py`) becomes violations with paths, like our own. The upstream's status is always kept, and its
words go to `details.original_error` as they are (`own_words.py`), without secrets that were sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from proxy.core.check.validation import Check
from proxy.core.display.graphemes import cut_sentences
from proxy.core.display.preview import clean_text, make_hider
from proxy.core.envelope.view import show_path
from proxy.core.json.contentcoding import Undecodable, decode, is_coded
from proxy.core.json.jsontext import dumps, parse
from proxy.core.model import codes
from proxy.core.model.codes import ERROR_CODES, STATUS_OF_CATEGORY, Category, ErrorCode, ErrorType
from proxy.core.model.values import (
    ABSENT,
    Failure,
    FeedbackLimits,
    JsonProblem,
    JsonValue,
    UpstreamFault,
    UpstreamReply,
    Violation,
)
from proxy.core.tool_errors.backoff import LASTING
from proxy.core.tool_errors.complaints import (
    SERVER_ERRORS,
    STATUSES,
    Complaint,
    make_limits,
    read_complaints,
    read_server_error,
)
from proxy.core.tool_errors.findings import list_secrets, mask_secrets
from proxy.core.tool_errors.own_words import MOST_WORDS, join_words, list_own_words
from proxy.core.tool_errors.places import rename_url_places

# The bytes of an answer that are read: an error is short, and a long success is not searched for one.
LOOKED_AT: Final = 64 * 1024
# The most places of a wrong answer that are named.
_NAMED: Final = 5
_LONGEST_DETAIL: Final = 300
_SEARCHED: Final = 16 * 1024  # how far secrets are looked for, much further than what is shown
_LONGEST_MESSAGE: Final = 200  # longer words of a tool are only in the details
_MOST_DETAILS: Final = 20

# Statuses with a separate code; the others are judged by their hundreds.
_BY_STATUS: Final = {
    401: codes.UNAUTHORIZED, 403: codes.UNAUTHORIZED, 404: codes.RESOURCE_NOT_FOUND, 408: codes.REQUEST_TIMEOUT,
    425: codes.SERVICE_UNAVAILABLE, 429: codes.RATE_LIMIT_EXCEEDED, 504: codes.REQUEST_TIMEOUT,
}  # fmt: skip
# The other 4xx statuses that different arguments can resolve.
_MENDABLE: Final = frozenset({400, 409, 422})

# Statuses by which a gateway reports that it could not reach the tool.
_LOST: Final = frozenset({502, 504})
# Statuses from 500 on by which a service says that it has done nothing.
_NOT_RUN: Final = LASTING | {503}

# The upstream's headers that a client needs although the body is replaced.
_KEPT_HEADERS: Final = frozenset({"retry-after", "www-authenticate"})

_CODE_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")


def classify_answer(
    reply: UpstreamReply,
    wall: float,
    check: Check | None = None,
    sent: JsonValue = ABSENT,
    limits: FeedbackLimits | None = None,
    named: Mapping[tuple[str, str], str] = MappingProxyType({}),
    idempotent: bool = False,
) -> Failure | None:
    """The failure that an upstream's answer means, or None for a delivered one (2xx and 3xx without an error inside).
    `wall` is the time of day in Unix seconds, for a Retry-After that is a date. `check` is the tool's compiled schema,
    `sent` the arguments that were forwarded (`ABSENT`: none), `limits` how they may be shown. `named`: place and name
    of each parameter outside of the body -> the argument. `idempotent`: the tool may run twice. No stream is read."""
    if is_success(reply):
        return None
    status = reply.status
    text, value = _read_body(reply, named)
    # `{"success": false}` without an `error` is a tool's own result and stays one.
    error = value.get("error") if isinstance(value, dict) and value.get("success") is False else None
    is_bare = not isinstance(error, (dict, str)) or not error  # no envelope of the tool gives a code and a message
    if is_bare and status < 400:
        return None
    show = _show_without_secrets(sent, make_limits(check) if limits is None else limits)
    media_type, complaint_status = reply.header("content-type"), _find_complaint_status(error, status)
    url = _about_url(value) if complaint_status and is_bare else ()
    found = read_complaints(complaint_status, media_type, text, check, sent, limits) if complaint_status else None
    if idempotent and is_bare and status in SERVER_ERRORS:
        found = read_server_error(media_type, text, check, sent, limits)
    failure = _by_status(status, show(_hint(value))) if is_bare else _read_enveloped(error, value, status, show)
    if isinstance(error, dict) and isinstance(error.get("details"), dict):  # they are handed on under their own names
        value = {**value, "error": {key: item for key, item in error.items() if key != "details"}}
    original = join_words(list(filter(None, map(show, list_own_words(value, text)))))
    sentence = original if len(original) <= _LONGEST_MESSAGE and "\n" not in original else ""
    if url and (found is None or not found.violations):
        failure = replace(failure, hint=show("; ".join(url)))
    elif found is not None:
        failure = _add_complaint(failure, found, sent, is_bare, sentence)
    elif is_bare and sentence:
        failure = replace(failure, message=f"{failure.message}: {sentence}")
    return _add_details(failure, reply, wall, original, idempotent)


def _add_details(failure: Failure, reply: UpstreamReply, wall: float, original: str, idempotent: bool) -> Failure:
    """The failure with the details that every failed answer has, beside those of the tool's own envelope."""
    status = reply.status
    # If the status leaves it open whether the tool ran, its call must not be repeated.
    may_have_run = status in _LOST or (status >= 500 and status not in _NOT_RUN and not idempotent)
    details = {**({"executed": "unknown"} if may_have_run else {}), **failure.details, "upstream_status": str(status)}
    if retry_after := _read_retry_after(reply.header("retry-after"), wall):
        details["retry_after"] = retry_after
    if original:
        details.setdefault("original_error", original)
    kept = tuple((name, item) for name, item in reply.headers if name.lower() in _KEPT_HEADERS)
    return replace(failure, details=details, status=status, headers=kept)


def show_words(text: str, check: Check | None, sent: JsonValue) -> str:
    """A tool's own words as they may be shown, without secrets that were `sent`."""
    return _show_without_secrets(sent, make_limits(check))(text)


def is_success(reply: UpstreamReply) -> bool:
    """Returns whether a quick look shows that an answer is a delivered one; if not, `classify_answer` decides."""
    body = reply.body
    return (
        reply.status < 400
        and not (isinstance(body, bytes) and body.find(b'"success"', 0, LOOKED_AT) >= 0)
        and not reply.header("content-encoding")
    )


def make_fault_failure(fault: UpstreamFault, sends: int = 1) -> Failure:
    """The failure for a call that got no answer, with whether the tool may have run. `sends`: how often it was sent."""
    details = {"executed": str(fault.executed), "reason": fault.token}
    if sends > 1:
        details["sends"] = str(sends)
    if fault.retry_after is not None:
        details["retry_after"] = str(fault.retry_after)
    return Failure(fault.code, f"{fault.code.meaning} ({fault.message})", details=details)


def make_unfit_failure(broken: tuple[Violation, ...]) -> Failure:
    """The failure for an answer that was not handed on: codes and places, no part of the answer itself."""
    named = [f"{each.code.name} {show_path(each.path) or 'the whole answer'}" for each in broken[:_NAMED]]
    more = [f"+{len(broken) - _NAMED} more"] if len(broken) > _NAMED else []
    details = {"answer_errors": ", ".join(named + more), "executed": "yes"}
    return Failure(codes.UPSTREAM_UNFIT_ANSWER, codes.UPSTREAM_UNFIT_ANSWER.meaning, details=details)


# --- what it says about the arguments ---------------------------------------------------------------------------------
def _find_complaint_status(error: JsonValue, status: int) -> int | None:
    """Returns the status under which to look for complaints. None for an answer that is not about arguments, by its
    status or by the category that its envelope or the envelope's code names (docs/upstream.md)."""
    named, name = (error.get("category"), error.get("code")) if isinstance(error, dict) else (None, None)
    category = Category(named) if named in list(Category) else None
    if category is None and isinstance(name, str) and name in ERROR_CODES:
        category = ERROR_CODES[name].category
    if status < 400:
        return 400 if category is Category.INPUT_ERROR else None
    return status if status in STATUSES and category in (None, Category.INPUT_ERROR) else None


def _add_complaint(failure: Failure, found: Complaint, sent: JsonValue, bare: bool, sentence: str) -> Failure:
    """Adds a complaint. `bare`: no envelope gave a code and a message; its `sentence` replaces violations."""
    if bare:
        code = codes.UPSTREAM_REJECTED_ARGUMENTS
        message = f"{code.meaning.rstrip('.')}: {sentence}" if sentence and not found.violations else code.meaning
        if failure.code.category is Category.SERVICE_ERROR:
            message = f"{failure.message}, and by its words the arguments are the cause."
        failure = Failure(code, message, hint=failure.hint)
    return replace(failure, violations=found.violations, sent=sent, type_related=found.type_related)


# The places of a parameter in frameworks' words: FastAPI's `loc`, express-validator's `location`.
_URL_PLACES: Final = {"path": "path", "query": "query", "params": "path"}


def _about_url(value: JsonValue) -> tuple[str, ...]:
    """Returns a framework's words on parameters in the URL, which no change of the arguments can mend; at most five."""
    listed = value.get("detail", value.get("errors")) if isinstance(value, dict) else None
    found: list[str] = []
    for item in listed if isinstance(listed, list) else ():
        if not isinstance(item, dict) or not isinstance(item.get("msg"), str):
            continue
        loc = item.get("loc")
        place, *steps = loc if isinstance(loc, list) and loc else (item.get("location"), item.get("path"))
        if isinstance(place, str) and place in _URL_PLACES:
            named, where = ".".join(map(str, steps)), _URL_PLACES[place]
            found.append(f"Parameter '{named}' is in the {where} of the URL, not in the body: {item['msg']}")
    return tuple(found[:5])


# --- by status ------------------------------------------------------------------------------------------------------
def _by_status(status: int, hint: str = "") -> Failure:
    message = f"The tool answered with HTTP status {status}"
    if status >= 500:
        code = _BY_STATUS.get(status, codes.SERVICE_UNAVAILABLE)
        return Failure(code, message, hint=hint, retryable=False if status in LASTING else None)
    if (known := _BY_STATUS.get(status)) is not None:
        return Failure(known, message, hint=hint)
    return Failure(codes.INVALID_REQUEST, message, hint=hint, retryable=status in _MENDABLE)


def _read_retry_after(value: str, wall: float) -> str:
    """Returns the seconds to wait, as text; '' if the header is absent or unreadable (RFC 9110 section 10.2.3)."""
    if value.isascii() and value.isdigit() and len(value) < 10:
        return str(int(value))
    from email.utils import parsedate_to_datetime  # imported here, because nearly all answers give seconds

    try:
        return str(max(0, round(parsedate_to_datetime(value).timestamp() - wall)))
    except (ValueError, TypeError, OverflowError):
        return ""


# --- errors that say what they are ----------------------------------------------------------------------------------
def _read_enveloped(error: JsonValue, value: JsonValue, status: int, show: Callable[[str], str]) -> Failure:
    fallback = _by_status(status if status >= 400 else 500)
    if isinstance(error, str):
        return replace(fallback, message=show(error) or fallback.message)
    retryable, message = error.get("retryable"), error.get("message")
    texts: dict[str, str] = {}  # the details as GoMind clients decode them: text to text, bounded
    for key, item in error["details"].items() if isinstance(error.get("details"), dict) else ():
        text = item if isinstance(item, str) else dumps(item).decode("utf-8", "replace")
        if item not in (None, "", [], {}) and (isinstance(item, str) or len(text) <= _LONGEST_DETAIL):
            texts[key] = text
    return Failure(
        _code(error, fallback.code),
        (show(message) if isinstance(message, str) else "") or fallback.message,
        hint=show(_hint(error, ("detail",)) or _hint(value)),
        details={key[:64]: show(text) for key, text in list(texts.items())[:_MOST_DETAILS]},
        retryable=retryable if isinstance(retryable, bool) else None,
    )


def _hint(value: JsonValue, more: tuple[str, ...] = ()) -> str:
    """Returns the tool's own words on the next step, '' if it has none. `more`: other keys that may hold them."""
    holders = (value.get("details"), value, value.get("error")) if isinstance(value, dict) else ()
    for holder in holders:
        for key in ("hint", "remediation_hint", *more):
            hint = holder.get(key) if isinstance(holder, dict) else None
            if isinstance(hint, str) and hint.strip():
                return " ".join(hint.split())
    return ""


def _code(error: Mapping[str, JsonValue], fallback: ErrorCode) -> ErrorCode:
    """The tool's own code: one of the catalogue, or a new one in the category that it names."""
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


# --- reading --------------------------------------------------------------------------------------------------------
def _read_body(reply: UpstreamReply, named: Mapping[tuple[str, str], str]) -> tuple[bytes, JsonValue]:
    """Returns an error body without its content coding (b"" if it cannot be decoded) and as JSON (None for anything but
    an object or array). Places in the URL become those of the arguments that they are."""
    body, coding = reply.body if isinstance(reply.body, bytes) else b"", reply.header("content-encoding")
    decoded = decode(body, coding, LOOKED_AT) if is_coded(coding) else body[:LOOKED_AT]
    text = b"" if isinstance(decoded, Undecodable) else decoded
    value = parse(text) if text.lstrip()[:1] in (b"{", b"[") else None
    value = None if isinstance(value, JsonProblem) else value
    return (dumps(value) if named and rename_url_places(value, named) else text), value


def _show_without_secrets(sent: JsonValue, limits: FeedbackLimits) -> Callable[[str], str]:
    """Returns a function that shows at most 1,500 code points of a tool's words, which may quote arguments, without a
    secret. It gives '' if the arguments hold more secrets than can be searched for."""
    secrets = list_secrets(sent, limits)

    def show(text: str) -> str:
        if secrets is None:
            return ""
        text = make_hider(sent, limits).hide(mask_secrets(text[:_SEARCHED], secrets))
        return cut_sentences(clean_text(text, _SEARCHED, limits), MOST_WORDS)

    return show
