"""The parts of a failure in several wire formats: in the body (its errors, details, guidance and escalation) and in the
response headers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final
from urllib.parse import quote

from proxy.core.contract import container
from proxy.core.display.graphemes import cut, cut_parts, escape, replace_surrogates
from proxy.core.display.preview import clean_text, sanitise_value
from proxy.core.envelope.feedback import write_original_call
from proxy.core.envelope.view import SHOWN, FailureView, Shown, show_violations, summarize_escalation, write_remedy
from proxy.core.json.jsontext import dumps_known, format_pointer
from proxy.core.model import codes
from proxy.core.model.codes import ErrorType
from proxy.core.model.fields import read_seconds
from proxy.core.model.values import Absent, FeedbackLimits, Headers, JsonValue, Pointer, Repair, ToolResult, Violation
from proxy.core.model.work import remember

# HPD's `retry_guidance` of a validation error, word for word.
VALIDATION_GUIDANCE: Final = (
    "The provided arguments are invalid. Please review the errors, correct the arguments based on the function "
    "schema, and try again."
)
# One detail or hint, in code points: an upstream's own words can be long.
_DETAIL: Final = 600
# The same if the part for machines is compact; all of its errors, details and functions together, in bytes.
_BRIEF: Final = 120
_ERRORS_ROOM: Final = 1200
_DETAILS_ROOM: Final = 240
_FUNCTIONS_ROOM: Final = 240


def show_text(value: str, result: ToolResult, limit: int = _DETAIL) -> str:
    """A text from outside as it may be shown: bounded, masked, without control characters."""
    clean = clean_text(value, limit, result.limits)
    is_plain = clean.isascii() and clean.isprintable()
    return clean if is_plain else "\n".join([escape(line) for line in clean.split("\n")])


def list_errors(view: FailureView) -> list[JsonValue]:
    """The violations in the order of the feedback, at most `max_errors` of them (Acode FR-002..FR-007). Compact: code,
    place and severity of as many as there is room for, then from the first on what it is about, in short."""
    if view.full:
        return [_show_error(shown) for shown in view.shown]
    if view.brief_errors is None:
        brief = [
            {"code": shown.violation.code.name, "path": shown.path, "severity": str(shown.violation.severity)}
            for shown in view.shown
        ]
        words = [_brief_words(shown) for shown in view.shown]
        whole: list[JsonValue] = [each | more for each, more in zip(brief, words, strict=True)]
        # Nearly always there is room for all; a brace more than there are commas is counted for each.
        if len(write_body(whole)) + 2 * len(whole) > _ERRORS_ROOM:
            whole, room = _fit(_ERRORS_ROOM, brief)
            room -= 1  # one bracket more than there are commas
            for error, more in zip(whole, words, strict=False):
                room -= len(write_body(more))
                if room < 0:
                    break
                error.update(more)
        view.brief_errors = whole
    return view.brief_errors


def _brief_words(shown: Shown) -> dict[str, JsonValue]:
    """The words of an error and the value sent (Acode FR-004, FR-006, FR-007), each within its share."""
    words: dict[str, JsonValue] = {}
    widest = 1 if shown.is_plain else 6  # bytes of JSON that one character takes at most
    for key, room, text, each in (
        ("message", 100, shown.message, widest), ("expected", 70, shown.expected, widest),
        ("actual", 60, shown.actual, 6),
    ):  # fmt: skip
        if text:
            words[key] = text
            if len(text) * each > room and (length := len(write_body(text)) - 2) > room:
                shorten = cut_parts if key == "expected" else cut  # wide characters are cut shorter than needed
                words[key] = shorten(text, max(0, room - 3) * len(text) // length)
    return words


def cut_errors(found: Iterable[JsonValue]) -> list[JsonValue]:
    """As many errors as a compact answer has room for."""
    return _fit(_ERRORS_ROOM, found)[0]


def _fit(room: int, items: Iterable[JsonValue]) -> tuple[list[JsonValue], int]:
    """The first of the items, as many as fit into so many bytes of JSON, each with a comma, and the bytes left."""
    every = list(items)
    left = room - len(write_body(every)) + 1  # one bracket more than there are commas
    if left >= 0 and every:
        return every, left
    kept: list[JsonValue] = []
    for item in every:
        size = len(write_body(item)) + 1
        if size > room:
            break
        kept.append(item)
        room -= size
    return kept, room


def _show_error(shown: Shown) -> JsonValue:
    return {
        "code": shown.violation.code.name,
        "path": shown.path,
        "message": cut(shown.message, SHOWN),
        "severity": shown.violation.severity.value,
        "expected": cut(shown.expected, SHOWN),
        "actual": shown.actual,
        "hint": cut(shown.hint, SHOWN),
    }


def list_warnings(found: Sequence[Violation], limits: FeedbackLimits) -> list[JsonValue]:
    """The warnings about a delivered call, in words: what the success envelope holds beside the answer."""
    return [_show_error(each) for each in show_violations(found, limits)[0]]


def write_message(view: FailureView, *, whole: bool = False) -> str:
    """One line that says what happened, without the errors; shortened in a compact answer, unless `whole`."""
    result = view.result
    failure, most = result.failure, _DETAIL if whole or view.full else _BRIEF
    if result.escalated:
        message = summarize_escalation(result)
    else:
        message = failure.message if failure.message is failure.code.meaning else show_text(failure.message, result)
    return message if len(message) <= most else cut(message, most)


def choose_hint(view: FailureView, *, whole: bool = False) -> str:
    """The single most useful thing to do: the call's own hint, else the first error's, else the code's remedy."""
    result = view.result
    if result.escalated:
        return write_remedy(result)
    # `max_errors` may be 0
    gravest = view.shown or show_violations(result.failure.violations, replace(result.limits, max_errors=1))[0]
    first = cut(gravest[0].hint, SHOWN) if gravest else ""
    hint = show_text(result.failure.hint, result) or first or write_remedy(result)
    return cut(hint, _DETAIL if whole or view.full else _BRIEF)


def write_retry_guidance(view: FailureView) -> str:
    """`retry_guidance`: HPD's words where HPD has some."""
    result = view.result
    failure = result.failure
    if result.escalated:
        return write_remedy(result)
    if failure.container is not None:
        return container.write_guidance(failure.container.container)
    return (
        VALIDATION_GUIDANCE
        if failure.code.error_type is ErrorType.VALIDATION and failure.violations
        else choose_hint(view, whole=True)
    )


def make_details(view: FailureView) -> dict[str, JsonValue]:
    """A flat map, as GoMind clients decode it (`Details map[string]string`); compact: the failure's own, cut."""
    result = view.result
    if not view.full:
        return _brief_details(view)
    flat = {str(key): show_text(str(value), result) for key, value in result.failure.details.items()}
    flat.setdefault("hint", choose_hint(view))
    if view.left_out:
        flat["more_errors"] = str(view.left_out)
    if result.repeated:
        flat["repeated"] = "true"
    if result.escalated:
        flat["status"] = choose_status(result)
        flat["original_call"] = write_original_call(view)
        flat["history"] = "\n".join(map(escape, result.history))
    return dict(flat)


def _brief_details(view: FailureView) -> dict[str, JsonValue]:
    result, room = view.result, _DETAILS_ROOM
    brief: dict[str, JsonValue] = {}
    for key, value in result.failure.details.items():
        shown = show_text(str(value), result, _BRIEF)
        size = len("{:}") + len(write_body(str(key))) + len(write_body(shown))
        if size <= room:
            brief[str(key)], room = shown, room - size
    left_out = view.left_out + len(view.shown) - len(list_errors(view))
    if left_out:
        brief["more_errors"] = str(left_out)
    if result.repeated:
        brief["repeated"] = "true"
    return brief


def show_escalation(result: ToolResult) -> dict[str, JsonValue]:
    """The answer to a call whose attempts are used up: in short, each attempt, and the call as the model made it."""
    return {
        "summary": summarize_escalation(result),
        "history": list(result.history),
        "original_call": {"tool": result.call.tool, "arguments": sanitise_arguments(result)},
    }


def choose_status(result: ToolResult) -> str:
    """`blocked`: calls are refused from now on (Acode FR-045); `retry`: another can succeed; else `failed`."""
    if result.escalated or result.failure.code is codes.TOOL_ERROR_BUDGET:
        return "blocked"
    return "retry" if result.failure.may_retry else "failed"


def describe_container(view: FailureView) -> dict[str, JsonValue]:
    """The container that was misused and its functions, as many as there is room for; empty for every other failure."""
    misuse = view.result.failure.container
    if misuse is None:
        return {}
    names, _ = _fit(_FUNCTIONS_ROOM, [function.name for function in misuse.container.functions])
    return {"container_name": misuse.container.name, "available_functions": names}


def make_container_parts(view: FailureView) -> dict[str, JsonValue]:
    """Exactly HPD's keys of a container error; empty for every other failure."""
    result = view.result
    misuse = result.failure.container
    if misuse is None:
        return {}
    return {
        "container_name": misuse.container.name,
        "attempted_parameters": sanitise_value(misuse.attempted, result.limits),
        "available_functions": [function.name for function in misuse.container.functions],
        "error_message": show_text(result.failure.message, result),
        "retry_guidance": write_retry_guidance(view),
    }


def sanitise_arguments(result: ToolResult) -> JsonValue:
    """The arguments as the model sent them, sanitised; None where they could not be read."""
    value = result.failure.sent
    return None if isinstance(value, Absent) else sanitise_value(value, result.limits)


def write_body(body: JsonValue) -> bytes:
    """An answer's body as JSON in UTF-8; a lone surrogate, which header values and names can carry, becomes U+FFFD."""
    try:
        return dumps_known(body)
    except UnicodeEncodeError:
        return dumps_known(_clean(body))


def _clean(value: JsonValue) -> JsonValue:
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, dict):
        return {replace_surrogates(key): _clean(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return value


# --- response headers -------------------------------------------------------------------------------------------------
# They tell a client, without reading the body, what happened (docs/contract.md).
# More entries would make a header that proxies refuse (8 KB is a common limit).
_LISTED: Final = 20
_LONGEST_PATH: Final = 200
_SAFE_IN_PATH: Final = "/_-.~:@$*!'()"
# Messages of warnings, each and with their entries in all.
_LONGEST_MESSAGE: Final = 160
_WARNINGS_ROOM: Final = 4000
_SAFE_IN_TEXT: Final = " !#$&'()*+,-./:;<=>?@[]^_`{|}~"
_HTTP_DATE: Final = re.compile(r"[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} GMT")


def make_failure_headers(result: ToolResult, format_name: str, media_type: str) -> Headers:
    """All headers of a failed call's answer, but the request id and the length."""
    failure, attempt = result.failure, result.attempt
    headers = [
        ("Content-Type", media_type),
        ("Cache-Control", "no-store"),
        ("Tool-Error", failure.code.name),
        ("Tool-Format", format_name),
    ]
    if attempt is not None:
        headers.append(("Tool-Attempt", str(attempt)))
    wait = read_retry_after(failure.details["retry_after"]) if "retry_after" in failure.details else ""
    if wait and all(name.lower() != "retry-after" for name, _ in failure.headers):
        headers.append(("Retry-After", wait))
    return (*headers, *make_repair_headers(result.repairs), *failure.headers)


def read_retry_after(text: str) -> str:
    """A `Retry-After` value from what a tool said (`60`, `60s`, `1m0s`, an HTTP date); '' where it says neither."""
    text = text.strip()
    if (seconds := read_seconds(text)) is not None:
        return str(math.ceil(seconds))
    return text if _HTTP_DATE.fullmatch(text) else ""


def make_repair_headers(made: Sequence[Repair], name: str = "Tool-Repairs") -> Headers:
    """`Tool-Repairs: rule;path=/a/b, ...`, at most 20 entries and then `more=n`; empty without repairs. Changes by a
    model are in `Tool-Corrections` likewise: `semantic_retry;path=/amount, ...`, by its layer."""
    if not made:
        return ()
    entries = [f"{change.rule};path={_path(change.path)}" for change in made[:_LISTED]]
    if len(made) > _LISTED:
        entries.append(f"more={len(made) - _LISTED}")
    return ((name, ", ".join(entries)),)


def make_warning_headers(warnings: Sequence[Violation], limits: FeedbackLimits) -> Headers:
    """`Tool-Warnings: VAL-005;path=/a;severity=warning;message="Unknown field 'a'", ...`, bounded likewise; empty
    without warnings. `limits` say what of the messages is masked."""
    if not warnings:
        return ()
    shown, left_out = show_violations(warnings, replace(limits, max_errors=_LISTED))
    entries, room = [], _WARNINGS_ROOM
    for each in shown:
        of, path = each.violation, _path(each.violation.path)
        entry = (
            f"{of.code};path={path};severity={of.severity};message={_quote_text(cut(each.message, _LONGEST_MESSAGE))}"
        )
        room -= len(entry) + 2
        if room < 0:
            break
        entries.append(entry)
    if more := left_out + len(shown) - len(entries):
        entries.append(f"more={more}")
    return (("Tool-Warnings", ", ".join(entries)),)


def _quote_text(text: str) -> str:
    """Returns a text as a String of RFC 9651, or as a Display String if it is not plain ASCII."""
    if text.isascii() and text.isprintable():
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return '%"' + quote(text, safe=_SAFE_IN_TEXT, errors="replace") + '"'


# A path as header text: percent-encoded if it is not plain ASCII or would end the entry.
_path: Final[Callable[[Pointer], str]] = remember(
    lambda path: quote(format_pointer(path)[:_LONGEST_PATH], safe=_SAFE_IN_PATH, errors="replace"),
    lambda path, shown: shown == format_pointer(path),
)
