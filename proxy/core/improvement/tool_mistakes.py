"""What models got wrong with one tool, as counted: places in the schema, codes, rules and names, never a value unless
the operator wants values seen (`tried`).

The place of a value in its tool's schema is `/legs/*/from` for `/legs/3/from`. Counts go by these places, so clients
cannot invent new ones: an index of a list and a key that the schema does not declare are both `*`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from proxy.core.check.validation import Check
from proxy.core.model.values import Pointer
from proxy.core.model.work import TooMuchWorkError, Work
from proxy.core.rules.facts import applies_always, list_member_schemas
from proxy.core.schema.nodes import Node

ANY: Final = "*"
_DEPTH: Final = 16
_WORK: Final = 2000
# Places that are remembered for one schema.
_MOST_KNOWN: Final = 1024


@dataclass(slots=True)
class CountedMistake:
    """One kind of mistake at one place: broken keywords of one code, or repairs by one rule (`code` is its name).

    `calls` had it, `alone` had nothing else against them. `right` of the `retried` calls were right at the next try.
    `last` in seconds since the epoch. `got` are types of what came, `shapes` and `tried` of texts.
    """

    place: Pointer
    code: str
    repaired: bool = False
    calls: int = 0
    alone: int = 0
    retried: int = 0
    right: int = 0
    last: float = 0.0
    expected: str = ""
    keyword: str = ""
    got: Counter[str] = field(default_factory=Counter)
    shapes: Counter[str] = field(default_factory=Counter)
    tried: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class InventedKey:
    """A key that models send and the schema does not declare: `parent` is the place of its object.

    `refused`: how many calls were refused for this key and nothing else. `instead` counts by required key that lacked
    beside it how many calls would be right if that key had this name.
    """

    parent: Pointer
    name: str
    calls: int = 0
    refused: int = 0
    last: float = 0.0
    beside: Counter[str] = field(default_factory=Counter)
    instead: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class ToolMistakes:
    """All that was counted of one tool. `calls` are all its calls, `would_refuse` those that a report-only route would
    have refused; `watched` is the number of seconds since counting began, `since_refusal` the number of seconds without
    a call that would have been refused. `mode`: enforce or report."""

    calls: int
    mistakes: tuple[CountedMistake, ...] = ()
    invented: tuple[InventedKey, ...] = ()
    mode: str = "enforce"
    would_refuse: int = 0
    since_refusal: float = 0.0


def find_place(check: Check, path: Pointer) -> Pointer:
    """The place of a value in the schema, of at most 16 steps."""
    memo: dict[Pointer, Pointer] = check.schemas.memos.setdefault("places", {})
    place = memo.get(path)
    if place is None:
        place = _look_up_place(check, path)
        if place == path and len(memo) < _MOST_KNOWN:  # every step is declared: others are the client's own
            memo[path] = place
    return place


def _look_up_place(check: Check, path: Pointer) -> Pointer:
    nodes, found, work = [check.root], list[str | int](), Work(_WORK)
    for step in path[:_DEPTH]:
        parts = _parts(nodes)
        known = isinstance(step, str) and any(step in part.properties for part in parts)
        found.append(step if known else ANY)
        nodes = _members(parts, step, work)
    return tuple(found)


def nodes_at(check: Check, path: Pointer) -> list[Node]:
    """The schemas that always judge the value at a path, those they refer to included; a `*` is any item of a list."""
    nodes, work = [check.root], Work(_WORK)
    for step in path[:_DEPTH]:
        nodes = _members(_parts(nodes), 0 if step == ANY else step, work)
    return _parts(nodes)


def _parts(nodes: list[Node]) -> list[Node]:
    """The nodes and what applies with them, through the branches of unions too: a key may be declared there."""
    found: dict[int, Node] = {}
    stack = list(nodes)
    while stack:
        for part in applies_always(stack.pop()):
            if id(part) not in found:
                found[id(part)] = part
                stack += [*part.any_of, *part.one_of]
    return list(found.values())


def _members(parts: list[Node], step: str | int, work: Work) -> list[Node]:
    try:
        return list_member_schemas(parts, step, work)
    except TooMuchWorkError:
        return []
