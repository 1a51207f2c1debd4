"""Translates schemas from one spelling to another: found ones to JSON Schema, compiled ones to draft 2020-12. Pure.

`normalise` translates, at load time, what is found in real tool catalogues (docs/engine.md). These spellings are
translated, because each has one meaning: type names of other languages (`float`, `int`, `Boolean`, in any case), and a
flat list of parameters for an object schema. So are `nullable: true` beside `type`, and without `$schema` the tuples
and the boolean limits of earlier drafts. Everything else that is not JSON Schema is left as it is, fails its
meta-schema, and `suggest_remedy` says what to write instead. The given schema is never changed; a correct schema comes
back as the same object.

`bundle_schema` writes a schema as one self-contained document in the spelling of draft 2020-12, for readers that cannot
follow our references, such as a model's vendor. It judges the same values; names of schemas, comments, and the keywords
that only this proxy reads (`x-...`) are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import chain, count
from typing import Final

from proxy.core.json.jsontext import FRACTIONS, JSON_TYPES, dumps, find_at_pointer, format_pointer, make_decimal
from proxy.core.model.values import JsonValue, Pointer
from proxy.core.schema.definitions import TYPE_NAMES, is_parameter_list, make_object_schema
from proxy.core.schema.drafts import META_SCHEMA, REFERENCES, Draft, list_subschemas, list_vocabularies
from proxy.core.schema.formats import list_formats
from proxy.core.schema.nodes import NUMERIC, Node, Schemas

# --- schemas that a vendor's strict mode takes as they are (OpenAI "Structured Outputs") ----------------------------
# Every object is closed, and every key required.
# The keywords that strict mode keeps; descriptions are only for the model.
KEPT: Final = frozenset(
    ["type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf", "$ref", "$defs",
     "description", "title", "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
     "multipleOf", "minItems", "maxItems"]
)  # fmt: skip
FORMATS: Final = frozenset(["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"])


def is_strict(schema: JsonValue) -> bool:
    """Returns whether strict mode takes a schema unchanged."""
    if isinstance(schema, list):
        return all(map(is_strict, schema))
    if not isinstance(schema, dict):
        return False
    if not schema.keys() <= KEPT or schema.get("format", "date") not in FORMATS:
        return False
    if not (schema.keys() & {"type", "anyOf", "$ref", "enum", "const"}):
        return False
    is_closed = schema.get("additionalProperties") is False
    if is_object(schema) and not (is_closed and {*schema.get("properties", {})} == {*schema.get("required", ())}):
        return False
    members = (schema.get("properties", {}), schema.get("$defs", {}))
    below = [*(item for group in members for item in group.values()), *schema.get("anyOf", ())]
    below += [schema["items"]] if "items" in schema else []
    return all(map(is_strict, below)) and not ("array" in list_types(schema) and "items" not in schema)


def list_types(schema: Mapping[str, JsonValue]) -> list[str]:
    """The types that a schema names."""
    types = schema.get("type", [])
    return list(types) if isinstance(types, (list, tuple)) else [types]


def is_object(schema: Mapping[str, JsonValue]) -> bool:
    """Returns whether a schema speaks of an object."""
    return "object" in list_types(schema) or "properties" in schema


# --- translates schemas from one spelling to another ------------------------------------------------------------------
def normalise(schema: JsonValue, *, names_draft: bool = False) -> tuple[JsonValue, tuple[str, ...]]:
    """Translates a schema's spellings to JSON Schema. Takes a schema document, or a list `[{name, type, required,
    description}]`; gives the schema and one note for each change, such as `/properties/lat: type 'float' read as
    'number'`. `names_draft`: the document around the schema has `$schema`. Never raises."""
    notes: list[str] = []
    if is_parameter_list(schema):
        is_summary = isinstance(schema, dict)
        written = "`required_fields` and `optional_fields` (GoMind)" if is_summary else "a flat list of parameters"
        notes.append(f"{written} read as an object schema")
        schema = make_object_schema(schema)
    return _normalise_node(schema, (), notes, names_draft=names_draft), tuple(notes)


def _normalise_node(schema: JsonValue, path: Pointer, notes: list[str], *, names_draft: bool) -> JsonValue:
    """The same object if nothing changed; otherwise a copy of the changed parts and of everything around them.
    `names_draft`: a schema around it has `$schema`."""
    if not isinstance(schema, dict):
        return schema
    names_draft = names_draft or "$schema" in schema
    changed = dict(schema)
    remarks = _respell_type(changed)
    if not names_draft:
        remarks += respell_bounds(changed) + _respell_tuple(changed)
    notes += [f"{format_pointer(path)}: {remark}" for remark in remarks]
    nullable = bool(path) and _respell_nullable(changed)  # the arguments themselves are never null
    made = map_subschemas(
        changed, lambda step, child: _normalise_node(child, (*path, *step), notes, names_draft=names_draft)
    )
    if nullable:
        notes.append(f"{format_pointer(path)}: `nullable: true` lets null in")
        if not made.keys().isdisjoint(_APPLICATORS):
            return {"anyOf": [made, {"type": "null"}]}
    same = len(made) == len(schema) and all(key in made and made[key] is schema[key] for key in schema)
    return schema if same else made


def _respell_type(schema: dict[str, JsonValue]) -> list[str]:
    """Spells the type names of other languages as JSON Schema does, in place; returns the note."""
    written = schema.get("type")
    names = written if isinstance(written, list) else [written]
    if all(name in JSON_TYPES or not isinstance(name, str) or name.lower() not in TYPE_NAMES for name in names):
        return []
    read = [TYPE_NAMES.get(name.lower(), name) if isinstance(name, str) else name for name in names]
    read = list(dict.fromkeys(read))
    schema["type"] = read[0] if len(read) == 1 else read
    meaning = repr(schema["type"])
    if None in read:
        del schema["type"]
        meaning = "any type"
    return [f"type {written!r} read as {meaning}"]


def respell_bounds(schema: dict[str, JsonValue]) -> list[str]:
    """Spells draft 4's `exclusiveMinimum: true` beside `minimum` as later drafts do, in place; returns the notes."""
    remarks = []
    for switch, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        number = schema.get(limit)
        is_number = isinstance(number, (int, *FRACTIONS)) and not isinstance(number, bool)
        if isinstance(schema.get(switch), bool) and is_number:
            if schema.pop(switch):
                schema[switch] = schema.pop(limit)
            remarks.append(f"a boolean `{switch}` beside `{limit}` read as draft 4 reads it")
    return remarks


def _respell_tuple(schema: dict[str, JsonValue]) -> list[str]:
    """Spells a list under `items` as 2020-12 does, in place; returns the note. Every draft that allows it agrees."""
    if not isinstance(schema.get("items"), list) or not schema["items"] or "prefixItems" in schema:
        return []
    schema["prefixItems"] = schema.pop("items")
    if "additionalItems" in schema:
        schema["items"] = schema.pop("additionalItems")
    return ["a list under `items` read as `prefixItems`, as drafts before 2020-12 do"]


# Keywords that judge a value beside its type: null would have to pass them too.
_APPLICATORS: Final = frozenset(["$ref", "allOf", "anyOf", "oneOf", "not", "if", "const"])


def _respell_nullable(schema: dict[str, JsonValue]) -> bool:
    """Reads `nullable: true` beside `type` as OpenAPI 3.0 does, in place; returns whether null is new. A null that an
    applicator may refuse is left to the caller."""
    kinds = schema.get("type")
    if schema.get("nullable") is not True or not isinstance(kinds, (str, list)):
        return False
    named = [kinds] if isinstance(kinds, str) else kinds
    del schema["nullable"]
    if "null" in named:
        return False
    if schema.keys().isdisjoint(_APPLICATORS):
        schema["type"] = [*named, "null"]
        if isinstance(values := schema.get("enum"), list) and None not in values:
            schema["enum"] = [*values, None]
    return True


def map_subschemas(
    schema: dict[str, JsonValue], change: Callable[[Pointer, JsonValue], JsonValue]
) -> dict[str, JsonValue]:
    """A copy of a schema with each direct subschema as `change` makes it of its steps and itself, else shared."""
    changed = dict(schema)
    for step, child in list_subschemas(schema):
        keyword, made = str(step[0]), change(step, child)
        if len(step) == 1:
            changed[keyword] = made
        elif made is not child:
            if changed[keyword] is schema[keyword]:
                changed[keyword] = schema[keyword].copy()
            changed[keyword][step[1]] = made
    return changed


# --- what to write instead where the meta-schema has refused a schema -------------------------------------------------
# Keywords that take a text.
_TAKE_TEXT: Final = frozenset(["pattern", "format", "title", "description", "$ref", "$comment", "contentEncoding"])

# Under these keys are names of one's own.
_NAMED: Final = (("properties",), ("patternProperties",), ("$defs",), ("definitions",))

_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?")
# Types of lists and maps in Go, Python and TypeScript.
_LIST_TYPE: Final = re.compile(r"\[\]|(list|array|sequence|set|tuple) ?[\[<]|.+\[\]$", re.IGNORECASE)
_MAP_TYPE: Final = re.compile(r"(map|dict|mapping|record) ?[\[<]", re.IGNORECASE)


def suggest_remedy(schema: JsonValue, path: Pointer) -> str:
    """Returns a remedy if a schema fails its meta-schema at `path`, or '' without a better suggestion."""
    keyword = str(path[-1]) if path and path[-2:-1] not in _NAMED else ""
    try:
        value = find_at_pointer(schema, path)
    except LookupError:
        return ""
    if keyword in ("exclusiveMinimum", "exclusiveMaximum") and isinstance(value, bool):
        limit = keyword.replace("exclusiveM", "m")
        return (
            f"`{keyword}: {str(value).lower()}` is how draft 4 spells it: write the limit itself (`{keyword}: 0`) "
            f'and drop `{limit}`, or say `"$schema": "{META_SCHEMA[Draft.D4]}"`'
        )
    if keyword == "items" and isinstance(value, list):
        older = f'say `"$schema": "{META_SCHEMA[Draft.D7]}"`'
        return f"a list under `items` is called `prefixItems` since 2020-12: rename it, or {older}"
    if keyword == "required" and isinstance(value, bool):
        return "list the names of required properties on the object: `required: [name]`"
    if path[-2:-1] == ("properties",):
        return _suggest_property(str(path[-1]), value)
    if keyword == "type" or (len(path) > 1 and path[-2] == "type"):
        return _suggest_type(value)
    if keyword == "required" and isinstance(value, str) and value.isidentifier():
        return f"`required` takes a list of names: `required: [{value}]`"
    if keyword == "enum" and not isinstance(value, list):
        return "`enum` takes a list of values"
    return _value_remedy(keyword, value)


def _suggest_property(name: str, value: JsonValue) -> str:
    if isinstance(value, str) and value.lower() in TYPE_NAMES and (name, value) != ("type", "object"):
        return f"a property takes a schema: `{{type: {TYPE_NAMES[value.lower()] or 'string'}}}`"
    if value is not None and any(name in keywords for keywords in list_vocabularies(Draft.D2020).values()):
        return f"write `{name}` beside `properties`, not under it"
    return "a property takes a schema, such as `{type: string}`"


def _suggest_type(value: JsonValue) -> str:
    from difflib import get_close_matches  # imported here, because correct schemas do not need it

    written = value if isinstance(value, str) else ""
    if _LIST_TYPE.match(written):
        return "write `type: array` and the type of an item in `items`"
    if _MAP_TYPE.match(written):
        return "write `type: object` and the type of a value in `additionalProperties`"
    if written.lower() == "enum":
        return "list the values in `enum`, and leave out `type`"
    plain = written.lower().rpartition(".")[2]
    if name := next((name for name in list_formats(Draft.D2020) if plain == name.replace("-", "")), ""):
        name = "date-time" if "." in written else name  # Go's `time.Time`
        return f"write `type: string` and `format: {name}`"
    if nearest := get_close_matches(written.lower(), TYPE_NAMES, n=1, cutoff=0.75):
        return f"did you mean {TYPE_NAMES[nearest[0]] or nearest[0]!r}?"
    return "a type is one of " + ", ".join(JSON_TYPES) + ", or a list of them"


def _value_remedy(keyword: str, value: JsonValue) -> str:
    if keyword == "$ref" and isinstance(value, str) and not value.startswith("#"):
        return "put the document below the schema folder, or register it under `documents`; nothing is ever fetched"
    if keyword in _TAKE_TEXT:
        if isinstance(value, str):
            return ""  # a text that the keyword cannot use: the message says why
        if value is None:
            return f"give `{keyword}` a text, or leave it out"
        quoted = "" if isinstance(value, (dict, list)) else f': put it in quotes, "{dumps(value).decode()}"'
        return f"`{keyword}` takes a text{quoted}"
    if keyword not in NUMERIC:
        return ""
    if value is None:
        return f"give `{keyword}` a number, or leave it out"
    if isinstance(value, str):
        bare = f": write it without quotes, {value}" if _NUMBER.fullmatch(value) else ""
        return f"`{keyword}` takes a number{bare}"
    if isinstance(value, (bool, dict, list)):
        return f"`{keyword}` takes a number"
    if keyword == "multipleOf":
        return "`multipleOf` is more than 0"
    return f"`{keyword}` takes a whole number" if make_decimal(value) >= 0 else f"`{keyword}` is at least 0"


# --- one document in the newest spelling ------------------------------------------------------------------------------
# Keywords that name a schema or say how to read it; the copy has one dialect and other names.
_LEFT_OUT: Final = frozenset(
    ["$schema", "$id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary", "$comment", "$defs",
     "definitions", *REFERENCES]
)  # fmt: skip
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_.-]+")


def bundle_schema(schemas: Schemas) -> JsonValue:
    """The schema as a single document, recursion included. Raises SchemaError where a reference leads nowhere."""
    bundle = _Bundle()
    whole = bundle.copy(schemas.root)
    definitions: dict[str, JsonValue] = {}
    while len(definitions) < len(bundle.names):  # a definition may name further ones
        for node, name in list(bundle.names.values()):
            if name not in definitions:
                definitions[name] = bundle.copy(node)
    return {**whole, "$defs": definitions} if definitions and isinstance(whole, dict) else whole


class _Bundle:
    """Copies nodes; `names` collects the targets of references, by identity."""

    def __init__(self) -> None:
        self.names: dict[int, tuple[Node, str]] = {}

    def copy(self, node: Node) -> JsonValue:
        """A copy of one schema, with references within the bundle."""
        if not isinstance(node.raw, dict):
            return node.raw
        left_out = _LEFT_OUT | {"id"} if node.draft is Draft.D4 else _LEFT_OUT
        made: dict[str, JsonValue] = {
            keyword: value.copy() if isinstance(value, (dict, list)) else value
            for keyword, value in node.keywords.items()
            if keyword not in left_out and not keyword.startswith("x-")
        }
        made = map_subschemas(made, lambda step, _: self.copy(node.descend(step)))
        if node.reference is not None:
            made["$ref"] = f"#/$defs/{self._name(node.reference)}"
        # The keywords that earlier drafts spell differently (JSON Schema 2020-12, "Changes").
        if node.draft < Draft.D2020 and isinstance(made.get("items"), list):
            made["prefixItems"] = made.pop("items")
            if "additionalItems" in made:
                made["items"] = made["additionalItems"]
        made.pop("additionalItems", None)
        for keyword, value in made.pop("dependencies", {}).items():
            place = "dependentRequired" if isinstance(value, list) else "dependentSchemas"
            made.setdefault(place, {})[keyword] = value
        respell_bounds(made)
        return made

    def _name(self, node: Node) -> str:
        if id(node) not in self.names:
            wanted = (_NOT_IN_NAMES.sub("_", str(node.path[-1])) if node.path else "root") or "_"
            taken = {name for _, name in self.names.values()}
            numbered = (f"{wanted}_{number}" for number in count(2))
            self.names[id(node)] = (node, next(name for name in chain([wanted], numbered) if name not in taken))
        return self.names[id(node)][1]
