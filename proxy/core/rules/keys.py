"""The rules that change an object's keys: a key in another spelling, plumbing keys, a null, a missing default.

Each function takes the object and the schemas that judge it, and gives the object (the same one if nothing changed)
and the repairs made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Final

from proxy.core.json.jsontext import are_equal
from proxy.core.model.values import JsonValue, Pointer, Repair
from proxy.core.model.work import Work
from proxy.core.rules.facts import is_match, list_declared, list_member_schemas, list_required, read_facts
from proxy.core.rules.style import match_names
from proxy.core.schema.nodes import Node

Accepts = Callable[[Node, JsonValue], bool]
# The object after a rule (the same one if nothing changed), and the repairs made.
Changed = tuple[JsonValue, tuple[Repair, ...]]

# Rules that give a key another name; each relates keys in its own way (`_meanings`).
KEY_RULES: Final = frozenset({"aliases", "key_case", "key_quotes", "key_markup", "dotted_keys"})


def rename_one_key(
    nodes: tuple[Node, ...],
    value: dict[str, JsonValue],
    path: Pointer,
    rules: frozenset[str],
    drop: frozenset[str],
    aliases: Mapping[str, str],
    accepts: Accepts,
    work: Work,
) -> Changed:
    """Renames keys that differ only in spelling from one absent declared key or have an alias, and removes those in
    `drop`. Raises TooMuchWorkError.

    Only a key that some schema refuses is renamed, or one whose target is required. But if one key is renamed, every
    other key that the same rule relates to a declared key is renamed too; if that is impossible, none is. Otherwise the
    tool would read only half of a call.
    """

    known = list_declared(nodes)
    patterns = [pattern for node in nodes for pattern in node.pattern_properties]
    unknown = [key for key in value if key not in known and not any(is_match(each, key, work) for each in patterns)]
    if not unknown:
        return value, ()
    wanted = list_required(nodes)
    work.spend(4 * len(unknown))
    refused = [key for key in unknown if _is_refused(nodes, key, value[key], accepts)]
    if "dotted_keys" in rules and (nested := _nest_dotted(nodes, value, unknown, work)) is not None:
        return nested, tuple(Repair("dotted_keys", (*path, key)) for key in unknown if nested is not value)
    for rule, targets in _meanings(unknown, known, rules, aliases):
        free = {key: target for key, target in targets.items() if target not in value}
        if not any(key in refused or target in wanted for key, target in free.items()):
            continue
        if len(free) < len(targets) or len(set(free.values())) < len(free):
            return value, ()
        return rename_keys(value, path, {key: (rule, target) for key, target in free.items()})
    dropped = [key for key in refused if key in drop] if "drop_unknown" in rules else []
    return rename_keys(value, path, dict.fromkeys(dropped, ("drop_unknown", None)))


def rename_keys(value: dict[str, JsonValue], path: Pointer, names: Mapping[str, tuple[str, str | None]]) -> Changed:
    """The object with new names for keys (None: removed), in its order. `names`: key -> (rule, new name)."""
    if not names:
        return value, ()
    repairs = [Repair(rule, (*path, key)) for key, (rule, _) in names.items()]
    kept = ((names[key][1] if key in names else key, item) for key, item in value.items())
    return {key: item for key, item in kept if key is not None}, tuple(repairs)


# A path of keys: `location.city`, `location[city]`.
_DOTTED: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*|\[[A-Za-z_]\w*\])+", re.ASCII)


def _nest_dotted(
    nodes: tuple[Node, ...], value: dict[str, JsonValue], unknown: list[str], work: Work
) -> dict[str, JsonValue] | None:
    """The object with every undeclared key at the place that it spells; None if one spells none or a sent one."""
    made = {key: item for key, item in value.items() if key not in unknown}
    for key in unknown:
        if _DOTTED.fullmatch(key) is None:
            return None
        *above, last = re.findall(r"\w+", key)
        parts, inner = nodes, made
        for step in above:
            if step not in list_declared(parts) or (inner is made and step in value):
                return None
            below = [part for schema in list_member_schemas(parts, step, work) for part in schema.always]
            parts, inner = tuple(below), inner.setdefault(step, {})
            if not isinstance(inner, dict):
                return None
        if last not in list_declared(parts) or last in inner:
            return None
        inner[last] = value[key]
    return made


# --- which declared key an unknown one means --------------------------------------------------------------------------
# Quotes and white space around a key, and a call's markup around it.
_AROUND: Final = " \t\n\r\"'`\\“”‘’"
_MARKUP: Final = re.compile(
    r"<?(?:parameter|param|arg)(?:_key)?(?: name)?=[\"']?(?P<name>[^\"'<>=]+)[\"']?/?>?"
    r"|<arg_key>(?P<opened>[^<>=]+)(?:</arg_key>)?|(?P<closed>[^<>=]+)</arg_key>"
)


def _meanings(
    unknown: list[str], known: Set[str], rules: frozenset[str], aliases: Mapping[str, str]
) -> Iterator[tuple[str, dict[str, str]]]:
    """For each key rule that is on: the unknown keys that it relates to declared keys, with those keys."""
    if "aliases" in rules and aliases:
        yield "aliases", {key: aliases[key] for key in unknown if key in aliases}
    if "key_case" in rules:
        yield "key_case", match_names(unknown, known)
    if "key_quotes" in rules:
        yield "key_quotes", {key: name for key in unknown if (name := key.strip(_AROUND)) in known}
    if "key_markup" in rules:
        found = {key: _MARKUP.fullmatch(key.strip()) for key in unknown}
        inside = {key: str(each[str(each.lastgroup)]).strip() for key, each in found.items() if each is not None}
        yield "key_markup", {key: name for key, name in inside.items() if name in known}


def _is_refused(nodes: Iterable[Node], key: str, value: JsonValue, accepts: Accepts) -> bool:
    return any(
        rest is not None and key not in schema.properties and (rest.never or not accepts(rest, value))
        for schema in nodes
        for rest in (schema.additional, schema.unevaluated)
    )


# --- nulls that are not sent, and defaults ---------------------------------------------------------------------------
def drop_null(schemas: list[Node], path: Pointer, rules: frozenset[str], *, keeps_defaults: bool) -> tuple[Repair, ...]:
    """The repair that leaves out a refused null at an optional key; () unless that is stated (docs/repair.md). With
    `keeps_defaults` no `default` takes its place."""
    facts = [read_facts(schema) for schema in schemas]
    for each in facts:
        rules = rules if each.allowed is None else rules & each.allowed
    has_default = any(part.has("default") for schema in schemas for part in schema.always)
    is_stated = "drop_null_optional" in rules and not (keeps_defaults and has_default)
    is_dropped = all(each.null == "drop" or (not each.null and is_stated) for each in facts)
    return (Repair("drop_null_optional", path),) if is_dropped and rules else ()


# The rules of `fill_defaults`.
FILLING: Final = frozenset({"fill_required", "fill_default"})


def fill_defaults(
    nodes: tuple[Node, ...], value: JsonValue, path: Pointer, rules: frozenset[str], accepts: Accepts
) -> Changed:
    """Adds missing required keys with a `default`, else the one missing optional key whose `default` makes the object
    acceptable. Raises TooMuchWorkError."""
    if not isinstance(value, dict):
        return value, ()
    given = _list_missing_defaults(nodes, value) if "fill_required" in rules else {}
    if given and accepts(nodes[0], {**value, **given}):
        return {**value, **given}, tuple(Repair("fill_required", (*path, key)) for key in given)
    if "fill_default" not in rules:
        return value, ()
    taken = value.keys() | list_required(nodes)
    found: dict[str, JsonValue] = {}
    for schema in nodes:
        for key, member in schema.properties.items():
            if key not in taken and key not in found and member.has("default"):
                whole = {**value, key: member.get("default")}
                if accepts(nodes[0], whole):
                    found[key] = whole
    if len(found) != 1:
        return value, ()
    ((key, whole),) = found.items()
    return whole, (Repair("fill_default", (*path, key)),)


def _list_missing_defaults(nodes: tuple[Node, ...], value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """The missing required keys with their defaults, none unless all have one. Nothing is assumed if the key may have
    been sent under another name, or in another place."""
    absent = list_required(nodes) - value.keys()
    inside = [item for item in value.values() if isinstance(item, dict)]
    if not value.keys() <= list_declared(nodes) or any(not absent.isdisjoint(item) for item in inside):
        return {}
    given: dict[str, JsonValue] = {}
    for key in sorted(absent):
        members = [schema.properties[key] for schema in nodes if key in schema.properties]
        defaults = [member.get("default") for member in members if member.has("default")]
        if not defaults or any(not are_equal(defaults[0], other) for other in defaults[1:]):
            return {}
        given[key] = defaults[0]
    return given
