"""Changed copies of a schema: a keyword dropped, a property renamed or declared, a value allowed.

Each edit takes the schema as it is served and the place (its own pointer in the schema) of a node, and gives another
schema; None where the node is not a part of that schema.
"""

from __future__ import annotations

from collections.abc import Callable

from proxy.core.model.values import JsonValue, Pointer


def drop_keyword(schema: JsonValue, at: Pointer, keyword: str) -> JsonValue | None:
    """The schema without a keyword at a node."""
    return _edited(schema, at, lambda node: {key: item for key, item in node.items() if key != keyword})


def allow_value(schema: JsonValue, at: Pointer, value: JsonValue) -> JsonValue | None:
    """The schema with one more value in the `enum` of a node."""
    return _edited(schema, at, lambda node: {**node, "enum": [*node.get("enum", ()), value]})


def declare_property(schema: JsonValue, at: Pointer, name: str) -> JsonValue | None:
    """The schema with one more property of an object, which may hold anything."""
    return _edited(schema, at, lambda node: {**node, "properties": {**node.get("properties", {}), name: {}}})


def rename_property(schema: JsonValue, at: Pointer, name: str, new: str) -> JsonValue | None:
    """The schema with a property of an object under another name."""

    def rename(node: dict[str, JsonValue]) -> dict[str, JsonValue]:
        properties = {new if key == name else key: item for key, item in node.get("properties", {}).items()}
        required = [new if key == name else key for key in node.get("required", ())]
        return {**node, "properties": properties, "required": required}

    return _edited(schema, at, rename)


def _edited(
    value: JsonValue, at: Pointer, change: Callable[[dict[str, JsonValue]], dict[str, JsonValue]]
) -> JsonValue | None:
    if not at:
        return change(value) if isinstance(value, dict) else None
    step, rest = at[0], at[1:]
    if isinstance(value, dict) and step in value:
        inner = _edited(value[step], rest, change)
        return None if inner is None else {**value, step: inner}
    if isinstance(value, list) and isinstance(step, int) and step < len(value):
        inner = _edited(value[step], rest, change)
        return None if inner is None else [*value[:step], inner, *value[step + 1 :]]
    return None
