"""Translates schema spellings found in real tool catalogues to JSON Schema at load time (repair.md section 2). Pure.

Two spellings are translated, because each has one meaning: type names of other languages (`float`, `int`, `dict`,
`Boolean`, in any case) and a flat list of parameters instead of an object schema. Everything else that is not JSON
Schema is left as it is, fails its meta-schema, and gets its remedy from `suggest_remedy`.

Only places that hold a schema are examined: a property called `type`, and values inside `enum`, `const`, `default` and
`examples`, are data. The given schema is never changed; a correct schema comes back as the same object.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from proxy.core.json.jsontext import JSON_TYPES, find_at_pointer, format_pointer
from proxy.core.model.values import JsonValue, Pointer
from proxy.core.schema.nodes import list_subschemas

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
_ENTRY_WORDS: Final = frozenset({"name", "required", "example"})
# The keys of GoMind's InputSummary.
_FIELD_LISTS: Final = ("required_fields", "optional_fields")
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
    elif _is_parameter_list(schema):
        notes.append("a flat list of parameters read as an object schema")
    if _is_parameter_list(schema):
        schema = _object_of(schema)
    return _normalise_node(schema, (), notes), tuple(notes)


def _is_input_summary(schema: JsonValue) -> bool:
    """GoMind's InputSummary: lists of fields in place of a schema. A real schema has other keywords."""
    if not isinstance(schema, dict) or not schema or not schema.keys() <= _SUMMARY:
        return False
    lists = [schema[key] for key in _FIELD_LISTS if key in schema]
    return bool(lists) and all(isinstance(fields, list) for fields in lists) and _is_parameter_list(_flat_list(schema))


def _flat_list(summary: dict[str, JsonValue]) -> JsonValue:
    """The fields of a summary as one flat list of parameters."""
    return [
        {**field, "required": key == "required_fields"} if isinstance(field, dict) else field
        for key in _FIELD_LISTS
        for field in summary.get(key, ())
    ]


def _is_parameter_list(schema: JsonValue) -> bool:
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
    properties = {entry["name"]: _property_of(entry) for entry in entries}
    schema: dict[str, JsonValue] = {"type": "object", "properties": properties}
    if required := [entry["name"] for entry in entries if entry.get("required")]:
        schema["required"] = required
    return schema


def _property_of(entry: dict[str, JsonValue]) -> JsonValue:
    """One entry as a schema; its `example` (GoMind's FieldHint) becomes one of `examples`."""
    made = {key: value for key, value in entry.items() if key not in _ENTRY_WORDS}
    return {**made, "examples": [entry["example"]]} if "example" in entry and "examples" not in made else made


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
_DRAFT_4: Final = "http://json-schema.org/draft-04/schema#"
_DRAFT_7: Final = "http://json-schema.org/draft-07/schema#"


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


def suggest_remedy(schema: JsonValue, path: Pointer) -> str:
    """What to write instead where a schema fails its meta-schema at `path`, or '' without a better suggestion."""
    keyword = str(path[-1]) if path else ""
    try:
        value = find_at_pointer(schema, path)
    except LookupError:
        return ""
    if keyword in ("exclusiveMinimum", "exclusiveMaximum") and isinstance(value, bool):
        limit = keyword.replace("exclusiveM", "m")
        return (
            f"`{keyword}: {str(value).lower()}` is how draft 4 spells it: write the limit itself (`{keyword}: 0`) "
            f'and drop `{limit}`, or say `"$schema": "{_DRAFT_4}"`'
        )
    if keyword == "items" and isinstance(value, list):
        return (
            f'a list under `items` is called `prefixItems` since 2020-12: rename it, or say `"$schema": "{_DRAFT_7}"`'
        )
    if keyword == "required" and isinstance(value, bool):
        return "list the names of required properties on the object: `required: [name]`"
    if keyword == "type" or (len(path) > 1 and path[-2] == "type"):
        return _type_remedy(value)
    if keyword == "enum" and not isinstance(value, list):
        return "`enum` takes a list of values"
    return ""


def _type_remedy(value: JsonValue) -> str:
    if isinstance(value, str):
        from difflib import get_close_matches  # imported here, because correct schemas do not need it

        nearest = get_close_matches(value.lower(), TYPE_NAMES, n=1)
        if nearest:
            return f"did you mean {TYPE_NAMES[nearest[0]] or nearest[0]!r}?"
    return "a type is one of " + ", ".join(JSON_TYPES) + ", or a list of them"
