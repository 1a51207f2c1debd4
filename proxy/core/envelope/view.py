"""The content of one answer, worked out once: its violations as they may be shown, the notes on the whole call, and
the last line. The feedback and every wire format take their words from here.

A violation quotes what the caller sent, so each of its texts is masked, put on one line and cut before it is shown
(`preview.py`). Most answers hold nothing that has to be hidden: one look at all their texts together shows that. Log
lines and kept calls name places and tools as answers do (`list_places`, `show_path`, `show_name`).

Nothing is in the notes twice: the tool's own words appear only as far as nothing above holds them. The last line
says, by the kind of the failure, change it, or wait, or that it can never work; an escalation says what to tell the
user. `retryable`, `status` and this line never disagree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal, NamedTuple

from proxy.core.contract import container
from proxy.core.display.graphemes import cut, escape, replace_surrogates
from proxy.core.display.preview import clean_text, is_secret_path, make_hider, may_be_quoted, write_preview
from proxy.core.display.secrets import is_plain, mask_credentials
from proxy.core.display.suggestions import quote_name
from proxy.core.json.jsontext import format_pointer
from proxy.core.model import codes
from proxy.core.model.codes import REQUIRED_MISSING, Category, Severity
from proxy.core.model.values import Absent, Document, FeedbackLimits, JsonValue, Pointer, ToolResult, Violation
from proxy.core.model.work import remember

_SEVERITIES: Final = (Severity.ERROR, Severity.WARNING, Severity.INFO)
# How much of a text about one violation is looked at, and how much of it is shown, in code points.
_LOOKED_AT: Final = 4096
SHOWN: Final = 320
_PATH: Final = 120
_NAME: Final = 100
_STEPS: Final = 64

# The content of the part for machines: the words of the feedback once more (`full`), or each error in short.
Detail = Literal["compact", "full"]


class Shown(NamedTuple):
    """One violation as it may be shown. `message`, `expected` and `hint` are on one line and not yet cut; `path` and
    `actual` are; `actual` is what was sent there, None if nothing was. `is_plain`: JSON escapes nothing in
    `message` and `expected`."""

    violation: Violation
    path: str
    message: str
    expected: str
    hint: str
    actual: str | None
    is_plain: bool


class FailureView:
    """The content of the answer to one failed call. `shown` are its violations in order, at most `max_errors` of them,
    `left_out` says how many more there are. `full`: the part for machines repeats what the feedback says."""

    def __init__(self, result: ToolResult, detail: Detail = "compact") -> None:
        self.result: Final = result
        self.full: Final = detail == "full"
        self.shown, self.left_out = show_violations(result.failure.violations, result.limits)
        self.brief_errors: list[JsonValue] | None = None  # those of the compact part, made by `parts.py`


def show_violations(violations: Sequence[Violation], limits: FeedbackLimits) -> tuple[tuple[Shown, ...], int]:
    """Violations as they may be shown, in order, at most `max_errors` of them, and how many are left out."""
    if not violations:
        return (), 0
    kept, left_out = select_violations(violations, limits.max_errors)
    shown: list[Shown] = []
    for each in kept:
        secret = each.sensitive or is_secret_path(each.path, limits)
        actual = None if isinstance(each.value, Absent) else write_preview(each.value, limits, sensitive=secret)
        message, expected, hint = each.message, each.expected, each.hint
        if len(message) + len(expected) + len(hint) > _LOOKED_AT:
            message, expected, hint = message[:_LOOKED_AT], expected[:_LOOKED_AT], hint[:_LOOKED_AT]
        # Nothing has to be masked or escaped, one value's own parts left aside.
        is_clean = is_plain(message) and is_plain(expected) and is_plain(hint)
        if not is_clean or secret or not may_be_quoted(each.value, _LOOKED_AT):
            is_clean, hider = False, make_hider(each.value, limits, sensitive=secret)
            message, hint = escape(hider.hide(message)), escape(hider.hide(hint))
            expected = escape(expected)  # the schema's own words: none of them is hidden
        if not hint and each.code is REQUIRED_MISSING and each.path:  # nothing better is known
            hint = "Add it, and do not guess its value."
        shown.append(Shown(each, show_path(each.path), message, expected, hint, actual, is_clean))
    return tuple(shown), left_out


def list_places(violations: Iterable[Violation], most: int) -> list[dict[str, JsonValue]]:
    """Path and code of each violation, in order, at most so many."""
    return [{"path": show_path(each.path), "code": each.code.name} for each in select_violations(violations, most)[0]]


def select_violations(violations: Iterable[Violation], max_errors: int) -> tuple[tuple[Violation, ...], int]:
    """The violations to show and how many are left out: each once, errors first, then by path (Acode FR-031..035)."""
    seen = {(violation.code.name, violation.path, violation.message): violation for violation in violations}
    ordered = list(seen.values())
    if len(ordered) > 1:
        try:
            ordered.sort(key=_rank_plainly)
        except TypeError:  # a key beside an index
            ordered.sort(key=_rank)
    shown = tuple(ordered[: max(max_errors, 0)])
    return shown, len(ordered) - len(shown)


def _rank_plainly(violation: Violation) -> tuple[int, Pointer, str, str]:
    """The same rank in less time, if no key has to be compared with an index."""
    return _SEVERITIES.index(violation.severity), violation.path, violation.code.name, violation.message


def _rank(violation: Violation) -> tuple[int, list[tuple[bool, str | int]], str, str]:
    """By what violations are ordered. Indexes compare as numbers: `/items/2` comes before `/items/10`."""
    steps = [(isinstance(step, str), step) for step in violation.path]
    return _SEVERITIES.index(violation.severity), steps, violation.code.name, violation.message


def _show_text(text: str) -> str:
    return cut(escape(mask_credentials(replace_surrogates(text), _PATH)), _PATH)


# A path as RFC 6901 text on one line, cut short ('' for the root), and a tool's name, as log lines, traces and kept
# calls show them. The same ones come with every call, so they are remembered if nothing in them was hidden.
show_path: Final[Callable[[Pointer], str]] = remember(
    lambda path: _show_text(format_pointer(path[:_STEPS])), lambda path, shown: shown == format_pointer(path)
)
show_name: Final[Callable[[str], str]] = remember(
    lambda name: _show_text(name[:_NAME]), lambda name, shown: shown == name
)


# --- notes on the call as a whole -------------------------------------------------------------------------------------
LONGEST_NOTE: Final = 480
# The meaning of a detail in words. `{value}` is the detail's text.
_NOTES: Final = {
    ("executed", "no"): "The tool did not run.",
    ("executed", "yes"): "The tool did run.",
    ("executed", "unknown"): "It is not known whether the tool ran: make sure before you repeat what must not happen "
    "twice.",
    ("blocked", "every call"): "Every further call of this tool is refused in this conversation.",
    ("blocked", "refused by the tool"): "This call was not sent to the tool.",
    ("blocked", "these arguments"): "These very arguments were refused before and are refused without another look.",
}
_OWN_WORDS: Final = "original_error"
_OWN_WORDS_ARE: Final = "The tool's own words:"
# Code points of one line of them.
_WORDS: Final = 1500
_OPEN_NOTES: Final = {
    "answer_errors": "Errors in its answer: {value}",
    "errors": "Its answer: {value}",
    "retry_after": "Wait {value} before the next call.",
}
# Details only for machines.
_NO_NOTES: Final = frozenset(
    {"upstream_status", "executed", "reason", "sends", "failed_with", "hint", "did_you_mean", "used", "limit"}
)


def write_notes(result: ToolResult, limits: FeedbackLimits, shown: str, room: int) -> str:
    """The notes on the call as a whole; they repeat nothing that the feedback has `shown` before."""
    failure = result.failure
    notes = (
        [container.write_guidance(failure.container.container)] if failure.container and not result.escalated else []
    )
    notes.append(failure.hint)
    for key, value in failure.details.items():
        if (key, value) in _NOTES:
            notes.append(_NOTES[key, value])
        elif value == failure.message or value == failure.hint:  # the answer says that already
            continue
        elif key == _OWN_WORDS:
            words = [cut(escape(clean_text(line.strip(), _WORDS, limits)), _WORDS) for line in value.split("\n")]
            kept = [line for line in words if line and not _is_shown(line, shown)]  # one for each error that it lists
            if kept:
                notes.append(f"{_OWN_WORDS_ARE} {kept[0]}" if len(kept) == 1 else "\n- ".join([_OWN_WORDS_ARE, *kept]))
        elif key in _OPEN_NOTES:
            if key == "retry_after" and value.replace(".", "", 1).isdecimal():
                value = "1 second" if value == "1" else f"{value} seconds"  # noqa: PLW2901 - the same in words
            elif key == "retry_after" and "GMT" in value:
                value = f"until {value}"  # noqa: PLW2901 - the same in words
            notes.append(_OPEN_NOTES[key].format(value=value))
        elif failure.status is not None and key not in _NO_NOTES and value:  # a detail that the tool sent itself
            notes.append(f"{key}: {value}")
    notes += result.extra
    lines: list[str] = []
    for note in filter(None, notes):
        most = _WORDS if note is failure.hint else LONGEST_NOTE
        line = note if note.startswith(_OWN_WORDS_ARE) else cut(escape(clean_text(note, most, limits)), most)
        if line and len(line) + 1 <= room:
            lines.append(line)
            room -= len(line) + 1
    return "\n".join(lines)


# A line of the tool's words: its place or the library that speaks, its words, and the data behind them.
_SENTENCE_END: Final = re.compile(r"[.;!] ")
_LINE_OF_WORDS: Final = re.compile(r"(?:[\w.$/#\[\]-]{1,120}: )?(.+?)(?: \((\w[\w .-]{0,60}: .+)\))?")


def _is_shown(line: str, shown: str) -> bool:
    """Returns whether a text holds the words of a line and each value of its data; just a code is no news."""
    found = _LINE_OF_WORDS.fullmatch(line)
    if line in shown or found is None:
        return line in shown
    data = [piece.partition(": ") for piece in (found[2] or "").split(", ") if piece]
    sentences = [sentence.strip(" .;!") for sentence in _SENTENCE_END.split(found[1])]
    return all(sentence in shown for sentence in sentences) and all(
        name == "code" or (text or name) in shown for name, _, text in data
    )


# --- the last line ----------------------------------------------------------------------------------------------------
# Compozy gap 5: the corrective instruction of a final output.
_JSON_ONLY: Final = (
    "Please correct these errors and answer again with the corrected JSON only: no other text around it."
)
# The remedy for a value, if that is one thing; every other code: correct it.
_VERBS: Final = {codes.REQUIRED_MISSING: "add", codes.STRING_LENGTH: "change the length of"}
# The same for an unknown key, by how its hint begins; and how the hint of a missing key names where its value is.
_OF_UNKNOWN: Final = {
    "Did you mean": "rename", "It belongs": "move", "It may belong": "move", "If": "rename or leave out",
    "Its meaning": "rename or leave out", "Name it so": "rename or leave out",
}  # fmt: skip
_SENT_ELSEWHERE: Final = re.compile(r"(?:rename|move) (?:it|that one)")
# Not implemented; HTTP version not supported (RFC 9110 sections 15.6.2 and 15.6.6).
_CANNOT: Final = frozenset({501, 505})
# The categories of failures for which the tool's own words say what to do.
_MENDABLE: Final = (Category.INPUT_ERROR, Category.NOT_FOUND)
_ASK: Final = "Do not answer with guessed values: tell the user what is missing and ask for it."


def summarize_escalation(result: ToolResult) -> str:
    """The first line of an escalation (Acode FR-044)."""
    number = result.attempt.number if result.attempt else 0
    if _names_unknown(result) and not all(quote_name(result.call.tool) in line for line in result.history):
        return f"{number} calls of this conversation named tools that are not known."
    subject = f"Tool {quote_name(result.call.tool)} validation" if result.call.tool else "The validation of the call"
    return f"{subject} failed after {number} attempt{'' if number == 1 else 's'}."


def write_remedy(result: ToolResult) -> str:
    """Returns the next step for the model, in one line."""
    failure, may_retry = result.failure, result.failure.may_retry
    if result.finalising and failure.violations:
        return _ASK if result.escalated else _JSON_ONLY
    if result.escalated:
        return _write_stop(result)
    if failure.code is codes.UNKNOWN_TOOL and "did_you_mean" in failure.details:
        return ""  # the hint says it
    if failure.status in _CANNOT and not may_retry:
        return "The tool's service cannot do this at all: no repetition helps. Tell the user."
    if may_retry and failure.hint and failure.status is not None and failure.code.category in _MENDABLE:
        return "Change the call as the tool says, and call it again."
    if failure.code is codes.RESOURCE_NOT_FOUND and may_retry:
        sent = result.call.arguments
        if isinstance(sent, Document) and (sent.text == b"" or sent.value in ({}, None)):
            return "The call names nothing that could be changed: tell the user."
    if may_retry != failure.code.retryable:
        return "You may call the tool again." if may_retry else "Do not repeat this call; tell the user."
    found = [violation for violation in failure.violations if violation.severity is codes.ERROR]
    of_arguments = failure.code in (codes.INVALID_ARGUMENTS, codes.UPSTREAM_REJECTED_ARGUMENTS)
    if len(found) != 1 or not found[0].path or not of_arguments:
        return failure.code.remedy
    return f"Please {_choose_verb(found[0])} {show_path(found[0].path)} and call the tool again."


def _choose_verb(violation: Violation) -> str:
    """Returns the verb for the place of the only error, by its hint or otherwise by its code."""
    if violation.code is codes.UNKNOWN_FIELD:
        return next((verb for start, verb in _OF_UNKNOWN.items() if violation.hint.startswith(start)), "leave out")
    if violation.code is REQUIRED_MISSING and _SENT_ELSEWHERE.search(violation.hint):
        return "send that value as"
    return _VERBS.get(violation.code, "correct")


def _names_unknown(result: ToolResult) -> bool:
    return bool(result.history) and all(": Unknown tool " in line for line in result.history)


def _write_stop(result: ToolResult) -> str:
    """Returns the step after the last attempt: to tell the user the known errors."""
    failure, tool = result.failure, quote_name(result.call.tool) if result.call.tool else "a tool"
    failed_with = failure.details.get("failed_with", "")
    if failure.container is not None:
        return f"Do not call {tool} with parameters again: it groups functions. Tell the user which one is needed."
    if failed_with == codes.UNKNOWN_TOOL.name or _names_unknown(result):
        return "Do not call tools that are not known: go on with those that are, or tell the user what is needed."
    found = [violation.code for violation in failure.violations]
    if not found or codes.REQUIRED_MISSING in found:
        if not found:
            return f"Do not call {tool} like this again: tell the user why it was refused, and ask how to go on."
        return f"Do not call {tool} with guessed arguments again: tell the user what is missing and ask for it."
    return f"Do not call {tool} with guessed arguments again: tell the user what is refused, and ask what to send."
