"""Translates schemas of OpenAPI 3.1, 3.0 and Swagger 2.0 to JSON Schema 2020-12. Pure.

The result is one self-contained document with the referenced schemas under `$defs`. 3.1 schemas are JSON Schema
already. 3.0 and 2.0 schemas are translated:

  - `nullable: true` (2.0: `x-nullable`) allows null, also beside `$ref`, `allOf` and `enum`: "Allows sending a null
    value for the defined schema" (OpenAPI 3.0.2). 3.0.3 reads it more narrowly, but authors do not.
  - `exclusiveMinimum: true` becomes the limit itself (also in 3.1 documents, if nothing else can be meant).
  - siblings of `$ref` are dropped (3.0.3, Reference Object); `example` becomes `examples`.
  - a property that is `readOnly` is not required in a request (3.0.3, Fixed Fields of the Schema Object).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

from proxy.core.json.jsontext import find_at_pointer, parse_pointer
from proxy.core.model.values import JsonValue, Pointer
from proxy.core.schema.drafts import list_subschemas

_ANNOTATIONS: Final = frozenset({"nullable", "x-nullable", "title", "description", "example", "default", "deprecated"})
_UNIONS: Final = ("anyOf", "oneOf")
# The longest chain of references that is followed; a longer one counts as a circle.
MAX_HOPS: Final = 32


class OpenApiError(ValueError):
    """An operation that cannot be used. `path` is the place in the description; `hint` says what to do."""

    def __init__(self, message: str, path: Pointer = (), hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.hint = hint


# --- references -------------------------------------------------------------------------------------------------------
def resolve_reference(document: JsonValue, value: JsonValue, origin: Pointer) -> JsonValue:
    """The target of a Reference Object, or the value itself."""
    for _ in range(MAX_HOPS):
        if not isinstance(value, dict) or not isinstance(value.get("$ref"), str):
            return value
        value = find_at_pointer(document, find_local(document, value["$ref"], origin))
    raise OpenApiError("references run in a circle", origin)


def find_local(document: JsonValue, reference: str, origin: Pointer) -> Pointer:
    """The place in the description that a reference leads to. Raises OpenApiError where it leads elsewhere."""
    if not reference.startswith("#/"):
        hint = "bundle the description into one file first, with any OpenAPI bundler"
        raise OpenApiError(f"$ref {reference!r} leads out of the description", origin, hint)
    steps = parse_pointer(unquote(reference.removeprefix("#")))
    try:
        find_at_pointer(document, steps)
    except LookupError:
        raise OpenApiError(f"$ref {reference!r} leads nowhere", origin) from None
    return steps


# --- the schema -------------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class Translator:
    """Translates the schema at a place and all it refers to. `modern` means OpenAPI 3.1 and later."""

    document: JsonValue
    modern: bool
    notes: dict[str, int] = field(default_factory=dict)
    names: dict[Pointer, str] = field(default_factory=dict)
    waiting: list[Pointer] = field(default_factory=list)
    made: dict[str, JsonValue] = field(default_factory=dict)

    def root(self, pointer: Pointer) -> JsonValue:
        """Returns the schema at a place as a document. Raises OpenApiError for a reference that leads nowhere."""
        schema = self.translate(find_at_pointer(self.document, pointer), pointer)
        definitions = self.definitions()
        if not isinstance(schema, dict) or not definitions:
            return schema
        own = schema.get("$defs")
        return {**schema, "$defs": {**(own if isinstance(own, dict) else {}), **definitions}}

    def definitions(self) -> dict[str, JsonValue]:
        """The targets of the references in all translated schemas, by name."""
        found = self.made
        while self.waiting:
            steps = self.waiting.pop()
            found[self.names[steps]] = self.translate(find_at_pointer(self.document, steps), steps)
        return found

    def note(self, text: str) -> None:
        self.notes[text] = self.notes.get(text, 0) + 1

    def refer(self, reference: str, origin: Pointer) -> str:
        """The reference for the result; queues its target for translation."""
        if reference.startswith("#") and not reference.startswith("#/"):
            return reference  # an anchor
        steps = find_local(self.document, reference, origin)
        if steps not in self.names:
            base = re.sub(r"[^A-Za-z0-9_.-]", "_", str(steps[-1])) or "schema"
            taken = set(self.names.values())
            candidates = (base, *(f"{base}_{number}" for number in range(2, len(taken) + 3)))
            self.names[steps] = next(name for name in candidates if name not in taken)
            self.waiting.append(steps)
        return "#/$defs/" + self.names[steps]

    def translate(self, schema: JsonValue, path: Pointer, inherited: frozenset[str] = frozenset()) -> JsonValue:
        """Translates one schema and those inside it. `inherited`: names that the schema around an `allOf` calls
        readOnly."""
        if not isinstance(schema, dict):
            return schema
        result = self.reference(schema, path) if isinstance(schema.get("$ref"), str) else dict(schema)
        read_only = inherited | self.read_only(schema) if not self.modern else frozenset()
        for step, child in list_subschemas(result):
            inner = read_only if step[0] == "allOf" else frozenset()
            _put(schema, result, step, self.translate(self.branch(child, step), (*path, *step), inner))
        self.limits(result)
        if self.modern:
            return result
        self.requests(result, read_only)
        return self.nullable(result)

    def reference(self, schema: dict[str, JsonValue], path: Pointer) -> dict[str, JsonValue]:
        target = {"$ref": self.refer(schema["$ref"], path)}
        if self.modern:
            return {**schema, **target}
        return {**{key: schema[key] for key in _ANNOTATIONS & schema.keys()}, **target}

    def branch(self, schema: JsonValue, step: Pointer) -> JsonValue:
        """Reads `{nullable: true}` in a union as null, as generators mean it. Read literally, it allows everything."""
        if self.modern or step[0] not in _UNIONS or not isinstance(schema, dict):
            return schema
        if _is_nullable(schema) and schema.keys() <= _ANNOTATIONS:
            self.note("a union's branch `nullable: true` read as null")
            return {"type": "null"}
        return schema

    def read_only(self, schema: dict[str, JsonValue], hops: int = 0) -> frozenset[str]:
        """The properties of a schema and of its `allOf` that are readOnly."""
        properties = schema.get("properties")
        names = {
            name
            for name, value in (properties if isinstance(properties, dict) else {}).items()
            if isinstance(found := self.peek(value), dict) and found.get("readOnly") is True
        }
        members = schema.get("allOf")
        for member in members if isinstance(members, list) and hops < MAX_HOPS else ():
            if isinstance(found := self.peek(member), dict):
                names |= self.read_only(found, hops + 1)
        return frozenset(names)

    def peek(self, schema: JsonValue) -> JsonValue:
        try:
            return resolve_reference(self.document, schema, ())
        except OpenApiError:
            return None  # reported when the reference itself is translated

    def requests(self, schema: dict[str, JsonValue], read_only: frozenset[str]) -> None:
        required = schema.get("required")
        if read_only and isinstance(required, list) and read_only & set(required):
            schema["required"] = [name for name in required if name not in read_only]
            self.note("a readOnly property is not required in a request")
            if not schema["required"]:
                del schema["required"]
        if "example" in schema:
            schema.setdefault("examples", [schema.pop("example")])
            schema.pop("example", None)

    def limits(self, schema: dict[str, JsonValue]) -> None:
        for exclusive, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if isinstance(flag := schema.get(exclusive), bool):
                del schema[exclusive]
                if flag and limit in schema:
                    schema[exclusive] = schema.pop(limit)
                    self.note(f"`{exclusive}: true` read as a limit")
        if isinstance(discriminator := schema.get("discriminator"), dict):
            # The mapping refers to places of the description that the result does not have.
            schema["discriminator"] = {key: value for key, value in discriminator.items() if key != "mapping"}

    def nullable(self, schema: dict[str, JsonValue]) -> JsonValue:
        allows_null = _is_nullable(schema)
        schema.pop("nullable", None)
        schema.pop("x-nullable", None)
        if not allows_null:
            return schema
        self.note("`nullable: true` lets null in")
        if any(keyword in schema for keyword in ("$ref", "allOf", "anyOf", "oneOf", "not")):
            return {"anyOf": [schema, {"type": "null"}]}
        if isinstance(kind := schema.get("type"), str) and kind != "null":
            schema["type"] = [kind, "null"]
        if isinstance(values := schema.get("enum"), list) and None not in values:
            schema["enum"] = [*values, None]
        return schema


def _is_nullable(schema: dict[str, JsonValue]) -> bool:
    return schema.get("nullable") is True or schema.get("x-nullable") is True


def _put(before: dict[str, JsonValue], result: dict[str, JsonValue], step: Pointer, child: JsonValue) -> None:
    """Sets a subschema in `result`, a shallow copy of `before`, without touching `before`."""
    keyword = str(step[0])
    if len(step) == 1:
        result[keyword] = child
        return
    if result[keyword] is before.get(keyword):
        result[keyword] = before[keyword].copy()
    result[keyword][step[1]] = child
