"""Reads how others write a tool: names of types, lists of parameters, and the definition around a schema. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from proxy.core.json.jsontext import JSON_TYPES, format_pointer, parse
from proxy.core.model.values import JsonProblem, JsonValue, Pointer

# Lower-case spelling -> JSON Schema type, or None for any type. GoMind lower-cases before it compares.
TYPE_NAMES: Final[Mapping[str, str | None]] = {
    **{name: name for name in JSON_TYPES},
    **dict.fromkeys(("float", "float32", "float64", "double", "decimal"), "number"),
    **dict.fromkeys(("int", "int8", "int16", "int32", "int64", "long", "short", "byte"), "integer"),
    **dict.fromkeys(("uint", "uint8", "uint16", "uint32", "uint64"), "integer"),
    **dict.fromkeys(("str", "char", "text"), "string"), **dict.fromkeys(("dict", "map", "hashmap"), "object"),
    **dict.fromkeys(("list", "tuple", "arraylist"), "array"), "bool": "boolean", "none": "null", "any": None,
}  # fmt: skip  # fmt: skip

# Keys that an entry of a flat parameter list may have besides the schema keywords.
ENTRY_WORDS: Final = frozenset({"name", "required", "example"})
# Keys are compared in lower case and without underscores: Go writes `RequiredFields` for `required_fields`.
# The keys of GoMind's InputSummary; its other one is `description`.
_FIELD_LISTS: Final = ("requiredfields", "optionalfields")
# The keys of a tool's definition that hold the schema of its arguments, a list of parameters, or an InputSummary.
_SCHEMA_KEYS: Final = ("parameters", "inputschema", "parametersjsonschema", "schema")
_LIST_KEYS: Final = ("parameters", "arguments")
_SUMMARY_KEY: Final = "inputsummary"
# The keys that hold a whole definition, and those that hold a list of definitions.
_WRAPPERS: Final = ("function", "toolSpec")
_LISTS: Final = ("tools", "functionDeclarations", "function_declarations", "functions", "capabilities", "Capabilities")
# The keywords that nobody writes beside a definition: what has one of them is a schema.
_SCHEMATIC: Final = frozenset(
    ["properties", "required", "additionalProperties", "patternProperties", "items", "enum", "const", "allOf", "anyOf",
     "oneOf", "not", "if", "$ref"]
)  # fmt: skip
_TOOL_TYPES: Final = ("function", "custom")


# --- flat lists of parameters -----------------------------------------------------------------------------------------
def list_entries(written: JsonValue) -> list[tuple[Pointer, JsonValue]]:
    """The entries of a flat list of parameters, `[{name, type, required, description}]`, or of GoMind's InputSummary,
    each with its place. Keys that Go writes (`Name`) are read in lower case. Empty for another value."""
    if isinstance(written, list):
        return [((index,), _read_entry(entry)) for index, entry in enumerate(written)]
    if not isinstance(written, dict) or not {_fold(key) for key in written} <= {*_FIELD_LISTS, "description"}:
        return []
    fields = [(key, value) for key, value in written.items() if _fold(key) in _FIELD_LISTS]
    if not all(isinstance(value, list) for _, value in fields):
        return []
    ordered = sorted(fields, key=lambda field: _FIELD_LISTS.index(_fold(field[0])))
    return [
        ((key, index), _read_entry(entry, required=_fold(key) == _FIELD_LISTS[0]))
        for key, entries in ordered
        for index, entry in enumerate(entries)
    ]


def _read_entry(entry: JsonValue, **stated: bool) -> JsonValue:
    if not isinstance(entry, dict):
        return entry
    is_of_go = "Name" in entry and all(key[:1].isupper() for key in entry)
    return {(key[0].lower() + key[1:] if is_of_go else key): value for key, value in entry.items()} | stated


def is_parameter_list(written: JsonValue) -> bool:
    """Returns whether a value is a flat list of parameters or an InputSummary, without a mistake in its entries."""
    entries = [entry for _, entry in list_entries(written)]
    entries_fit = all(
        isinstance(entry, dict)
        and isinstance(entry.get("name"), str)
        and isinstance(entry.get("type", ""), (str, list))
        and isinstance(entry.get("required", False), bool)
        for entry in entries
    )
    return bool(entries) and entries_fit and len({entry["name"] for entry in entries}) == len(entries)


def make_object_schema(written: JsonValue) -> JsonValue:
    """Returns the object schema that a flat list of parameters means."""
    entries = [entry for _, entry in list_entries(written)]
    properties: dict[str, JsonValue] = {}
    for entry in entries:  # an `example` (GoMind's FieldHint) becomes one of `examples`
        made = {key: value for key, value in entry.items() if key not in ENTRY_WORDS}
        shown = {"examples": [_read_example(entry)]} if "example" in entry and "examples" not in made else {}
        properties[entry["name"]] = made | shown
    required = [entry["name"] for entry in entries if entry.get("required")]
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def _read_example(entry: Mapping[str, JsonValue]) -> JsonValue:
    """GoMind writes each example as a text; that of a number or a boolean is read as one."""
    example, written = entry["example"], entry.get("type")
    kind = TYPE_NAMES.get(written.lower()) if isinstance(written, str) else None
    if not isinstance(example, str) or kind not in ("number", "integer", "boolean"):
        return example
    value = parse(example.encode())
    return example if isinstance(value, JsonProblem) else value


# --- definitions of tools ---------------------------------------------------------------------------------------------
def find_definition(written: JsonValue) -> tuple[Pointer, tuple[str, ...]]:
    """The place of the schema in a tool's definition, as vendors write it, with a note; () for a schema. OpenAI writes
    `{type: function, function: {name, parameters}}` and `{type: function, name, parameters}`, Gemini `{name,
    parameters}` or `{name, parametersJsonSchema}`, Anthropic `{name, input_schema}`, MCP `{name, inputSchema}`, Bedrock
    `{toolSpec: {name, inputSchema: {json}}}`, GoMind `{name, parameters: [...]}` and `{name, input_summary}`. One
    without a name needs the schema of an object or a list of parameters."""
    path: Pointer = ()
    if isinstance(written, dict):
        inner = [key for key in _WRAPPERS if isinstance(written.get(key), dict)]
        if len(inner) == 1 and written.keys() <= {"type", inner[0]} and written.get("type", "function") in _TOOL_TYPES:
            written, path = written[inner[0]], (inner[0],)
    is_definition = isinstance(written, dict) and not written.keys() & _SCHEMATIC
    if not is_definition or written.get("type", "function") not in _TOOL_TYPES:
        return (), ()
    places = [key for key, value in written.items() if _holds_schema(key, value)]
    name = written.get("name", written.get("Name", ""))
    if len(places) != 1 or not isinstance(name, str):
        return (), ()
    path, schema = (*path, places[0]), written[places[0]]
    if isinstance(schema, dict) and schema.keys() == {"json"} and isinstance(schema["json"], dict):
        path, schema = (*path, "json"), schema["json"]
    if not name and not list_entries(schema) and not isinstance(schema.get("properties"), dict):
        return (), ()
    named = f"the definition of tool {name!r}" if name else "a tool's definition"
    return path, (f"{named} read as the schema under `{format_pointer(path)}`",)


def _holds_schema(key: str, value: JsonValue) -> bool:
    folded = _fold(key)
    if isinstance(value, dict):
        return folded in _SCHEMA_KEYS or (folded == _SUMMARY_KEY and bool(list_entries(value)))
    return folded in _LIST_KEYS and any(isinstance(entry, dict) and "name" in entry for _, entry in list_entries(value))


def find_definitions(written: JsonValue) -> tuple[Pointer, ...]:
    """The places of the definitions in a list of tools, which is no schema of one tool: a list, or `{tools: [...]}`."""
    lists: list[tuple[Pointer, JsonValue]] = [((), written)]
    if isinstance(written, dict) and not written.keys() & _SCHEMATIC:
        lists = [((key,), written.get(key)) for key in _LISTS]
    return tuple(
        (*path, index)
        for path, entries in lists
        if isinstance(entries, list)
        for index, entry in enumerate(entries)
        if find_definition(entry)[0]
    )


def _fold(key: str) -> str:
    return key.replace("_", "").lower()
