"""Finds the schemas that judge one member of an object or array, and the keys that an object's schemas declare."""

from __future__ import annotations

from collections.abc import Iterable

from proxy.core.model.work import TooMuchWorkError, Work
from proxy.core.schema.matching import SearchGivenUp, make_matcher
from proxy.core.schema.nodes import Node


def list_member_schemas(nodes: Iterable[Node], step: str | int, work: Work) -> list[Node]:
    """The schemas of one member, each once: by name, by pattern, else `additionalProperties`; by position for arrays.

    A key that no schema names is judged by `unevaluatedProperties`, unless a union might name it. Raises
    TooMuchWorkError.
    """
    nodes = nodes if isinstance(nodes, tuple) else tuple(nodes)
    work.spend(1 + len(nodes))
    if len(nodes) == 1:
        node = nodes[0]
        if isinstance(step, str) and not node.pattern_properties and step in node.properties:
            return [node.properties[step]]
        if named := _list_named(node, step, work):
            return named
    found: dict[int, Node] = {}
    for node in nodes:
        for schema in _list_named(node, step, work):
            found.setdefault(id(schema), schema)
    if not found and isinstance(step, str) and not any(node.any_of or node.one_of for node in nodes):
        rest = [node.unevaluated for node in nodes if node.unevaluated is not None and not node.unevaluated.never]
        found.update((id(schema), schema) for schema in rest)
    return list(found.values())


def _list_named(node: Node, step: str | int, work: Work) -> list[Node]:
    if isinstance(step, int):
        member = node.item(step)
        return [] if member is None else [member]
    named = [node.properties[step]] if step in node.properties else []
    if node.pattern_properties:
        named += [schema for pattern, schema in node.pattern_properties.items() if is_match(pattern, step, work)]
    if not named and node.additional is not None and not node.additional.never:
        return [node.additional]
    return named


def is_patterned(nodes: Iterable[Node], key: str, work: Work) -> bool:
    """Whether a pattern of `patternProperties` matches the key. Raises TooMuchWorkError."""
    return any(is_match(pattern, key, work) for node in nodes for pattern in node.pattern_properties)


def is_match(pattern: str, key: str, work: Work) -> bool:
    """Whether an ECMA-262 pattern is found in a key, by the matcher that also judges. Raises TooMuchWorkError, also
    where a pattern runs into its own limit: a value without a verdict is not repaired."""
    work.spend(4 + len(key) // 100)
    try:
        return make_matcher(pattern).search(key)
    except SearchGivenUp:
        raise TooMuchWorkError from None


def list_declared(nodes: Iterable[Node]) -> set[str]:
    """The keys that schemas declare by name."""
    return {key for node in nodes for key in node.properties}


def list_required(nodes: Iterable[Node]) -> set[str]:
    """The keys that schemas require."""
    return {key for node in nodes for key in node.required}
