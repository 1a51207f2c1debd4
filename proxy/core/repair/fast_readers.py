"""The functions that generated repairs call (`fast_writer.py`): quick readers for common spellings, else the rules.
Part of fast_repair.py, which says what it is worth (about 40 % of a repaired call).

A reader gives the same as the repair rule of its name (`proposals.py`), or ends the attempt with `GiveUp`. The usual
spellings are read here without the rule's steps; the rule itself reads all others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from proxy.core.json.jsontext import FRACTIONS, parse, read_number, write_number
from proxy.core.model.values import JsonProblem, JsonValue, Pointer, Repair
from proxy.core.rules.proposals import (
    NONE,
    Site,
    fold_case,
    index_members,
    string_to_boolean,
    string_to_integer,
    string_to_number,
)

# Longer paths are left to the repair engine, which has a bound of its own.
LONGEST_PATH: Final = 40
# The most repairs kept for one place of an array's items, for use in later calls.
_KEPT: Final = 512
_ASCII_SPACE: Final = " \t\n\r"
# Numbers below this are ready as text: 0 to 255, which CPython keeps as well.
_USUAL: Final = 256
# Characters of JSON text that one unit of work reads.
_CHARACTERS: Final = 100

_INTEGER: Final = Site(frozenset({"integer"}), False, None)
_NUMBER: Final = Site(frozenset({"integer", "number"}), False, None)
_SWITCH: Final = Site(frozenset({"boolean"}), False, None)
_SPELLINGS: Final = ("1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False")

# The boolean for each spelling. Any other text raises KeyError, which ends the attempt as `GiveUp` does.
BOOLEANS: Final[dict[str, JsonValue]] = {text: string_to_boolean(text, _SWITCH) for text in _SPELLINGS}


class GiveUp(Exception):  # noqa: N818 - an answer, not a mistake
    """The value needs more than the generated function can do."""


class QuickRepairRun:
    """The state of one quick repair: the work `left` (in the units of work.py), and `late`: whether a number that was
    left alone may have to be respelt as an integer. The caller sets both, because a constructor would cost as much as a
    small repair."""

    __slots__ = ("late", "left")

    late: bool
    left: int

    def spend(self, amount: int) -> None:
        """Uses up work. Raises GiveUp where none is left."""
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


class WholeObject(dict[str, JsonValue]):
    """Rule `string_to_integer` as a table: it holds the most frequent numbers, and reads all others."""

    __slots__ = ()

    def __missing__(self, text: str) -> JsonValue:
        digits = text.removeprefix("-")
        if digits.isascii() and digits.isdecimal() and (len(digits) < 3 or digits[0] != "0"):
            return int(text)
        return _read_proposed(string_to_integer(text, _INTEGER))


WHOLE: Final = WholeObject((str(number), number) for number in range(_USUAL))


def number(text: str) -> JsonValue:
    """Rule `string_to_number`, for a text that is not a row of ASCII digits and that `read_number` does not read."""
    return _read_proposed(string_to_number(text, _NUMBER))


def cases(members: Sequence[str]) -> Mapping[str, str]:
    """Rule `enum_case` as a table: trimmed text -> the one member it means. Other texts raise KeyError."""
    return index_members(fold_case, tuple(members))


def inside(text: str, kinds: tuple[type, ...], run: QuickRepairRun) -> JsonValue:
    """Rule `parse_json_string`, for strict JSON text that starts like an array or an object."""
    run.spend(len(text) // _CHARACTERS)
    if text.strip(_ASCII_SPACE)[:1] not in ("[", "{"):
        raise GiveUp
    read = parse(text.encode("utf-8", "surrogatepass"))
    if isinstance(read, JsonProblem) or type(read) not in kinds:
        raise GiveUp
    return read


def _read_proposed(proposed: JsonValue) -> JsonValue:
    if proposed is NONE:
        raise GiveUp
    return proposed


def reorder(made: list[Repair], start: int, value: dict[str, JsonValue], depth: int) -> None:
    """Sorts the repairs made inside an object by its keys, which is the order of the repair engine."""
    places = {key: index for index, key in enumerate(value)}
    made[start:] = sorted(made[start:], key=lambda repair: places[str(repair.path[depth])])


def loose(value: JsonValue, run: QuickRepairRun) -> None:
    """Notes whether a part that is left alone holds a number that may have to be respelt as an integer."""
    stack = [value]
    while stack and not run.late:
        current = stack.pop()
        kind = type(current)
        if kind is dict:
            run.spend(len(current))
            stack.extend(current.values())
        elif kind is list:
            run.spend(len(current))
            stack.extend(current)
        elif kind in FRACTIONS:
            run.late = True


# The global names of generated repair functions.
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
    "number_text": write_number,
    "read_number": read_number,
    "reorder": reorder,
}
