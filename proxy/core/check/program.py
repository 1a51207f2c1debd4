"""Links generated functions: one namespace per schema, functions added when they are first needed.

Each node may have four functions: `a` judges a value (`a(v, m) -> bool`), `r` reports broken keywords
(`r(v, p, out, m)`), `k` and `i` collect the keys and indexes that `unevaluated*` must ignore. `A` and `R` are the
entries, which take a value alone. `m` remembers verdicts (`runtime.State`), `p` is the path to the value.
Writing a function asks for the functions it calls, so one link writes everything that a node needs, once. Each
function is compiled on its own: CPython lets no other thread run while it compiles a text, and a large schema is
written while calls are served.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from threading import RLock
from typing import Any, Final

from proxy.core.check import runtime
from proxy.core.check.graph import Graph
from proxy.core.model.values import JsonValue
from proxy.core.schema.formats import KEYWORD, Formats
from proxy.core.schema.matching import make_matcher, match_any
from proxy.core.schema.nodes import Node

# Writes one function: (program, kind, node) -> its source. The caller provides it, so the linker knows no keyword.
FunctionWriter = Callable[["Program", str, Node], str]

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
        self._space: dict[str, Any] = dict(runtime.SPACE)

    def entry(self, kind: str, node: Node) -> Callable[[JsonValue], Any]:
        """The function `A` or `R` of a node, linked with all it calls."""
        with self._lock:
            name = self.call(kind, node)
            if self._pending:
                self._link()
            function: Callable[[JsonValue], Any] = self._space[name]
            return function

    def call(self, kind: str, node: Node) -> str:
        """The name of a node's function, which exists once the link is complete."""
        number = self._names.setdefault(node, len(self._names))
        if (kind, node) not in self._written:
            self._written.add((kind, node))
            self._pending.append((kind, node))
        return f"{kind}{number}"

    def constant(self, prefix: str, value: object, key: Hashable = None) -> str:
        """A global name for a value; `key` distinguishes values that must not be shared by identity."""
        identity = (prefix, key if key is not None else id(value))
        name = self._constants.get(identity)
        if name is None:
            name = self._constants[identity] = f"{prefix}_{len(self._constants)}"
            self._space[name] = value
        return name

    def table(self, kind: str, nodes: Mapping[str, Node]) -> str:
        """The global name of a dict that gives, for each key, the function of its node."""
        name = self.constant("table", {}, (kind, *nodes.items()))
        entries = "".join(f"    {key!r}: {self.call(kind, node)},\n" for key, node in nodes.items())
        self._tables.append((name, f"{name}.update({{\n{entries}}})\n"))
        return name

    def pattern(self, pattern: str) -> tuple[str, bool]:
        """The name of a function that searches for a pattern, and whether it is linear."""
        matcher = make_matcher(pattern)
        return self.constant("match", matcher.search, pattern), matcher.linear

    def any_pattern(self, patterns: Iterable[str]) -> str | None:
        """The name of a function that says whether any of several patterns matches, or None where it would not be
        faster than one search for each."""
        wanted = tuple(patterns)
        search = match_any(wanted) if len(wanted) >= _SEVERAL else None
        return None if search is None else self.constant("either", search, ("either", *wanted))

    def format(self, name: str, node: Node) -> str | None:
        """The name of a function that checks a format, or None where it is an annotation."""
        mode = self.formats.mode(name, node.get(KEYWORD))
        check = self.formats.check(name, node.draft, mode)
        return None if check is None else self.constant("format", check, (name, node.draft, mode))

    def _link(self) -> None:
        while self._pending:
            kind, node = self._pending.pop()
            self._add((kind, node), self._write(self, kind, node))
        while self._tables:  # now all functions exist
            name, text = self._tables.pop()
            self._add(("table", name), text)

    def _add(self, entry: tuple[str, Hashable], text: str) -> None:
        self._sources[entry] = text
        # Our own writer made the text from a schema: names are numbered, and every literal goes through repr().
        exec(compile(text, "<compiled check>", "exec"), self._space)  # noqa: S102

    def source(self) -> str:
        """All code written so far, in the order in which it was requested."""
        with self._lock:
            return "\n\n".join(self._sources[entry] for entry in self._sources)
