"""Links generated functions: one namespace per schema, functions added when they are first needed.

Each node may have four functions: `a` judges a value (`a(v, m) -> bool`), `r` reports broken keywords
(`r(v, p, out, m)`), `k` and `i` collect the keys and indexes that `unevaluated*` must ignore. `A` and `R` are the
entries, which take only a value. `m` remembers verdicts (`State`), `p` is the path to the value. Writing a function
asks for the functions it calls, so one link writes everything that a node needs, once. Little is compiled at a time:
CPython lets no other thread run while it compiles a text, and a large schema is written while calls are served. Behind
`Program` are the few functions that generated code calls; `SPACE` gives their global names.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable, Mapping
from decimal import Decimal
from threading import RLock
from typing import Any, Final, NamedTuple

from proxy.core.check.graph import Graph, Pin
from proxy.core.check.numbers import INEXACT, NUMBERS, are_unique, is_spelled_as_integer, make_equality_key
from proxy.core.json.jsontext import dumps, is_integral_number
from proxy.core.model.values import JsonValue, Pointer
from proxy.core.model.work import REPORTING_BRANCHES
from proxy.core.schema.drafts import Draft
from proxy.core.schema.formats import KEYWORD, Formats
from proxy.core.schema.matching import SearchGivenUp, make_matcher, match_any, search_for_report
from proxy.core.schema.nodes import Node

# Writes one function: (program, kind, node) -> its source. The caller provides it, so the linker knows no keyword.
FunctionWriter = Callable[["Program", str, Node], str]

# Characters of code compiled together: a single function costs more, and much more keeps other threads waiting.
_TOGETHER: Final = 8_000

# Keywords that judge nothing.
_SAYING: Final = frozenset(["title", "description", "default", "examples", "example", "deprecated"])
# The most nodes of a schema that is compared with others.
_COMPARED: Final = 500
# From this number of patterns on, one search for all of them comes first, because most keys match none.
_SEVERAL: Final = 3


class Program:
    """The generated code of one schema."""

    def __init__(self, graph: Graph, write: FunctionWriter, *, formats: Formats) -> None:
        self.graph = graph
        self.formats = formats
        self._write = write
        self._lock = RLock()
        self._names: dict[Node, int] = {}
        self._constants: dict[Hashable, str] = {}
        self._written: set[tuple[str, Node]] = set()
        self._pending: list[tuple[str, Node]] = []
        self._tables: list[tuple[str, str]] = []
        self._sources: dict[tuple[str, Hashable], str] = {}
        self._space: dict[str, Any] = dict(SPACE)
        self._alike: dict[tuple[Draft, bytes], Node] = {}

    def entry(self, kind: str, node: Node) -> Callable[[JsonValue], Any]:
        """The function of a node, linked with all it calls."""
        with self._lock:
            written = set(self._written)
            name = self.call(kind, node)
            try:
                self._link()
            except BaseException:  # a half-written function is written again on the next request
                self._written, self._pending, self._tables = written, [], []
                raise
            function: Callable[[JsonValue], Any] = self._space[name]
            return function

    def call(self, kind: str, node: Node) -> str:
        """The name of a node's function, which exists once the link is complete."""
        if kind in "aA":  # it judges, and does not say by which node
            node = self._find_alike(node)
        number = self._names.setdefault(node, len(self._names))
        if (kind, node) not in self._written:
            self._written.add((kind, node))
            self._pending.append((kind, node))
        return f"{kind}{number}"

    def _find_alike(self, node: Node) -> Node:
        """Returns the first node that judges as this one does, and refers to nothing. Large schemas repeat
        `{type: integer}` thousands of times, and a function costs as much to write as a hundred verdicts. (Reports name
        their node.)"""
        if not isinstance(node.raw, dict) or self.graph.size(node) > _COMPARED:
            return node
        encoded = dumps({keyword: value for keyword, value in node.keywords.items() if keyword not in _SAYING})
        if b'"$' in encoded:
            return node
        return self._alike.setdefault((node.draft, encoded), node)

    def constant(self, prefix: str, value: object, key: Hashable = None) -> str:
        """A global name for a value; `key` distinguishes values that must not be shared by identity."""
        identity = (prefix, key if key is not None else id(value))
        name = self._constants.setdefault(identity, f"{prefix}_{len(self._constants)}")
        self._space.setdefault(name, value)
        return name

    def table(self, kind: str, nodes: Mapping[str, Node]) -> str:
        """The global name of a dict from keys to the functions of their nodes. A report is written on its first use."""
        if kind == "r":
            return self.constant("table", _Reports(self, nodes), (kind, *nodes.items()))
        name = self.constant("table", {}, (kind, *nodes.items()))
        entries = "".join(f"    {key!r}: {self.call(kind, node)},\n" for key, node in nodes.items())
        self._tables.append((name, f"{name}.update({{\n{entries}}})\n"))
        return name

    def pattern(self, pattern: str) -> tuple[str, bool]:
        """The name of a function that searches for a pattern, and whether it is linear."""
        matcher = make_matcher(pattern)
        return self.constant("match", matcher.search, pattern), matcher.linear

    def any_pattern(self, patterns: Iterable[str]) -> str | None:
        """The name of a function that says whether any of several patterns matches; None if that would not be
        faster."""
        wanted = tuple(patterns)
        search = match_any(wanted) if len(wanted) >= _SEVERAL else None
        return None if search is None else self.constant("either", search, ("either", *wanted))

    def format(self, name: str, node: Node) -> str | None:
        """Returns the name of a function that checks a format, or None if it is an annotation."""
        mode = self.formats.mode(name, node.get(KEYWORD))
        check = self.formats.check(name, node.draft, mode)
        return None if check is None else self.constant("format", check, (name, node.draft, mode))

    def _link(self) -> None:
        while self._pending:
            texts: list[str] = []
            while self._pending and sum(map(len, texts)) < _TOGETHER:
                kind, node = self._pending.pop()
                texts.append(self._write(self, kind, node))
                self._sources[kind, node] = texts[-1]
            self._run("\n\n".join(texts))
        while self._tables:  # now all functions exist
            name, text = self._tables.pop()
            self._sources["table", name] = text
            self._run(text)

    def _run(self, text: str) -> None:
        # Our own writer made the text from a schema: names are numbered, and every literal goes through repr().
        exec(compile(text, "<compiled check>", "exec"), self._space)  # noqa: S102

    def source(self) -> str:
        """All code written so far, in the order in which it was requested."""
        with self._lock:
            return "\n\n".join(self._sources.values())


class _Reports(dict[str, Any]):
    """The reports of an object's many properties by key: a value breaks few of them."""

    def __init__(self, program: Program, nodes: Mapping[str, Node]) -> None:
        super().__init__()
        self._program, self._nodes = program, nodes

    def __missing__(self, key: str) -> Any:
        made = self[key] = self._program.entry("r", self._nodes[key])
        return made


# --- what generated code calls ----------------------------------------------------------------------------------------
# Generated code uses a few Python frames for each level of the value. Values are at most 64 levels deep, but a schema
# may need many frames for one level; only then is the interpreter's limit raised for the call. CPython 3.11 and later
# keep Python frames on the heap, so a high limit costs memory and cannot crash the process.
DEEP: Final = 100_000

# Branches of a union are reported for this many nested unions, and `REPORTING_BRANCHES` broken keywords per call. That
# is enough for any explanation, and bounds the report on a hostile value.
MAX_UNION_DEPTH: Final = 4


class BrokenKeyword(NamedTuple):
    """One keyword that a value breaks. `node` is the schema that holds it, `path` the place in the value. `detail` is
    the data for its message: the missing property, the unexpected keys or indexes, the key that `propertyNames`
    refuses. `branches` holds, for a union, the broken keywords of each branch: none for a satisfied branch; it is empty
    for a union that lies too deep to be reported. (A named tuple: a refused body makes many, and a dataclass takes four
    times as long to build.)"""

    keyword: str
    path: Pointer
    node: Node
    detail: JsonValue = None
    branches: tuple[tuple[BrokenKeyword, ...], ...] = ()


# Builds a broken keyword from its five parts, without the Python frame of the constructor.
_new: Final[Callable[[type[BrokenKeyword], tuple[Any, ...]], BrokenKeyword]] = tuple.__new__

# Judges a value at one node: (value, state).
Judge = Callable[[JsonValue, "State"], bool]

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


def choose_branch(
    value: JsonValue, path: Pointer, state: State, judge: Judge, report: Reporter, number: int, pins: tuple[Pin, ...]
) -> tuple[tuple[BrokenKeyword, ...], ...] | None:
    """Returns the branches of a union whose discriminator names branch `number` (None if that accepts the value). The
    others are broken only at the discriminator."""
    reported = branches(value, path, state, (report,))
    if not reported:  # too deep
        return None if judge(value, state) else ()
    if not reported[0]:
        return None
    made = [(_new(BrokenKeyword, (pin.keyword, (*path, pin.key), pin.node, None, ())),) for pin in pins]
    return (*made[:number], *reported, *made[number + 1 :])


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
    """Returns the broken keyword for a pattern that ran into its limit within a union or under `not`. Its place is the
    one that holds this very string object, as an item or as a key."""
    holder = next((inner for inner in node.schemas.nodes() if inner.get("pattern") == error.pattern), node)
    stack: list[tuple[JsonValue, Pointer]] = [(value, ())]
    while stack:
        current, path = stack.pop()
        if current is error.text or (type(current) is dict and any(name is error.text for name in current)):
            return BrokenKeyword("pattern", path, holder)
        if isinstance(current, (dict, list)):
            members = current.items() if isinstance(current, dict) else enumerate(current)
            stack.extend((item, (*path, step)) for step, item in members)
    return BrokenKeyword("pattern", (), holder)


# The global names of generated code.
SPACE: Final[dict[str, Any]] = {
    "B": BrokenKeyword, "new": _new, "Decimal": Decimal, "INEXACT": INEXACT, "NUMBERS": NUMBERS,
    "integral": is_integral_number, "integer_spelling": is_spelled_as_integer, "key": make_equality_key,
    "unique": are_unique, "State": State, "Refused": SearchGivenUp, "branches": branches,
    "choose_branch": choose_branch, "deeper": deeper, "refusal": refusal, "bounded": search_for_report,
}  # fmt: skip
