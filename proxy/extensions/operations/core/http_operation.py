"""The parts of an HTTP request with arguments: its path, its query, the parts that an OpenAPI operation names. Pure.

`Channels` are the path and the query of a route whose body is the arguments. A route made from an OpenAPI operation has
them from there, a written one from its key `parameters`. `channels.py` judges their values; the bytes of the request
stay as they came.

`HttpOperation` is an operation with the compiled schema of its tool: the argument of each part of a request, and its
schema. It is made once per route from a `RequestTemplate`; `adapters/http_operation.py` reads requests by it and writes
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace
from typing import Final

from proxy.core.json.jsontext import JSON_TYPES
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue
from proxy.core.rules.facts import read_facts
from proxy.core.schema.matching import SearchGivenUp, make_matcher
from proxy.core.schema.nodes import Node
from proxy.extensions.operations.core.http.operations import RequestTemplate
from proxy.extensions.operations.core.http.parameters import Parameter
from proxy.plugin import Check, QueryPolicy


@value_class
class JudgedParameter:
    """A declared parameter with its compiled schema. `key`: the name the route's path has for it."""

    declared: Parameter
    check: Check
    key: str


@value_class
class Channels:
    """The judged parameters of one route's requests. `free`: names of the query that are not judged, such as those of
    credentials. `judges_query` False: the query is not looked at. `strict`: undeclared names are refused."""

    path: tuple[JudgedParameter, ...] = ()
    query: tuple[JudgedParameter, ...] = ()
    free: frozenset[str] = frozenset()
    judges_query: bool = True
    strict: bool = False

    @property
    def matrix(self) -> frozenset[str]:
        """The path parameters in whose text `;` has a meaning."""
        return frozenset(each.key for each in self.path if each.declared.style == "matrix")

    @property
    def described(self) -> str:
        """Everything that the judgement depends on, as text for a hash."""
        declared = [each.declared for each in (*self.path, *self.query)]
        return repr((declared, sorted(self.free), self.judges_query, self.strict))


_ALL: Final = frozenset(JSON_TYPES)


@value_class
class HttpArgument:
    """One parameter among the arguments of a tool: its name there, and the schemas that judge it there."""

    name: str
    declared: Parameter
    nodes: tuple[Node, ...] = field(default=(), repr=False)

    def choose(self, readings: list[JsonValue], check: Check | None) -> JsonValue:
        """The reading that the schema takes, else the likeliest one."""
        if check is not None and len(readings) > 1:
            for reading in readings:
                if all(check.accepts_at(node, reading) for node in self.nodes):
                    return reading
        return readings[0]


@value_class
class HttpOperation:
    """The form of one tool's calls in HTTP requests.

    `by_name`: its clients send the arguments as JSON, so each request has to be written from them; else they send the
    request itself. `closed`: the schema takes no members that it does not name. `query`: the treatment of undeclared
    names in a query.
    """

    template: RequestTemplate
    check: Check | None = None
    arguments: tuple[HttpArgument, ...] = ()
    closed: bool = False
    by_name: bool = False
    query: QueryPolicy = QueryPolicy.JUDGE

    def in_place(self, *places: str) -> Iterator[HttpArgument]:
        """Yields the arguments in some places of a request."""
        return (each for each in self.arguments if each.declared.place in places)

    def make_field(self, name: str, *, is_list: bool = False) -> HttpArgument:
        """A field of the form that no parameter declares. `is_list`: it is a list if the schema does not say so."""
        nodes = [] if self.check is None else [node for part in self.check.root.always for node in _of(part, name)]
        field = _bind_nodes(Parameter(name, "form", True), nodes)
        kinds = field.declared.kinds or frozenset({"array"} if is_list else ())
        return replace(field, declared=replace(field.declared, kinds=kinds, properties=(), members={}))

    @property
    def names(self) -> frozenset[str]:
        """Returns the arguments outside of a JSON body."""
        return frozenset(each.name for each in self.arguments)

    @property
    def argument_names(self) -> dict[tuple[str, str], str]:
        """Place and name of each parameter outside of the body -> the argument that it is. A service may know a
        parameter of its path by the argument's name, which a route cannot spell (`trip-id`)."""
        outside = list(self.in_place("path", "query", "header", "cookie"))
        found: dict[tuple[str, str], str] = {(each.declared.place, each.name): each.name for each in outside}
        return found | {(each.declared.place, each.declared.name): each.name for each in outside}


def bind_arguments(template: RequestTemplate, check: Check | None) -> tuple[tuple[HttpArgument, ...], bool]:
    """Every argument of a template as the schema of its tool has it, and whether that schema is closed."""
    parts = [] if check is None else list(check.root.always)
    arguments = tuple(_bind_argument(each, parts) for each in template.parameters)
    return arguments, any(part.additional is not None and part.additional.never for part in parts)


def _bind_argument(declared: Parameter, parts: list[Node]) -> HttpArgument:
    name = declared.argument or declared.name
    return _bind_nodes(declared, [part.properties[name] for part in parts if name in part.properties])


def _of(part: Node, name: str) -> Iterator[Node]:
    """The schemas of a member: by its name, by patterns, else that of all others. A pattern that runs into its limit
    counts."""
    found = [part.properties[name]] if name in part.properties else []
    found += [node for pattern, node in part.pattern_properties.items() if _may_match(pattern, name)]
    yield from found or ([] if part.additional is None else [part.additional])


def _may_match(pattern: str, name: str) -> bool:
    try:
        return make_matcher(pattern).search(name)
    except SearchGivenUp:
        return True


def _bind_nodes(declared: Parameter, nodes: list[Node]) -> HttpArgument:
    name = declared.argument or declared.name
    if not nodes:
        return HttpArgument(name, declared)
    inner = [part for node in nodes for part in _alternatives(node)]
    items = [part.items for part in inner if part.items is not None]
    members = {key: _kinds([child]) for part in inner for key, child in part.properties.items()}
    kinds = _kinds(nodes)
    explode = declared.explode if declared.place != "file" else "array" in kinds  # a part each, or the only one
    return HttpArgument(
        name,
        replace(
            declared, kinds=kinds, explode=explode, properties=tuple(members), items=_kinds(items), members=members
        ),
        tuple(nodes),
    )


def _alternatives(node: Node) -> Iterator[Node]:
    """The node, what applies beside it, and the branches of its unions."""
    for part in node.always:
        yield part
        for branch in (*part.any_of, *part.one_of):
            yield from branch.always


def _kinds(nodes: list[Node]) -> frozenset[str]:
    """The JSON types that all nodes allow; empty where they allow any."""
    found = _ALL
    for node in nodes:
        found &= read_facts(node).site.types
    return frozenset() if found == _ALL else found
