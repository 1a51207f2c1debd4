"""The value as a whole: keys under another name, in another place, inside a wrapper, or not declared at all.

Single keywords are worded by `explain.py`; what only shows when the value is seen whole is found here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from proxy.core.check.validation import Check
from proxy.core.display.graphemes import cut
from proxy.core.display.preview import clean_text
from proxy.core.display.suggestions import find_abbreviation, find_nearest, fold_name, is_same_name
from proxy.core.json.jsontext import format_pointer
from proxy.core.model import codes
from proxy.core.model.codes import Severity
from proxy.core.model.values import ABSENT, JsonValue, Pointer, Violation
from proxy.core.model.work import EXPLAINING, TooMuchWorkError, Work, borrow_work
from proxy.core.rules.facts import applies_always
from proxy.core.rules.rules import WRAPPER_KEYS
from proxy.core.schema.nodes import Node

# Names compared for a did-you-mean, missing keys that are paired, members searched for a misplaced key, length of a key
# worth comparing: an answer names the obvious, and has to stay quick for any body.
LOOKED_AT: Final = 200
_PAIRED: Final = 20
_SEARCHED: Final = 20_000
_NAMED: Final = 4
_LONGEST_NAME: Final = 100
_MAX_UNKNOWN: Final = 100
# Keywords that forbid keys which nothing declares.
_CLOSED: Final = frozenset({"additionalProperties", "unevaluatedProperties"})


def find_unknown_fields(check: Check, value: JsonValue, severity: Severity) -> Iterator[Violation]:
    """VAL-005 for every key no schema declares, where the schema itself would let it pass (`unknown_keys`).

    At most 100; a value too large to search has one of its own, at the root.
    """
    try:
        with borrow_work(EXPLAINING) as work:
            yield from islice(_unknown_at(check, value, severity, work), _MAX_UNKNOWN)
    except TooMuchWorkError:
        message = "The arguments are too large to be searched for unknown fields"
        yield Violation(codes.UNKNOWN_FIELD, (), message, hint="Send less in one call.", severity=severity)


def has_only_undeclared(check: Check, value: JsonValue) -> bool:
    """Whether a refused value would be accepted without the keys that its schemas do not declare and forbid."""
    names: dict[Pointer, frozenset[str]] = {}
    for broken in islice(check.list_broken(value), _MAX_UNKNOWN):
        detail = broken.detail
        if broken.keyword not in _CLOSED or not isinstance(detail, list):
            return False
        names[broken.path] = names.get(broken.path, frozenset()) | {key for key in detail if isinstance(key, str)}
    return bool(names) and check.accepts(_drop_keys(value, (), names))


def _drop_keys(value: JsonValue, path: Pointer, names: Mapping[Pointer, frozenset[str]]) -> JsonValue:
    """The value without the named keys of the objects at some paths."""
    if isinstance(value, dict):
        gone = names.get(path, frozenset())
        return {key: _drop_keys(item, (*path, key), names) for key, item in value.items() if key not in gone}
    if isinstance(value, list):
        return [_drop_keys(item, (*path, index), names) for index, item in enumerate(value)]
    return value


def relate_fields(check: Check, root: JsonValue, found: list[Violation]) -> Iterator[Violation]:
    """Pairs missing keys with the unknown ones that were meant; says where a misplaced key stands."""
    wrapper = _wrapper(check, root)
    missing = list({v.path: v for v in found if v.code is codes.REQUIRED_MISSING}.values())
    if not wrapper and not missing:
        yield from found
        return
    places = _places_of(root, {str(violation.path[-1]) for violation in missing})
    taken: set[Pointer] = set()
    renamed: dict[Pointer, Violation] = {}
    candidates = _open_pairings(check, root, _candidates(check, root, missing[:_PAIRED]))
    claimed = [path for paths in candidates.values() for path in paths]
    undecided = {path for paths in candidates.values() for path in paths if len(paths) > 1 or claimed.count(path) > 1}
    for violation in missing[:_PAIRED]:
        hint, source = _find_meant(check, root, violation, places, candidates)
        if hint:
            renamed[violation.path] = replace(violation, hint=hint)
            if violation.severity is Severity.ERROR:  # an error must not vanish behind a warning
                taken.add(source)
    for violation in found:
        if violation.code is codes.UNKNOWN_FIELD and violation.path in taken:
            continue
        if violation.code is codes.UNKNOWN_FIELD and violation.path in undecided:
            wanted = [key for key, paths in candidates.items() if violation.path in paths]
            names = ", ".join(f"'{cut(str(key[-1]), 60)}'" for key in wanted[:_NAMED])
            which = f"which of {names} it stands for, if any" if len(wanted) > 1 else f"whether it stands for {names}"
            yield replace(violation, hint=f"Its meaning decides {which}.")
            continue
        if wrapper and len(violation.path) == 1:
            yield replace(violation, hint=wrapper)
            continue
        yield renamed.get(violation.path, violation) if violation.code is codes.REQUIRED_MISSING else violation


def _find_meant(
    check: Check,
    root: JsonValue,
    missing: Violation,
    places: Mapping[str, list[Pointer]],
    candidates: Mapping[Pointer, list[Pointer]],
) -> tuple[str, Pointer]:
    """What was sent in place of a missing key, and where: beside it under another name, or elsewhere under its own.

    A rename is advised where no other pairing is possible, the names are the same but for case, separators and plural,
    and the value is accepted there; else what may have been meant is named, and whoever called decides.
    """
    place, name = missing.path[:-1], cut(str(missing.path[-1]), 60)
    close = candidates[missing.path]
    if len(close) == 1 and sum(close[0] in others for others in candidates.values()) == 1:
        sent = cut(format_pointer(close[0]), 120)
        known = f"You sent '{sent}', which this tool does not know"
        takes = _takes(check, missing.path, find_value(root, close[0]))
        if takes and is_same_name(str(close[0][-1]), str(missing.path[-1])):
            return f"{known}: rename it to '{name}'.", close[0]
        how = "rename it" if takes else "send it so, with a value as expected"
        return f"{known}: if you meant '{name}', {how}; if not, leave it out.", close[0]
    if close:
        shown = ", ".join(f"'{cut(format_pointer(path), 120)}'" for path in close[:_NAMED])
        return f"You sent {shown}, which this tool does not know: if one of them means '{name}', rename that one.", ()
    elsewhere = [path for path in places.get(str(missing.path[-1]), ()) if path[:-1] != place]
    if len(elsewhere) == 1 and _takes(check, missing.path, find_value(root, elsewhere[0])):
        sent, target = cut(format_pointer(elsewhere[0]), 120), cut(format_pointer(missing.path), 120)
        return f"It was sent at '{sent}': move it to '{target}'.", elsewhere[0]
    return "", ()


def find_renames(check: Check, root: JsonValue, found: Iterable[Violation]) -> dict[Pointer, Pointer]:
    """Where the value of a missing key stands, under another name beside it or elsewhere under its own: the place of
    each such key -> the place of its value, which is accepted there."""
    missing = [violation for violation in found if violation.code is codes.REQUIRED_MISSING and violation.hint]
    missing = [violation for violation in missing if violation.path][:_PAIRED]
    if not missing:
        return {}
    places = _places_of(root, {str(violation.path[-1]) for violation in missing})
    candidates = _open_pairings(check, root, _candidates(check, root, missing))
    pairs = {violation.path: _find_meant(check, root, violation, places, candidates)[1] for violation in missing}
    return {path: source for path, source in pairs.items() if source and _takes(check, path, find_value(root, source))}


def _takes(check: Check, path: Pointer, value: JsonValue) -> bool:
    """Whether the schemas of a place accept a value there."""
    return all(check.accepts_at(node, value) for node in find_nodes_at(check, path))


def hinted_places(check: Check, root: JsonValue, found: Iterable[Violation]) -> Iterator[Pointer]:
    """The places beside those of the violations themselves that a model has to touch to do what their hints say:
    undeclared keys beside a missing one, the place where a missing key was sent, the declared name of an undeclared
    key, and all arguments where they stand in a wrapper."""
    if _wrapper(check, root):
        yield ()
    found = list(islice(found, _MAX_UNKNOWN))
    missing = {v.path: v for v in found if v.code is codes.REQUIRED_MISSING and v.path}
    sent = _places_of(root, {str(path[-1]) for path in missing})
    for path in missing:
        yield from ((*path[:-1], key) for key in _unknown_beside(check, root, path[:-1]))
        elsewhere = [place for place in sent[str(path[-1])] if place != path]
        yield from elsewhere if len(elsewhere) == 1 else ()
    for violation in found:
        if violation.code is codes.UNKNOWN_FIELD and violation.path:
            yield violation.path
            declared = {key for node in find_nodes_at(check, violation.path[:-1]) for key in node.properties}
            meant = find_nearest(str(violation.path[-1]), sorted(declared)[:LOOKED_AT])
            yield from () if meant is None else ((*violation.path[:-1], meant),)


def _open_pairings(
    check: Check, root: JsonValue, candidates: dict[Pointer, list[Pointer]]
) -> dict[Pointer, list[Pointer]]:
    """The candidates, where a pairing is open widened to every unknown key that no other missing key has for sure."""
    sure = {
        paths[0]
        for paths in candidates.values()
        if len(paths) == 1 and sum(paths[0] in others for others in candidates.values()) == 1
    }
    unsure = [path for path, paths in candidates.items() if paths and not (len(paths) == 1 and paths[0] in sure)]
    if not unsure:
        return candidates
    widened = dict(candidates)
    for path in candidates:
        if any(path[:-1] == other[:-1] for other in unsure) and not sure.intersection(candidates[path]):
            unknown = [(*path[:-1], key) for key in _unknown_beside(check, root, path[:-1])]
            widened[path] = [place for place in unknown if place not in sure]
    return widened


def _unknown_beside(check: Check, root: JsonValue, place: Pointer) -> list[str]:
    """The keys sent at a place that its schemas do not declare."""
    beside = find_value(root, place)
    if not isinstance(beside, dict):
        return []
    declared = {key for node in find_nodes_at(check, place) for key in node.properties}
    return list(islice((key for key in beside if key not in declared and len(key) <= _LONGEST_NAME), LOOKED_AT))


def _candidates(check: Check, root: JsonValue, missing: list[Violation]) -> dict[Pointer, list[Pointer]]:
    """For each missing key the unknown keys beside it that may have been meant. A name that equals it but for case and
    separators is the only one; a short form (`lat` for `latitude`) and a likeness are not weighed against each
    other."""
    found: dict[Pointer, list[Pointer]] = {}
    for violation in missing:
        place, name = violation.path[:-1], str(violation.path[-1])
        unknown = _unknown_beside(check, root, place)
        close = [key for key in unknown if find_nearest(name, [key]) or find_abbreviation(name, [key])]
        same = [key for key in close if fold_name(key) == fold_name(name)]
        found[violation.path] = [(*place, key) for key in (same if len(same) == 1 else close)]
    return found


def find_nodes_at(check: Check, path: Pointer) -> list[Node]:
    """The schemas that always judge a place, none where nothing declares it."""
    nodes = list(applies_always(check.root))
    for step in path:
        below = [child for node in nodes if (child := find_child(node, step)) is not None]
        nodes = [part for child in below for part in applies_always(child)]
    return nodes


def find_child(node: Node, step: str | int) -> Node | None:
    """The schema a node itself declares for a key or an item, or None."""
    if isinstance(step, int):
        return node.item(step)
    return node.properties.get(step)


def list_members(value: JsonValue) -> Iterable[tuple[str | int, JsonValue]]:
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
        for step, member in islice(list_members(value), left):
            left -= 1
            if isinstance(step, str) and step in names and len(found[step]) < 3:
                found[step].append((*path, step))
            if isinstance(member, dict | list):
                stack.append((member, (*path, step)))
    return found


def _wrapper(check: Check, root: JsonValue) -> str:
    """A hint where the arguments stand inside a wrapper key, or several calls inside one, or are a schema."""
    if not isinstance(root, dict):
        return ""
    if _is_schema(check, root):
        return "You sent the tool's schema: send values, each under its name."
    if len(root) != 1:
        return ""
    ((key, inner),) = root.items()
    declared = {name for node in applies_always(check.root) for name in node.properties}
    if key in declared:
        return ""
    key = clean_text(key, 60)
    if isinstance(inner, dict) and declared & inner.keys():
        if key.lower() in WRAPPER_KEYS:
            return f"The arguments stand inside '{key}': send its content itself as the arguments, without '{key}'."
        return (
            f"If '{key}' only wraps the arguments, send its content itself as the arguments."
            if inner.keys() <= declared
            else ""
        )
    if isinstance(inner, list) and any(
        isinstance(item, dict) and {"parameters", "arguments"} & item.keys() for item in inner
    ):
        return f"'{key}' seems to hold several calls: make one call of this tool for each, with its arguments alone."
    return ""


def _is_schema(check: Check, root: dict[str, JsonValue]) -> bool:
    """Whether the arguments are the tool's own schema, which some models repeat in place of a call."""
    declared = {name for node in applies_always(check.root) for name in node.properties}
    properties = root.get("properties")
    if "properties" in declared or not isinstance(properties, dict) or declared.isdisjoint(properties):
        return False
    return all(
        isinstance(item, dict) and not {"type", "enum", "anyOf", "description", "$ref"}.isdisjoint(item)
        for item in properties.values()
    )


def _unknown_at(check: Check, value: JsonValue, severity: Severity, work: Work) -> Iterator[Violation]:
    """Undeclared keys; a place whose schema declares no key at all takes any. Raises TooMuchWorkError."""
    for place in walk_places(check, value, work):
        if isinstance(place.value, dict) and (known := list_declared_keys(place.parts)):
            unknown = [key for key in place.value if key not in known]
            names = sorted(known) if unknown else []
            yield from (
                make_unknown_violation((*place.path, key), place.value[key], names, severity) for key in unknown
            )


@dataclass(frozen=True, slots=True)
class Place:
    """One place in a value with every schema that judges it."""

    path: Pointer
    value: JsonValue
    parts: list[Node]


def walk_places(check: Check, value: JsonValue, work: Work) -> Iterator[Place]:
    """Every place in a value that a schema judges, parents first. Raises TooMuchWorkError."""
    stack: list[tuple[tuple[Node, ...], JsonValue, Pointer]] = [((check.root,), value, ())]
    while stack:
        nodes, current, path = stack.pop()
        parts = list_alternatives(check, nodes, current, work)
        yield Place(path, current, parts)
        below = []
        for step, member in list_members(current):
            work.spend(1 + len(parts))
            children = tuple({id(child): child for part in parts if (child := find_child(part, step))}.values())
            if children:
                below.append((children, member, (*path, step)))
        stack.extend(reversed(below))


def list_declared_keys(parts: Iterable[Node]) -> set[str]:
    """The keys an object may have, empty where the schemas leave it open on purpose: no key declared at all, patterns,
    or a schema for every other key."""
    parts = list(parts)
    if any(part.pattern_properties or _typed_rest(part) for part in parts):
        return set()
    return {key for part in parts for key in part.properties}


def list_alternatives(check: Check, nodes: Iterable[Node], value: JsonValue, work: Work) -> list[Node]:
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


def make_unknown_violation(path: Pointer, value: JsonValue, known: list[str], severity: Severity) -> Violation:
    """VAL-005 for one key; `known` are the keys its schema declares, sorted."""
    name = str(path[-1])
    meant = find_nearest(name, known[:LOOKED_AT])
    expected = "one of the fields " + ", ".join(f"'{cut(key, 60)}'" for key in known[:12]) if known else "no fields"
    hint = f"Did you mean '{cut(meant, 60)}'?" if meant is not None else "Leave it out."
    message = f"Unknown field '{clean_text(name, 60)}'"
    return Violation(codes.UNKNOWN_FIELD, path, message, expected, hint, severity, value)


def find_value(value: JsonValue, path: Pointer) -> JsonValue:
    """The value at a path, `ABSENT` where there is none."""
    for step in path:
        try:
            value = value[step]
        except (LookupError, TypeError):
            return ABSENT
    return value
