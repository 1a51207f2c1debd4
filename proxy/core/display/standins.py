"""What stands in for a value that an operator may not see: that a text of 19 characters came, say."""

from __future__ import annotations

from proxy.core.json.jsontext import name_json_type
from proxy.core.model.values import Absent, JsonValue


def describe_value(value: JsonValue) -> str:
    """Type and size: `text of 5`, `list of 2`, `object of 3`, `number`, `boolean`, `null`; `nothing` for no value."""
    if isinstance(value, str):
        return f"text of {len(value)}"
    if isinstance(value, Absent):
        return "nothing"
    if isinstance(value, list):
        return f"list of {len(value)}"
    if isinstance(value, dict):
        return f"object of {len(value)}"
    return name_json_type(value)
