"""The schema of a rule's arguments, closed: it requires the keys and types that it names. Pure.

JSON Schema accepts a missing key, and a list if a keyword is about texts. A rule must not, because the tool then acts
on a value that no keyword has seen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from proxy.core.json.jsontext import name_json_type
from proxy.core.lint.keywords import lint
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue, Pointer
from proxy.core.schema.drafts import LISTS, MAPS, SINGLE, list_subschemas
from proxy.plugin import Check, compile_check

# The type of the values that a keyword is about (JSON Schema accepts all others).
_TYPES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("pattern", "minLength", "maxLength", "format"), "string"),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), "number"),
    **dict.fromkeys(("items", "prefixItems", "additionalItems", "unevaluatedItems", "contains"), "array"),
    **dict.fromkeys(("minItems", "maxItems", "uniqueItems"), "array"),
    **dict.fromkeys(("properties", "patternProperties", "additionalProperties", "unevaluatedProperties"), "object"),
    **dict.fromkeys(("required", "propertyNames", "minProperties", "maxProperties"), "object"),
    **dict.fromkeys(("dependentRequired", "dependentSchemas", "dependencies"), "object"),
}
# The keywords of which only part of a condition is made: what a value must be before `if` and `not` may decide on it.
_CONDITIONS: Final = ("if", "not")
# Keywords within a condition whose keys and types can be required.
_SHAPED: Final = frozenset(
    ["properties", "patternProperties", "additionalProperties", "items", "prefixItems", "additionalItems", "allOf"]
)
_SAYING: Final = frozenset(["type", "const", "enum", "not", "title", "description", "$comment", "default", "examples"])
_VAGUE: Final = frozenset(["unevaluatedItems", "unevaluatedProperties", "dependentSchemas", "dependencies"])
_OF_ALL: Final = frozenset(
    ["items", "additionalItems", "maxItems", "uniqueItems", "maxContains",
     "additionalProperties", "patternProperties", "propertyNames", "maxProperties"]
)  # fmt: skip
_IN_CONDITION: Final = (_TYPES.keys() - _VAGUE) | _SHAPED | _SAYING
_REFERENCE: Final = re.compile(r"#(/(\$defs|definitions)/[^/]+)?")


@value_class
class OpenPlace:
    """A place of a rule's schema that cannot be closed, why, and what to write instead."""

    path: Pointer
    message: str
    hint: str


def compile_arguments(schema: Mapping[str, JsonValue]) -> tuple[Check, ...]:
    """The checks of a rule's arguments, all of which have to accept: the closed schema, and the schema as written
    (`oneOf` and `maxContains` may accept more in the closed one). Raises SchemaError."""
    rooted = {"type": "object", **schema}
    return compile_check(close_schema(rooted)), compile_check(rooted)


def negate_arguments(schema: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """Returns the arguments that a rule of `deny` does not apply to, as the schema of a rule of `allow`: those that its
    schema rejects. Closed, it rejects arguments of another shape too, so that these are denied."""
    draft = {"$schema": schema["$schema"]} if "$schema" in schema else {}
    return {**draft, "not": {key: value for key, value in schema.items() if key != "$schema"}}


def close_schema(schema: JsonValue) -> JsonValue:
    """A schema that also requires the keys and types that it names."""
    if not isinstance(schema, dict):
        return schema
    made = {key: value if key in _CONDITIONS else _change(key, value, close_schema) for key, value in schema.items()}
    _require(schema, made)
    for listed in (schema.get("prefixItems"), schema.get("items")):
        if isinstance(listed, list):
            made["minItems"] = max(len(listed), made.get("minItems", 0))
    shapes = [find_shape(schema[key]) for key in _CONDITIONS if key in schema]
    if "maxContains" in schema and "contains" in schema:
        shapes.append({"items": find_shape(schema["contains"])})
    if shapes:
        made["allOf"] = [*made.get("allOf", []), *shapes]
    if "type" not in schema and (types := _list_types(schema)):
        made["type"] = types
    return made


def find_shape(schema: JsonValue) -> JsonValue:
    """The keys and types that a condition names, without what it says about values. A value of another shape would
    only make the condition false: `not` would let it through, and `then` would say nothing."""
    if not isinstance(schema, dict):
        return True
    made = {key: _change(key, value, find_shape) for key, value in schema.items() if key in _SHAPED}
    _require({"properties": schema.get("properties")}, made)
    inner = [{"items": find_shape(schema["contains"])}] if "contains" in schema else []
    inner += [find_shape(schema["not"])] if "not" in schema else []
    if inner:
        made["allOf"] = [*made.get("allOf", []), *inner]
    values = [*schema.get("enum", []), *([schema["const"]] if "const" in schema else [])]
    listed = [name_json_type(value).replace("integer", "number") for value in values]
    types = list(dict.fromkeys([*_list_types(schema), *listed]))
    if types and types != ["null"]:
        made["type"] = types
    return made


def _change(key: str, value: JsonValue, change: Callable[[JsonValue], JsonValue]) -> JsonValue:
    """The value of a keyword with its subschemas changed."""
    if isinstance(value, list) and key in LISTS:
        return [change(each) for each in value]
    if isinstance(value, dict) and key in MAPS:
        return {name: change(each) for name, each in value.items()}
    return change(value) if key in SINGLE else value


def _require(schema: Mapping[str, JsonValue], made: dict[str, Any]) -> None:
    """Requires the properties of a schema but those that must not be there."""
    properties = schema.get("properties")
    if isinstance(properties, dict):
        named = [name for name, value in properties.items() if value is not False]
        required = schema.get("required", [])
        made["required"] = list(dict.fromkeys([*(required if isinstance(required, list) else []), *named]))


def _list_types(schema: Mapping[str, JsonValue]) -> list[str]:
    return list(dict.fromkeys(kind for key, kind in _TYPES.items() if key in schema))


# --- what cannot be closed --------------------------------------------------------------------------------------------
def list_open_places(check: Check, *, denies: bool = False) -> Iterator[OpenPlace]:
    """The places of a rule's schema as written that cannot be closed, and those that guard nothing. `denies`: the
    schema is one of `deny`, negated."""
    steps = 1 if denies else 0
    for finding in lint(check.schemas):
        if finding.is_keyword:
            yield OpenPlace(finding.path[steps:], finding.message, finding.hint)
    if denies:
        yield from _list_vague(check.schemas.root.raw["not"], (), "deny")
        yield from _list_avoidable(check.schemas.root.raw["not"], (), counts=True)
    else:
        yield from _list_open(check.schemas.root.raw, ())


def _list_open(schema: JsonValue, at: Pointer) -> Iterator[OpenPlace]:
    if not isinstance(schema, dict):
        return
    for key in ("$dynamicRef", "$recursiveRef", "$id", "$ref"):
        if key in schema and not (key == "$ref" and _REFERENCE.fullmatch(str(schema[key]))):
            yield OpenPlace((*at, key), f"a rule cannot follow this `{key}`", "write `$ref: '#/$defs/NAME'`")
    if "patternProperties" in schema and not schema.keys() & {"additionalProperties", "unevaluatedProperties"}:
        hint = "add `additionalProperties: false`, or the schema of the other keys"
        yield OpenPlace((*at, "patternProperties"), "keys that fit none of the patterns hold any value", hint)
    for path, inner in list_subschemas(schema):
        if path[0] in _CONDITIONS or (path[0] == "contains" and "maxContains" in schema):
            yield from _list_vague(inner, (*at, *path), str(path[0]))
        else:
            yield from _list_open(inner, (*at, *path))


def _list_vague(schema: JsonValue, at: Pointer, condition: str) -> Iterator[OpenPlace]:
    """The keywords in a condition whose keys and types cannot be required."""
    if not isinstance(schema, dict):
        return
    for key in schema:
        if key not in _IN_CONDITION and not key.startswith("x-"):
            hint = "write one rule for each alternative"
            hint = hint if condition == "deny" else f"write one `{condition}` for each alternative, under `allOf`"
            yield OpenPlace((*at, key), f"values of another type get past `{key}` in `{condition}`", hint)
    for path, inner in list_subschemas(schema):
        if path[0] in _IN_CONDITION:
            yield from _list_vague(inner, (*at, *path), condition)


def _list_avoidable(schema: JsonValue, at: Pointer, *, counts: bool) -> Iterator[OpenPlace]:
    """The keywords of a denying schema that one more item or key makes false, so that the call is no longer denied.
    `counts`: not so within `not`, where it makes them true."""
    if not isinstance(schema, dict):
        return
    for key in _OF_ALL.intersection(schema) if counts else ():
        if not (key == "items" and isinstance(schema[key], list)):
            hint = "write `contains`, or `not: {KEYWORD: {not: SCHEMA}}`, which one such item or key fits"
            yield OpenPlace((*at, key), f"one more item or key gets a call past `{key}` in `deny`", hint)
    for path, inner in list_subschemas(schema):
        yield from _list_avoidable(inner, (*at, *path), counts=counts != (path[0] == "not"))


def list_names(schema: JsonValue) -> Iterator[str]:
    """The keys that a schema and its parts name."""
    if not isinstance(schema, dict):
        return
    yield from schema.get("required", ())
    for key in ("properties", "dependentRequired", "dependentSchemas", "dependencies"):
        yield from schema.get(key, ())
    for key in ("dependentRequired", "dependencies"):
        for names in schema.get(key, {}).values():
            yield from names if isinstance(names, list) else ()
    for _, inner in list_subschemas(schema):
        yield from list_names(inner)
