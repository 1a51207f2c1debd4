"""The few functions that generated code calls, each with one meaning."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from decimal import Decimal
from typing import Any, Final, NamedTuple

from proxy.core.check.equality import are_unique, make_equality_key
from proxy.core.check.numbers import INEXACT, NUMBERS, is_integral_number, is_spelled_as_integer
from proxy.core.model.values import JsonValue, Pointer
from proxy.core.model.work import REPORTING_BRANCHES
from proxy.core.schema.matching import SearchGivenUp, search_for_report
from proxy.core.schema.nodes import Node

# Generated code uses a few Python frames for each level of the value. Values are at most 64 levels deep, but a schema
# may need many frames for one level; only then is the interpreter's limit raised for the call. CPython 3.11 and later
# keep Python frames on the heap, so a high limit costs memory and cannot crash the process.
DEEP: Final = 100_000

# Branches of a union are reported for this many nested unions, and `REPORTING_BRANCHES` broken keywords per call. That
# is enough for any explanation, and bounds the report on a hostile value.
MAX_UNION_DEPTH: Final = 4

# The number of places of one union for which the violations of its other branches are kept.
_KEPT: Final = 256


class BrokenKeyword(NamedTuple):
    """One keyword that a value breaks. `node` is the schema that holds it, `path` the place in the value.

    `detail` is what the keyword's message needs: the missing property, the unexpected keys or indexes, the key that
    `propertyNames` refuses. `branches` holds, for a union, the broken keywords of each branch: none for a satisfied
    branch (`oneOf` with several of them). It is empty for a union that lies too deep to be reported.

    (This is a named tuple, because a refused body makes many, and a dataclass takes four times as long to build.)
    """

    keyword: str
    path: Pointer
    node: Node
    detail: JsonValue = None
    branches: tuple[tuple[BrokenKeyword, ...], ...] = ()


# Builds a broken keyword from its five parts, without the Python frame of the constructor.
_new: Final[Callable[[type[BrokenKeyword], tuple[Any, ...]], BrokenKeyword]] = tuple.__new__

# Judges a value at one node: (value, state).
Judge = Callable[[JsonValue, "State"], bool]

# A branch's requirement on the discriminator: the keyword, and the node that holds it.
Pinned = tuple[str, Node]

# Reports the keywords that a value breaks at one node: (value, path, out, state).
Reporter = Callable[[JsonValue, Pointer, list[BrokenKeyword], "State"], None]


class State(dict[Hashable, bool]):
    """The verdicts of one call by (function, id of the value), and the progress of a report."""

    __slots__ = ("budget", "depth", "seen")

    def __init__(self) -> None:
        self.seen: set[tuple[int, Pointer]] = set()
        self.depth = 0
        self.budget = REPORTING_BRANCHES


def branches(
    value: JsonValue, path: Pointer, state: State, reports: tuple[Reporter, ...]
) -> tuple[tuple[BrokenKeyword, ...], ...]:
    """The broken keywords of each branch of a refused union, within the bounds above."""
    if state.depth >= MAX_UNION_DEPTH or state.budget <= 0:
        return ()
    seen, state.depth = state.seen, state.depth + 1
    made = []
    for report in reports:
        found: list[BrokenKeyword] = []
        state.seen = set()
        report(value, path, found, state)
        state.budget -= len(found)
        made.append(tuple(found))
    state.seen, state.depth = seen, state.depth - 1
    return tuple(made)


class Others(dict[Pointer, tuple[tuple[BrokenKeyword, ...], ...]]):
    """The broken keywords of each branch of a union that the discriminator does not name, by the place of the union.

    They are the same for every value, so they are kept for places that a call visits again; `keeps` is False where a
    path may hold keys that the caller made up.
    """

    __slots__ = ("keeps", "key", "pins")

    def __init__(self, key: str, pins: tuple[Pinned, ...], *, keeps: bool) -> None:
        self.key = key
        self.pins = pins
        self.keeps = keeps

    def __missing__(self, path: Pointer) -> tuple[tuple[BrokenKeyword, ...], ...]:
        there = (*path, self.key)
        made = tuple((_new(BrokenKeyword, (keyword, there, node, None, ())),) for keyword, node in self.pins)
        if self.keeps and len(self) < _KEPT:
            self[path] = made
        return made


def choose_branch(
    value: JsonValue, path: Pointer, state: State, judge: Judge, report: Reporter, number: int, others: Others
) -> tuple[tuple[BrokenKeyword, ...], ...] | None:
    """The branches of a union whose discriminator names branch `number`; None where that branch accepts the value."""
    if state.depth >= MAX_UNION_DEPTH or state.budget <= 0:
        return None if judge(value, state) else ()
    found: list[BrokenKeyword] = []
    seen, state.seen = state.seen, set()
    state.depth += 1
    report(value, path, found, state)
    state.seen = seen
    state.depth -= 1
    if not found:
        return None
    state.budget -= len(found)
    made = list(others[path])
    made[number] = tuple(found)
    return tuple(made)


def deeper(function: Callable[[JsonValue], Any], value: JsonValue, refused: Any) -> Any:
    """Runs an entry again with a higher recursion limit; a value that exceeds this limit too is refused."""
    limit = sys.getrecursionlimit()
    if limit >= DEEP:
        return refused
    sys.setrecursionlimit(DEEP)
    try:
        return function(value)
    finally:
        sys.setrecursionlimit(limit)


def refusal(error: SearchGivenUp, value: JsonValue, node: Node) -> BrokenKeyword:
    """The broken keyword for a pattern that ran into its limit within a union or under `not`, with its place."""
    holder = next((inner for inner in _holders(node) if inner.get("pattern") == error.pattern), node)
    return BrokenKeyword("pattern", _place_of(error.text, value) or (), holder)


def _holders(node: Node) -> list[Node]:
    return list(node.schemas.nodes())


def _place_of(text: str, value: JsonValue) -> Pointer | None:
    """The path of this very string object in a value, as an item or as a key."""
    stack: list[tuple[JsonValue, Pointer]] = [(value, ())]
    while stack:
        current, path = stack.pop()
        if current is text:
            return path
        if type(current) is dict:
            if any(name is text for name in current):
                return path
            stack.extend((item, (*path, name)) for name, item in current.items())
        elif type(current) is list:
            stack.extend((item, (*path, index)) for index, item in enumerate(current))
    return None


# The global names of generated code.
SPACE: Final[dict[str, Any]] = {
    "B": BrokenKeyword,
    "new": _new,
    "Decimal": Decimal,
    "INEXACT": INEXACT,
    "NUMBERS": NUMBERS,
    "integral": is_integral_number,
    "integer_spelling": is_spelled_as_integer,
    "key": make_equality_key,
    "unique": are_unique,
    "State": State,
    "Refused": SearchGivenUp,
    "branches": branches,
    "choose_branch": choose_branch,
    "deeper": deeper,
    "refusal": refusal,
    "bounded": search_for_report,
}
