"""Right and wrong example calls of one tool, for its guidance (GoMind layer 1, "few-shot examples"), from its schema.

Every example has been tried: `decide` forwards a right one byte for byte, and refuses or repairs a wrong one, which the
lesson then says. A wrong call differs from a right one in a single place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from proxy.core.check.validation import Check
from proxy.core.contract.policy import Mode, ToolPolicy
from proxy.core.guidance.examples import make_full_example, make_minimal_example
from proxy.core.json.jsontext import are_equal, dumps, make_decimal, name_json_type
from proxy.core.model.values import (
    ABSENT,
    Conversation,
    Decision,
    Document,
    Forward,
    JsonValue,
    Pointer,
    Reject,
    Rung,
    ToolCall,
)
from proxy.core.rules.facts import applies_always, read_facts
from proxy.core.rules.members import list_declared, list_required
from proxy.core.schema.nodes import Node

# `core.decide.decide`. It is passed in, because this file may not import it.
Decide = Callable[[ToolCall, ToolPolicy], Decision]

# The most optional keys that a right example shows.
_OPTIONAL: Final = 6
# The most mistakes tried, and their kinds in the order of importance, for when not all fit.
_TRIED: Final = 60
_KINDS: Final = ("number", "missing", "boolean", "choice", "unknown", "array", "object", "range")
# A key that no tool declares.
_UNKNOWN: Final = "anything_else"


@dataclass(frozen=True, slots=True)
class Wrong:
    """A wrong call: what is wrong with it, in words, and the code of its first violation, or '' where it is
    repaired."""

    value: JsonValue = field(repr=False)
    what: str
    code: str


@dataclass(frozen=True, slots=True)
class Lesson:
    """What a tool accepts, by example. Both fields may be empty: not every schema yields an example."""

    right: tuple[JsonValue, ...] = field(repr=False)
    wrong: tuple[Wrong, ...] = ()


def make_lesson(policy: ToolPolicy, decide: Decide, most_wrong: int = 4) -> Lesson:
    """The lesson of a tool, with each example tried by `decide`. Deterministic; never raises."""
    if policy.check is None or policy.container is not None:
        return Lesson(())
    strict = replace(policy, mode=Mode.ENFORCE)
    right: list[JsonValue] = []
    for value in (make_full_example(policy.check, _OPTIONAL), make_minimal_example(policy.check)):
        if (
            value is not ABSENT
            and _fate(strict, value, decide) == "right"
            and not any(are_equal(value, other) for other in right)
        ):
            right.append(value)
    wrong: dict[str, Wrong] = {}
    slips = islice(_slips(policy.check, right[0] if right else ABSENT), _TRIED)
    for kind, value, what in sorted(slips, key=lambda slip: _KINDS.index(slip[0])):
        fate = "right" if kind in wrong or len(wrong) == most_wrong else _fate(strict, value, decide)
        if fate != "right":
            wrong[kind] = Wrong(value, what, fate)
    return Lesson(tuple(right), tuple(wrong.values()))


def _fate(policy: ToolPolicy, value: JsonValue, decide: Decide) -> str:
    """`right` for a call that is forwarded byte for byte, '' for one that is repaired, else the code of its refusal."""
    text = dumps(value)
    call = ToolCall(policy.tool, Document(text, value), "lesson", Conversation("lesson", Rung.HEADER))
    match decide(call, policy):
        case Forward(checked):
            return "right" if checked.arguments == text and not checked.repairs and not checked.warnings else ""
        case Reject(failure):
            return failure.violations[0].code.name if failure.violations else failure.code.name


# --- what models get wrong --------------------------------------------------------------------------------------------
def _slips(check: Check, right: JsonValue) -> Iterator[tuple[str, JsonValue, str]]:
    """(kind, wrong value, what is wrong) for the likely mistakes with a right value, most frequent first."""
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
    for key in sorted(list_required(parts) & right.keys()):
        yield "missing", {name: value for name, value in right.items() if name != key}, f"{key} is missing"
    if _UNKNOWN not in list_declared(parts):
        yield "unknown", {**right, _UNKNOWN: True}, f"{_UNKNOWN} is no parameter of this tool"


def _places(right: dict[str, JsonValue]) -> Iterator[tuple[Pointer, JsonValue]]:
    """The members of a value, followed by their own members."""
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
    found = _OF_TYPE.get(name_json_type(value))
    if found is not None:
        yield found[0], found[1](value), found[2]


def _of_place(node: Node, value: JsonValue) -> Iterator[tuple[str, JsonValue, str]]:
    site = read_facts(node).site
    if site.choices is not None and isinstance(value, str):
        yield "choice", f"{value}_or_else", "only the values that are listed are known"
    for part in applies_always(node):
        if (limit := part.get("maximum")) is not None and not isinstance(limit, bool):
            yield "range", int(make_decimal(limit)) + 1, f"at most {_in_quotes(limit)}"
        if (limit := part.get("minimum")) is not None and not isinstance(limit, bool):
            yield "range", int(make_decimal(limit)) - 1, f"at least {_in_quotes(limit)}"
