"""What is remembered of failed calls, in words: one bounded line for each error, made of codes, paths, expectations and
JSON types, never of a value (Acode FR-037, FR-042). Of an error of the tool itself also the tool's own words."""

from __future__ import annotations

from typing import Final

from proxy.core.display.graphemes import cut, escape
from proxy.core.display.secrets import mask_credentials
from proxy.core.json.jsontext import format_pointer, name_json_type
from proxy.core.model import codes
from proxy.core.model.values import Absent, Episode, Failure, Pointer, Violation

# One attempt's lines together, in bytes of memory: three to ten errors of usual length.
LONGEST_HISTORY: Final = 480
LONGEST_LINE: Final = 110
_LINES_OF_ONE: Final = 10
# Marks, among the lines of a tool's error, the tool's own words. They may quote what was sent, so only the answer to
# the same conversation shows them.
_WORDS: Final = "words: "
_LONGEST_NAME: Final = 48


def write_history(episode: Episode, what: str = "Attempt", *, words: bool = False) -> tuple[str, ...]:
    """One line for each attempt still remembered, such as "Attempt 2: Type mismatch on 'path' (got: integer)".

    The calls of one attempt share its line. Calls that are no longer kept are counted. `words`: with what the tool
    itself said, which may quote a value.
    """
    lines: dict[int, dict[str, None]] = {}
    for kept in episode.attempts:
        shown = (line.removeprefix(_WORDS) for line in kept.lines if words or not line.startswith(_WORDS))
        lines.setdefault(kept.number, {}).update(dict.fromkeys(shown))
    written = [f"{what} {number}: {'; '.join(entries)}" for number, entries in lines.items()]
    dropped = episode.failed - len(episode.attempts)
    if dropped > 0:
        written.insert(0, f"({dropped} earlier failed call{'' if dropped == 1 else 's'} no longer kept)")
    return tuple(written)


def write_history_lines(failure: Failure) -> tuple[str, ...]:
    """What one failed call got wrong, error by error, in at most `LONGEST_HISTORY` bytes of memory; never a value.
    Errors that do not fit are counted."""
    if failure.code is codes.UNKNOWN_TOOL:
        return (write_unknown_line(failure),)
    if not failure.violations:
        return (_CALL_LINES.get(failure.code.name, failure.code.meaning.rstrip(".")),)
    lines: list[str] = []
    room = LONGEST_HISTORY - len("(+100 more)")
    for violation in failure.violations[:_LINES_OF_ONE]:
        line = cut(_line(violation), LONGEST_LINE)
        room -= len(line) if line.isascii() else _bytes(line)
        if room < 0 and lines:
            break
        lines.append(line)
    left = len(failure.violations) - len(lines)
    return (*lines, f"(+{left} more)") if left else tuple(lines)


def write_tool_error(failure: Failure) -> tuple[str, ...]:
    """What one error of the tool was: its code with what it says of each argument, and the tool's own words as far as
    there is room."""
    summary = "; ".join(write_history_lines(failure)) if failure.violations else failure.code.meaning.rstrip(".")
    line = cut(f"{failure.code.name}: {summary}", LONGEST_LINE)
    words = mask_credentials(failure.details.get("original_error", ""), LONGEST_HISTORY)
    room = LONGEST_HISTORY - _bytes(line) - len(_WORDS)
    words = cut(words, max(0, room * len(words) // (_bytes(words) or 1)))
    return (line, _WORDS + words) if words else (line,)


def read_words(episode: Episode) -> str:
    """What the tool itself said to the last call of an episode of its errors; '' where it said nothing."""
    lines = episode.attempts[-1].lines if episode.attempts else ()
    return next((line.removeprefix(_WORDS) for line in lines if line.startswith(_WORDS)), "")


def write_unknown_line(failure: Failure) -> str:
    """The line of a call of an unknown tool, which names it: "Unknown tool 'get_wether'"."""
    return cut(failure.message.rstrip("."), LONGEST_LINE) or "Unknown tool"


def _bytes(text: str) -> int:
    widest = ord(max(text, default=" "))
    return len(text) * (1 if widest < 256 else 2 if widest < 65536 else 4)


# What an attempt did wrong as a whole, where no single value is to blame.
_CALL_LINES: Final = {
    codes.CONTAINER_INVOCATION.name: "Container called with parameters",
    codes.CONTAINER_NOT_EXPANDED.name: "Function called before its container was expanded",
    codes.UPSTREAM_REJECTED_ARGUMENTS.name: "The tool refused the arguments",
    codes.BODY_TOO_LARGE.name: "Body too large",
}

# The seed's wording of one history line (Acode, "Escalation Message"), by violation code.
_LINES: Final = {
    codes.REQUIRED_MISSING.name: "Missing required field {name}",
    codes.TYPE_MISMATCH.name: "Type mismatch on {name} (got: {type})",
    codes.CONSTRAINT.name: "Value out of range for {name}{expected}",
    codes.INVALID_JSON.name: "Invalid JSON",
    codes.UNKNOWN_FIELD.name: "Unknown field {name}",
    codes.ARRAY_LENGTH.name: "Wrong items in {name}{expected}",
    codes.PATTERN_MISMATCH.name: "Pattern mismatch on {name}",
    codes.ENUM_MISMATCH.name: "Invalid enum value for {name}{expected}",
    codes.STRING_LENGTH.name: "{length} for {name}{limit}",
    codes.FORMAT_MISMATCH.name: "Invalid format for {name}{expected}",
    codes.NO_BRANCH.name: "No alternative fits {name}",
    codes.AMBIGUOUS.name: "Ambiguous value for {name}",
    codes.LEAKED_MARKUP.name: "Markup of the call in {name}",
    codes.DEPRECATED_FIELD.name: "Deprecated field {name}",
}
# The same of a text's length, by the keyword that was broken.
_LENGTHS: Final = {
    "maxLength": ("String too long", " (max: {})"), "minLength": ("String too short", " (min: {})")
}  # fmt: skip


def _line(violation: Violation) -> str:
    parts: dict[str, str] = {"name": _known_names.get(violation.path) or _name(violation.path)}
    if violation.code is codes.TYPE_MISMATCH:
        parts["type"] = "nothing" if isinstance(violation.value, Absent) else name_json_type(violation.value)
    elif violation.code is codes.STRING_LENGTH:
        length, limit = _LENGTHS.get(violation.keyword, ("Wrong string length", ""))
        parts |= {"length": length, "limit": limit.format(violation.limit)}
    else:
        expected = violation.expected
        parts["expected"] = f" (expected: {cut(escape(expected), _LONGEST_NAME)})" if expected else ""
    return _LINES.get(violation.code.name, violation.code.meaning + " on {name}").format_map(parts)


def _name(path: Pointer) -> str:
    text = format_pointer(path).removeprefix("/")
    name = f"'{cut(escape(mask_credentials(text, _LONGEST_NAME)), _LONGEST_NAME)}'" if text else "the arguments"
    if name == f"'{text}'":  # the places of a tool's mistakes come again and again; nothing that was hidden is kept
        if len(_known_names) >= _MOST_NAMES:
            _known_names.clear()
        _known_names[path] = name
    return name


_known_names: dict[Pointer, str] = {}
_MOST_NAMES: Final = 1024
