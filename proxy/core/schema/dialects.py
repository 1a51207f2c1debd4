"""Translates schemas from one spelling to another: found ones to JSON Schema, compiled ones to draft 2020-12. Pure.

`normalise` translates, at load time, what is found in real tool catalogues (repair.md section 2). Two spellings are
translated, because each has one meaning: type names of other languages (`float`, `int`, `dict`, `Boolean`, in any case)
and a flat list of parameters instead of an object schema. Everything else that is not JSON Schema is left as it is,
fails its meta-schema, and gets its remedy from `remedies.py`. Only places that hold a schema are examined: a
property called `type`, and values inside `enum`, `const`, `default` and `examples`, are data. The given schema is never
changed; a correct schema comes back as the same object.

`bundle_schema` writes a schema as one self-contained document in the spelling of draft 2020-12, for readers that cannot
follow our references, such as a model's vendor. The document judges the same values; the tests compare the two. Every
reference leads to `#/$defs/...` of the same document. Names of schemas, comments, and the keywords that only this proxy
reads (`x-...`) are left out. No other file translates the spellings of older drafts into the newest one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain, count
from typing import Final

from proxy.core.json.jsontext import JSON_TYPES, format_pointer
from proxy.core.model.values import JsonValue, Pointer
from proxy.core.schema.drafts import REFERENCES
from proxy.core.schema.nodes import Draft, Node, Schemas, list_subschemas

# Lower-case spelling -> JSON Schema type; None where any type may stand. GoMind lower-cases before it compares.
TYPE_NAMES: Final[Mapping[str, str | None]] = {
    **{name: name for name in JSON_TYPES},
    **dict.fromkeys(("float", "float32", "float64", "double", "decimal"), "number"),
    **dict.fromkeys(("int", "int8", "int16", "int32", "int64", "uint", "long", "short", "byte"), "integer"),
    **dict.fromkeys(("bool",), "boolean"),
    **dict.fromkeys(("str", "char", "text"), "string"),
    **dict.fromkeys(("dict", "map", "hashmap"), "object"),
    **dict.fromkeys(("list", "tuple", "arraylist"), "array"),
    **dict.fromkeys(("none",), "null"),
    "any": None,
}

# Keys that an entry of a flat parameter list may have besides the schema keywords.
ENTRY_WORDS: Final = frozenset({"name", "required", "example"})
# The keys of GoMind's InputSummary.
_FIELD_LISTS: Final = ("required_fields", "optional_fields")
# The keys of a tool's definition that hold the schema of its arguments, and those that hold a whole definition.
_SCHEMA_KEYS: Final = ("parameters", "inputSchema", "input_schema", "parametersJsonSchema", "schema")
_WRAPPERS: Final = ("function", "toolSpec")
# Keys that hold a list of definitions.
_LISTS: Final = ("tools", "functionDeclarations", "function_declarations", "functions")
# The keywords that nobody writes beside a definition: what has one of them is a schema.
_SCHEMATIC: Final = frozenset(
    ["properties", "required", "additionalProperties", "patternProperties", "items", "enum", "const", "allOf", "anyOf",
     "oneOf", "not", "if", "$ref"]
)  # fmt: skip
_TOOL_TYPES: Final = ("function", "custom")
_SUMMARY: Final = frozenset({*_FIELD_LISTS, "description"})


def normalise(schema: JsonValue) -> tuple[JsonValue, tuple[str, ...]]:
    """Translates a schema's spellings to JSON Schema.

    Takes a schema document, or a list `[{name, type, required, description}]`; gives the schema and one note for each
    change, such as `/properties/lat: type 'float' read as 'number'`. Never raises.
    """
    notes: list[str] = []
    if _is_input_summary(schema):
        schema = _flat_list(schema)
        notes.append("`required_fields` and `optional_fields` (GoMind) read as an object schema")
    elif is_parameter_list(schema):
        notes.append("a flat list of parameters read as an object schema")
    if is_parameter_list(schema):
        schema = _object_of(schema)
    return _normalise_node(schema, (), notes), tuple(notes)


def find_definition(written: JsonValue) -> tuple[Pointer, tuple[str, ...]]:
    """Where the schema stands in a tool's definition, as vendors and `export` write it, with a note; () for a schema.

    OpenAI writes `{type: function, function: {name, parameters}}` and `{type: function, name, parameters}`, Gemini
    `{name, parameters}` or `{name, parametersJsonSchema}`, Anthropic `{name, input_schema}`, MCP `{name, inputSchema}`,
    Bedrock `{toolSpec: {name, inputSchema: {json}}}`. A definition without a name is one where its schema is that of an
    object.
    """
    path: Pointer = ()
    if isinstance(written, dict):
        inner = [key for key in _WRAPPERS if isinstance(written.get(key), dict)]
        if len(inner) == 1 and written.keys() <= {"type", inner[0]} and written.get("type", "function") in _TOOL_TYPES:
            written, path = written[inner[0]], (inner[0],)
    if not isinstance(written, dict) or written.keys() & _SCHEMATIC:
        return (), ()
    if written.get("type", "function") not in _TOOL_TYPES:
        return (), ()
    places = [key for key in _SCHEMA_KEYS if isinstance(written.get(key), dict)]
    name = written.get("name", "")
    if len(places) != 1 or not isinstance(name, str):
        return (), ()
    path, schema = (*path, places[0]), written[places[0]]
    if schema.keys() == {"json"} and isinstance(schema["json"], dict):
        path, schema = (*path, "json"), schema["json"]
    if not name and not isinstance(schema.get("properties"), dict):
        return (), ()
    named = f"the definition of tool {name!r}" if name else "a tool's definition"
    return path, (f"{named} read as the schema under `{format_pointer(path)}`",)


def find_definitions(written: JsonValue) -> tuple[Pointer, ...]:
    """Where the definitions stand in a list of tools, which is no schema of one tool: a list, or `{tools: [...]}`."""
    if isinstance(written, dict) and not written.keys() & _SCHEMATIC:
        lists: list[tuple[Pointer, JsonValue]] = [((key,), written.get(key)) for key in _LISTS]
    else:
        lists = [((), written)]
    return tuple(
        (*path, index)
        for path, entries in lists
        if isinstance(entries, list)
        for index, entry in enumerate(entries)
        if find_definition(entry)[0]
    )


def _is_input_summary(schema: JsonValue) -> bool:
    """GoMind's InputSummary: lists of fields in place of a schema. A real schema has other keywords."""
    if not isinstance(schema, dict) or not schema or not schema.keys() <= _SUMMARY:
        return False
    lists = [schema[key] for key in _FIELD_LISTS if key in schema]
    return bool(lists) and all(isinstance(fields, list) for fields in lists) and is_parameter_list(_flat_list(schema))


def _flat_list(summary: dict[str, JsonValue]) -> JsonValue:
    """The fields of a summary as one flat list of parameters."""
    return [
        {**field, "required": key == "required_fields"} if isinstance(field, dict) else field
        for key in _FIELD_LISTS
        for field in summary.get(key, ())
    ]


def is_parameter_list(schema: JsonValue) -> bool:
    """Whether a value is a flat list of parameters, `[{name, type, required, description}]`."""
    if not isinstance(schema, list) or not schema:
        return False
    entries_fit = all(
        isinstance(entry, dict)
        and isinstance(entry.get("name"), str)
        and isinstance(entry.get("type", ""), str | list)
        and isinstance(entry.get("required", False), bool)
        for entry in schema
    )
    return entries_fit and len({entry["name"] for entry in schema}) == len(schema)


def _object_of(entries: list[dict[str, JsonValue]]) -> JsonValue:
    properties: dict[str, JsonValue] = {}
    for entry in entries:  # an `example` (GoMind's FieldHint) becomes one of `examples`
        made = {key: value for key, value in entry.items() if key not in ENTRY_WORDS}
        shown = {"examples": [entry["example"]]} if "example" in entry and "examples" not in made else {}
        properties[entry["name"]] = made | shown
    schema: dict[str, JsonValue] = {"type": "object", "properties": properties}
    if required := [entry["name"] for entry in entries if entry.get("required")]:
        schema["required"] = required
    return schema


def _normalise_node(schema: JsonValue, path: Pointer, notes: list[str]) -> JsonValue:
    """The same object where nothing changed; else a copy of the changed parts and of everything around them."""
    if not isinstance(schema, dict):
        return schema
    changed = dict(schema)
    _put_type_right(changed, path, notes)
    for step, child in list_subschemas(schema):
        better = _normalise_node(child, (*path, *step), notes)
        if better is not child:
            _replace(schema, changed, step, better)
    same = len(changed) == len(schema) and all(changed[key] is schema[key] for key in schema)
    return schema if same else changed


def _replace(before: dict[str, JsonValue], changed: dict[str, JsonValue], step: Pointer, child: JsonValue) -> None:
    keyword = str(step[0])
    if len(step) == 1:
        changed[keyword] = child
        return
    if changed[keyword] is before[keyword]:
        changed[keyword] = before[keyword].copy()
    changed[keyword][step[1]] = child


def _put_type_right(schema: dict[str, JsonValue], path: Pointer, notes: list[str]) -> None:
    written = schema.get("type")
    names = written if isinstance(written, list) else [written]
    if all(name in JSON_TYPES or not isinstance(name, str) or name.lower() not in TYPE_NAMES for name in names):
        return
    read = list(dict.fromkeys(TYPE_NAMES.get(name.lower(), name) if isinstance(name, str) else name for name in names))
    if None in read:
        del schema["type"]
    else:
        schema["type"] = read[0] if len(read) == 1 else read
    meaning = repr(schema["type"]) if "type" in schema else "any type"
    notes.append(f"{format_pointer(path)}: type {written!r} read as {meaning}")


# --- what to do about a schema that cannot be used ------------------------------------------------------------------


def rewrite_numeric_bounds(schema: JsonValue) -> tuple[JsonValue, tuple[str, ...]]:
    """Writes draft 4's `exclusiveMinimum: true` beside `minimum` in the spelling of the later drafts.

    This serves schemas that the operator cannot edit (learned from a server, replayed from a log); a schema in a file
    is refused with its remedy instead. Gives the schema and a note for each change; draft-4 schemas stay as they are.
    """
    if isinstance(schema, dict) and "draft-04" in str(schema.get("$schema", "")):
        return schema, ()
    notes: list[str] = []
    return _numeric_bounds(schema, (), notes), tuple(notes)


def _numeric_bounds(schema: JsonValue, path: Pointer, notes: list[str]) -> JsonValue:
    if not isinstance(schema, dict):
        return schema
    changed = dict(schema)
    for switch, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if not isinstance(switched := changed.get(switch), bool):
            continue
        del changed[switch]
        if switched and bound in changed:
            changed[switch] = changed.pop(bound)
        notes.append(f"{format_pointer(path)}: {switch} {str(switched).lower()} read as in draft 4")
    for step, child in list_subschemas(schema):
        _replace(schema, changed, step, _numeric_bounds(child, (*path, *step), notes))
    return changed if notes else schema


# --- one document in the newest spelling ------------------------------------------------------------------------------
# Keywords that name a schema or say how to read it; the copy has one dialect and names of its own.
_LEFT_OUT: Final = frozenset(
    ["$schema", "$id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary", "$comment", "$defs",
     "definitions", *REFERENCES]
)  # fmt: skip
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_.-]+")


def bundle_schema(schemas: Schemas) -> JsonValue:
    """The schema as a single document. Recursion stays: a definition may lead to itself. Raises SchemaError where a
    reference leads nowhere (a compiled check has no such reference)."""
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
        made: dict[str, JsonValue] = {}
        for keyword, value in node.keywords.items():
            old_name = keyword == "id" and node.draft is Draft.D4
            if keyword not in _LEFT_OUT and not keyword.startswith("x-") and not old_name:
                made[keyword] = value.copy() if isinstance(value, dict | list) else value
        for step, _ in list_subschemas(dict(node.keywords)):
            if step[0] in made:
                child = self.copy(node.descend(step))
                if len(step) == 1:
                    made[str(step[0])] = child
                else:
                    made[str(step[0])][step[1]] = child
        if node.reference is not None:
            made["$ref"] = f"#/$defs/{self._name(node.reference)}"
        return _respell(made, node)

    def _name(self, node: Node) -> str:
        if id(node) not in self.names:
            wanted = _NOT_IN_NAMES.sub("_", str(node.path[-1])) if node.path else "root"
            taken = {name for _, name in self.names.values()}
            wanted = wanted or "_"
            numbered = (f"{wanted}_{number}" for number in count(2))
            name = next(name for name in chain([wanted], numbered) if name not in taken)
            self.names[id(node)] = (node, name)
        return self.names[id(node)][1]


def _respell(made: dict[str, JsonValue], node: Node) -> dict[str, JsonValue]:
    """Respells what earlier drafts spell differently (JSON Schema 2020-12, "Changes")."""
    if node.draft < Draft.D2020 and isinstance(made.get("items"), list):
        made["prefixItems"] = made.pop("items")
        if "additionalItems" in made:
            made["items"] = made["additionalItems"]
    made.pop("additionalItems", None)
    for keyword, value in made.pop("dependencies", {}).items():
        place = "dependentRequired" if isinstance(value, list) else "dependentSchemas"
        made.setdefault(place, {})[keyword] = value
    for switch, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(made.get(switch), bool) and made.pop(switch) and limit in made:
            made[switch] = made.pop(limit)
    return made
