"""The value rules that take off what a model put around a value: the shape of its schema, its own name, `item`."""

from __future__ import annotations

from typing import Final

from proxy.core.json.jsontext import JSON_TYPES, dumps, name_json_type
from proxy.core.model.values import JsonValue
from proxy.core.rules.proposals import NONE, Site, read_inside

_SCHEMA_SHAPE: Final = frozenset({"description", "type"})
_TYPED_SHAPE: Final = frozenset({"type", "value"})
# Python's name of a text's type. Any other word may be data: the type of an issue is lost with it.
_TEXT_TYPES: Final = ("str", "Str")


def _can_be_object(site: Site) -> bool:
    """Whether an object is legal at a place, as it is or as JSON text."""
    return "object" in site.types or site.json_text


def schema_shaped(value: JsonValue, site: Site) -> JsonValue:
    """`{"description": "x", "type": "str"}` -> `"x"`: the model copied the schema's shape around its value.

    An object with a type of JSON Schema, or with the schema's own description, is a copied schema without a value.
    """
    if not isinstance(value, dict) or value.keys() != _SCHEMA_SHAPE or _can_be_object(site):
        return NONE
    echoed = value["type"] in JSON_TYPES or value["description"] in site.descriptions
    return value["description"] if not echoed and value["type"] in _TEXT_TYPES else NONE


def typed_value(value: JsonValue, site: Site) -> JsonValue:
    """`{"type": "string", "value": "x"}` -> `"x"`."""
    if not isinstance(value, dict) or value.keys() != _TYPED_SHAPE or _can_be_object(site):
        return NONE
    return value["value"] if value["type"] == name_json_type(value["value"]) else NONE


def value_wrapped(value: JsonValue, site: Site) -> JsonValue:
    """`{"value": "high"}` -> `"high"` where the schema lists it, or asks a number or boolean."""
    if not isinstance(value, dict) or value.keys() != {"value"} or site.types & {"object", "array"} or site.free_text:
        return NONE
    return value["value"]


def self_wrapped(value: JsonValue, site: Site) -> JsonValue:
    """`{"tags": {"tags": ["x"]}}` -> `{"tags": ["x"]}`: a list is wrapped a second time under its own name, also as
    JSON text. An object is never legal there, and no key of the items has that name."""
    if "array" not in site.types or site.free_text or _can_be_object(site) or site.name in site.item_keys:
        return NONE
    read = read_inside(value, site, frozenset({"object"})) if isinstance(value, str) else (value, ())
    inner = read[0] if read is not None and isinstance(read[0], dict) and site.name else {}
    return inner[site.name] if inner.keys() == {site.name} and isinstance(inner[site.name], list) else NONE


def item_wrapped(value: JsonValue, site: Site) -> JsonValue:
    """`{"item": {...}}` -> `[{...}]` where a list is expected: a list in the spelling of XML."""
    is_applicable = "array" in site.types and "object" not in site.types and "item" not in site.item_keys
    if not is_applicable or not isinstance(value, dict) or value.keys() != {"item"}:
        return NONE
    return value["item"] if isinstance(value["item"], list) else [value["item"]]


def object_to_json_string(value: JsonValue, site: Site) -> JsonValue:
    """`{...}` -> its JSON text, where the schema says that the string is JSON and the object does not wrap a value."""
    if not isinstance(value, dict) or "string" not in site.types or "object" in site.types or not site.json_text:
        return NONE
    if value.keys() in (_SCHEMA_SHAPE, _TYPED_SHAPE, {site.name}):
        return NONE
    return dumps(value).decode()
