"""What generated menders call (`mender.py`): cheap readers for the common spellings, the rules themselves for the rest.

A reader gives what the repair rule of the same name gives (`proposals.py`), or ends the attempt with `GiveUp`. The
usual spellings are read here without the rule's steps; whatever is not usual goes to the rule itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from proxy.core.jsontext import FRACTIONS, number_text, parse, read_number
from proxy.core.model import JsonProblem, JsonValue, Pointer, Repair
from proxy.core.proposals import (
    NONE,
    Site,
    members_by,
    string_to_boolean,
    string_to_integer,
    string_to_number,
    trimmed,
)

# A path this long is left to the repair engine, which has its own bound.
LONGEST_PATH: Final = 40
# Repairs kept for one place of an array's items, so that they need not be made again for the next call.
_KEPT: Final = 512
_ASCII_SPACE: Final = " \t\n\r"
# Numbers as text that need not be read: 0 to 255, which CPython keeps as well.
_USUAL: Final = 256
# Characters of text read as JSON for one unit of work.
_CHARACTERS: Final = 100

_INTEGER: Final = Site(frozenset({"integer"}), False, None)
_NUMBER: Final = Site(frozenset({"integer", "number"}), False, None)
_SWITCH: Final = Site(frozenset({"boolean"}), False, None)
_SPELLINGS: Final = ("1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False")

# The boolean each spelling means; any other text raises KeyError, which ends the attempt as `GiveUp` does.
BOOLEANS: Final[dict[str, JsonValue]] = {text: string_to_boolean(text, _SWITCH) for text in _SPELLINGS}


class GiveUp(Exception):  # noqa: N818 - an answer, not a mistake
    """The value needs more than a mender knows."""


class Mending:
    """What one call's mending may still cost (`left`, in the units of work.py), and whether a number that is left alone
    may have to be spelt as an integer (`late`). Both are set by who begins it: a constructor would cost as much as a
    small repair."""

    __slots__ = ("late", "left")

    late: bool
    left: int

    def spend(self, amount: int) -> None:
        """Takes work away. Raises GiveUp where none is left."""
        self.left -= amount
        if self.left < 0:
            raise GiveUp


class At(dict[int, Repair]):
    """The repairs of one rule at one place of an array's items, by index."""

    __slots__ = ("after", "before", "rule")

    def __init__(self, rule: str, before: Pointer, after: Pointer) -> None:
        self.rule = rule
        self.before = before
        self.after = after

    def __missing__(self, index: int) -> Repair:
        made = Repair(self.rule, (*self.before, index, *self.after))
        if index < _KEPT:
            self[index] = made
        return made


class Whole(dict[str, JsonValue]):
    """Rule `string_to_integer` as a table: the numbers that nearly all calls send are there, all others are read."""

    __slots__ = ()

    def __missing__(self, text: str) -> JsonValue:
        if text.isascii() and text.removeprefix("-").isdecimal():
            return int(text)
        return _given(string_to_integer(text, _INTEGER))


WHOLE: Final = Whole((str(number), number) for number in range(_USUAL))


def number(text: str) -> JsonValue:
    """Rule `string_to_number`, for what neither is a row of ASCII digits nor read by `read_number`."""
    return _given(string_to_number(text, _NUMBER))


def cases(members: Sequence[str]) -> Mapping[str, str]:
    """Rule `enum_case` as a table: the one member that a trimmed text means. Other texts raise KeyError."""
    return members_by(trimmed, tuple(members))


def inside(text: str, kinds: tuple[type, ...], mending: Mending) -> JsonValue:
    """Rule `parse_json_string`, for strict JSON text that starts as an array or object does."""
    mending.spend(len(text) // _CHARACTERS)
    if text.strip(_ASCII_SPACE)[:1] not in ("[", "{"):
        raise GiveUp
    read = parse(text.encode("utf-8", "surrogatepass"))
    if isinstance(read, JsonProblem) or type(read) not in kinds:
        raise GiveUp
    return read


def _given(proposed: JsonValue) -> JsonValue:
    if proposed is NONE:
        raise GiveUp
    return proposed


def reorder(made: list[Repair], start: int, value: dict[str, JsonValue], depth: int) -> None:
    """Puts the repairs made inside an object into the order of its keys, as the repair engine goes over them."""
    places = {key: index for index, key in enumerate(value)}
    made[start:] = sorted(made[start:], key=lambda repair: places[str(repair.path[depth])])


def loose(value: JsonValue, mending: Mending) -> None:
    """Notes whether a part that is left alone holds a number that may have to be spelt as an integer."""
    stack = [value]
    while stack and not mending.late:
        current = stack.pop()
        kind = type(current)
        if kind is dict:
            mending.spend(len(current))
            stack.extend(current.values())
        elif kind is list:
            mending.spend(len(current))
            stack.extend(current)
        elif kind in FRACTIONS:
            mending.late = True


# The global names of generated menders.
SPACE: Final[dict[str, Any]] = {
    "At": At,
    "BOOLEANS": BOOLEANS,
    "FRACTIONS": FRACTIONS,
    "GiveUp": GiveUp,
    "Repair": Repair,
    "WHOLE": WHOLE,
    "inside": inside,
    "loose": loose,
    "number": number,
    "number_text": number_text,
    "read_number": read_number,
    "reorder": reorder,
}
