"""What generated code calls: few functions, each with one meaning."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from decimal import Decimal
from typing import Any, Final, NamedTuple

from proxy.core.engine.equality import key, unique
from proxy.core.engine.judge import Refused
from proxy.core.engine.numbers import INEXACT, NUMBERS, integer_spelling, integral
from proxy.core.model import JsonValue, Pointer
from proxy.core.schema import Node

# Generated code calls itself a few frames for each level of the value. Values are at most 64 levels deep, but a
# schema may need many frames for one level; then, and only then, the interpreter's limit is lifted for the call.
# CPython 3.11 and later keep Python frames on the heap, so a high limit costs memory, never the process.
DEEP: Final = 100_000

# Branches of a union are reported down to this many unions within unions, and this many broken keywords per call:
# enough for any explanation, and a bound on what a hostile value can make us write.
MAX_UNION_DEPTH: Final = 4
MAX_IN_BRANCHES: Final = 1000

# Places of one union for which what its other branches miss is kept.
_KEPT: Final = 256


class BrokenKeyword(NamedTuple):
    """One keyword that a value breaks. `node` is the schema that holds it, `path` the place in the value.

    `detail` is what the keyword's message needs: the missing property, the unexpected keys or indexes, the key
    `propertyNames` refuses. `branches` holds, for a union, what each of its branches misses: nothing, where a branch
    is satisfied (`oneOf` with several); it is empty for a union that lies too deep to be told.

    (A named tuple, not a dataclass: a refused body makes many, and it is built in a quarter of the time.)
    """

    keyword: str
    path: Pointer
    node: Node
    detail: JsonValue = None
    branches: tuple[tuple[BrokenKeyword, ...], ...] = ()


# A broken keyword from its five parts, past the constructor's Python frame.
_new: Final[Callable[[type[BrokenKeyword], tuple[Any, ...]], BrokenKeyword]] = tuple.__new__

# Judges a value at one node: (value, state).
Judge = Callable[[JsonValue, "State"], bool]

# What a branch asks of the discriminator: the keyword, and the node that holds it.
Pinned = tuple[str, Node]

# Writes what one node finds broken: (value, path, out, state).
Reporter = Callable[[JsonValue, Pointer, list[BrokenKeyword], "State"], None]


class State(dict[Hashable, bool]):
    """The verdicts of one call by (function, id of the value), and what a report has seen and may still say."""

    __slots__ = ("budget", "depth", "seen")

    def __init__(self) -> None:
        self.seen: set[tuple[int, Pointer]] = set()
        self.depth = 0
        self.budget = MAX_IN_BRANCHES


def branches(
    value: JsonValue, path: Pointer, state: State, reports: tuple[Reporter, ...]
) -> tuple[tuple[BrokenKeyword, ...], ...]:
    """What each branch of a refused union misses, within the bounds above."""
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
    """What each branch of a union misses where the discriminator does not name it, by the place of the union.

    It is the same for every value, so it is kept for the places a call comes to again; `keeps` is False where a path
    may hold keys that the caller made up.
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


def chosen(
    value: JsonValue, path: Pointer, state: State, judge: Judge, report: Reporter, number: int, others: Others
) -> tuple[tuple[BrokenKeyword, ...], ...] | None:
    """The branches of a union whose discriminator names branch `number`; None where that branch takes the value."""
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
    """Runs an entry again with more room for frames; what does not fit into that either is refused."""
    limit = sys.getrecursionlimit()
    if limit >= DEEP:
        return refused
    sys.setrecursionlimit(DEEP)
    try:
        return function(value)
    finally:
        sys.setrecursionlimit(limit)


def refusal(error: Refused, value: JsonValue, node: Node) -> BrokenKeyword:
    """A pattern ran into its limit somewhere within a union or under `not`: which pattern, and at which place."""
    holder = next((inner for inner in _holders(node) if inner.get("pattern") == error.pattern), node)
    return BrokenKeyword("pattern", _place_of(error.text, value) or (), holder)


def _holders(node: Node) -> list[Node]:
    return list(node.schemas.nodes())


def _place_of(text: str, value: JsonValue) -> Pointer | None:
    """The path of this very string object in a value, as an item or as a key's object."""
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


def bounded(search: Callable[[str], bool], text: str) -> bool:
    """Searches with a pattern that may run into its limit, which counts as no match: for reports only."""
    try:
        return search(text)
    except Refused:
        return False


# The global names of generated code.
SPACE: Final[dict[str, Any]] = {
    "B": BrokenKeyword,
    "new": _new,
    "Decimal": Decimal,
    "INEXACT": INEXACT,
    "NUMBERS": NUMBERS,
    "integral": integral,
    "integer_spelling": integer_spelling,
    "key": key,
    "unique": unique,
    "State": State,
    "Refused": Refused,
    "branches": branches,
    "chosen": chosen,
    "deeper": deeper,
    "refusal": refusal,
    "bounded": bounded,
}
