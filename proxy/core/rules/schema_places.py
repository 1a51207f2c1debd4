"""Places in a schema: which schemas judge the value at a path, and what a value's place is called.

The place of a value in its tool's schema is `/legs/*/from` for `/legs/3/from`. Counts go by these places, so clients
cannot invent new ones: an index of a list and a key that the schema does not declare are both `*`.
"""

from __future__ import annotations

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


def find_place(check: Check, path: Pointer) -> Pointer:
    """The place of a value in the schema, of at most 16 steps."""
    memo: dict[Pointer, Pointer] = check.schemas.memos.setdefault("places", {})
    if (known := memo.get(path)) is not None:
        return known
    nodes, work = [check.root], Work(_WORK)
    place: Pointer = ()
    for step in path[:_DEPTH]:
        parts = _parts(nodes)
        is_declared = isinstance(step, str) and any(step in part.properties for part in parts)
        place = (*place, step if is_declared else ANY)
        nodes = _members(parts, step, work)
    if place == path and len(memo) < _MOST_KNOWN:  # every step is declared: others are the client's own
        memo[path] = place
    return place


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
