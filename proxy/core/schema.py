"""A JSON Schema as a graph of nodes: one normalised view over drafts 4, 6, 7, 2019-09 and 2020-12.

All knowledge of how the drafts spell things lives here: which keyword holds subschemas, what `$id`/`id`, `$anchor`
and `$ref` mean, tuple `items` against `prefixItems`, `dependencies` against its two successors. Everything that
walks a schema (repair, explain, guidance, the compiler) walks `Node`s and never reads a raw keyword that a `Node`
already gives.

References resolve inside the document or to documents given by the operator; nothing is ever fetched
(repair.md section 2). Nodes are made on demand and once for each location, so recursion costs nothing and two
references to one place give the same object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import quote, unquote

from proxy.core.drafts import (
    KNOWN_BY,
    LISTS,
    MAPS,
    MAX_DEPTH,
    META_SCHEMAS,
    PATTERNS,
    REFERENCES,
    ROOT_URI,
    SINGLE,
    Draft,
    SchemaError,
    draft_of,
    join,
    knows,
    published,
    subschemas,
)
from proxy.core.jsontext import format_pointer, parse_pointer
from proxy.core.model import JsonValue, Pointer

__all__ = ["LISTS", "MAPS", "ROOT_URI", "SINGLE", "Draft", "Node", "SchemaError", "Schemas", "draft_of", "subschemas"]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a schema stands: its document's key, its path in it, its base URI and its draft."""

    document: str
    path: Pointer
    base: str
    draft: Draft


class Schemas:
    """A root schema with the documents it may refer to, by absolute URI. `root` is the node of the root schema,
    `base` the URI relative references start from. Raises SchemaError for an unknown `$schema`; a reference that
    leads nowhere raises it when it is followed (`check_references` follows them all). `memos` holds what other files
    work out once about its nodes, each under its own name: it goes when the schema goes.
    """

    def __init__(
        self, schema: JsonValue, documents: Mapping[str, JsonValue] | None = None, base: str = ROOT_URI
    ) -> None:
        self.base = base
        self.documents: dict[str, JsonValue] = {**(documents or {}), base: schema}
        self.draft = draft_of(schema, documents=self.documents)
        # What generated code cannot follow: a meta-schema of one's own, a reference to a published meta-schema.
        self.own_dialect = isinstance(schema, dict) and "$schema" in schema and published(schema["$schema"]) is None
        self.leads_outside = False
        self.dynamic_anchors: dict[str, set[str]] = {}
        self.has_references = self.has_patterns = False
        self.memos: dict[str, dict[Any, Any]] = {}
        self.declared: set[tuple[str, Pointer]] = set()
        self.reached: set[str] = set()
        self._resources: dict[str, _Place] = {}
        self._anchors: dict[tuple[str, str], _Place] = {}
        self._entered: dict[tuple[str, Pointer], _Place] = {}
        self._nodes: dict[tuple[str, Pointer], Node] = {}
        self._index(base)
        if self.own_dialect and (named := str(schema["$schema"]).rstrip("#")) in self.documents:
            self._index(named)
        self.root = self._node(self._entered.get((base, ()), _Place(base, (), base, self.draft)))

    def _index(self, key: str) -> None:
        """Registers every `$id` and anchor of a document. A list instead of recursion: any depth is safe."""
        document = self.documents[key]
        draft = draft_of(document, self.draft, self.documents)
        place = _Place(key, (), key.rstrip("#"), draft)
        self._resources[place.base] = place
        self.reached.add(key)
        stack: list[tuple[JsonValue, _Place]] = [(document, place)]
        while stack:
            schema, place = stack.pop()
            if len(place.path) > MAX_DEPTH:
                raise SchemaError(f"the schema is nested deeper than {MAX_DEPTH} steps", place.path)
            self.declared.add((key, place.path))
            if not isinstance(schema, dict):
                continue
            place = self._enter(schema, place)
            self.has_references |= not schema.keys().isdisjoint(REFERENCES)
            self.has_patterns |= not schema.keys().isdisjoint(PATTERNS)
            for step, child in subschemas(schema):
                stack.append((child, _Place(place.document, (*place.path, *step), place.base, place.draft)))

    def _enter(self, schema: dict[str, JsonValue], place: _Place) -> _Place:
        """Registers the `$id` and anchors of one schema and gives its place with the base URI they make."""
        draft = published(schema["$schema"]) if "$schema" in schema else None
        entered = _Place(place.document, place.path, place.base, draft or place.draft)
        identifier = schema.get("id" if entered.draft is Draft.D4 else "$id")
        if entered.draft <= Draft.D7 and "$ref" in schema:
            identifier = None  # siblings of $ref are ignored before 2019-09
        if isinstance(identifier, str):
            base, _, fragment = join(place.base, identifier, place.path).partition("#")
            if not identifier.startswith("#"):
                entered = _Place(place.document, place.path, base, entered.draft)
                self._resources.setdefault(base, entered)
            if fragment and not fragment.startswith("/"):
                self._anchors.setdefault((entered.base, fragment), entered)
        if entered != place:
            self._entered[place.document, place.path] = entered
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(anchor := schema.get(keyword), str):
                self._anchors.setdefault((entered.base, anchor), entered)
        if isinstance(anchor := schema.get("$dynamicAnchor"), str):
            self.dynamic_anchors.setdefault(anchor, set()).add(entered.base)
        if schema.get("$recursiveAnchor") is True:
            self.dynamic_anchors.setdefault("", set()).add(entered.base)
        return entered

    def _node(self, place: _Place) -> Node:
        """The node at a place that is entered already."""
        key = (place.document, place.path)
        if (node := self._nodes.get(key)) is None:
            node = self._nodes.setdefault(key, Node(self, self._raw(place), place))  # one, whoever else asks now
        return node

    def _raw(self, place: _Place) -> JsonValue:
        raw: JsonValue = self.documents[place.document]
        for step in place.path:
            raw = raw[int(step)] if isinstance(raw, list) else raw[step]
        return raw

    def _below(self, place: _Place, step: str | int) -> _Place:
        path = (*place.path, step)
        return self._entered.get((place.document, path)) or _Place(place.document, path, place.base, place.draft)

    def resolve(self, reference: str, place: _Place) -> Node | None:
        """The node a reference leads to; None for a published meta-schema. Raises SchemaError where there is none."""
        base, _, fragment = join(place.base, reference, (*place.path, "$ref")).partition("#")
        if base.startswith(META_SCHEMAS) and base not in self.documents:
            self.leads_outside = True
            return None
        resource = self._resource(base)
        if resource is None:
            raise SchemaError(
                f"$ref {reference!r} leads to a document that is not there: put it below the schema folder "
                "or register it under `documents`; nothing is ever fetched",
                (*place.path, "$ref"),
            )
        fragment = unquote(fragment)
        if fragment and not fragment.startswith("/"):
            anchored = self._anchors.get((base, fragment))
            if anchored is None:
                raise SchemaError(f"$ref {reference!r} names an anchor that is not there", (*place.path, "$ref"))
            return self._node(anchored)
        return self._node(self._descend(resource, parse_pointer(fragment), reference, place))

    def _resource(self, base: str) -> _Place | None:
        """The place a URI names. Documents are read when a reference first leads to them, not before."""
        if base not in self._resources:
            for key in [key for key in (base, base + "#") if key in self.documents] or list(self.documents):
                if key not in self.reached:
                    self._index(key)
        return self._resources.get(base)

    def _descend(self, place: _Place, steps: Pointer, reference: str, origin: _Place) -> _Place:
        raw = self._raw(place)
        for step in steps:
            try:
                key = int(step) if isinstance(raw, list) else step
                raw = raw[key]
            except (LookupError, TypeError, ValueError):
                raise SchemaError(f"$ref {reference!r} leads nowhere", (*origin.path, "$ref")) from None
            place = self._below(place, key)
        if not isinstance(raw, dict | bool):
            raise SchemaError(f"$ref {reference!r} leads to what is no schema", (*origin.path, "$ref"))
        return place

    def check_references(self) -> None:
        """Follows every reference of the root document. Raises SchemaError at the first that leads nowhere."""
        if self.has_references:
            for node in self.nodes():
                _ = node.reference

    def mentions(self, keyword: str) -> bool:
        """Whether any schema that can be reached holds this keyword."""
        return keyword in self._mentioned

    @cached_property
    def _mentioned(self) -> frozenset[str]:
        return frozenset(keyword for node in self.nodes() if isinstance(node.raw, dict) for keyword in node.raw)

    def nodes(self) -> Iterator[Node]:
        """Every node that can be reached from the root, each once."""
        seen: set[int] = set()
        stack = [self.root]
        while stack:
            node = stack.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            yield node
            stack.extend(node.children())


class Node:
    """One schema at one location. Children are nodes too, made when they are asked for.

    `raw` is the schema as written (a dict; `true` and `false` are kept as they are). `always` and `never` tell the
    two boolean schemas. Where the draft ignores the siblings of `$ref`, this node has none.
    """

    def __init__(self, schemas: Schemas, raw: JsonValue, place: _Place) -> None:
        self.schemas = schemas
        self.raw = raw
        self.place = place
        self.draft = place.draft
        self.never = raw is False
        self._keywords: dict[str, Any] = raw if isinstance(raw, dict) else {}
        if self.draft <= Draft.D7 and "$ref" in self._keywords:
            self._keywords = {"$ref": self._keywords["$ref"]}
        elif not KNOWN_BY.keys().isdisjoint(self._keywords):
            self._keywords = {key: item for key, item in self._keywords.items() if knows(self.draft, key)}

    def __repr__(self) -> str:
        return f"Node({self.uri})"

    @cached_property
    def uri(self) -> str:
        """The absolute location: document, '#', JSON Pointer as a URI fragment."""
        return f"{self.place.document}#{quote(format_pointer(self.place.path), safe='/~$')}"

    @property
    def path(self) -> Pointer:
        """The steps from the document's root."""
        return self.place.path

    def get(self, keyword: str) -> JsonValue:
        """The raw value of a keyword that holds no subschema (`minimum`, `pattern`, `x-repair` ...), or None."""
        return self._keywords.get(keyword)

    def has(self, keyword: str) -> bool:
        """Whether the keyword is there (and not ignored beside `$ref`)."""
        return keyword in self._keywords

    @property
    def keywords(self) -> Mapping[str, JsonValue]:
        """The keywords that count here, as written and in the order written."""
        return self._keywords

    @property
    def declared(self) -> bool:
        """Whether the node stands where keywords put schemas, so that its document's meta-schema covers it."""
        return (self.place.document, self.place.path) in self.schemas.declared

    # --- what applies to the same value -----------------------------------------------------------------------------
    @cached_property
    def types(self) -> frozenset[str] | None:
        """The types this schema itself allows (`integer` stands for integral numbers), or None where it names none."""
        named = self._keywords.get("type")
        if isinstance(named, str):
            return frozenset((named,))
        return frozenset(named) if isinstance(named, list) else None

    @cached_property
    def choices(self) -> tuple[JsonValue, ...] | None:
        """The values `enum` and `const` leave, or None where there is neither. `const` counts from draft 6 on."""
        if "const" in self._keywords:
            return (self._keywords["const"],)
        listed = self._keywords.get("enum")
        return tuple(listed) if isinstance(listed, list) else None

    @cached_property
    def reference(self) -> Node | None:
        """What `$ref` (or the static target of `$dynamicRef`, `$recursiveRef`) leads to."""
        for keyword in REFERENCES:
            if isinstance(target := self._keywords.get(keyword), str):
                return self.schemas.resolve(target, self.place)
        return None

    @cached_property
    def all_of(self) -> tuple[Node, ...]:
        """The members of `allOf`."""
        return self._list("allOf")

    @cached_property
    def any_of(self) -> tuple[Node, ...]:
        """The branches of `anyOf`."""
        return self._list("anyOf")

    @cached_property
    def one_of(self) -> tuple[Node, ...]:
        """The branches of `oneOf`."""
        return self._list("oneOf")

    @cached_property
    def condition(self) -> tuple[Node, Node | None, Node | None] | None:
        """(`if`, `then`, `else`) where there is an `if` and at least one of the others (draft 7 on)."""
        test = self.inner("if")
        if test is None or not ({"then", "else"} & self._keywords.keys()):
            return None
        return test, self.inner("then"), self.inner("else")

    @cached_property
    def dependent(self) -> Mapping[str, Node]:
        """`dependentSchemas`, and the schemas of the older `dependencies`."""
        return {**self._map("dependencies"), **self._map("dependentSchemas")}

    # --- objects ----------------------------------------------------------------------------------------------------
    @cached_property
    def properties(self) -> Mapping[str, Node]:
        """The declared keys."""
        return self._map("properties")

    @cached_property
    def pattern_properties(self) -> Mapping[str, Node]:
        """Regular expression -> schema of the keys it matches."""
        return self._map("patternProperties")

    @cached_property
    def additional(self) -> Node | None:
        """The schema of every other key (`additionalProperties`)."""
        return self.inner("additionalProperties")

    @cached_property
    def unevaluated(self) -> Node | None:
        """`unevaluatedProperties` (2019-09 on)."""
        return self.inner("unevaluatedProperties")

    @cached_property
    def required(self) -> tuple[str, ...]:
        """The keys that must be there."""
        listed = self._keywords.get("required")
        return tuple(key for key in listed if isinstance(key, str)) if isinstance(listed, list) else ()

    # --- arrays -----------------------------------------------------------------------------------------------------
    @cached_property
    def prefix_items(self) -> tuple[Node, ...]:
        """The schemas of the first items (`prefixItems`, or a list under `items` before 2020-12)."""
        if self.draft >= Draft.D2020:
            return self._list("prefixItems")
        return self._list("items")

    @cached_property
    def items(self) -> Node | None:
        """The schema of every item behind `prefix_items`."""
        if self.draft < Draft.D2020 and isinstance(self._keywords.get("items"), list):
            return self.inner("additionalItems")
        return self.inner("items")

    def item(self, index: int) -> Node | None:
        """The schema of the item at `index`."""
        return self.prefix_items[index] if index < len(self.prefix_items) else self.items

    # --- the rest ---------------------------------------------------------------------------------------------------
    def children(self) -> Iterator[Node]:
        """Every node this one leads to, the target of a reference included."""
        if self.reference is not None:
            yield self.reference
        for step, _ in subschemas(self._keywords):
            yield self._child(*step)

    def descend(self, steps: Pointer) -> Node:
        """The node that the raw steps below this one lead to. Raises LookupError where there is none."""
        node = self
        for step in steps:
            node = node._child(step)
        return node

    def _child(self, *steps: str | int) -> Node:
        place = self.place
        for step in steps:
            place = self.schemas._below(place, step)
        return self.schemas._node(place)

    def inner(self, keyword: str) -> Node | None:
        """The schema a keyword with one subschema holds (`not`, `if`, `contains`, `propertyNames` ...), or None."""
        value = self._keywords.get(keyword)
        return self._child(keyword) if isinstance(value, dict | bool) else None

    def _list(self, keyword: str) -> tuple[Node, ...]:
        value = self._keywords.get(keyword)
        return tuple(self._child(keyword, index) for index in range(len(value))) if isinstance(value, list) else ()

    def _map(self, keyword: str) -> Mapping[str, Node]:
        value = self._keywords.get(keyword)
        if not isinstance(value, dict):
            return {}
        return {key: self._child(keyword, key) for key, item in value.items() if isinstance(item, dict | bool)}
