"""Example arguments made from a schema, and always checked against it.

`make_minimal_example` is the smallest valid value of a schema, for docs, prompts and tests; examples for answers are
made in `advice.py`.

How it works. `_Maker.values` yields values for a place, best first, each built for every schema that judges the place;
the first one that all of them accept is used. Unions are entered branch by branch, `if` by its sides. The work is
bounded; where it ends, or a schema needs more than is tried here, there is no example (`ABSENT`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from proxy.core.check.validation import Check
from proxy.core.explain.scalarvalues import make_numbers, make_texts
from proxy.core.json.jsontext import LosslessFloat, are_equal
from proxy.core.model.values import ABSENT, JsonValue
from proxy.core.model.work import MAKING_EXAMPLE, TooMuchWorkError, Work
from proxy.core.rules.facts import applies_always, list_declared, list_member_schemas, list_required, read_facts
from proxy.core.schema.nodes import Node

_MAX_DEPTH: Final = 24
# Values tried for one place, and for the items of an array that must differ.
_MAX_TRIED: Final = 80
_MAX_ITEMS: Final = 200
# Numbers that show their type at a glance.
_TELLING: Final[dict[frozenset[str], tuple[JsonValue, ...]]] = {
    frozenset({"integer"}): (10, 3),
    frozenset({"integer", "number"}): (LosslessFloat(b"35.5"), LosslessFloat(b"0.5")),
}


def make_minimal_example(check: Check) -> JsonValue:
    """The smallest valid value of a schema that can be found, `ABSENT` without one. Deterministic; never raises."""
    maker = _Maker(check, Work(MAKING_EXAMPLE))
    try:
        value = maker.make((check.root,), 0, ())
    except (TooMuchWorkError, RecursionError):
        return ABSENT
    return value if value is ABSENT or check.accepts(value) else ABSENT


def make_full_example(check: Check, most: int) -> JsonValue:
    """A valid value that also shows up to `most` optional keys of the outermost object, and typical numbers. The
    smallest valid value where no more can be found, `ABSENT` where there is none. Deterministic; never raises."""
    smallest = make_minimal_example(check)
    if not isinstance(smallest, dict):
        return smallest
    shown: dict[str, JsonValue] = dict(smallest)
    maker = _Maker(check, Work(MAKING_EXAMPLE))
    try:
        parts = _parts((check.root,))
        keys = [key for part in parts for key in part.properties if key not in smallest][:most]
        for key in [*smallest, *keys]:
            for value in maker.list_typical(tuple(list_member_schemas(parts, key, maker.work)), shown.get(key, ABSENT)):
                if value is not ABSENT and check.accepts({**shown, key: value}):
                    shown[key] = value
                    break
    except (TooMuchWorkError, RecursionError):
        return smallest
    return shown


class _Maker:
    """Makes valid values. A place is given by all the schemas that judge it."""

    def __init__(self, check: Check, work: Work) -> None:
        self.check = check
        self.work = work

    def is_accepted(self, nodes: tuple[Node, ...], value: JsonValue) -> bool:
        self.work.look(value)
        return all(self.check.accepts_at(node, value) for node in nodes)

    def make(self, nodes: tuple[Node, ...], depth: int, avoid: tuple[JsonValue, ...]) -> JsonValue:
        """The first value that all schemas accept and that equals none of `avoid`; `ABSENT` where none is found."""
        self.work.spend(1 + len(nodes))
        for value in islice(self.values(nodes, depth), _MAX_TRIED + len(avoid)):
            fresh = not any(are_equal(value, other) for other in avoid)
            if fresh and self.is_accepted(nodes, value):
                return value
        return ABSENT

    def list_typical(self, nodes: tuple[Node, ...], known: JsonValue) -> Iterator[JsonValue]:
        """Values that show the type of a place at a glance: `0` could be any kind of number."""
        if not nodes:
            return
        parts, types = _parts(nodes), frozenset.intersection(*(read_facts(node).site.types for node in nodes))
        if not any(part.choices or part.get("examples") or part.has("default") for part in parts):
            yield from _TELLING.get(types, ())
        if types == {"array"} and (items := tuple(list_member_schemas(parts, 0, self.work))):
            item = self.make(items, 2, ())
            yield ABSENT if item is ABSENT else [item]
        if known is ABSENT and (value := self.make(nodes, 1, ())) not in ([], {}):
            yield value

    def values(self, nodes: tuple[Node, ...], depth: int) -> Iterator[JsonValue]:
        """Values for a place, best first; not all of them valid."""
        parts = _parts(nodes)
        types = frozenset.intersection(*(read_facts(node).site.types for node in nodes))
        for part in parts:
            yield from part.choices or ()
        if depth < _MAX_DEPTH:
            yield from self.inside(nodes, parts, depth)
        for part in parts:
            shown = part.get("examples")
            yield from (shown if isinstance(shown, list) else ())
            yield from ((part.get("default"),) if part.has("default") else ())
        if "string" in types:
            yield from make_texts(parts)
        if "integer" in types:
            yield from make_numbers(parts, fractions="number" in types)
        if "boolean" in types:
            yield from (False, True)
        if "object" in types and depth < _MAX_DEPTH:
            yield from self.objects(parts, depth)
        if "array" in types and depth < _MAX_DEPTH:
            yield from self.arrays(parts, depth)
        if "null" in types:
            yield None

    def inside(self, nodes: tuple[Node, ...], parts: list[Node], depth: int) -> Iterator[JsonValue]:
        """Values for one branch of a union, or one side of an `if`, that is not among the schemas yet."""
        known = {id(part) for part in parts}
        for part in parts:
            sides = [part.any_of, part.one_of]
            if part.condition is not None:
                test, then, other = part.condition
                sides.append(tuple(side for side in (test if then is None else then, other) if side is not None))
            for branches in sides:
                if not branches or any(id(branch) in known for branch in branches):
                    continue
                for branch in branches:
                    value = self.make((*nodes, branch), depth + 1, ())
                    if value is not ABSENT:
                        yield value

    # --- objects ----------------------------------------------------------------------------------------------------
    def objects(self, parts: list[Node], depth: int) -> Iterator[JsonValue]:
        """The object with its required keys; then with more keys, as far as `minProperties` requires."""
        least = max((n for part in parts if isinstance(n := part.get("minProperties"), int)), default=0)
        made: dict[str, JsonValue] = {}
        if not self.fill(made, parts, depth):
            return
        for key in sorted(list_declared(parts)):
            if len(made) >= least:
                break
            self.put(made, parts, key, depth)
        for number in range(1, _MAX_ITEMS):
            if len(made) >= least:
                break
            self.put(made, parts, self.name(parts, number, depth), depth)
        yield made

    def fill(self, made: dict[str, JsonValue], parts: list[Node], depth: int) -> bool:
        """Adds every required key, and those that added keys require in turn; False where one cannot be made."""
        for _ in range(_MAX_DEPTH):
            wanted = list_required(parts)
            for part in parts:
                dependencies = part.get("dependentRequired") or part.get("dependencies")
                for key, names in dependencies.items() if isinstance(dependencies, dict) else ():
                    wanted |= set(names) if key in made and isinstance(names, list) else set()
                parts = _parts((*parts, *(schema for key, schema in part.dependent.items() if key in made)))
            missing = sorted(wanted - made.keys())
            if not missing:
                return True
            if not all(self.put(made, parts, key, depth) for key in missing):
                return False
        return False

    def put(self, made: dict[str, JsonValue], parts: list[Node], key: str, depth: int) -> bool:
        schemas = tuple(list_member_schemas(parts, key, self.work))
        value = self.make(schemas, depth + 1, ()) if schemas else "..."
        if value is not ABSENT and key not in made:
            made[key] = value
        return value is not ABSENT

    def name(self, parts: list[Node], number: int, depth: int) -> str:
        """An undeclared key that `propertyNames` or a pattern accepts."""
        rules = tuple(rule for part in parts if (rule := part.inner("propertyNames")) is not None)
        if rules:
            taken = tuple(f"key{other}" for other in range(1, number))
            made = next(
                islice((v for v in self.values(rules, depth + 1) if isinstance(v, str)), number - 1, None), None
            )
            return made if made is not None and made not in taken else f"key{number}"
        patterns = [pattern for part in parts for pattern in part.pattern_properties]
        if patterns:
            found = list(make_texts((), tuple(patterns)))
            return found[(number - 1) % len(found)] if found else f"key{number}"
        return f"key{number}"

    # --- arrays -----------------------------------------------------------------------------------------------------
    def arrays(self, parts: list[Node], depth: int) -> Iterator[JsonValue]:
        """The array with as few items as the schemas allow; the items differ where they must."""
        least = max((n for part in parts if isinstance(n := part.get("minItems"), int)), default=0)
        holding = [(part, inner) for part in parts if (inner := part.inner("contains")) is not None]
        counts = [n if isinstance(n := part.get("minContains"), int) else 1 for part, _ in holding]
        differ = any(part.get("uniqueItems") is True for part in parts)
        made: list[JsonValue] = []
        for index in range(min(max([least, *counts]), _MAX_ITEMS)):
            extra = tuple(inner for (_, inner), n in zip(holding, counts, strict=True) if index < n)
            schemas = (*list_member_schemas(parts, index, self.work), *extra)
            item = self.make(schemas, depth + 1, tuple(made) if differ else ()) if schemas else index
            if item is ABSENT:
                return
            made.append(item)
        yield made


def _parts(nodes: tuple[Node, ...]) -> list[Node]:
    if len(nodes) == 1:
        return list(applies_always(nodes[0]))
    return list({id(part): part for node in nodes for part in applies_always(node)}.values())
