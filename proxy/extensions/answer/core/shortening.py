"""Makes an answer shorter, so that it stays JSON and says what is missing.

`shorten_json` shortens the largest parts. A list keeps its first items, a text its beginning, and an object the members
that fit, each of the large ones in an equal share. A shortened list or text says so in place. The answer ends with a
note for the model: in a list as the last item, in an object as the member `_cut`, in a text as its end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from proxy.core.json.jsontext import dumps_known as dumps
from proxy.core.json.jsontext import format_pointer
from proxy.core.model.value_class import value_class
from proxy.core.model.values import ABSENT, JsonValue, Pointer

# The member of an object that holds the note.
NOTE_KEY: Final = "_cut"
# The room that the note takes at most, and that of one mark in place, in bytes.
NOTE_ROOM: Final = 640
_MARK_ROOM: Final = 48
# The most lists and texts that the note names, and the places that it names.
_NAMED: Final = 2
_PLAIN_PLACE: Final = re.compile(r"/[A-Za-z0-9_./~*-]{1,47}")
# The names of tools and arguments that the note repeats, and how many characters all arguments may take.
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_NAMES_ROOM: Final = 160
# Names of arguments by which tools commonly return less; the note names them first.
_SELECTING: Final = (
    "limit",
    "max_results",
    "page_size",
    "per_page",
    "page",
    "offset",
    "cursor",
    "fields",
    "filter",
    "query",
)


@value_class
class Missing:
    """A list or text of which a part is missing: how many items or characters are `kept`. `total` is None if the proxy
    has not read all of it."""

    place: Pointer
    unit: str
    kept: int
    total: int | None

    def __str__(self) -> str:
        place = format_pointer(self.place)
        name = f" of {place}" if _PLAIN_PLACE.fullmatch(place) else ""
        total = "" if self.total is None else f" of {self.total:,}"
        return f"the first {self.kept:,}{total} {self.unit}{name}"


@dataclass(slots=True)
class Shortener:
    """Shortens one value. `open_at`: the place at which its text ended too early, None for a whole one. If it `marks`,
    lists and texts say in place that they were shortened. `missing` has what was shortened."""

    open_at: Pointer | None = None
    marks: bool = True
    missing: list[Missing] = field(default_factory=list)

    def shorten(self, value: JsonValue, room: int, place: Pointer = ()) -> JsonValue:
        """The value in at most `room` bytes of JSON; ABSENT if it cannot be shortened so far."""
        is_open = self.open_at is not None and self.open_at[: len(place)] == place
        if not is_open and len(dumps(value)) <= room:
            return value
        if isinstance(value, str):
            return self._shorten_text(value, room, place, is_open=is_open)
        if isinstance(value, list):
            return self._shorten_list(value, room, place, is_open=is_open)
        if isinstance(value, dict):
            return self._shorten_object(value, room, place)
        return ABSENT

    def _shorten_text(self, value: str, room: int, place: Pointer, *, is_open: bool) -> JsonValue:
        mark = "... [cut]" if self.marks and place else ""
        kept = find_beginning(value, room - len(mark))
        if kept is None:
            return ABSENT
        self.missing.append(Missing(place, "characters", len(kept), None if is_open else len(value)))
        return kept + mark

    def _shorten_list(self, value: list[JsonValue], room: int, place: Pointer, *, is_open: bool) -> JsonValue:
        left = room - 2 - (_MARK_ROOM if self.marks and place else 0)
        if left < 0:
            return ABSENT
        kept: list[JsonValue] = []
        for index, item in enumerate(value):
            size = len(dumps(item)) + 1
            opens = self.open_at is not None and self.open_at[: len(place) + 1] == (*place, index)
            if size > left or opens:
                break
            kept.append(item)
            left -= size
        if not kept and value:  # its first item is too large by itself
            first = self.shorten(value[0], left - 1, (*place, 0))
            kept = [] if first is ABSENT else [first]
        total = None if is_open else len(value)
        if total is None or len(kept) < total:
            self.missing.append(Missing(place, "items", len(kept), total))
            more = "more items" if total is None else f"{total - len(kept):,} more items"
            kept += [f"[cut: {more}]"] if self.marks and place else []
        return kept

    def _shorten_object(self, value: dict[str, JsonValue], room: int, place: Pointer) -> JsonValue:
        sizes = {name: len(dumps(name)) + len(dumps(member)) + 2 for name, member in value.items()}
        share = _find_share(sorted(sizes.values()), room - 2)
        kept, left, lost = dict[str, JsonValue](), room - 2, 0
        for name, member in value.items():
            inner = self.shorten(member, min(share, left) - len(dumps(name)) - 2, (*place, name))
            if inner is ABSENT:
                lost += 1
                continue
            kept[name] = inner
            left -= len(dumps(name)) + len(dumps(inner)) + 2
        if lost:
            self.missing.append(Missing(place, "members", len(kept), len(value)))
        return ABSENT if left < 0 else kept


def _find_share(sizes: list[int], room: int) -> int:
    """The most bytes that one member may take, so that all of them fit: small ones leave their share to the large."""
    for at, size in enumerate(sizes):
        share = room // (len(sizes) - at)
        if size > share:
            return share
        room -= size
    return max(sizes, default=0)


def find_beginning(text: str, room: int) -> str | None:
    """The longest beginning of a text that takes at most `room` bytes as JSON; None if there is room for nothing."""
    if room < 2:
        return None
    low, high = 0, min(len(text), room)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if len(dumps(text[:middle])) <= room else (low, middle - 1)
    return text[:low]


@value_class
class NoteWriter:
    """Writes the note for the model: what is missing, why, and how to get less. `arguments` are the names that the tool
    takes; `changes`: a call has an effect, so it must not be repeated to read more."""

    tool: str
    max_bytes: int
    arguments: tuple[str, ...] = ()
    changes: bool = False

    @classmethod
    def of(cls, tool: str, max_bytes: int, properties: Iterable[str], *, changes: bool) -> NoteWriter:
        """A writer that names a tool and some of its `properties`, if their names are plain."""
        plain = [name for name in properties if _PLAIN_NAME.fullmatch(name)]
        plain.sort(key=lambda name: (name not in _SELECTING, name))
        names, left = list[str](), _NAMES_ROOM
        for name in plain:
            left -= len(name) + 2
            if left >= 0:
                names.append(name)
        shown = tool if _PLAIN_NAME.fullmatch(tool) else "the tool"
        return cls(shown, max_bytes, tuple(names), changes)

    def write(self, missing: list[Missing]) -> str:
        """The note."""
        named = "; ".join(map(str, missing[:_NAMED]))
        shown = f" It shows {named}." if named else ""
        return f"[Cut: the answer is longer than {self.max_bytes:,} bytes.{shown} {self.write_advice()}]"

    def write_advice(self) -> str:
        """Returns how the model can get less."""
        if self.changes:
            return "The call has taken effect: do not repeat it to read the rest."
        names = ", ".join(self.arguments)
        how = f" Its arguments: {names}." if names else ""
        return f"To read the rest, call {self.tool} again with arguments that select less.{how}"


def shorten_json(value: JsonValue, room: int, notes: NoteWriter, open_at: Pointer | None = None) -> bytes | None:
    """A value as JSON text of at most `room` bytes, with the note on what is missing; None if that cannot be done."""
    shortener = Shortener(open_at)
    kept = shortener.shorten(value, room - NOTE_ROOM)
    note = notes.write(shortener.missing)
    if isinstance(kept, dict):
        key = NOTE_KEY
        while key in kept or (isinstance(value, dict) and key in value):
            key = f"_{key}"
        kept = {**kept, key: note}
    elif isinstance(kept, list):
        kept = [*kept, note]
    elif isinstance(kept, str):
        kept = f"{kept}\n{note}"
    else:
        return None
    text = dumps(kept)
    return text if len(text) <= room else None
