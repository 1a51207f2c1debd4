"""The value as a whole: keys under another name, in another place, inside a wrapper, or not declared at all.

Single keywords are worded by `explain.py`; what only shows when the value is seen whole is found here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from proxy.core import codes
from proxy.core.codes import Severity
from proxy.core.graphemes import cut
from proxy.core.jsontext import format_pointer
from proxy.core.model import ABSENT, JsonValue, Pointer, Violation
from proxy.core.names import abbreviation, nearest
from proxy.core.preview import shown_text
from proxy.core.schema import Node
from proxy.core.sites import applies_always
from proxy.core.validation import Check
from proxy.core.work import TooMuchWorkError, Work

# Names compared for a did-you-mean, missing keys that are paired, members searched for a misplaced key, length of a key
# worth comparing: an answer names the obvious, and has to stay quick for any body.
LOOKED_AT: Final = 200
_PAIRED: Final = 20
_SEARCHED: Final = 20_000
_LONGEST_NAME: Final = 100
_MAX_UNKNOWN: Final = 100
_MAX_WORK: Final = 500_000


def unknown_fields(check: Check, value: JsonValue, severity: Severity) -> Iterator[Violation]:
    """VAL-005 for every key no schema declares, where the schema itself would let it pass (`unknown_keys`).

    At most 100; a value too large to search has one of its own, at the root.
    """
    try:
        yield from islice(_unknown_at(check, value, severity, Work(_MAX_WORK)), _MAX_UNKNOWN)
    except TooMuchWorkError:
        message = "The arguments are too large to be searched for unknown fields"
        yield Violation(codes.UNKNOWN_FIELD, (), message, hint="Send less in one call.", severity=severity)


def notices(check: Check, value: JsonValue) -> Iterator[Violation]:
    """Warnings that block nothing: keys the schema calls deprecated; at most 100, none where there is too much."""
    if check.schemas.mentions("deprecated"):
        try:
            yield from islice(_deprecated_at(check, value, Work(_MAX_WORK)), _MAX_UNKNOWN)
        except TooMuchWorkError:
            return


def _deprecated_at(check: Check, value: JsonValue, work: Work) -> Iterator[Violation]:
    for place in places(check, value, work):
        if place.path and any(part.get("deprecated") is True for part in place.parts):
            message = f"Field '{shown_text(str(place.path[-1]), 60)}' is deprecated"
            yield Violation(codes.UNKNOWN_FIELD, place.path, message, severity=Severity.WARNING)


def related(check: Check, root: JsonValue, found: list[Violation]) -> Iterator[Violation]:
    """Pairs missing keys with the unknown ones that were meant; tells where a misplaced key stands."""
    wrapper = _wrapper(check, root)
    missing = list({v.path: v for v in found if v.code is codes.REQUIRED_MISSING}.values())
    if not wrapper and not missing:
        yield from found
        return
    places = _places_of(root, {str(violation.path[-1]) for violation in missing})
    taken: set[Pointer] = set()
    renamed: dict[Pointer, Violation] = {}
    for violation in missing[:_PAIRED]:
        hint, source = _meant(check, root, violation, places)
        if hint:
            renamed[violation.path] = replace(violation, hint=hint)
            if violation.severity is Severity.ERROR:  # an error must not vanish behind a warning
                taken.add(source)
    for violation in found:
        if violation.code is codes.UNKNOWN_FIELD and violation.path in taken:
            continue
        if wrapper and len(violation.path) == 1:
            yield replace(violation, hint=wrapper)
            continue
        yield renamed.get(violation.path, violation) if violation.code is codes.REQUIRED_MISSING else violation


def _meant(
    check: Check, root: JsonValue, missing: Violation, places: Mapping[str, list[Pointer]]
) -> tuple[str, Pointer]:
    """What was sent in place of a missing key, and where: beside it under another name, or elsewhere under its own."""
    place, name = missing.path[:-1], str(missing.path[-1])
    beside = value_at(root, place)
    if isinstance(beside, dict):
        declared = {key for node in _nodes_at(check, place) for key in node.properties}
        undeclared = (key for key in beside if key not in declared and len(key) <= _LONGEST_NAME)
        unknown = list(islice(undeclared, LOOKED_AT))
        close = nearest(name, unknown) or abbreviation(name, unknown)
        if close is not None:
            sent, meant = cut(format_pointer((*place, close)), 120), cut(name, 60)
            return f"You sent '{sent}', which this tool does not know: rename it to '{meant}'.", (*place, close)
    elsewhere = [path for path in places.get(name, ()) if path[:-1] != place]
    if len(elsewhere) == 1:
        sent, target = cut(format_pointer(elsewhere[0]), 120), cut(format_pointer(missing.path), 120)
        return f"It was sent at '{sent}': move it to '{target}'.", elsewhere[0]
    return "", ()


def _nodes_at(check: Check, path: Pointer) -> list[Node]:
    nodes = list(applies_always(check.root))
    for step in path:
        below = [child for node in nodes if (child := child_at(node, step)) is not None]
        nodes = [part for child in below for part in applies_always(child)]
    return nodes


def child_at(node: Node, step: str | int) -> Node | None:
    """The schema a node itself declares for a key or an item, or None."""
    if isinstance(step, int):
        return node.item(step)
    return node.properties.get(step)


def members(value: JsonValue) -> Iterable[tuple[str | int, JsonValue]]:
    """The keys or indexes of an object or array with what stands there; nothing for any other value."""
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, list) else ()


def _places_of(root: JsonValue, names: set[str]) -> dict[str, list[Pointer]]:
    """Where keys of these names stand in a value, at most three places each; the first 20,000 members are searched."""
    found: dict[str, list[Pointer]] = {name: [] for name in names}
    stack: list[tuple[JsonValue, Pointer]] = [(root, ())] if names else []
    left = _SEARCHED
    while stack and left > 0:
        value, path = stack.pop()
        for step, member in islice(members(value), left):
            left -= 1
            if isinstance(step, str) and step in names and len(found[step]) < 3:
                found[step].append((*path, step))
            if isinstance(member, dict | list):
                stack.append((member, (*path, step)))
    return found


def _wrapper(check: Check, root: JsonValue) -> str:
    """A hint where the arguments stand inside a wrapper key, or several calls inside one."""
    if not isinstance(root, dict) or len(root) != 1:
        return ""
    ((key, inner),) = root.items()
    declared = {name for node in applies_always(check.root) for name in node.properties}
    if key in declared:
        return ""
    key = shown_text(key, 60)
    if isinstance(inner, dict) and declared & inner.keys():
        return f"The arguments stand inside '{key}': send its content itself as the arguments, without '{key}'."
    if isinstance(inner, list) and any(
        isinstance(item, dict) and {"parameters", "arguments"} & item.keys() for item in inner
    ):
        return f"'{key}' seems to hold several calls: make one call of this tool for each, with its arguments alone."
    return ""


def _unknown_at(check: Check, value: JsonValue, severity: Severity, work: Work) -> Iterator[Violation]:
    """Undeclared keys; a place whose schema declares no key at all takes any. Raises TooMuchWorkError."""
    for place in places(check, value, work):
        if isinstance(place.value, dict) and (known := declared_keys(place.parts)):
            unknown = [key for key in place.value if key not in known]
            names = sorted(known) if unknown else []
            yield from (unknown_violation((*place.path, key), place.value[key], names, severity) for key in unknown)


@dataclass(frozen=True, slots=True)
class Place:
    """One place in a value with every schema that judges it."""

    path: Pointer
    value: JsonValue
    parts: list[Node]


def places(check: Check, value: JsonValue, work: Work) -> Iterator[Place]:
    """Every place in a value that a schema judges, parents first. Raises TooMuchWorkError."""
    stack: list[tuple[tuple[Node, ...], JsonValue, Pointer]] = [((check.root,), value, ())]
    while stack:
        nodes, current, path = stack.pop()
        parts = alternatives(check, nodes, current, work)
        yield Place(path, current, parts)
        below = []
        for step, member in members(current):
            work.spend(1 + len(parts))
            children = tuple({id(child): child for part in parts if (child := child_at(part, step))}.values())
            if children:
                below.append((children, member, (*path, step)))
        stack.extend(reversed(below))


def declared_keys(parts: Iterable[Node]) -> set[str]:
    """The keys an object may have, empty where the schemas leave it open on purpose: no key declared at all, patterns,
    or a schema for every other key."""
    parts = list(parts)
    if any(part.pattern_properties or _typed_rest(part) for part in parts):
        return set()
    return {key for part in parts for key in part.properties}


def alternatives(check: Check, nodes: Iterable[Node], value: JsonValue, work: Work) -> list[Node]:
    """The schemas that judge a value, with the branches of unions that take it, each once. Raises TooMuchWorkError."""
    found: dict[int, Node] = {}
    stack = list(nodes)
    while stack:
        for part in applies_always(stack.pop()):
            if id(part) in found:
                continue
            found[id(part)] = part
            for branch in (*part.any_of, *part.one_of, *_sides(check, part, value, work)):
                work.look(value)
                if check.accepts_at(branch, value):
                    stack.append(branch)
    return list(found.values())


def _sides(check: Check, part: Node, value: JsonValue, work: Work) -> Iterator[Node]:
    """The side of an `if` that applies, the `if` where it holds, and the schemas of dependent keys."""
    if part.condition is not None:
        test, then, other = part.condition
        work.look(value)
        holds = check.accepts_at(test, value)
        yield from (side for side in ((test, then) if holds else (other,)) if side is not None)
    if isinstance(value, dict):
        yield from (schema for key, schema in part.dependent.items() if key in value)


def _typed_rest(part: Node) -> bool:
    """Whether `additionalProperties` names a schema of its own, so that other keys are declared in kind."""
    return part.additional is not None and isinstance(part.additional.raw, dict) and bool(part.additional.raw)


def unknown_violation(path: Pointer, value: JsonValue, known: list[str], severity: Severity) -> Violation:
    """VAL-005 for one key; `known` are the keys its schema declares, sorted."""
    name = str(path[-1])
    meant = nearest(name, known[:LOOKED_AT])
    expected = "one of the fields " + ", ".join(f"'{cut(key, 60)}'" for key in known[:12]) if known else "no fields"
    hint = f"Did you mean '{cut(meant, 60)}'?" if meant is not None else "Leave it out."
    message = f"Unknown field '{shown_text(name, 60)}'"
    return Violation(codes.UNKNOWN_FIELD, path, message, expected, hint, severity, value)


def value_at(value: JsonValue, path: Pointer) -> JsonValue:
    """The value at a path, `ABSENT` where there is none."""
    for step in path:
        try:
            value = value[step]
        except (LookupError, TypeError):
            return ABSENT
    return value
