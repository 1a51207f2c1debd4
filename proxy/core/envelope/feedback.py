"""The feedback: the text a model reads when its call failed (docs/contract.md), put together here.

A failure has the words of its errors. Those about arguments are of core/explain/wording.py and its neighbors, those of
a code of core/model/codes.py, those of a tool's own error of core/tool_errors/findings.py. A plugin words its own. The
signature and the example come from core/explain, the notes on the whole call and the closing line from `view.py`.

Only the text has to be enough: a model that sees just this, its own call and the user's wish can send the right call
next. It starts with a summary line (Acode FR-046), lists all errors at once as bullets (FR-047), says what the tool
accepts, and ends with what to do. Layout, in this order; parts without content are left out:

    opening       one line, with attempt n/max; at the last attempt the escalation (history, what to do)
    Errors:       errors before warnings, then by path; each with hint, Expected and Actual
    arguments     optional (`feedback: {marks: true}`): the sent arguments with the errors written into them as comments
    notes         the hint of the whole call, container guidance, whether the tool ran, its own words
    Accepts:, Example of valid arguments:, the closing line

Budget (`FeedbackLimits`): opening and closing first, then errors, which leave a share to Accepts unless what each
expects says it all. If not all fits, the room is used up in this order: places and messages, what is expected, what was
sent, what to do, the example. An error is shown briefly before one is left out, and what is left out is counted
(`(+N more)`). Never raises (NFR-005).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Final

from proxy.core.display.graphemes import cut, cut_parts, escape, replace_surrogates
from proxy.core.display.preview import clean_text, make_hider, write_preview
from proxy.core.display.secrets import mask_credentials
from proxy.core.display.suggestions import quote_name
from proxy.core.envelope.view import (
    LONGEST_NOTE,
    SHOWN,
    FailureView,
    Shown,
    summarize_escalation,
    write_notes,
    write_remedy,
)
from proxy.core.model import codes
from proxy.core.model.codes import ErrorType
from proxy.core.model.values import Absent, JsonValue, Pointer, Rung, ToolResult, Violation, value_class

# Bounds of one part, in code points: generous for one error, so that ten still leave room for the signature.
_LINE: Final = 320
_EXPECTED: Final = 300
# Repeated text is written once from this length on.
_WORTH_NAMING: Final = 48
# How long a message may be where not all errors fit in full; the longest at which all of them fit is taken.
_BRIEF: Final = (120, 80, 40)
_HISTORY: Final = 10
# The share of the room (in tenths) that errors leave to Accepts where it needs it.
_ACCEPTS_SHARE: Final = 3

_ESCALATED: Final = "The model was unable to provide valid arguments. Please intervene or provide guidance."
# In a conversation known by its address, another client may have sent the arguments.
_REFUSED_BEFORE: Final = (
    "exactly the same arguments again. They were refused before and will be refused every time: "
    "change them before you call this tool again"
)
_RESENT: Final = f"you sent {_REFUSED_BEFORE}"


def write_feedback(result: ToolResult) -> str:
    """The feedback for a failed call: valid Unicode of at most `limits.max_chars` code points (FR-025)."""
    return render_feedback(FailureView(result))


def render_feedback(view: FailureView) -> str:
    """The feedback of an answer whose texts are worked out already."""
    result, limits = view.result, view.result.limits
    size = max(limits.max_chars, 0)
    opening = _opening(view)
    # The guidance of a container already says what to do.
    closing = "" if result.failure.container and not result.escalated else write_remedy(result)
    room = size - len(opening) - len(closing) - 4
    sizes = [f"Accepts: {_signature(text, size)}" for text in result.accepts]
    kind = "Example" if result.example_complete else "Shape"
    has_example = result.example and not result.escalated
    example = f"{kind} of valid arguments: {escape(result.example)}" if has_example else ""
    # One that is not too long; what is in error is in each of them.
    enough = _ENOUGH * (2 if any(each.hint.startswith(_OPEN_MEANING) for each in view.shown) else 1)
    sizes = [text for text in sizes if len(text) <= enough] or sizes[-1:]
    needs_accepts = _need_accepts(result.failure.violations)
    reserved = max(min(len(sizes[-1]) + 1, room * _ACCEPTS_SHARE // 10), 0) if sizes and needs_accepts else 0
    blocks = _make_blocks(view.shown, has_accepts=bool(sizes))
    texts = [block.write() for block in blocks]
    if sizes and _length(texts) + len(sizes[-1]) > room:
        blocks = _make_blocks(view.shown, has_accepts=False)  # the fields are with the errors
        texts = [block.write() for block in blocks]
    errors, is_whole = _write_errors(view, blocks, texts, room - reserved)
    sizes = sizes if needs_accepts or not is_whole or view.left_out else []
    room -= len(errors) + 2
    notes = write_notes(result, limits, f"{opening}\n{errors}", room - reserved)
    room -= len(notes) + 2
    # The longest signature that leaves room for the example, else the longest that fits, else the shortest, cut.
    fitting = (text for taken in (len(example) + 1, 0) for text in sizes if len(text) + taken <= room)
    accepts = next(fitting, "") or (cut_parts(sizes[-1], room) if sizes and room > len("Accepts: ...") else "")
    room -= len(accepts) + 1
    is_long = size - room > _LONG and bool(accepts) and not _KEPT.sub("", example)
    example = example if len(example) <= room and not is_long else ""
    room -= len(example) + 2
    if room > 0 and not is_whole:  # what is left of the room is for the errors again
        longer, _ = _write_errors(view, blocks, texts, len(errors) + room)
        room, errors = room - len(longer) + len(errors), longer
    picture = mark_errors(view, room) if limits.marks else ""
    last = "\n".join(filter(None, (accepts, example, closing)))
    return cut(replace_surrogates("\n\n".join(filter(None, (opening, errors, picture, notes, last)))), size)


# In a longer text no shape is next to Accepts if it holds nothing but placeholders.
_LONG: Final = 900
_KEPT: Final = re.compile(r'^(?:Shape|Example) of valid arguments: |"(?:[^"\\]|\\.)*":|"<[^"]*>"|[{}\[\],]')
# Errors that say only with the signature what to send; a wrong type does if what is expected ends so.
_PARTIAL: Final = frozenset((codes.REQUIRED_MISSING, codes.UNKNOWN_FIELD, codes.NO_BRANCH, codes.INVALID_JSON))
_OPEN: Final = re.compile(r"object|array(?! of)|array of array| more\)|long value")
_OF_VALUES: Final = (codes.TYPE_MISMATCH, codes.ENUM_MISMATCH)
# So many characters of a signature are enough: with more, only what is in no error is described at length.
_ENOUGH: Final = 369
# An unknown key that may mean any field: each of them has its type.
_OPEN_MEANING: Final = "If no other field"


def _need_accepts(found: Sequence[Violation]) -> bool:
    """Returns whether the errors do not say by themselves what to send."""
    return not found or any(
        each.code in _PARTIAL
        or not each.expected
        or each.keyword in ("anyOf", "oneOf")
        or (each.code in _OF_VALUES and _OPEN.search(each.expected) is not None)
        for each in found
    )


@lru_cache(maxsize=256)
def _signature(text: str, size: int) -> str:
    """A signature on one line. It is made of the words of a schema, which are the same few in every refusal, and of
    which none is hidden."""
    return cut(escape(text), size)


# --- opening and closing --------------------------------------------------------------------------------------------
def _opening(view: FailureView) -> str:
    result, limits = view.result, view.result.limits
    if result.escalated:
        return _escalation(view)
    failure, tool = result.failure, quote_name(result.call.tool)
    whose = f" for tool {tool}" if result.call.tool else ""
    tries = f" (attempt {result.attempt})" if result.attempt else ""
    if result.repeated and result.call.tool:
        reason = _REFUSED_BEFORE if result.call.conversation.rung is Rung.ADDRESS else _RESENT
        return f"Validation failed{whose}{tries}: {reason}."
    if failure.code is codes.INVALID_ARGUMENTS and failure.violations:  # the errors below say all that its message says
        return f"Validation failed{whose}{tries}:"
    message = cut(escape(clean_text(failure.message, LONGEST_NOTE, limits)), LONGEST_NOTE)
    if failure.code is codes.UNKNOWN_TOOL:
        return f"{message.rstrip('.')}{tries}."
    match failure.code.error_type:
        case ErrorType.VALIDATION | ErrorType.CONTAINER | ErrorType.ESCALATION:
            return f"Validation failed{whose}{tries}:{' ' if message else ''}{message}"
        case ErrorType.BUDGET:
            return message
        case ErrorType.TOOL:
            return f"Tool {tool} failed{tries} ({failure.code}): {message}" if result.call.tool else message


def _escalation(view: FailureView) -> str:
    """The seed's escalation message, line for line (Acode, "Escalation Message"), then the original call (FR-043)."""
    result = view.result
    lines = [cut(escape(mask_credentials(line, _LINE)), _LINE) for line in result.history]
    if len(lines) > _HISTORY:
        lines = [lines[0], f"... (+{len(lines) - _HISTORY} more)", *lines[1 - _HISTORY :]]
    bound = max(result.limits.max_chars // 2, 0)
    call = write_original_call(view)
    last_call = f"The last call was: {call}" if call else ""
    parts = (summarize_escalation(result), cut("\n".join(lines), bound), f"{_ESCALATED}\nStatus: Blocked.", last_call)
    return "\n\n".join(filter(None, parts))


def write_original_call(view: FailureView) -> str:
    """The call as the model made it, sanitised; '' where its arguments could not be read."""
    sent = view.result.failure.sent
    if isinstance(sent, Absent):
        return ""
    return f"{quote_name(view.result.call.tool)[1:-1]}({write_preview(sent, view.result.limits)})"


# --- errors ---------------------------------------------------------------------------------------------------------
@value_class
class _Block:
    """The text about one error: its place, code and message, and what is added as far as the room goes."""

    start: str
    message: str
    expected: str
    actual: str
    hint: str

    def write(self, most: int = SHOWN, parts: Collection[str] = ("expected", "actual", "hint")) -> str:
        """The error with its message in at most so many code points, and with the named parts."""
        text = self.start + (self.message if len(self.message) <= most else cut(self.message, most))
        if self.hint and "hint" in parts:
            text = f"{text.rstrip('.')}. {self.hint}"
        if self.expected and "expected" in parts:
            text += f"\n  Expected: {self.expected}"
        return text + (f"\n  Actual: {self.actual}" if self.actual and "actual" in parts else "")


def _write_errors(view: FailureView, blocks: list[_Block], texts: list[str], room: int) -> tuple[str, bool]:
    """The errors (`texts` in full) as far as the room goes, and whether all that is shown of them is there in full."""
    if not blocks and not view.left_out:
        return "", True
    room -= len("Errors:\n") + len(f"(+{len(view.result.failure.violations)} more)")
    is_whole = _length(texts) <= room
    texts = texts if is_whole else _fit_blocks(blocks, room)
    left_out = view.left_out + len(blocks) - len(texts)
    more = (f"(+{left_out} more)",) if left_out else ()
    return "\n".join(("Errors:", *texts, *more)), is_whole


def _fit_blocks(blocks: list[_Block], room: int) -> list[str]:
    """As many errors as fit, in short; then what each expects, what was sent, what to do, and the whole messages."""
    most = next((size for size in (SHOWN, *_BRIEF) if _length([b.write(size, ()) for b in blocks]) <= room), _BRIEF[-1])
    kept = list(blocks)
    while kept and _length([block.write(most, ()) for block in kept]) > room:
        kept.pop()
    sizes, parts = [most] * len(kept), [set[str]() for _ in kept]
    texts = [block.write(most, ()) for block in kept]
    room -= _length(texts)
    for part in ("expected", "actual", "hint", ""):
        for index, block in enumerate(kept):
            wider = {*parts[index], part} if part else parts[index]
            size = sizes[index] if part else SHOWN
            longer = block.write(size, wider)
            if len(longer) - len(texts[index]) <= room:
                room -= len(longer) - len(texts[index])
                texts[index], parts[index], sizes[index] = longer, wider, size
    return texts


def _length(texts: list[str]) -> int:
    return sum(map(len, texts)) + len(texts)


def _make_blocks(shown: Iterable[Shown], has_accepts: bool) -> list[_Block]:
    """The blocks of some errors. An error or expectation that several places share is written out at the first. The
    declared keys of an object are in Accepts, or at its first unknown key."""
    blocks: list[_Block] = []
    alike: dict[tuple[str, str, str, str], Shown] = {}
    places_seen: dict[str, Shown] = {}
    with_unknown_keys: set[Pointer] = set()
    places: dict[str, str] = {}
    for each in shown:
        violation, path = each.violation, each.path or "arguments"
        severity = "" if violation.severity is codes.ERROR else f", {violation.severity}"
        is_unknown = violation.code is codes.UNKNOWN_FIELD
        expected, hint, actual = cut_parts(each.expected, _EXPECTED), cut(each.hint, SHOWN), each.actual or ""
        if (before := places_seen.setdefault(path, each)) is not each:  # a second error of one place
            expected = "" if before.expected == each.expected else expected
            hint = _drop_repeated(hint, before.hint)
            actual = "" if before.actual == each.actual else actual
        if is_unknown:
            expected = "" if has_accepts or violation.path[:-1] in with_unknown_keys else expected
            with_unknown_keys.add(violation.path[:-1])
        elif len(expected) > _WORTH_NAMING and (at := places.setdefault(expected, path)) != path:
            expected = f"as at {at}"
        start = f"• {path} ({violation.code.name}{severity}): "
        message = cut(each.message, SHOWN)
        first = alike.setdefault((violation.code.name, message, each.expected, each.hint), each)
        if first is not each and not is_unknown:
            message, expected, hint = f"as at {first.path or 'arguments'}", "", ""
            actual = "" if first.actual == actual else actual
        blocks.append(_Block(start, message, expected, actual, hint))
    return blocks


def _drop_repeated(hint: str, before: str) -> str:
    """A hint without the sentences with which another one begins as well."""
    same = next((i for i, pair in enumerate(zip(hint, before, strict=False)) if pair[0] != pair[1]), len(hint))
    return hint[hint.rfind(". ", 0, same) + 1 :].lstrip() if same < len(hint) else ""


# --- the arguments with their errors ----------------------------------------------------------------------------------
# The idea is typia's: a model corrects a text better when it sees the mistake in its place. Every value is previewed,
# so this shows no more than the list of errors does. If the whole does not fit, nothing is shown.
_TITLE: Final = "Your arguments, with the errors marked:\n"
_DEPTH: Final = 6
_ENTRIES: Final = 30
_REMARK: Final = 120

_ByPath = dict[Pointer, list[Violation]]


def mark_errors(view: FailureView, room: int) -> str:
    """The arguments as indented JSON with `// ❌` behind each error; '' if unreadable, without errors or too long."""
    failure = view.result.failure
    if isinstance(failure.sent, Absent) or not failure.violations:
        return ""
    by_path: _ByPath = {}
    for violation in failure.violations:
        by_path.setdefault(violation.path, []).append(violation)
    text = _TITLE + "\n".join(_mark_lines("", failure.sent, (), by_path, view, ""))
    return text if len(text) <= room else ""


def _mark_lines(
    label: str, value: JsonValue, path: Pointer, errors: _ByPath, view: FailureView, comma: str
) -> list[str]:
    indent = "  " * len(path)
    remark = _write_remark(errors.get(path, []), view)
    may_open = isinstance(value, (dict, list)) and len(path) < _DEPTH
    # A container is written out only if an error lies inside it.
    if not may_open or not any(len(place) > len(path) and place[: len(path)] == path for place in errors):
        return [f"{indent}{label}{write_preview(value, view.result.limits, path=path)}{comma}{remark}"]
    opening, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
    entries = list(value.items() if isinstance(value, dict) else enumerate(value))
    lines = [f"{indent}{label}{opening}{remark}"]
    for index, (step, item) in enumerate(entries[:_ENTRIES]):
        key = f"{write_preview(step, view.result.limits)}: " if isinstance(step, str) else ""
        lines += _mark_lines(key, item, (*path, step), errors, view, "" if index == len(entries) - 1 else ",")
    if len(entries) > _ENTRIES:
        lines.append(f"{indent}  ... (+{len(entries) - _ENTRIES} more)")
    present = {(*path, step) for step, _ in entries}
    missing = [found for place, found in errors.items() if place[:-1] == path and place and place not in present]
    lines += [f"{indent}  {_write_remark(found, view).strip()}" for found in missing]
    lines.append(f"{indent}{closing}{comma}")
    return lines


def _write_remark(violations: list[Violation], view: FailureView) -> str:
    if not violations:
        return ""
    messages = "; ".join(
        make_hider(each.value, view.result.limits, path=each.path, sensitive=each.sensitive).hide(each.message[:1024])
        for each in violations
    )
    return "  // ❌ " + cut(escape(messages), _REMARK)
