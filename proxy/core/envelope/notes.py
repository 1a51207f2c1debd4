"""The notes on a failed call as a whole: its hint, whether the tool ran, when to come back, the tool's own words
(`write_notes`), and in the last line what to do next (`write_remedy`).

Nothing stands here twice: the tool's own words appear only as far as nothing above holds them. The last line says, by
the kind of the failure, change it, or wait, or that it can never work; an escalation says what to tell the user.
`retryable`, `status` and this line never disagree.
"""

from __future__ import annotations

import re
from typing import Final

from proxy.core.contract import container
from proxy.core.display.graphemes import cut, escape
from proxy.core.display.preview import clean_text
from proxy.core.display.suggestions import quote_name
from proxy.core.envelope.view import show_path
from proxy.core.model import codes
from proxy.core.model.codes import Category, Severity
from proxy.core.model.values import Document, Failure, FeedbackLimits, ToolResult

LONGEST_NOTE: Final = 480
# What a detail means in words. `{value}` is the detail's text.
_NOTES: Final = {
    ("executed", "no"): "The tool did not run.",
    ("executed", "yes"): "The tool did run.",
    (
        "executed",
        "unknown",
    ): "It is not known whether the tool ran: make sure before you repeat what must not happen twice.",
    ("blocked", "every call"): "Every further call of this tool is refused in this conversation.",
    ("blocked", "refused by the tool"): "This call was not sent to the tool.",
    ("blocked", "these arguments"): "These very arguments were refused before and are refused without another look.",
}
_OWN_WORDS: Final = "original_error"
_OWN_WORDS_ARE: Final = "The tool's own words:"
# Code points of one line of them.
_WORDS: Final = 1500
_OPEN_NOTES: Final = {
    "answer_errors": "What is wrong with its answer: {value}",
    "errors": "What it answered: {value}",
    "retry_after": "Wait {value} before the next call.",
}
# Details for machines alone.
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
            notes.append(_show_own_words(value, limits, shown))
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


def _show_own_words(value: str, limits: FeedbackLimits, shown: str) -> str:
    """The lines of the tool's own words that nothing above holds; one for each error that it lists."""
    lines = [cut(escape(clean_text(line.strip(), _WORDS, limits)), _WORDS) for line in value.split("\n")]
    kept = [line for line in lines if line and not _is_shown(line, shown)]
    if len(kept) < 2:
        return f"{_OWN_WORDS_ARE} {kept[0]}" if kept else ""
    return "\n- ".join([_OWN_WORDS_ARE, *kept])


# A line of the tool's words: its place or the library that speaks, its words, and the data behind them.
_SENTENCE_END: Final = re.compile(r"[.;!] ")
_LINE_OF_WORDS: Final = re.compile(r"(?:[\w.$/#\[\]-]{1,120}: )?(.+?)(?: \((\w[\w .-]{0,60}: .+)\))?")


def _is_shown(line: str, shown: str) -> bool:
    """Whether a text holds the words of a line and each value of its data; a code alone is no news."""
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
# What to do about a value, where that is one thing; every other code: correct it.
_VERBS: Final = {codes.REQUIRED_MISSING: "add", codes.STRING_LENGTH: "change the length of"}
# Not implemented; HTTP version not supported (RFC 9110 sections 15.6.2 and 15.6.6).
_CANNOT: Final = frozenset({501, 505})
_ASK: Final = "Do not answer with guessed values: tell the user what is missing and ask for it."


def summarize_escalation(result: ToolResult) -> str:
    """The first line of an escalation (Acode FR-044)."""
    number = result.attempt.number if result.attempt else 0
    if _names_unknown(result) and not all(quote_name(result.call.tool) in line for line in result.history):
        return f"{number} calls of this conversation named tools that are not known."
    subject = f"Tool {quote_name(result.call.tool)} validation" if result.call.tool else "The validation of the call"
    return f"{subject} failed after {number} attempt{'' if number == 1 else 's'}."


def write_remedy(result: ToolResult) -> str:
    """What to do next, in one line."""
    failure, may_retry = result.failure, result.failure.may_retry
    if result.finalising and failure.violations:
        return _ASK if result.escalated else _JSON_ONLY
    if result.escalated:
        return _write_stop(result)
    if failure.status in _CANNOT and not may_retry:
        return "The tool's service cannot do this at all: no repetition helps. Tell the user."
    mendable = failure.code.category in (Category.INPUT_ERROR, Category.NOT_FOUND)
    if may_retry and failure.hint and failure.status is not None and mendable:  # the tool says what to do
        return "Change the call as the tool says, and call it again."
    sent = result.call.arguments
    sent_nothing = isinstance(sent, Document) and (sent.text == b"" or sent.value in ({}, None))
    if failure.code is codes.RESOURCE_NOT_FOUND and may_retry and sent_nothing:
        return "The call names nothing that could be changed: tell the user."
    if may_retry == failure.code.retryable:
        return _name_remedy(failure) or failure.code.remedy
    return "You may call the tool again." if may_retry else "Do not repeat this call; tell the user."


def _name_remedy(failure: Failure) -> str:
    """The remedy with the one place that is wrong; '' where there are several, or none."""
    found = [violation for violation in failure.violations if violation.severity is Severity.ERROR]
    of_arguments = failure.code in (codes.INVALID_ARGUMENTS, codes.UPSTREAM_REJECTED_ARGUMENTS)
    if len(found) != 1 or not found[0].path or not of_arguments:
        return ""
    return f"Please {_VERBS.get(found[0].code, 'correct')} {show_path(found[0].path)} and call the tool again."


def _names_unknown(result: ToolResult) -> bool:
    """Whether all that failed were calls of tools that are not known."""
    return bool(result.history) and all(": Unknown tool " in line for line in result.history)


def _write_stop(result: ToolResult) -> str:
    """What to do after the last attempt: what to tell the user is what is known to be wrong."""
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
