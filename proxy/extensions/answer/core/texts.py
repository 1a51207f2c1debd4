"""One text of an answer, such as a body or a block of an MCP result: masks it, and makes it shorter.

A text that is a JSON object or list is treated as such, so a shortened one is still JSON.
"""

from __future__ import annotations

from typing import Final

from proxy.core.json.jsontext import dumps_known as dumps
from proxy.core.json.jsontext import parse
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue, Pointer
from proxy.extensions.answer.core.answer_rules import LIMITS, AnswerRules
from proxy.extensions.answer.core.hiding import Unreadable, hide_credentials, holds_data, mask_json
from proxy.extensions.answer.core.shortening import NOTE_ROOM, Missing, NoteWriter, find_beginning, shorten_json
from proxy.extensions.answer.core.unfinished import close_text

# How often a JSON text is shortened again, because it takes more room inside of a JSON string.
_TRIES: Final = 8


@value_class
class ReadText:
    """A text with its masks. `is_open`: its end is missing; `open_at` is then the place in the JSON at which it ended.
    `value` is what its JSON says, None if it is no JSON object or list."""

    text: str
    is_open: bool = False
    open_at: Pointer | None = None
    value: JsonValue = None


def read_text(text: str, rules: AnswerRules, *, is_open: bool = False) -> ReadText | Unreadable:
    """Reads a text and masks it. JSON is masked by place, every other text only by patterns."""
    if text.lstrip()[:1] in ("{", "["):
        data = text.encode("utf-8", "surrogatepass")
        closed = close_text(data) if is_open else None
        data, open_at = (data, None) if closed is None else (closed.text, closed.open_at)
        value = parse(data, LIMITS)
        if isinstance(value, dict | list):
            masked = mask_json(data, value, rules, open_at)
            shown = value if masked is data else parse(masked, LIMITS)
            return ReadText(masked.decode(), is_open, open_at, shown)
        if rules.masks and holds_data(text):
            return Unreadable.DATA
    return ReadText(hide_credentials(text, is_open=is_open) if rules.secrets else text, is_open)


def shorten_text(read: ReadText, room: int, notes: NoteWriter) -> str:
    """The text in at most `room` bytes as a JSON string, with a note about what is missing."""
    inner = room
    is_json = isinstance(read.value, dict | list)
    for _ in range(_TRIES if is_json else 0):
        found = shorten_json(read.value, inner, notes, read.open_at)
        if found is None:
            break
        size = len(dumps(found.decode()))
        if size <= room:
            return found.decode()
        inner = min(inner - 1, inner * room // size)
    kept = "" if is_json else end_at_line(find_beginning(read.text, room - NOTE_ROOM) or "")  # half a JSON text is none
    note = notes.write([Missing((), "characters", len(kept), None if read.is_open else len(read.text))])
    return f"{kept}\n{note}" if kept else note


def end_at_line(text: str) -> str:
    """A beginning of a text without its last line, which is not complete, unless that is most of the text."""
    end = text.rfind("\n")
    return text[:end] if end > len(text) // 2 else text
