"""The one seam to the validation engine: `compile_check(schema) -> Check`. No other room names an engine.

The judge is generated Python code, one function per schema (core/engine): it passes every required case of the
JSON-Schema-Test-Suite for drafts 4, 6, 7, 2019-09 and 2020-12, takes parsed values as they are (exact numbers), and
does bounded work on any value. Schemas it cannot express are told when they are compiled and judged by jsonschema-rs
(`Check.foreign` says why). Nothing is ever fetched: a `$ref` resolves within the schema or to the documents given.

Compiling finds every mistake of the schema at once, but writes no code: each function is written when it is first
asked for, or by `Check.prepare`, off the request path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import RLock
from typing import Any, Final, Protocol

from proxy.core.engine.foreign import Foreign
from proxy.core.engine.graph import Graph, unwritable
from proxy.core.engine.judge import check_schema, pattern_matcher
from proxy.core.engine.menders import Mend, Menders
from proxy.core.engine.program import Program
from proxy.core.engine.runtime import BrokenKeyword
from proxy.core.engine.walking import takes
from proxy.core.engine.writer import write
from proxy.core.model import JsonValue
from proxy.core.schema import ROOT_URI, Node, SchemaError, Schemas

__all__ = ["BrokenKeyword", "Check", "SchemaError", "compile_check", "surely_takes"]


class _Engine(Protocol):
    """What a check asks of an engine: the functions of a node, judge `A` or report `R`, and its source text."""

    def entry(self, kind: str, node: Node) -> Callable[[JsonValue], Any]: ...

    def source(self) -> str: ...


class Check:
    """A compiled schema. Immutable for its users; safe to use from several threads.

    `schemas.root` is its graph. `formats` says whether `format` is asserted, `linear` whether every pattern is
    matched in linear time (else a pattern that runs into its limit refuses the value). `foreign` is None, or why
    jsonschema-rs judges this schema instead of generated code.

    `accepts(value) -> bool` says whether a parsed value is valid. It is an attribute that holds the generated
    function itself once that is written: this is the hot path, and a method around it would cost a third of a small
    verdict.
    """

    __slots__ = (
        "_at",
        "_engine",
        "_menders",
        "_report",
        "_writing",
        "accepts",
        "foreign",
        "formats",
        "linear",
        "schemas",
    )

    accepts: Callable[[JsonValue], bool]

    def __init__(self, schemas: Schemas, engine: _Engine, *, formats: bool, linear: bool, foreign: str | None) -> None:
        self.schemas: Final = schemas
        self.formats: Final = formats
        self.linear: Final = linear
        self.foreign: Final = foreign
        self._engine = engine
        # Code is written by one thread and once: what a call needs must not change under it.
        self._writing = RLock()
        self._at: dict[Node, Callable[[JsonValue], bool]] = {}
        self._report: Callable[[JsonValue], list[BrokenKeyword]] | None = None
        self._menders: dict[frozenset[str], Mend | None] = {}
        self.accepts = self._first_accepts

    def __repr__(self) -> str:
        return f"Check({self.root.uri})"

    @property
    def root(self) -> Node:
        """The root of the schema's graph."""
        return self.schemas.root

    def accepts_at(self, node: Node, value: JsonValue) -> bool:
        """Whether a parsed value is valid against one node of the schema."""
        judge = self._at.get(node)
        return judge(value) if judge is not None else self._judge_at(node)(value)

    def _judge_at(self, node: Node) -> Callable[[JsonValue], bool]:
        with self._writing:
            judge = self._at.get(node)
            if judge is None:
                judge = self._at[node] = self._engine.entry("A", node)
            return judge

    def broken(self, value: JsonValue) -> list[BrokenKeyword]:
        """Every keyword the value breaks, in the order of the schema; empty exactly where `accepts` is true."""
        report = self._report
        if report is None:
            with self._writing:
                report = self._report = self._engine.entry("R", self.root)
        return report(value)

    def mender(self, rules: frozenset[str]) -> Mend | None:
        """The generated function that repairs the obvious cases under these repair rules (`mending.py` asks it), or
        None where there is nothing it could do."""
        try:
            return self._menders[rules]
        except KeyError:
            with self._writing:
                made = self._menders[rules] = Menders(self.schemas, rules).mend() if self.foreign is None else None
            return made

    def ready(self, rules: frozenset[str]) -> bool:
        """Whether all code is written that a call under these repair rules runs."""
        return self._report is not None and rules in self._menders

    def prepare(self, rules: frozenset[str]) -> None:
        """Writes and compiles that code now (2 to 10 ms, a second for thousands of properties). For a thread."""
        with self._writing:
            if self.ready(rules):
                return
            if rules and self.foreign is None:  # the repair engine asks for a verdict at any node
                for node in self.schemas.nodes():
                    self._judge_at(node)
            self.mender(rules)
            self._write()

    def _write(self) -> None:
        with self._writing:
            if self.accepts == self._first_accepts:
                self.accepts = self._engine.entry("A", self.root)
            if self._report is None:
                self._report = self._engine.entry("R", self.root)

    def source(self) -> str:
        """The generated code, with the place in the schema above each part, as comments."""
        self._write()
        return self._engine.source()

    def mender_source(self, rules: frozenset[str]) -> str:
        """The generated code of `mender`, likewise; '' where there is none."""
        return Menders(self.schemas, rules).source() if self.mender(rules) is not None else ""

    def _first_accepts(self, value: JsonValue) -> bool:
        with self._writing:
            self.accepts = self._engine.entry("A", self.root)
        return bool(self.accepts(value))


def compile_check(
    schema: JsonValue,
    *,
    documents: Mapping[str, JsonValue] | None = None,
    base: str = ROOT_URI,
    formats: bool = True,
) -> Check:
    """Compiles a schema document.

    `documents` maps absolute URIs to further documents a `$ref` may lead to, `base` is this document's own URI;
    `formats` says whether `format` is asserted. Raises SchemaError, with the place in the schema, for one that fails
    its meta-schema, names an unsupported draft, refers to what is not there, or never ends.
    """
    schemas = Schemas(schema, documents, base)
    if not schemas.own_dialect:
        check_schema(schema, schemas.draft)
    schemas.check_references()
    _check_targets(schemas)
    linear = _check_patterns(schemas)
    foreign = unwritable(schemas)
    if foreign is not None:
        engine: _Engine = Foreign(schemas, foreign, formats=formats, linear=linear)
    else:
        graph = Graph(schemas)
        graph.check_cycles()
        engine = Program(graph, write, formats=formats)
    return Check(schemas, engine, formats=formats, linear=linear, foreign=foreign)


def surely_takes(schema: JsonValue, value: JsonValue) -> bool:
    """Whether a schema that is known to be right takes a value, as far as that is told without compiling it.

    For a schema that one start of the program asks about one value, such as the config's own. What it does not take,
    `compile_check` has to judge.
    """
    return takes(schema, schema, value)


def _check_targets(schemas: Schemas) -> None:
    """Holds against its meta-schema what references lead to outside of the checked document."""
    if not schemas.has_references or schemas.own_dialect:
        return
    for node in schemas.nodes():
        target = node.reference
        if target is not None and (target.place.document != schemas.base or not target.declared):
            check_schema(target.raw, target.draft, target.path)


def _check_patterns(schemas: Schemas) -> bool:
    """Reads every regular expression; gives whether all are linear. Raises SchemaError for one that is none."""
    linear = True
    for node in schemas.nodes() if schemas.has_patterns or schemas.has_references else ():
        found = [(("patternProperties",), pattern) for pattern in node.pattern_properties]
        if isinstance(pattern := node.get("pattern"), str):
            found.append((("pattern",), pattern))
        for steps, pattern in found:
            try:
                linear &= pattern_matcher(pattern)[1]
            except SchemaError as error:
                raise SchemaError(error.message, (*node.path, *steps)) from error
    return linear
