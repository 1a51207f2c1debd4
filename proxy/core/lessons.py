"""Right and wrong calls of one tool, for its guidance (GoMind layer 1, "few-shot examples"): made from its schema.

None is shown that was not tried: a right one is forwarded by `decide` byte for byte, a wrong one is refused or
repaired, and the lesson says which. A wrong call differs from a right one in a single place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from proxy.core.decide import decide
from proxy.core.examples import minimal_example, telling_example
from proxy.core.jsontext import as_decimal, dumps, equal, json_type
from proxy.core.members import declared, required
from proxy.core.model import (
    ABSENT,
    Conversation,
    Document,
    Forward,
    JsonValue,
    Pointer,
    Reject,
    Rung,
    ToolCall,
)
from proxy.core.policy import Mode, ToolPolicy
from proxy.core.schema import Node
from proxy.core.sites import applies_always, facts
from proxy.core.validation import Check

# Optional keys that a right example shows beside what is required.
_OPTIONAL: Final = 6
# Slips looked at, and their kinds: what is shown first where not all of them find room.
_TRIED: Final = 60
_KINDS: Final = ("number", "missing", "boolean", "choice", "unknown", "array", "object", "range")
# A key that no tool means.
_UNKNOWN: Final = "anything_else"


@dataclass(frozen=True, slots=True)
class Wrong:
    """A wrong call: what is wrong with it, in words, and what becomes of it: the code of its first violation, or ''
    where it is repaired."""

    value: JsonValue = field(repr=False)
    what: str
    code: str


@dataclass(frozen=True, slots=True)
class Lesson:
    """What a tool takes, by example. Both may be empty: no example can be found for every schema."""

    right: tuple[JsonValue, ...] = field(repr=False)
    wrong: tuple[Wrong, ...] = ()


def lesson(policy: ToolPolicy, most_wrong: int = 4) -> Lesson:
    """The lesson of a tool. Deterministic; never raises."""
    if policy.check is None or policy.container is not None:
        return Lesson(())
    strict = replace(policy, mode=Mode.ENFORCE)
    right: list[JsonValue] = []
    for value in (telling_example(policy.check, _OPTIONAL), minimal_example(policy.check)):
        if value is not ABSENT and _fate(strict, value) == "right" and not any(equal(value, other) for other in right):
            right.append(value)
    wrong: dict[str, Wrong] = {}
    slips = islice(_slips(policy.check, right[0] if right else ABSENT), _TRIED)
    for kind, value, what in sorted(slips, key=lambda slip: _KINDS.index(slip[0])):
        fate = "right" if kind in wrong or len(wrong) == most_wrong else _fate(strict, value)
        if fate != "right":
            wrong[kind] = Wrong(value, what, fate)
    return Lesson(tuple(right), tuple(wrong.values()))


def _fate(policy: ToolPolicy, value: JsonValue) -> str:
    """`right` for a call that goes on byte for byte, '' for one that is repaired, else the code it is refused by."""
    text = dumps(value)
    call = ToolCall(policy.tool, Document(text, value), "lesson", Conversation("lesson", Rung.HEADER))
    match decide(call, policy):
        case Forward(checked):
            return "right" if checked.arguments == text and not checked.repairs and not checked.warnings else ""
        case Reject(failure):
            return failure.violations[0].code.name if failure.violations else failure.code.name


# --- what models get wrong --------------------------------------------------------------------------------------------
def _slips(check: Check, right: JsonValue) -> Iterator[tuple[str, JsonValue, str]]:
    """(kind, wrong value, what is wrong) for the mistakes a right value invites, most usual ones first."""
    if not isinstance(right, dict):
        return
    for path, value in _places(right):
        for kind, wrong, what in _of_value(value):
            yield kind, _with(right, path, wrong), f"{_name(path)}: {what}"
    parts = [*applies_always(check.root)]
    for key in right:
        node = next((part.properties[key] for part in parts if key in part.properties), None)
        for kind, wrong, what in _of_place(node, right[key]) if node is not None else ():
            yield kind, {**right, key: wrong}, f"{key}: {what}"
    for key in sorted(required(parts) & right.keys()):
        yield "missing", {name: value for name, value in right.items() if name != key}, f"{key} is missing"
    if _UNKNOWN not in declared(parts):
        yield "unknown", {**right, _UNKNOWN: True}, f"{_UNKNOWN} is no parameter of this tool"


def _places(right: dict[str, JsonValue]) -> Iterator[tuple[Pointer, JsonValue]]:
    """The members of a value and, behind all of them, the members of those."""
    yield from (((key,), value) for key, value in right.items())
    for key, inner in right.items():
        if isinstance(inner, dict):
            yield from (((key, name), value) for name, value in inner.items())


def _with(right: dict[str, JsonValue], path: Pointer, wrong: JsonValue) -> JsonValue:
    if len(path) == 1:
        return {**right, path[0]: wrong}
    return {**right, path[0]: {**right[str(path[0])], path[1]: wrong}}


def _name(path: Pointer) -> str:
    return ".".join(map(str, path))


def _in_quotes(value: JsonValue) -> str:
    return dumps(value).decode()


# JSON type -> kind, the wrong value, what is wrong with it
_OF_TYPE: Final[dict[str, tuple[str, Callable[[JsonValue], JsonValue], str]]] = {
    "integer": ("number", _in_quotes, "a number takes no quotes"),
    "number": ("number", _in_quotes, "a number takes no quotes"),
    "boolean": ("boolean", _in_quotes, "true and false take no quotes"),
    "array": ("array", _in_quotes, "a list is JSON, not a text that holds JSON"),
    "object": ("object", _in_quotes, "an object is JSON, not a text that holds JSON"),
}


def _of_value(value: JsonValue) -> Iterator[tuple[str, JsonValue, str]]:
    found = _OF_TYPE.get(json_type(value))
    if found is not None:
        yield found[0], found[1](value), found[2]


def _of_place(node: Node, value: JsonValue) -> Iterator[tuple[str, JsonValue, str]]:
    site = facts(node).site
    if site.choices is not None and isinstance(value, str):
        yield "choice", f"{value}_or_else", "only the values that are listed are known"
    for part in applies_always(node):
        if (limit := part.get("maximum")) is not None and not isinstance(limit, bool):
            yield "range", int(as_decimal(limit)) + 1, f"at most {_in_quotes(limit)}"
        if (limit := part.get("minimum")) is not None and not isinstance(limit, bool):
            yield "range", int(as_decimal(limit)) - 1, f"at least {_in_quotes(limit)}"
