"""The feedback: the text a model reads when its call failed (contract section 3). All wording of answers lives here.

The text alone has to be enough: a model that sees only this, its own call and the user's wish can send the right call
next. It starts with a summary line (Acode FR-046), lists all errors at once as bullets (FR-047), says what the tool
accepts, and ends with what to do. Layout, in this order; parts without content are left out:

    opening       one line, with attempt n/max; at the last attempt the escalation (history, what to do)
    Errors:       errors before warnings, then by path; each with hint, Expected and Actual
    arguments     optional (`feedback: {marks: true}`): the sent arguments with the errors written into them as comments
    notes         the hint of the whole call, container guidance, whether the tool ran, its own words
    Accepts:, Example of valid arguments:, the closing line

Budget (`FeedbackLimits`): opening and closing first, then errors, which leave a share to Accepts and Example. Errors
are shown briefly before one is left out, and what is left out is counted (`(+N more)`). Never raises (NFR-005).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from proxy.core.contract import container
from proxy.core.display.graphemes import cut, escape, replace_surrogates
from proxy.core.display.preview import clean_text, hide, write_preview
from proxy.core.display.secrets import mask_credentials
from proxy.core.display.suggestions import quote_name
from proxy.core.envelope.view import SHOWN, FailureView, Shown
from proxy.core.model import codes
from proxy.core.model.codes import Category, ErrorType, Severity
from proxy.core.model.values import (
    Absent,
    Document,
    Failure,
    FeedbackLimits,
    JsonValue,
    Pointer,
    Rung,
    ToolResult,
    Violation,
)

# Bounds of one part, in code points: generous for one error, so that ten still leave room for the signature.
_LINE: Final = 320
_EXPECTED: Final = 240
# How long a message may be where not all errors fit in full; the longest at which all of them fit is taken.
_BRIEF: Final = (120, 80, 40)
_NOTE: Final = 480
_HISTORY: Final = 10
# Shares of the room (in tenths) that errors leave to Accepts and Example where they need it.
_ACCEPTS_SHARE: Final = 3
_EXAMPLE_SHARE: Final = 2

_ESCALATED: Final = "The model was unable to provide valid arguments. Please intervene or provide guidance."
# Compozy gap 5: the corrective instruction of a final output.
_JSON_ONLY: Final = (
    "Please correct these errors and answer again with the corrected JSON only: no other text around it."
)
_ASK: Final = "Do not answer with guessed values: tell the user what is missing and ask for it."
_RESENT: Final = (
    "you sent exactly the same arguments again. They were refused before and will be refused every time: "
    "change them before you call this tool again"
)
# Where a conversation is known by its address, another client may have sent the arguments.
_REFUSED_BEFORE: Final = (
    "exactly the same arguments again. They were refused before and will be refused every time: "
    "change them before you call this tool again"
)


def write_feedback(result: ToolResult) -> str:
    """The feedback for a failed call: valid Unicode of at most `limits.max_chars` code points (FR-025)."""
    return render_feedback(FailureView(result))


def render_feedback(view: FailureView) -> str:
    """The feedback of an answer whose texts are worked out already."""
    result, limits = view.result, view.result.limits
    size = max(limits.max_chars, 0)
    opening, closing = _opening(result, limits), _closing(result)
    room = size - len(opening) - len(closing) - 4
    accepts = f"Accepts: {_signature(result.accepts, size)}" if result.accepts else ""
    kind = "Example" if result.example_complete else "Shape"
    example = f"{kind} of valid arguments: {_line(result.example, size)}" if _wants_example(result) else ""
    reserved = min(len(accepts), room * _ACCEPTS_SHARE // 10) + min(len(example), room * _EXAMPLE_SHARE // 10)
    errors = _errors(view, room - max(reserved, 0))
    room -= len(errors) + 2
    notes = _notes(result, limits, f"{opening}\n{errors}", room)
    room -= len(notes) + 2
    accepts = cut(accepts, room) if room > len("Accepts: ...") else ""
    room -= len(accepts) + 1
    example = example if len(example) <= room else ""
    room -= len(example) + 2
    picture = mark_errors(result.failure, limits, room) if limits.marks else ""
    last = "\n".join(part for part in (accepts, example, closing) if part)
    return cut(replace_surrogates("\n\n".join(part for part in (opening, errors, picture, notes, last) if part)), size)


def _wants_example(result: ToolResult) -> bool:
    return bool(result.example) and not result.escalated


def _line(text: str, size: int) -> str:
    """A text on one line, without credentials, of at most `size` code points."""
    return cut(escape(mask_credentials(text, size)), size)


# The signatures are those of the operator's schemas: the same few, in every refusal.
_signature: Final = lru_cache(maxsize=256)(_line)


# --- opening and closing --------------------------------------------------------------------------------------------
def _opening(result: ToolResult, limits: FeedbackLimits) -> str:
    if result.escalated:
        return _escalation(result, limits)
    failure, tool = result.failure, quote_name(result.call.tool)
    whose = f" for tool {tool}" if result.call.tool else ""
    message = cut(escape(clean_text(failure.message, _NOTE, limits)), _NOTE)
    tries = _tries(result)
    if result.repeated:
        said = _REFUSED_BEFORE if result.call.conversation.rung is Rung.ADDRESS else _RESENT
        return f"Validation failed{whose}{tries}: {said}."
    if failure.code is codes.UNKNOWN_TOOL:
        return f"{message.rstrip('.')}{tries}."
    match failure.code.error_type:
        case ErrorType.VALIDATION | ErrorType.CONTAINER | ErrorType.ESCALATION:
            said = f" {message}" if message and not _says_nothing_new(failure) else ""
            return f"Validation failed{whose}{tries}:{said}"
        case ErrorType.BUDGET:
            return message
        case ErrorType.TOOL:
            return f"Tool {tool} failed{tries} ({failure.code}): {message}" if result.call.tool else message


def _tries(result: ToolResult) -> str:
    return f" (attempt {result.attempt})" if result.attempt else ""


def _says_nothing_new(failure: Failure) -> bool:
    """Whether the errors below say all that the failure's own message says."""
    return failure.code is codes.INVALID_ARGUMENTS and bool(failure.violations)


def _escalation(result: ToolResult, limits: FeedbackLimits) -> str:
    """The seed's escalation message, line for line (Acode, "Escalation Message"), then the original call (FR-043)."""
    lines = [_line(line, _LINE) for line in result.history]
    if len(lines) > _HISTORY:
        lines = [lines[0], f"... (+{len(lines) - _HISTORY} more)", *lines[1 - _HISTORY :]]
    bound = max(limits.max_chars // 2, 0)
    call = write_original_call(result, limits)
    said = f"The last call was: {call}" if call else ""
    parts = (summarize_escalation(result), cut("\n".join(lines), bound), f"{_ESCALATED}\nStatus: Blocked.", said)
    return "\n\n".join(part for part in parts if part)


def summarize_escalation(result: ToolResult) -> str:
    """The first line of an escalation (Acode FR-044)."""
    number = result.attempt.number if result.attempt else 0
    subject = f"Tool {quote_name(result.call.tool)} validation" if result.call.tool else "The validation of the call"
    return f"{subject} failed after {number} attempt{'' if number == 1 else 's'}."


def write_original_call(result: ToolResult, limits: FeedbackLimits) -> str:
    """The call as the model made it, sanitised; '' where its arguments could not be read."""
    sent = result.failure.sent
    if isinstance(sent, Absent):
        return ""
    return f"{quote_name(result.call.tool)[1:-1]}({write_preview(sent, limits)})"


def _closing(result: ToolResult) -> str:
    """The last line; the guidance of a container already says what to do."""
    return "" if result.failure.container and not result.escalated else write_remedy(result)


def write_remedy(result: ToolResult) -> str:
    """What to do next, in one line."""
    failure = result.failure
    if result.finalising and failure.violations:
        return _ASK if result.escalated else _JSON_ONLY
    if result.escalated:
        return _write_stop(result)
    if failure.status in _CANNOT and not failure.may_retry:
        return "The tool's service cannot do this at all: no repetition helps. Tell the user."
    mendable = failure.code.category in (Category.INPUT_ERROR, Category.NOT_FOUND)
    if failure.may_retry and failure.hint and failure.status is not None and mendable:  # the tool says what to do
        return "Change the call as the tool says, and call it again."
    if failure.code is codes.RESOURCE_NOT_FOUND and failure.may_retry and _sent_nothing(result):
        return "The call names nothing that could be changed: tell the user."
    if failure.may_retry == failure.code.retryable:
        return failure.code.remedy
    return "You may call the tool again." if failure.may_retry else "Do not repeat this call; tell the user."


# Not implemented; HTTP version not supported (RFC 9110 sections 15.6.2 and 15.6.6).
_CANNOT: Final = frozenset({501, 505})


def _sent_nothing(result: ToolResult) -> bool:
    arguments = result.call.arguments
    return isinstance(arguments, Document) and (arguments.text == b"" or arguments.value in ({}, None))


def _write_stop(result: ToolResult) -> str:
    """What to do after the last attempt: what to tell the user is what is known to be wrong."""
    failure, tool = result.failure, quote_name(result.call.tool) if result.call.tool else "a tool"
    failed_with = failure.details.get("failed_with", "")
    if failure.container is not None:
        return f"Do not call {tool} with parameters again: it groups functions. Tell the user which one is needed."
    if failed_with == codes.UNKNOWN_TOOL.name:
        return "Do not call tools that are not known: go on with those that are, or tell the user what is needed."
    found = [violation.code for violation in failure.violations]
    if not found or codes.REQUIRED_MISSING in found:
        if not found:
            return f"Do not call {tool} like this again: tell the user why it was refused, and ask how to go on."
        return f"Do not call {tool} with guessed arguments again: tell the user what is missing and ask for it."
    return f"Do not call {tool} with guessed arguments again: tell the user what is refused, and ask what to send."


# --- errors ---------------------------------------------------------------------------------------------------------
def _errors(view: FailureView, room: int) -> str:
    shown, left_out = view.shown, view.left_out
    if not shown and not left_out:
        return ""
    room -= len("Errors:\n") + len(_more(len(view.result.failure.violations)))
    full = [_full(violation, before) for violation, before in _with_siblings(shown)]
    if _length(full) > room:
        full = _fitting(shown, full, room)
    left_out += len(shown) - len(full)
    if left_out:
        full.append(_more(left_out))
    return "\n".join(("Errors:", *full))


def _fitting(shown: tuple[Shown, ...], full: list[str], room: int) -> list[str]:
    """As many errors as fit, in brief; then in full from the first on, as far as the room goes."""
    texts: list[str] = []
    for size in _BRIEF:
        texts = [_bullet(violation, cut(violation.message, size)) for violation in shown]
        if _length(texts) <= room:
            break
    while texts and _length(texts) > room:
        texts.pop()
    room -= _length(texts)
    for index, text in enumerate(texts):
        if len(full[index]) - len(text) <= room:
            room -= len(full[index]) - len(text)
            texts[index] = full[index]
    return texts


def _length(texts: list[str]) -> int:
    return sum(len(text) + 1 for text in texts)


def _more(number: int) -> str:
    return f"(+{number} more)"


def _with_siblings(shown: Iterable[Shown]) -> Iterator[tuple[Shown, bool]]:
    """Each violation, and whether an earlier one, of an unknown key of the same object, has listed the declared
    keys."""
    told: set[tuple[Pointer, str]] = set()
    for each in shown:
        place = each.violation.path[:-1], each.expected
        is_unknown = each.violation.code is codes.UNKNOWN_FIELD
        yield each, is_unknown and place in told
        if is_unknown:
            told.add(place)


def _full(shown: Shown, is_told: bool) -> str:
    text = _bullet(shown, write_violation(shown))
    if shown.violation.expected and not is_told:
        text += f"\n  Expected: {cut(shown.expected, _EXPECTED)}"
    return text if shown.actual is None else f"{text}\n  Actual: {shown.actual}"


def _bullet(shown: Shown, text: str) -> str:
    violation = shown.violation
    severity = "" if violation.severity is Severity.ERROR else f", {violation.severity}"
    return f"• {shown.path or 'arguments'} ({violation.code.name}{severity}): {text}"


def write_violation(shown: Shown) -> str:
    """Message and hint of one violation."""
    message = cut(shown.message, SHOWN)
    return f"{message.rstrip('.')}. {cut(shown.hint, SHOWN)}" if shown.hint else message


# --- notes ----------------------------------------------------------------------------------------------------------
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


def _notes(result: ToolResult, limits: FeedbackLimits, said: str, room: int) -> str:
    """What is to be said of the call as a whole; nothing that has been `said` before."""
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
            notes.append(_show_own_words(value, limits, said))
        elif key in _OPEN_NOTES:
            notes.append(_OPEN_NOTES[key].format(value=_unit(key, value)))
        elif failure.status is not None and key not in _NO_NOTES and value:  # a detail that the tool sent itself
            notes.append(f"{key}: {value}")
    notes += result.extra
    lines: list[str] = []
    for note in notes:
        line = note if note.startswith(_OWN_WORDS_ARE) else cut(escape(clean_text(note, _NOTE, limits)), _NOTE)
        if line and len(line) + 1 <= room:
            lines.append(line)
            room -= len(line) + 1
    return "\n".join(lines)


def _show_own_words(value: str, limits: FeedbackLimits, said: str) -> str:
    """The lines of the tool's own words that nothing above holds; one for each error that it lists."""
    lines = [cut(escape(clean_text(line.strip(), _WORDS, limits)), _WORDS) for line in value.split("\n")]
    kept = [line for line in lines if line and not _is_said(line, said)]
    if len(kept) < 2:
        return f"{_OWN_WORDS_ARE} {kept[0]}" if kept else ""
    return "\n- ".join([_OWN_WORDS_ARE, *kept])


# A line of the tool's words: its place or the library that speaks, its words, and the data behind them.
_SENTENCE_END: Final = re.compile(r"[.;!] ")
_LINE_OF_WORDS: Final = re.compile(r"(?:[\w.$/#\[\]-]{1,120}: )?(.+?)(?: \((\w[\w .-]{0,60}: .+)\))?")


def _is_said(line: str, said: str) -> bool:
    """Whether a text holds the words of a line and each value of its data; a code alone is no news."""
    found = _LINE_OF_WORDS.fullmatch(line)
    if line in said or found is None:
        return line in said
    data = [piece.partition(": ") for piece in (found[2] or "").split(", ") if piece]
    sentences = [sentence.strip(" .;!") for sentence in _SENTENCE_END.split(found[1])]
    return all(sentence in said for sentence in sentences) and all(
        name == "code" or (text or name) in said for name, _, text in data
    )


def _unit(key: str, value: str) -> str:
    if key != "retry_after":
        return value
    return (
        f"{value} seconds" if value.replace(".", "", 1).isdecimal() else f"until {value}" if "GMT" in value else value
    )


# --- the arguments with their errors ----------------------------------------------------------------------------------
# The idea is typia's: a model corrects a text better when it sees the mistake in its place. Every value is previewed,
# so this shows no more than the list of errors does. Where the whole does not fit, nothing is shown.
_TITLE: Final = "Your arguments, with the errors marked:\n"
_DEPTH: Final = 6
_ENTRIES: Final = 30
_REMARK: Final = 120

_ByPath = dict[Pointer, list[Violation]]


def mark_errors(failure: Failure, limits: FeedbackLimits, room: int) -> str:
    """The arguments as indented JSON with `// ❌` behind each error; '' if unreadable, without errors or too long."""
    if isinstance(failure.sent, Absent) or not failure.violations:
        return ""
    by_path: _ByPath = {}
    for violation in failure.violations:
        by_path.setdefault(violation.path, []).append(violation)
    text = _TITLE + "\n".join(_mark_lines("", failure.sent, (), by_path, limits, ""))
    return text if len(text) <= room else ""


def _mark_lines(
    label: str, value: JsonValue, path: Pointer, errors: _ByPath, limits: FeedbackLimits, comma: str
) -> list[str]:
    indent = "  " * len(path)
    remark = _write_remark(errors.get(path, []), limits)
    if not _is_written_out(value, path, errors):
        return [f"{indent}{label}{write_preview(value, limits, path=path)}{comma}{remark}"]
    opening, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
    entries = list(value.items() if isinstance(value, dict) else enumerate(value))
    lines = [f"{indent}{label}{opening}{remark}"]
    for index, (step, item) in enumerate(entries[:_ENTRIES]):
        key = f'"{escape(clean_text(step, 60), quotes=True)}": ' if isinstance(step, str) else ""
        lines += _mark_lines(key, item, (*path, step), errors, limits, "" if index == len(entries) - 1 else ",")
    if len(entries) > _ENTRIES:
        lines.append(f"{indent}  ... (+{len(entries) - _ENTRIES} more)")
    present = {(*path, step) for step, _ in entries}
    lines += [f"{indent}  {_write_remark(found, limits).strip()}" for found in _list_missing(path, present, errors)]
    lines.append(f"{indent}{closing}{comma}")
    return lines


def _is_written_out(value: JsonValue, path: Pointer, errors: _ByPath) -> bool:
    """Whether a container is written out, which happens only where an error lies inside it."""
    if not isinstance(value, dict | list) or len(path) >= _DEPTH:
        return False
    return any(len(place) > len(path) and place[: len(path)] == path for place in errors)


def _list_missing(path: Pointer, present: set[Pointer], errors: _ByPath) -> list[list[Violation]]:
    return [found for place, found in errors.items() if place[:-1] == path and place and place not in present]


def _write_remark(violations: list[Violation], limits: FeedbackLimits) -> str:
    if not violations:
        return ""
    said = "; ".join(
        hide(violation.message[:1024], violation.value, limits, path=violation.path, sensitive=violation.sensitive)
        for violation in violations
    )
    return "  // ❌ " + cut(escape(said), _REMARK)
