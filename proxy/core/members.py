"""Which schemas judge one member of an object or array, and which keys an object's schemas know."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

from proxy.core.engine.judge import Refused, pattern_matcher
from proxy.core.schema import Node, SchemaError
from proxy.core.work import TooMuchWorkError, Work

# A catalogue of tools repeats its few patterns.
_MATCHERS: Final = 4096


def schemas_of(nodes: Iterable[Node], step: str | int, work: Work) -> list[Node]:
    """The schemas of one member, each once: by name, by pattern, else `additionalProperties`; by position for arrays.

    Where no schema names the key, `unevaluatedProperties` has the word, unless a union might name it. Raises
    TooMuchWorkError.
    """
    nodes = tuple(nodes)
    work.spend(1 + len(nodes))
    if len(nodes) == 1 and (named := _named(nodes[0], step, work)):
        return named
    found: dict[int, Node] = {}
    for node in nodes:
        for schema in _named(node, step, work):
            found.setdefault(id(schema), schema)
    if not found and isinstance(step, str) and not any(node.any_of or node.one_of for node in nodes):
        rest = [node.unevaluated for node in nodes if node.unevaluated is not None and not node.unevaluated.never]
        found.update((id(schema), schema) for schema in rest)
    return list(found.values())


def _named(node: Node, step: str | int, work: Work) -> list[Node]:
    if isinstance(step, int):
        member = node.item(step)
        return [] if member is None else [member]
    named = [node.properties[step]] if step in node.properties else []
    named += [schema for pattern, schema in node.pattern_properties.items() if matches(pattern, step, work)]
    if not named and node.additional is not None and not node.additional.never:
        return [node.additional]
    return named


def patterned(nodes: Iterable[Node], key: str, work: Work) -> bool:
    """Whether a pattern of `patternProperties` names the key. Raises TooMuchWorkError."""
    return any(matches(pattern, key, work) for node in nodes for pattern in node.pattern_properties)


def matches(pattern: str, key: str, work: Work) -> bool:
    """Whether an ECMA-262 pattern is found in a key, by the matcher that judges. Raises TooMuchWorkError, also where
    a pattern ran into its own limit: what the judge cannot tell is not repaired."""
    work.spend(4 + len(key) // 100)
    search = _matcher(pattern)
    try:
        return search is not None and search(key)
    except Refused:
        raise TooMuchWorkError from None


@lru_cache(maxsize=_MATCHERS)
def _matcher(pattern: str) -> Callable[[str], bool] | None:
    try:
        return pattern_matcher(pattern)[0]
    except SchemaError:
        return None


def declared(nodes: Iterable[Node]) -> set[str]:
    """The keys that schemas declare by name."""
    return {key for node in nodes for key in node.properties}


def required(nodes: Iterable[Node]) -> set[str]:
    """The keys that schemas ask for."""
    return {key for node in nodes for key in node.required}
