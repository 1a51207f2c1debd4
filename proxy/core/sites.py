"""What a schema allows at one place, worked out once for each node: the facts the repair rules ask for.

A place is judged by every schema that applies to it at once: the node itself, what it refers to, its `allOf`, and
one branch of each union. `facts(node)` adds these up without looking at a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from proxy.core.jsontext import JSON_TYPES, json_type
from proxy.core.model import JsonValue
from proxy.core.proposals import Site
from proxy.core.rules import unknown_switches
from proxy.core.schema import Node, Schemas

_ALL: Final = frozenset(JSON_TYPES)


@dataclass(frozen=True, slots=True)
class Facts:
    """`site` is what the rules see; `allowed` are the rules `x-repair` leaves here and below (None: all)."""

    site: Site
    allowed: frozenset[str] | None


# A name in the plural, or words that tell of several values in one text.
_PLURAL: Final = re.compile(r"(?:[^s]s|List|_list)$")
_SEVERAL: Final = re.compile(
    r"separated|delimited|comma|semicolon|list of|multiple|several|分隔|分割|[|,;]-", re.IGNORECASE
)

_ANYTHING: Final = Facts(Site(_ALL, True, None), None)


def facts(node: Node) -> Facts:
    """The facts of a node; the same object each time."""
    memo: dict[int, Facts] = node.schemas.memos.setdefault("facts", {})
    return memo.get(id(node)) or _remembered(node, frozenset(), memo)


def mistaken_switches(schemas: Schemas) -> Iterator[tuple[Node, tuple[str, ...]]]:
    """Every schema whose `x-repair` names what is no rule, with those names: to be reported when a schema is loaded.

    Switches that name no rule switch nothing, so a typing error would leave a rule on (or off) that nobody meant.
    """
    for node in schemas.nodes():
        if node.has("x-repair") and (names := unknown_switches(node.get("x-repair"))):
            yield node, names


def applies_always(node: Node) -> Iterator[Node]:
    """The node and every node that judges the same value whatever it is: references and `allOf`, each once."""
    seen: set[int] = set()
    stack = [node]
    while stack:
        current = stack.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        stack.extend(reversed(current.all_of))
        if current.reference is not None:
            stack.append(current.reference)


# Unions within unions are looked through so deep; what is nested deeper is left to the judge.
_MAX_NEST: Final = 64


def _remembered(node: Node, above: frozenset[int], memo: dict[int, Facts]) -> Facts:
    """Each node is worked out once, so that unions of unions cost no more than their number. `above` are the nodes
    being worked out; a place defined by itself adds nothing."""
    if id(node) in above or len(above) > _MAX_NEST:
        return _ANYTHING
    known = memo.get(id(node))
    if known is None:
        known = memo[id(node)] = _work_out(node, above | {id(node)}, memo)
    return known


def _work_out(node: Node, above: frozenset[int], memo: dict[int, Facts]) -> Facts:
    types, free_text, choices, allowed = _ALL, True, None, None
    for part in applies_always(node):
        if id(part) in above and part is not node:
            continue
        for site in _sites_of(part, above, memo):
            types, free_text = types & site.types, free_text and site.free_text
            choices = site.choices if choices is None else choices
        switch = _switch(part)
        if switch is not None:
            allowed = switch if allowed is None else allowed & switch
    site = Site(types, free_text and "string" in types, choices)
    return Facts(replace(site, several=_several(node)), allowed)


def _several(node: Node) -> bool:
    """Whether a place holds several values in one text, as far as its name and description tell."""
    named = node.path[-1] if node.path[-2:-1] == ("properties",) else ""
    told = " ".join(str(node.get(keyword) or "") for keyword in ("title", "description"))
    return _PLURAL.search(str(named)) is not None or _SEVERAL.search(told) is not None


def _sites_of(part: Node, above: frozenset[int], memo: dict[int, Facts]) -> Iterator[Site]:
    """What each keyword of one schema allows."""
    if part.never:
        yield Site(frozenset(), False, None)
    if part.types is not None:
        yield Site(_widen(part.types), "string" in part.types, None)
    if part.choices is not None:
        yield Site(_widen(json_type(item) for item in part.choices), False, part.choices)
    for branches in (part.any_of, part.one_of):
        if branches:
            yield _either([_remembered(branch, above, memo).site for branch in branches])


def _either(sites: list[Site]) -> Site:
    listed = [choice for site in sites for choice in site.choices or ()]
    types = frozenset[str]().union(*(site.types for site in sites))
    choices: tuple[JsonValue, ...] | None = tuple(listed) if listed else None
    return Site(types, any(site.free_text for site in sites), choices)


def _widen(types: Iterable[str]) -> frozenset[str]:
    """JSON Schema's `number` takes integers too."""
    named = frozenset(types)
    return named | {"integer"} if "number" in named else named


def _switch(part: Node) -> frozenset[str] | None:
    """What `x-repair` beside a schema leaves on: `off` (or false) nothing, a list those rules."""
    written = part.get("x-repair")
    if written is None or written is True or written == "on":
        return None
    if isinstance(written, list):
        return frozenset(str(name) for name in written)
    return frozenset()
