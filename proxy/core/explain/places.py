"""The places of a value and the schemas that judge them.

`find_nodes_at` gives the schemas that always judge a place, `find_possible_nodes` those of branches as well.
`walk_places` gives every place of a value with the schemas that judge it, branches that take it included.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from proxy.core.check.validation import Check
from proxy.core.model.values import ABSENT, JsonValue, Pointer
from proxy.core.model.work import Work
from proxy.core.schema.nodes import Node

_MOST_NODES: Final = 64
_MOST_KEPT: Final = 512


def find_nodes_at(check: Check, path: Pointer) -> list[Node]:
    """The schemas that always judge a place, none where nothing declares it."""
    nodes = list(check.root.always)
    for step in path:
        below = [child for node in nodes if (child := find_child(node, step)) is not None]
        nodes = [part for child in below for part in child.always]
    return nodes


def find_possible_nodes(check: Check, path: Pointer) -> list[Node]:
    """Every schema that may judge a place: those that always do, and those of branches and conditions. At most 64."""
    memo: dict[tuple[int, Pointer], list[Node]] = check.schemas.memos.setdefault("possible nodes", {})
    nodes = memo.get((id(check.root), path))
    if nodes is None:
        if not path:
            nodes = _with_branches([check.root])
        else:
            above = find_possible_nodes(check, path[:-1])
            nodes = _with_branches([child for node in above if (child := find_child(node, path[-1])) is not None])
        if nodes and len(memo) < _MOST_KEPT:  # places that no schema declares are not kept
            memo[id(check.root), path] = nodes
    return nodes


def _with_branches(nodes: Iterable[Node]) -> list[Node]:
    found: dict[int, Node] = {}
    queue = list(nodes)
    for node in queue:
        for part in node.always:
            if id(part) not in found and len(found) < _MOST_NODES:
                found[id(part)] = part
                sides = [side for side in (part.condition or ())[1:] if side is not None]
                queue += [*part.any_of, *part.one_of, *sides, *part.dependent.values()]
    return list(found.values())


def list_declared_at(check: Check, place: Pointer) -> dict[str, Node]:
    """The keys that some schema declares at a place, branches of unions included."""
    return {key: member for node in find_possible_nodes(check, place) for key, member in node.properties.items()}


def find_child(node: Node, step: str | int) -> Node | None:
    """The schema a node itself declares for a key or an item, or None."""
    if isinstance(step, int):
        return node.item(step)
    return node.properties.get(step)


def list_members(value: JsonValue) -> Iterable[tuple[str | int, JsonValue]]:
    """Returns the keys or indexes of an object or array with their values; nothing for any other value."""
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, list) else ()


def find_value(value: JsonValue, path: Pointer) -> JsonValue:
    """The value at a path, `ABSENT` where there is none."""
    for step in path:
        try:
            value = value[step]
        except (LookupError, TypeError):
            return ABSENT
    return value


def put_member(value: JsonValue, path: Pointer, member: JsonValue) -> JsonValue:
    """A value with a member at a path whose parents are objects or items that are there; otherwise the value itself."""
    if not path:
        return member
    step, rest = path[0], path[1:]
    if isinstance(value, dict) and isinstance(step, str) and (not rest or step in value):
        return {**value, step: put_member(value.get(step), rest, member)}
    if isinstance(value, list) and isinstance(step, int) and step < len(value):
        return [put_member(item, rest, member) if index == step else item for index, item in enumerate(value)]
    return value


def drop_member(value: JsonValue, path: Pointer) -> JsonValue:
    """A value without the member at a path; the value itself where there is none."""
    step, rest = path[0], path[1:]
    if isinstance(value, dict) and step in value:
        if not rest:
            return {key: item for key, item in value.items() if key != step}
        return {key: drop_member(item, rest) if key == step else item for key, item in value.items()}
    if isinstance(value, list) and isinstance(step, int) and step < len(value) and rest:
        return [drop_member(item, rest) if index == step else item for index, item in enumerate(value)]
    return value


def is_taken_at(check: Check, path: Pointer, value: JsonValue) -> bool:
    """Returns whether the schemas of a place accept a value there: without a declaration, one of the branches'."""
    if nodes := find_nodes_at(check, path):
        return all(check.accepts_at(node, value) for node in nodes)
    possible = find_possible_nodes(check, path)
    return not possible or any(check.accepts_at(node, value) for node in possible)


def walk_places(check: Check, value: JsonValue, work: Work) -> Iterator[tuple[Pointer, JsonValue, list[Node]]]:
    """Every judged place in a value, parents first, its value, all schemas that judge it. Raises TooMuchWorkError."""
    stack: list[tuple[tuple[Node, ...], JsonValue, Pointer]] = [((check.root,), value, ())]
    while stack:
        nodes, current, path = stack.pop()
        parts = list_alternatives(check, nodes, current, work)
        yield path, current, parts
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
    rests = [part.additional.raw for part in parts if part.additional is not None]
    # `additionalProperties` with a non-empty schema declares other keys in kind.
    if any(part.pattern_properties for part in parts) or any(isinstance(rest, dict) and rest for rest in rests):
        return set()
    return {key for part in parts for key in part.properties}


def list_alternatives(check: Check, nodes: Iterable[Node], value: JsonValue, work: Work) -> list[Node]:
    """The schemas that judge a value, with the branches of unions that take it, each once. Raises TooMuchWorkError."""
    found: dict[int, Node] = {}
    stack = list(nodes)
    while stack:
        for part in stack.pop().always:
            if id(part) in found:
                continue
            found[id(part)] = part
            branches = [*part.any_of, *part.one_of]
            if part.condition is not None:
                test, then, other = part.condition
                work.look(value)
                sides = (test, then) if check.accepts_at(test, value) else (other,)
                branches += [side for side in sides if side is not None]
            if isinstance(value, dict):
                branches += [schema for key, schema in part.dependent.items() if key in value]
            for branch in branches:
                work.look(value)
                if check.accepts_at(branch, value):
                    stack.append(branch)
    return list(found.values())
