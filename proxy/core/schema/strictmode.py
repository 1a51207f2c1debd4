"""Schemas that a vendor's strict mode takes as they stand (OpenAI "Structured Outputs"): every object closed, every key
required."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from proxy.core.model.values import JsonValue

# The keywords that strict mode keeps; descriptions are for the model alone.
KEPT: Final = frozenset(
    ["type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf", "$ref", "$defs",
     "description", "title", "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
     "multipleOf", "minItems", "maxItems"]
)  # fmt: skip
FORMATS: Final = frozenset(["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"])


def is_strict(schema: JsonValue) -> bool:
    """Whether strict mode takes a schema as it stands."""
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
    return list(types) if isinstance(types, list | tuple) else [types]


def is_object(schema: Mapping[str, JsonValue]) -> bool:
    """Whether a schema speaks of an object."""
    return "object" in list_types(schema) or "properties" in schema
