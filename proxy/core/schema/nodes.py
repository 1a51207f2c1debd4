"""A JSON Schema as a graph of nodes: one normalised view over drafts 4, 6, 7, 2019-09 and 2020-12.

All knowledge of the drafts' spellings is here: which keyword holds subschemas, what `$id`/`id`, `$anchor` and
`$ref` mean, tuple `items` against `prefixItems`, `dependencies` against its two successors. Everything that walks a
schema walks `Node`s, and reads no keyword for which `Node` has a property. References resolve inside the document or to
documents given by the operator; nothing is ever fetched (docs/engine.md). Each location's node is made once and on
demand, so recursion costs nothing, and two references to one place give the same object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import zip_longest
from typing import Any, Final
from urllib.parse import quote, unquote

from proxy.core.json.jsontext import LosslessFloat, format_pointer, parse_pointer
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue, Pointer
from proxy.core.schema.drafts import (
    KNOWN_BY,
    MAX_DEPTH,
    META_SCHEMAS,
    PATTERNS,
    REFERENCES,
    ROOT_URI,
    Draft,
    SchemaError,
    find_draft,
    find_moved,
    find_published_draft,
    join,
    knows,
    list_subschemas,
    list_vocabularies,
    load_documents,
)
from proxy.core.schema.matching import Matcher

# The most nodes of a schema with dynamic references, if a location has one node for each scope that reaches it.
MAX_SCOPED: Final = 20_000
# Keywords whose value is a number; the most digits of such a number, and the same in bits.
NUMERIC: Final = frozenset(("multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")) | {
    f"{limit}{what}" for limit in ("min", "max") for what in ("Length", "Items", "Properties", "Contains")
}
_DIGITS: Final = 4_000
_BITS: Final = 13_288


@value_class
class _Place:
    """The place of a schema: its document's key, its path in it, its base URI and its draft. `scope` gives, for each
    dynamic anchor on the way there, the first resource that had it; nothing else of the dynamic scope (2020-12 core
    7.1) matters. One location that is reached with two different scopes gives two places, and two nodes."""

    document: str
    path: Pointer
    base: str
    draft: Draft
    scope: tuple[tuple[str, str], ...] = ()


class Schemas:
    """A root schema with the documents it may refer to, by absolute URI. `base` is the URI that relative references
    start from. Raises SchemaError for an unknown `$schema`; a reference that leads nowhere raises it when it is
    followed. Other files keep results about the nodes in `memos`, each under its own name, as long as the schema
    lives."""

    def __init__(
        self, schema: JsonValue, documents: Mapping[str, JsonValue] | None = None, base: str = ROOT_URI
    ) -> None:
        self.base = base
        self.documents: dict[str, JsonValue] = {**(documents or {}), base: schema}
        self.draft = find_draft(schema, documents=self.documents)
        self.own_dialect = (
            isinstance(schema, dict)
            and schema.get("$schema") is not None
            and find_published_draft(schema["$schema"]) is None
        )
        self.dynamic_anchors: dict[str, set[str]] = {}
        self.has_references = self.has_patterns = False
        self.memos: dict[str, dict[Any, Any]] = {}
        # The matchers of the schema's patterns. They live as long as the schema; compiling it fills them in.
        self.matchers: dict[str, Matcher] = {}
        self.declared: set[tuple[str, Pointer]] = set()
        self.reached: set[str] = set()
        self._resources: dict[str, _Place] = {}
        self._anchors: dict[tuple[str, str], _Place] = {}
        self._entered: dict[tuple[str, Pointer], _Place] = {}
        self._nodes: dict[_Place, Node] = {}
        self.unknown_keywords = self._switched_off(schema) if self.own_dialect else frozenset()
        self._index(base)
        root = self._entered.get((base, ()), _Place(base, (), base, self.draft))
        self.root = self._node(self._within(root, ()))

    def _switched_off(self, schema: JsonValue) -> frozenset[str]:
        """The keywords of vocabularies that the schema's own meta-schema leaves out (2020-12 core 8.1). Raises
        SchemaError for a required vocabulary that is unknown."""
        meta = self.documents[str(schema["$schema"]).rstrip("#")]
        if not isinstance(meta, dict) or not isinstance(named := meta.get("$vocabulary"), dict):
            return frozenset()
        known = list_vocabularies(self.draft)
        for uri, demanded in named.items():
            if demanded is True and uri not in known:
                raise SchemaError(f"$schema demands the vocabulary {uri!r}, which is not known here", ("$schema",))
        return frozenset(keyword for uri, keywords in known.items() if uri not in named for keyword in keywords)

    def _within(self, place: _Place, scope: tuple[tuple[str, str], ...]) -> _Place:
        """The place with a scope that also holds the place's resource."""
        known = {name for name, _ in scope}
        joining = [name for name, bases in self.dynamic_anchors.items() if place.base in bases and name not in known]
        return replace(place, scope=(*scope, *((name, place.base) for name in sorted(joining))))

    def _index(self, key: str) -> None:
        """Registers every `$id` and anchor of a document. A list instead of recursion: any depth is safe."""
        document = self.documents[key]
        draft = find_draft(document, self.draft, self.documents)
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
            for keyword in NUMERIC & schema.keys():
                value = schema[keyword]
                is_int, is_number = isinstance(value, int), isinstance(value, (int, LosslessFloat))
                if is_number and (value.bit_length() > _BITS if is_int else len(str(value)) > _DIGITS):
                    raise SchemaError(f"{keyword} has more than {_DIGITS:,} digits", (*place.path, keyword))
            self.has_references |= not schema.keys().isdisjoint(REFERENCES)
            self.has_patterns |= not schema.keys().isdisjoint(PATTERNS)
            for step, child in list_subschemas(schema):
                stack.append((child, _Place(place.document, (*place.path, *step), place.base, place.draft)))

    def _enter(self, schema: dict[str, JsonValue], place: _Place) -> _Place:
        """Registers the `$id` and anchors of one schema; gives its place with the resulting base URI."""
        draft = find_published_draft(schema["$schema"]) if "$schema" in schema else None
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
        """The node at a place that `_enter` has registered."""
        if (node := self._nodes.get(place)) is not None:
            return node
        if place.scope and len(self._nodes) > MAX_SCOPED:
            message = f"dynamic references lead to more than {MAX_SCOPED:,} different meanings: use $ref"
            raise SchemaError(message, place.path)
        return self._nodes.setdefault(place, Node(self, self._raw(place), place))  # so that two threads get one node

    def _raw(self, place: _Place) -> JsonValue:
        raw: JsonValue = self.documents[place.document]
        for step in place.path:
            raw = raw[int(step)] if isinstance(raw, list) else raw[step]
        return raw

    def _below(self, place: _Place, step: str | int) -> _Place:
        path = (*place.path, step)
        entered = self._entered.get((place.document, path))
        if entered is None:
            return _Place(place.document, path, place.base, place.draft, place.scope)
        return self._within(entered, place.scope) if self.dynamic_anchors else entered

    def resolve(self, keyword: str, reference: str, place: _Place) -> Node:
        """The node that a reference leads to from a place. Raises SchemaError where there is none."""
        target = self._target(reference, place)
        if keyword != "$ref" and (first := self._first_in_scope(keyword, reference, target, place)) is not None:
            target = first
        return self._node(self._within(target, place.scope) if self.dynamic_anchors else target)

    def _first_in_scope(self, keyword: str, reference: str, target: _Place, place: _Place) -> _Place | None:
        """Returns the place that a dynamic reference leads to instead of `target`. It is the first resource of the
        scope that has its anchor, if `target` has it too (2020-12 core 8.2.3.2; 2019-09 core 8.2.4.2.1)."""
        raw, scope = self._raw(target), dict(place.scope)
        if not isinstance(raw, dict):
            return None
        if keyword == "$recursiveRef":
            return self._resources.get(scope.get("", "")) if raw.get("$recursiveAnchor") is True else None
        name = reference.partition("#")[2]
        return self._anchors.get((scope.get(name, ""), name)) if raw.get("$dynamicAnchor") == name else None

    def _target(self, reference: str, place: _Place) -> _Place:
        """The place that a reference names, without regard to scopes. Raises SchemaError where there is none."""
        base, _, fragment = join(place.base, reference, (*place.path, "$ref")).partition("#")
        if base.startswith(META_SCHEMAS) and base not in self.documents:
            self.documents |= load_documents(base)
        if base not in self._resources:  # a document is read when a reference first leads to it
            for known in [known for known in (base, base + "#") if known in self.documents] or list(self.documents):
                if known not in self.reached:
                    self._index(known)
        if (resource := self._resources.get(base)) is None:
            raise SchemaError(f"$ref {reference!r} leads to a document that is not there", (*place.path, "$ref"))
        fragment = unquote(fragment)
        if fragment and not fragment.startswith("/"):
            if (base, fragment) not in self._anchors:
                raise SchemaError(f"$ref {reference!r} names an anchor that is not there", (*place.path, "$ref"))
            return self._anchors[base, fragment]
        target, raw = resource, self._raw(resource)
        steps = parse_pointer(fragment)
        for step, following in zip_longest(steps, steps[1:], fillvalue=""):
            try:
                key = int(step) if isinstance(raw, list) else find_moved(raw, step, following)
                raw = raw[key]
            except (LookupError, TypeError, ValueError):
                raise SchemaError(f"$ref {reference!r} leads nowhere", (*place.path, "$ref")) from None
            target = self._below(target, key)
        if not isinstance(raw, (dict, bool)):
            raise SchemaError(f"$ref {reference!r} leads to something that is not a schema", (*place.path, "$ref"))
        return target

    def check_references(self) -> None:
        """Follows every reference of the root document. Raises SchemaError at the first that leads nowhere."""
        if self.has_references:
            for node in self.nodes():
                _ = node.references

    def list_broken_references(self) -> list[SchemaError]:
        """Every reference of the root document that leads nowhere."""
        broken = []
        for node in self.written_nodes():
            try:
                _ = node.references
            except SchemaError as error:
                broken.append(error)
        return broken

    def written_nodes(self) -> Iterator[Node]:
        """Every node of the root document, in the order of its text, without following a reference."""
        stack = [self.root]
        while stack:
            node = stack.pop()
            yield node
            stack += reversed([node.descend(step) for step, _ in list_subschemas(node.keywords)])

    @cached_property
    def mentioned(self) -> frozenset[str]:
        """The keywords of all reachable schemas."""
        return frozenset(keyword for node in self.nodes() if isinstance(node.raw, dict) for keyword in node.raw)

    def nodes(self) -> tuple[Node, ...]:
        """Every node that can be reached from the root, each once."""
        return self._reachable

    @cached_property
    def _reachable(self) -> tuple[Node, ...]:
        found: dict[int, Node] = {}
        stack = [self.root]
        while stack:
            node = stack.pop()
            if id(node) not in found:
                found[id(node)] = node
                stack.extend(node.children())
        return tuple(found.values())


class Node:
    """One schema at one location. Its children are nodes too, made on demand. `raw` is the schema as written (a dict,
    `true` or `false`); `never` marks `false`. `keywords` are those that count here, in their order: if the draft
    ignores the siblings of `$ref`, this node has none of them."""

    def __init__(self, schemas: Schemas, raw: JsonValue, place: _Place) -> None:
        self.schemas = schemas
        self.raw = raw
        self.place = place
        self.draft = place.draft
        self.never = raw is False
        self.keywords: Mapping[str, JsonValue] = raw if isinstance(raw, dict) else {}
        if self.draft <= Draft.D7 and "$ref" in self.keywords:
            self.keywords = {"$ref": self.keywords["$ref"]}
        elif not KNOWN_BY.keys().isdisjoint(self.keywords):
            self.keywords = {key: item for key, item in self.keywords.items() if knows(self.draft, key)}
        if off := schemas.unknown_keywords:
            self.keywords = {key: item for key, item in self.keywords.items() if key not in off}

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
        return self.keywords.get(keyword)

    def has(self, keyword: str) -> bool:
        """Returns whether the keyword is present (and not ignored beside `$ref`)."""
        return keyword in self.keywords

    @property
    def declared(self) -> bool:
        """Returns whether the node is at a place for schemas, so that its document's meta-schema covers it."""
        return (self.place.document, self.place.path) in self.schemas.declared

    # The members of `allOf`, the branches of `anyOf` and `oneOf`.
    all_of: cached_property[tuple[Node, ...]] = cached_property(lambda self: self._list("allOf"))
    any_of: cached_property[tuple[Node, ...]] = cached_property(lambda self: self._list("anyOf"))
    one_of: cached_property[tuple[Node, ...]] = cached_property(lambda self: self._list("oneOf"))
    # The declared keys; the patterns of keys; the schemas of every other key (`unevaluated` from 2019-09 on).
    properties: cached_property[Mapping[str, Node]] = cached_property(lambda self: self._map("properties"))
    pattern_properties: cached_property[Mapping[str, Node]] = cached_property(
        lambda self: self._map("patternProperties")
    )
    additional: cached_property[Node | None] = cached_property(lambda self: self.inner("additionalProperties"))
    unevaluated: cached_property[Node | None] = cached_property(lambda self: self.inner("unevaluatedProperties"))

    # --- what applies to the same value -----------------------------------------------------------------------------
    @cached_property
    def types(self) -> frozenset[str] | None:
        """The types that this schema itself allows (`integer` means integral numbers), or None without `type`."""
        named = self.keywords.get("type")
        if isinstance(named, str):
            return frozenset((named,))
        return frozenset(name for name in named if isinstance(name, str)) if isinstance(named, list) else None

    @cached_property
    def choices(self) -> tuple[JsonValue, ...] | None:
        """The values that `enum` and `const` leave, or None without either. `const` counts from draft 6 on."""
        if "const" in self.keywords:
            return (self.keywords["const"],)
        listed = self.keywords.get("enum")
        return tuple(listed) if isinstance(listed, list) else None

    @cached_property
    def references(self) -> tuple[Node, ...]:
        """The targets of `$ref`, `$dynamicRef` and `$recursiveRef`. Most schemas have at most one of these."""
        found = ((keyword, self.keywords.get(keyword)) for keyword in REFERENCES)
        return tuple(self.schemas.resolve(keyword, to, self.place) for keyword, to in found if isinstance(to, str))

    @property
    def reference(self) -> Node | None:
        """The first of `references`, or None."""
        return self.references[0] if self.references else None

    @cached_property
    def condition(self) -> tuple[Node, Node | None, Node | None] | None:
        """(`if`, `then`, `else`) where there is an `if` and at least one of the others (draft 7 on)."""
        test = self.inner("if")
        if test is None or not ({"then", "else"} & self.keywords.keys()):
            return None
        return test, self.inner("then"), self.inner("else")

    @cached_property
    def dependent(self) -> Mapping[str, Node]:
        """`dependentSchemas`, and the schemas in the older `dependencies`."""
        return {**self._map("dependencies"), **self._map("dependentSchemas")}

    @cached_property
    def always(self) -> tuple[Node, ...]:
        """The node, its references and its `allOf`, each once: what always judges the same value."""
        found: dict[int, Node] = {}
        stack: list[Node] = [self]
        while stack:
            current = stack.pop()
            if id(current) not in found:
                found[id(current)] = current
                stack += [*reversed(current.all_of), *([] if current.reference is None else [current.reference])]
        return tuple(found.values())

    @cached_property
    def is_conditional(self) -> bool:
        """Returns whether it depends on a value which further schemas judge it (`if`, dependent schemas)."""
        return any(part.condition is not None or part.dependent for part in self.always)

    # --- objects ----------------------------------------------------------------------------------------------------
    @cached_property
    def required(self) -> tuple[str, ...]:
        """The keys that must be present."""
        listed = self.keywords.get("required")
        return tuple(key for key in listed if isinstance(key, str)) if isinstance(listed, list) else ()

    # --- arrays -----------------------------------------------------------------------------------------------------
    @cached_property
    def prefix_items(self) -> tuple[Node, ...]:
        """The schemas of the first items (`prefixItems`, or a list under `items` before 2020-12)."""
        return self._list("prefixItems" if self.draft >= Draft.D2020 else "items")

    @cached_property
    def items(self) -> Node | None:
        """The schema of every item after `prefix_items`."""
        is_after = self.draft < Draft.D2020 and isinstance(self.keywords.get("items"), list)
        return self.inner("additionalItems" if is_after else "items")

    def item(self, index: int) -> Node | None:
        """The schema of the item at `index`."""
        return self.prefix_items[index] if index < len(self.prefix_items) else self.items

    # --- the rest ---------------------------------------------------------------------------------------------------
    def children(self) -> Iterator[Node]:
        """Every node this one leads to, the target of a reference included."""
        yield from self.references
        for step, _ in list_subschemas(self.keywords):
            yield self._child(*step)

    def descend(self, steps: Pointer) -> Node:
        """The node at the end of these raw steps from here. Raises LookupError where there is none."""
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
        """The schema under a keyword with one subschema (`not`, `if`, `contains`, `propertyNames` ...), or None."""
        value = self.keywords.get(keyword)
        return self._child(keyword) if isinstance(value, (dict, bool)) else None

    def _list(self, keyword: str) -> tuple[Node, ...]:
        value = self.keywords.get(keyword)
        return tuple(self._child(keyword, index) for index in range(len(value))) if isinstance(value, list) else ()

    def _map(self, keyword: str) -> Mapping[str, Node]:
        value = self.keywords.get(keyword)
        if not isinstance(value, dict):
            return {}
        return {key: self._child(keyword, key) for key, item in value.items() if isinstance(item, (dict, bool))}
