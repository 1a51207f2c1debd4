"""What generated menders call (`mender.py`): cheap readers for the common spellings, the rules themselves for the rest.

A reader gives what the repair rule of the same name gives (`proposals.py`), or ends the attempt with `GiveUp`. The
usual spellings are read here without the rule's steps; whatever is not usual goes to the rule itself.
"""

from __future__ import annotations

from typing import Any, Final

from proxy.core.jsontext import LosslessFloat, parse, read_number
from proxy.core.model import JsonProblem, JsonValue, Pointer, Repair
from proxy.core.proposals import NONE, Site, enum_case, string_to_boolean, string_to_integer, string_to_number

# A path this long is left to the repair engine, which has its own bound.
LONGEST_PATH: Final = 40
# Repairs kept for one place of an array's items, so that they need not be made again for the next call.
_KEPT: Final = 512
_ASCII_SPACE: Final = " \t\n\r"

_WHOLE: Final = Site(frozenset({"integer"}), False, None)
_NUMBER: Final = Site(frozenset({"integer", "number"}), False, None)
_SWITCH: Final = Site(frozenset({"boolean"}), False, None)
_SPELLINGS: Final = ("1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False")

# The boolean each spelling means; any other text raises KeyError, which ends the attempt as `GiveUp` does.
BOOLEANS: Final[dict[str, JsonValue]] = {text: string_to_boolean(text, _SWITCH) for text in _SPELLINGS}


class GiveUp(Exception):  # noqa: N818 - an answer, not a mistake
    """The value needs more than a mender knows."""


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


def whole(text: str) -> JsonValue:
    """Rule `string_to_integer`, for what is no row of ASCII digits."""
    if text.isascii() and text.removeprefix("-").isdecimal():
        return int(text)
    return _given(string_to_integer(text, _WHOLE))


def number(text: str) -> JsonValue:
    """Rule `string_to_number`, for what is no row of ASCII digits."""
    read = read_number(text)
    return read if read is not None else _given(string_to_number(text, _NUMBER))


def member(text: str, site: Site) -> JsonValue:
    """Rule `enum_case`."""
    return _given(enum_case(text, site))


def own_text(value: LosslessFloat) -> str:
    """Rule `number_to_string`, for what is no int."""
    return bytes(value).decode("ascii")


def inside(text: str, kinds: tuple[type, ...]) -> JsonValue:
    """Rule `parse_json_string`, for strict JSON text that starts as an array or object does."""
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


def loose(value: JsonValue, late: list[bool]) -> None:
    """Notes whether a part that is left alone holds a number that may have to be spelt as an integer."""
    stack = [value]
    while stack and not late:
        current = stack.pop()
        kind = type(current)
        if kind is dict:
            stack.extend(current.values())
        elif kind is list:
            stack.extend(current)
        elif kind is LosslessFloat:
            late.append(True)


# The global names of generated menders.
SPACE: Final[dict[str, Any]] = {
    "At": At,
    "BOOLEANS": BOOLEANS,
    "GiveUp": GiveUp,
    "LosslessFloat": LosslessFloat,
    "Repair": Repair,
    "inside": inside,
    "loose": loose,
    "member": member,
    "number": number,
    "own_text": own_text,
    "reorder": reorder,
    "whole": whole,
}
