"""The rules that propose changes of a tool's schema, as a table.

    list_improvements   every rule over the counted mistakes of a tool; the gravest first

A rule names the count that it rests on, and needs at least `least` calls. If it can, it gives the changed schema;
`passes` is then the number of counted calls with no other mistake, which would pass. An edit takes the served schema
and the place of a node (its pointer in the schema), and returns another schema. It returns None if the node is not a
part of that schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Final

from proxy.core.contract.policy import NullOptional
from proxy.core.contract.toolname import list_alias_mistakes, list_root_properties
from proxy.core.display.graphemes import cut, escape
from proxy.core.json.jsontext import dumps, format_pointer
from proxy.core.model import codes
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue, Pointer
from proxy.core.rules.facts import nodes_at
from proxy.core.schema.nodes import Node
from proxy.extensions.console.core.repair_advice import INVENTED, CountedMistake, Renames, ToolMistakes, advise
from proxy.plugin import Check

# Report-only routes are safe to enforce after this long without a call that would be refused.
SAFE_AFTER: Final = 24 * 3600.0
_MANY: Final = 0.30
_HALF: Final = 0.50
_REPORT: Final = "report"
# The most places that one text names.
_NAMED: Final = 5


@value_class
class Improvement:
    """One useful change: the rule that found it, the place, the reason in words, and the calls behind it. For a change
    of the schema, `schema` is the whole changed schema and `passes` the number of counted calls that it lets pass.
    `config` is a line of YAML for the tool's config. `summary` ends the sentence "30 % of calls ..."; `counted` is the
    place and the code (or `INVENTED`) whose calls it speaks of."""

    rule: str
    place: str
    text: str
    calls: int
    passes: int = 0
    schema: JsonValue = field(default=None, repr=False)
    config: str = ""
    summary: str = ""
    counted: tuple[Pointer, str] = ((), "")


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
        summary = f"miss the format of {_name(each.place)}: drop the format, or give an example"
        yield Improvement(
            "format_missed", _show_place(each.place), text, each.calls, each.alone, changed,
            summary=summary, counted=(each.place, each.code),
        )  # fmt: skip


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
        config = _write_aliases(check, seen, key.parent, renames)
        what = "the parameters" if others else "the parameter"
        text = (
            f"{shown} came {key.calls} times, and {_quote(name)} was missing in {times} of them.{others} "
            f"{'Add the line below to the tool, rename' if config else 'Rename'} {what}, or say in the description "
            "which names are meant."
        )
        changed = _rename_properties(check, key.parent, renames)
        place = _show_place((*key.parent, name))
        yield Improvement(
            "key_invented", place, text, times, passes if changed is not None else 0, changed, config,
            f"name {shown} for {_quote(name)}: {'add an alias' if config else 'rename the parameter'}",
            ((*key.parent, key.name), INVENTED),
        )  # fmt: skip


def _write_aliases(check: Check, seen: ToolMistakes, parent: Pointer, renames: Renames) -> str:
    """The line of the config that gives parameters further names, with the aliases that it has; '' if it cannot."""
    repair = seen.repair
    if parent or (repair is not None and "aliases" not in repair.rules):
        return ""  # only arguments of the root have aliases
    aliases = {**({} if repair is None else repair.aliases), **dict(renames)}
    if any(list_alias_mistakes(aliases, list_root_properties(check))):
        return ""
    return f"aliases: {{{', '.join(f'{_write_word(sent)}: {_write_word(own)}' for sent, own in aliases.items())}}}"


# Words that YAML 1.1 or 1.2 reads as another type.
_NO_WORDS: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


def _write_word(word: str) -> str:
    """A word as YAML: as it is, or in quotes."""
    is_plain = word.isascii() and word.isidentifier() and word.lower() not in _NO_WORDS
    return word if is_plain else dumps(word).decode()


# The operator's decisions about nulls, which the proposed line would only repeat or contradict.
_DECIDED: Final = (NullOptional.DROP, NullOptional.REFUSE)


def _null_refused(check: Check, seen: ToolMistakes, least: int) -> Iterator[Improvement]:
    found = [each for each in seen.mistakes if not each.repaired and _is_null_of_optional(check, each, least)]
    if not found or (seen.repair is not None and (not seen.repair.rules or seen.repair.null_optional in _DECIDED)):
        return
    worst, nulls = max(((each, each.got["null"]) for each in found), key=lambda pair: pair[1])
    others = ", ".join(_name(each.place) for each in found[:_NAMED] if each is not worst)
    more = f"So did {others}. " if others else ""
    text = (
        f"{_name(worst.place)} is optional and came as null in {_calls(nulls)}. {more}If a null means that there is no "
        "value, add the line below to the tool: the null is then left out. If not, say in the description what to send."
    )
    passes = max(0, worst.alone - (worst.calls - nulls))
    summary = f"send null for {_name(worst.place)}: set `null_optional: drop`"
    yield Improvement(
        "null_refused", _show_place(worst.place), text, nulls, passes, None, "null_optional: drop", summary,
        (worst.place, worst.code),
    )  # fmt: skip


def _is_null_of_optional(check: Check, mistake: CountedMistake, least: int) -> bool:
    """Returns whether enough calls sent null for a declared, optional key without an `x-null`."""
    if mistake.got["null"] < least or not mistake.place or mistake.place[-1] == "*":
        return False
    holders, parts = nodes_at(check, mistake.place[:-1]), nodes_at(check, mistake.place)
    is_required = any(mistake.place[-1] in part.required for part in holders)
    return not is_required and not any(part.has("x-null") for part in parts)


def _rename_properties(check: Check, parent: Pointer, renames: Renames) -> JsonValue | None:
    """Returns the schema with an object's properties under the names that came; None if no single node has them."""
    changed: JsonValue | None = check.root.raw
    for sent, own in renames:
        node = _object_with(check, parent, own)
        changed = None if node is None or changed is None else rename_property(changed, node.path, own, sent)
    return changed


def _key_refused(check: Check, seen: ToolMistakes, least: int) -> Iterator[Improvement]:
    for key in seen.invented:
        if key.refused < least or any(times >= least for times in key.beside.values()):
            continue
        text = (
            f"{_quote(key.name)} came {key.calls} times and is not a parameter. If your service takes it, declare it; "
            "if not, say in the tool's description what to use instead."
        )
        node = next((part for part in nodes_at(check, key.parent) if part.properties), None)
        changed = None if node is None else declare_property(check.root.raw, node.path, key.name)
        summary = f"send {_quote(key.name)}, which is not declared: declare it, or say what to send instead"
        yield Improvement(
            "key_refused", _show_place(key.parent), text, key.calls, key.refused, changed,
            summary=summary, counted=((*key.parent, key.name), INVENTED),
        )  # fmt: skip


def _value_tried(check: Check, seen: ToolMistakes, least: int) -> Iterator[Improvement]:
    for each in _of_code(seen, codes.ENUM_MISMATCH.name, least):
        node = _node_with(check, each.place, "enum")
        tried, times = next(iter(each.tried.most_common(1)), ("", 0))
        summary = f"send a value for {_name(each.place)} that is not in its list: say what each value means"
        counted = (each.place, each.code)
        if node is None or times < least:
            hidden = "" if seen.values else " Set `admin.values` to see what models send."
            text = (
                f"{_name(each.place)} was none of its values in {_calls(each.calls)}. The schema lists them already, "
                f"so say in the description what each one means.{hidden}"
            )
            yield Improvement(
                "value_tried", _show_place(each.place), text, each.calls, summary=summary, counted=counted
            )
            continue
        text = (
            f"{_quote(tried)} was sent for {_name(each.place)} {times} times and is none of its values. If your "
            "service takes it, add it; if not, say in the description which value is meant."
        )
        changed = allow_value(check.root.raw, node.path, tried)
        yield Improvement(
            "value_tried", _show_place(each.place), text, each.calls, times, changed, summary=summary, counted=counted
        )


def _often_repaired(check: Check, seen: ToolMistakes, least: int) -> Iterator[Improvement]:
    for each in seen.mistakes:
        is_often = each.calls >= least and each.calls > seen.calls * _MANY
        if each.repaired and is_often and each.code != "aliases":  # the operator's own fact
            share, advice = round(100 * each.calls / seen.calls), advise(check, each)
            text = (
                f"{_name(each.place)} is repaired by `{each.code}` in {share} % of all calls ({each.calls} of "
                f"{seen.calls}). {advice}"
            )
            summary = (
                f"need the repair `{each.code}` at {_name(each.place)}: {advice[:1].lower()}{advice[1:].rstrip('.')}"
            )
            yield Improvement(
                "often_repaired", _show_place(each.place), text, each.calls,
                summary=summary, counted=(each.place, each.code),
            )  # fmt: skip


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
    ImprovementRule("null_refused", 5, _null_refused),
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
