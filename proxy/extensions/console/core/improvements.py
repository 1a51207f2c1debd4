"""The rules that propose changes of a tool's schema, as a table.

    list_improvements   every rule over the counted mistakes of a tool; the gravest first

A rule names the count that it rests on, and needs at least `least` calls. Where it can, it gives the changed schema;
`passes` is then the number of counted calls with no other mistake, which would pass. An edit takes the served schema
and the place of a node (its pointer in the schema), and gives another schema; None where the node is not a part of that
schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Final

from proxy.core.check.validation import Check
from proxy.core.display.graphemes import cut, escape
from proxy.core.json.jsontext import format_pointer
from proxy.core.model import codes
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue, Pointer
from proxy.core.rules.facts import nodes_at
from proxy.core.schema.nodes import Node
from proxy.extensions.console.core.tool_mistakes import CountedMistake, InventedKey, Renames, ToolMistakes

# Report-only routes are safe to enforce after this long without a call that would be refused.
SAFE_AFTER: Final = 24 * 3600.0
_MANY: Final = 0.30
_HALF: Final = 0.50
_REPORT: Final = "report"


@value_class
class Improvement:
    """One useful change: the rule that found it, the place, the reason in words, the calls behind it, and for a change
    of the schema the whole changed schema with the number of counted calls that it lets pass."""

    rule: str
    place: str
    text: str
    calls: int
    passes: int = 0
    schema: JsonValue = field(default=None, repr=False)


@value_class
class ImprovementRule:
    """A rule: its name, the least number of calls that it needs, and the function that finds improvements."""

    name: str
    least: int
    find: Callable[[Check, ToolMistakes, int], Iterator[Improvement]]


def list_improvements(check: Check | None, seen: ToolMistakes) -> list[Improvement]:
    """The proposed changes, the most calls first. Rules on a place need the tool's schema."""
    if check is None:
        return []
    found = [each for rule in IMPROVEMENT_RULES for each in rule.find(check, seen, rule.least)]
    return sorted(found, key=lambda each: (-each.passes, -each.calls, each.place))


# --- the rules --------------------------------------------------------------------------------------------------------
def _format_missed(check: Check, seen: ToolMistakes, least: int) -> Iterator[Improvement]:
    for each in _of_code(seen, codes.FORMAT_MISMATCH.name, least):
        node = _node_with(check, each.place, "format")
        if node is None:
            continue
        format_ = node.get("format")
        shape, times = next(iter(each.shapes.most_common(1)), ("", 0))
        shaped = f"{times} of {each.calls} have the shape {shape}. " if times else ""
        text = (
            f"{_name(each.place)} missed the format {format_} in {_calls(each.calls)}. {shaped}If your service takes "
            "that, drop the format; if not, give an example in the description."
        )
        changed = drop_keyword(check.root.raw, node.path, "format")
        yield Improvement("format_missed", _show_place(each.place), text, each.calls, each.alone, changed)


def _key_invented(check: Check, seen: ToolMistakes, least: int) -> Iterator[Improvement]:
    proposed: set[tuple[Pointer, Renames]] = set()
    for key in seen.invented:
        name, times = next(iter(key.beside.most_common(1)), ("", 0))
        if times < least:
            continue
        one = ((key.name, name),)
        tried = [(renames, number) for renames, number in key.instead.items() if one[0] in renames]
        renames, passes = max(tried, key=lambda each: each[1], default=(one, 0))
        if (key.parent, renames) in proposed:
            continue
        proposed.add((key.parent, renames))
        shown = _quote(key.name)
        others = "".join(f" {_quote(sent)} came for {_quote(own)}." for sent, own in renames if sent != key.name)
        what = "the parameters" if others else "the parameter"
        text = (
            f"{shown} came {key.calls} times, and {_quote(name)} was missing in {times} of them.{others} Name {what} "
            "so, or say in the description which names are meant."
        )
        changed = _rename_properties(check, key.parent, renames)
        place = _show_place((*key.parent, name))
        yield Improvement("key_invented", place, text, times, passes if changed is not None else 0, changed)


def _rename_properties(check: Check, parent: Pointer, renames: Renames) -> JsonValue | None:
    """The schema with the properties of one object under the names that came; None where no single node has them."""
    changed: JsonValue | None = check.root.raw
    for sent, own in renames:
        node = _object_with(check, parent, own)
        changed = None if node is None or changed is None else rename_property(changed, node.path, own, sent)
    return changed


def _key_refused(check: Check, seen: ToolMistakes, least: int) -> Iterator[Improvement]:
    for key in seen.invented:
        if key.refused < least or _is_renamed(key, least):
            continue
        text = (
            f"{_quote(key.name)} came {key.calls} times and is not a parameter. If your service takes it, declare it; "
            "if not, say in the tool's description what to use instead."
        )
        node = next((part for part in nodes_at(check, key.parent) if part.properties), None)
        changed = None if node is None else declare_property(check.root.raw, node.path, key.name)
        yield Improvement("key_refused", _show_place(key.parent), text, key.calls, key.refused, changed)


def _is_renamed(key: InventedKey, least: int) -> bool:
    return any(times >= least for times in key.beside.values())


def _value_tried(check: Check, seen: ToolMistakes, least: int) -> Iterator[Improvement]:
    for each in _of_code(seen, codes.ENUM_MISMATCH.name, least):
        node = _node_with(check, each.place, "enum")
        tried, times = next(iter(each.tried.most_common(1)), ("", 0))
        if node is None or times < least:
            text = (
                f"{_name(each.place)} was none of its values in {_calls(each.calls)}. List the values in its "
                "description, with what each means."
            )
            yield Improvement("value_tried", _show_place(each.place), text, each.calls)
            continue
        text = (
            f"{_quote(tried)} was sent for {_name(each.place)} {times} times and is none of its values. If your "
            "service takes it, add it; if not, say in the description which value is meant."
        )
        changed = allow_value(check.root.raw, node.path, tried)
        yield Improvement("value_tried", _show_place(each.place), text, each.calls, times, changed)


def _often_repaired(check: Check, seen: ToolMistakes, least: int) -> Iterator[Improvement]:
    del check
    for each in seen.mistakes:
        if each.repaired and each.calls >= least and each.calls > seen.calls * _MANY:
            share = round(100 * each.calls / seen.calls)
            text = (
                f"{_name(each.place)} is repaired by {each.code} in {share} % of all calls ({each.calls} of "
                f"{seen.calls}). Say its type in the description, with an example."
            )
            yield Improvement("often_repaired", _show_place(each.place), text, each.calls)


def _not_described(check: Check, seen: ToolMistakes, least: int) -> Iterator[Improvement]:
    worst = max((each for each in seen.mistakes if not each.repaired), key=lambda each: each.calls, default=None)
    if worst is None or worst.calls < least or not worst.place:
        return
    if not any(part.get("description") for part in nodes_at(check, worst.place)):
        text = (
            f"{_name(worst.place)} leads the refusals ({_calls(worst.calls)}) and has no description. Say what it "
            "holds, in which form, with an example."
        )
        yield Improvement("not_described", _show_place(worst.place), text, worst.calls)


def _not_understood(check: Check, seen: ToolMistakes, least: int) -> Iterator[Improvement]:
    del check
    for each in seen.mistakes:
        if not each.repaired and each.retried >= least and each.right < each.retried * _HALF:
            share = round(100 * each.right / each.retried)
            text = (
                f"After a refusal of {_name(each.place)} ({each.code}) only {share} % of {each.retried} second tries "
                "were right: models do not understand what is wanted. An example in the description says it best."
            )
            yield Improvement("not_understood", _show_place(each.place), text, each.retried)


def _safe_to_enforce(check: Check, seen: ToolMistakes, least: int) -> Iterator[Improvement]:
    del check
    if seen.mode == _REPORT and seen.calls >= least and seen.since_refusal >= SAFE_AFTER:
        hours = int(seen.since_refusal // 3600)
        text = f"No call would have been refused for {hours} h ({_calls(seen.calls)}): it is safe to enforce."
        yield Improvement("safe_to_enforce", "", text, seen.calls)


IMPROVEMENT_RULES: Final = (
    ImprovementRule("format_missed", 5, _format_missed),
    ImprovementRule("key_invented", 5, _key_invented),
    ImprovementRule("key_refused", 5, _key_refused),
    ImprovementRule("value_tried", 5, _value_tried),
    ImprovementRule("often_repaired", 10, _often_repaired),
    ImprovementRule("not_described", 5, _not_described),
    ImprovementRule("not_understood", 10, _not_understood),
    ImprovementRule("safe_to_enforce", 20, _safe_to_enforce),
)


# --- places and words -------------------------------------------------------------------------------------------------
def _of_code(seen: ToolMistakes, code: str, least: int) -> Iterator[CountedMistake]:
    return (each for each in seen.mistakes if each.code == code and each.calls >= least)


def _node_with(check: Check, place: Pointer, keyword: str) -> Node | None:
    """The only node at a place that has a keyword; with several, no single edit lets a call pass."""
    found = [part for part in nodes_at(check, place) if part.has(keyword)]
    return found[0] if len(found) == 1 else None


def _object_with(check: Check, parent: Pointer, name: str) -> Node | None:
    found = [part for part in nodes_at(check, parent) if name in part.properties]
    return found[0] if len(found) == 1 else None


def _show_place(place: Pointer) -> str:
    return format_pointer(place)


def _quote(text: str) -> str:
    return f"`{cut(escape(text), 64)}`"


def _name(place: Pointer) -> str:
    return _quote(_show_place(place).removeprefix("/") or "the arguments")


def _calls(number: int) -> str:
    return f"{number} call{'' if number == 1 else 's'}"


def drop_keyword(schema: JsonValue, at: Pointer, keyword: str) -> JsonValue | None:
    """The schema without a keyword at a node."""
    return _edit_node(schema, at, lambda node: {key: item for key, item in node.items() if key != keyword})


def allow_value(schema: JsonValue, at: Pointer, value: JsonValue) -> JsonValue | None:
    """The schema with one more value in the `enum` of a node."""
    return _edit_node(schema, at, lambda node: {**node, "enum": [*node.get("enum", ()), value]})


def declare_property(schema: JsonValue, at: Pointer, name: str) -> JsonValue | None:
    """The schema with one more property of an object, which may hold anything."""
    return _edit_node(schema, at, lambda node: {**node, "properties": {**node.get("properties", {}), name: {}}})


def rename_property(schema: JsonValue, at: Pointer, name: str, new: str) -> JsonValue | None:
    """The schema with a property of an object under another name."""

    def rename(node: dict[str, JsonValue]) -> dict[str, JsonValue]:
        properties = {new if key == name else key: item for key, item in node.get("properties", {}).items()}
        required = [new if key == name else key for key in node.get("required", ())]
        return {**node, "properties": properties, "required": required}

    return _edit_node(schema, at, rename)


def _edit_node(
    value: JsonValue, at: Pointer, change: Callable[[dict[str, JsonValue]], dict[str, JsonValue]]
) -> JsonValue | None:
    if not at:
        return change(value) if isinstance(value, dict) else None
    step, rest = at[0], at[1:]
    if isinstance(value, dict) and step in value:
        inner = _edit_node(value[step], rest, change)
        return None if inner is None else {**value, step: inner}
    if isinstance(value, list) and isinstance(step, int) and step < len(value):
        inner = _edit_node(value[step], rest, change)
        return None if inner is None else [*value[:step], inner, *value[step + 1 :]]
    return None
