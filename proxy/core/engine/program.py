"""Links generated functions: one namespace per schema, functions added when they are first needed.

Each node may have four functions: `a` judges a value (`a(v, m) -> bool`), `r` reports what is broken
(`r(v, p, out, m)`), `k` and `i` collect the keys and indexes that `unevaluated*` must leave alone. `A` and `R` are
the entries, which take a value alone. `m` remembers verdicts (`runtime.State`), `p` is the path that led here.
Writing a function asks for the functions it calls, so one link writes all that a node needs and nothing twice. Each
function is compiled by itself: CPython lets no other thread run while it compiles a text, and a large schema is written
while calls are served.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from threading import RLock
from typing import Any, Final

from proxy.core.engine import runtime
from proxy.core.engine.graph import Graph
from proxy.core.engine.judge import either, format_matcher, pattern_matcher
from proxy.core.model import JsonValue
from proxy.core.schema import Node

# Writes one function: (program, kind, node) -> its source. Given by the caller, so that the linker knows no keyword.
FunctionWriter = Callable[["Program", str, Node], str]

# From so many patterns on, one search for all of them comes first: most keys match none.
_SEVERAL: Final = 3


class Program:
    """The generated code of one schema."""

    def __init__(self, graph: Graph, write: FunctionWriter, *, formats: bool) -> None:
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
        """The name of a node's function; the function will be there when the link is done."""
        number = self._names.setdefault(node, len(self._names))
        if (kind, node) not in self._written:
            self._written.add((kind, node))
            self._pending.append((kind, node))
        return f"{kind}{number}"

    def constant(self, prefix: str, value: object, key: Hashable = None) -> str:
        """A global name for a value; `key` tells values apart that must not be shared by identity."""
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
        search, linear = pattern_matcher(pattern)
        return self.constant("match", search, pattern), linear

    def any_pattern(self, patterns: Iterable[str]) -> str | None:
        """The name of a function that says whether any of several patterns matches, or None where there is none that
        takes less than asking them one by one."""
        wanted = tuple(patterns)
        search = either(wanted) if len(wanted) >= _SEVERAL else None
        return None if search is None else self.constant("either", search, ("either", *wanted))

    def format(self, name: str, node: Node) -> str | None:
        """The name of a function that checks a format, or None where it is an annotation."""
        check = format_matcher(name, node.draft) if self.formats else None
        return None if check is None else self.constant("format", check, (name, node.draft))

    def _link(self) -> None:
        while self._pending:
            kind, node = self._pending.pop()
            self._add((kind, node), self._write(self, kind, node))
        while self._tables:  # now that all functions are there
            name, text = self._tables.pop()
            self._add(("table", name), text)

    def _add(self, entry: tuple[str, Hashable], text: str) -> None:
        self._sources[entry] = text
        # The text is written from a schema by our own writer: names are numbered, every literal goes through repr().
        exec(compile(text, "<compiled check>", "exec"), self._space)  # noqa: S102

    def source(self) -> str:
        """Everything that is written so far, in the order it was asked for."""
        with self._lock:
            return "\n\n".join(self._sources[entry] for entry in self._sources)
