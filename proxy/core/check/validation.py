"""The entrance to the validation engine: `compile_check(schema) -> Check`. No other room names an engine.

The judge is generated Python code. It passes every required case of the JSON-Schema-Test-Suite for drafts 4, 6, 7,
2019-09 and 2020-12. It takes parsed values as they are (exact numbers), and does bounded work on any value. Compilation
finds every mistake of the schema, but writes no code: each function is written on first use, or by `Check.prepare`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from threading import RLock
from typing import Any, Final

from proxy.core.check import fast_metaschema
from proxy.core.check.functions import write_function
from proxy.core.check.graph import Graph
from proxy.core.check.metaschema import list_faults
from proxy.core.check.program import BrokenKeyword, Program
from proxy.core.model.values import JsonValue, Pointer
from proxy.core.schema.drafts import META_SCHEMAS, ROOT_URI, Draft, SchemaError
from proxy.core.schema.formats import NONE, STRICT, Formats
from proxy.core.schema.matching import make_matcher, share_search_budget, start_search_budget
from proxy.core.schema.nodes import Node, Schemas

__all__ = ["BrokenKeyword", "Check", "SchemaError", "compile_check"]

# Bounds on all patterns together of a schema from an untrusted author: characters, and instructions of 16 bytes.
MAX_STRANGE_CHARACTERS: Final = 20_000
MAX_STRANGE_PROGRAMS: Final = 250_000


class Check:
    """A compiled schema, safe to use from several threads. `root` is the root of the schema's graph (`schemas`);
    `formats` says whether `format` is asserted; `linear`, whether every pattern matches in linear time. `accepts(value)
    -> bool` says whether a parsed value is valid, and `list_broken(value)` lists every keyword that it breaks, in the
    order of the schema. Both are attributes that hold the generated function itself once that is written: a method
    around it would add a third to a small verdict. `judges` holds those of single nodes that are written; `accepts_at`
    writes the others. `prepared` are the arguments with which `prepare` was called."""

    __slots__ = (
        "_engine", "_kept", "_schemas", "_writing", "accepts", "formats", "judges", "linear", "list_broken", "prepared",
        "ready",
    )  # fmt: skip

    accepts: Callable[[JsonValue], bool]
    list_broken: Callable[[JsonValue], list[BrokenKeyword]]

    def __init__(self, schemas: Schemas, *, formats: Formats, linear: bool) -> None:
        self._schemas: Schemas | None = schemas
        self._kept = schemas.documents, schemas.base, schemas.matchers
        self.formats: Final = formats
        self.linear: Final = linear
        self._engine: Program | None = None
        # Only one thread writes code: what another call uses must not change in the meantime.
        self._writing = RLock()
        self.judges: dict[Node, Callable[[JsonValue], bool]] = {}
        self.prepared: frozenset[bool] = frozenset()
        self.ready = False  # whether the code that judges and reports is written
        self.accepts = self._first_accepts
        self.list_broken = self._first_list_broken

    def __repr__(self) -> str:
        return f"Check({self.root.uri})"

    @property
    def schemas(self) -> Schemas:
        """The schema's graph, made again if it was dropped."""
        if (known := self._schemas) is not None:
            return known
        with self._writing:
            if self._schemas is None:
                documents, base, matchers = self._kept
                made = Schemas(documents[base], documents, base)
                made.matchers = matchers
                made.check_references()
                self._schemas = made
            return self._schemas

    @property
    def root(self) -> Node:
        """The root of the schema's graph."""
        return self.schemas.root

    def rest(self) -> None:
        """Drops the graph, which is nearly all memory of a schema without code. Nobody may hold a node of it."""
        with self._writing:
            if self._engine is None:
                self._schemas = None

    def _write(self, kind: str, node: Node) -> Callable[[JsonValue], Any]:
        if self._engine is None:
            self._engine = Program(Graph(self.schemas), write_function, formats=self.formats)
        return self._engine.entry(kind, node)

    def accepts_at(self, node: Node, value: JsonValue) -> bool:
        """Returns whether a parsed value is valid against one node of the schema."""
        return self._judge_at(node)(value)

    def _judge_at(self, node: Node) -> Callable[[JsonValue], bool]:
        """The judge of a node. Its backtracking searches share the budget of one call."""
        with self._writing:
            if node not in self.judges:
                judge: Callable[[JsonValue], bool] = self._write("A", node)
                self.judges[node] = judge if self.linear else share_search_budget()(judge)
            return self.judges[node]

    def _first_accepts(self, value: JsonValue) -> bool:
        self.accepts = self._judge_at(self.root)
        return self.accepts(value)

    def _first_list_broken(self, value: JsonValue) -> list[BrokenKeyword]:
        self._write_report()
        return self.list_broken(value)

    def _write_report(self) -> None:
        with self._writing:
            if not self.ready:
                report: Callable[[JsonValue], list[BrokenKeyword]] = self._write("R", self.root)
                self.list_broken = report if self.linear else start_search_budget()(report)
                self.ready = True

    def prepare(self, *, everywhere: bool) -> None:
        """Writes and compiles the code now (2 to 10 ms; a second for thousands of properties), so run it in a thread.
        `everywhere`: also the code that judges at each node, which the repair engine uses."""
        with self._writing:
            if everywhere not in self.prepared:
                for node in self.schemas.nodes() if everywhere else ():
                    self._judge_at(node)
                self.accepts = self._judge_at(self.root)
                self._write_report()
                self.prepared |= {everywhere}

    def source(self) -> str:
        """The generated code, with comments that name the place in the schema of each part."""
        self.prepare(everywhere=False)
        return self._engine.source() if self._engine is not None else ""


def compile_check(
    schema: JsonValue,
    *,
    documents: Mapping[str, JsonValue] | None = None,
    base: str = ROOT_URI,
    formats: bool | Formats = True,
    is_trusted: bool = True,
) -> Check:
    """Compiles a schema document. `documents` maps absolute URIs to further documents a `$ref` may lead to, `base` is
    this document's own URI; `formats` says whether and how strictly `format` is asserted. `is_trusted` False: a
    stranger wrote the schema, so its patterns together are bounded. Raises SchemaError, with the place in the schema,
    for one that fails its meta-schema, names an unsupported draft, has a dangling reference, never ends, or is beyond a
    bound."""
    schemas = Schemas(schema, documents, base)
    # A schema with its own meta-schema is checked against its draft's.
    checked = {key: value for key, value in schema.items() if key != "$schema"} if schemas.own_dialect else schema
    check_schema(checked, schemas.draft)
    schemas.check_references()
    for node in schemas.nodes() if schemas.has_references else ():
        for target in node.references:
            is_checked = target.place.document == schemas.base and target.declared
            if not is_checked and not target.place.document.startswith(META_SCHEMAS):
                check_schema(target.raw, target.draft, target.path)
    linear = _check_patterns(schemas, is_trusted=is_trusted)
    Graph(schemas).check_cycles()
    wanted = formats if isinstance(formats, Formats) else STRICT if formats else NONE
    return Check(schemas, formats=wanted, linear=linear)


def check_schema(schema: JsonValue, draft: Draft, path: Pointer = ()) -> None:
    """Raises SchemaError, with the place, for a schema that its draft's meta-schema refuses. jsonschema, loaded for it,
    judges and explains what the generated check does not accept."""
    if fast_metaschema.ENABLED and fast_metaschema.accepts(schema, draft):
        return
    for fault in list_faults(schema, draft):
        raise SchemaError(fault.message, (*path, *fault.path))


def list_schema_faults(
    schema: JsonValue, *, documents: Mapping[str, JsonValue] | None = None, base: str = ROOT_URI
) -> list[SchemaError]:
    """Every fault for which a schema of the operator does not compile, each place once: what its meta-schema refuses,
    references that lead nowhere, and invalid patterns. Empty if only one document of several can be at fault."""
    try:
        schemas = Schemas(schema, documents, base)
    except SchemaError as error:
        return [error]
    faults = [*list_faults(schema, schemas.draft), *schemas.list_broken_references()]
    for node in schemas.written_nodes():
        for steps, pattern in _list_patterns(node):
            try:
                make_matcher(pattern)
            except SchemaError as error:
                faults.append(SchemaError(error.message, (*node.path, *steps)))
    return list({fault.path: fault for fault in reversed(faults)}.values())[::-1]


def _list_patterns(node: Node) -> Iterator[tuple[Pointer, str]]:
    yield from ((("patternProperties",), pattern) for pattern in node.pattern_properties)
    if isinstance(pattern := node.get("pattern"), str):
        yield ("pattern",), pattern


def _check_patterns(schemas: Schemas, *, is_trusted: bool) -> bool:
    """Compiles every pattern: do all match in linear time? Raises SchemaError for an invalid one or beyond a bound."""
    characters = programs = 0
    for node in schemas.nodes() if schemas.has_patterns or schemas.has_references else ():
        for steps, pattern in _list_patterns(node):
            if pattern in schemas.matchers:
                continue
            characters += len(pattern)
            if not is_trusted and characters > MAX_STRANGE_CHARACTERS:
                raise SchemaError(f"its patterns have more than {MAX_STRANGE_CHARACTERS:,} characters", node.path)
            try:
                matcher = schemas.matchers[pattern] = make_matcher(pattern)
            except SchemaError as error:
                raise SchemaError(error.message, (*node.path, *steps)) from error
            programs += matcher.size
            if not is_trusted and programs > MAX_STRANGE_PROGRAMS:
                message = f"its patterns make programs of more than {MAX_STRANGE_PROGRAMS:,} instructions"
                raise SchemaError(message, node.path)
    return all(matcher.linear for matcher in schemas.matchers.values())
