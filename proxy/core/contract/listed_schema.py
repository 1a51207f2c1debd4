"""A schema that a server lists: bounded, read, brought to the drafts of today, and compiled. Pure.

What a server lists is not trusted. A schema may refer only to itself and hold at most `MAX_NODES` values.
"""

from __future__ import annotations

from dataclasses import field
from typing import Final

from proxy.core.check.validation import Check, SchemaError, compile_check
from proxy.core.json.jsontext import TRUSTED, LosslessFloat, format_pointer, parse, walk
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue
from proxy.core.schema.dialects import normalise
from proxy.core.schema.formats import Formats

# Values in one schema: the largest in tests/data/mcp-tools has 422, and 5,000 take most of a second to compile.
MAX_NODES: Final = 5_000
_LIMITS: Final = (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum"))
# Keywords that hold values and no schemas.
_DATA: Final = frozenset({"enum", "const", "default", "examples"})


@value_class
class Unparsed:
    """A schema of a long list: its JSON text, read when its tool is called. `reason`: why it cannot be used."""

    text: bytes = field(repr=False)
    reason: str = ""


class BadSchemaError(Exception):
    """A tool's schema cannot be used; the message says why."""


def parse_schema(schema: JsonValue) -> JsonValue:
    """A listed schema as a value. Raises BadSchemaError for one that was not kept."""
    if not isinstance(schema, Unparsed):
        return schema
    if schema.reason:
        raise BadSchemaError(schema.reason)
    return parse(schema.text, TRUSTED)


def check_size(schema: JsonValue) -> None:
    """Raises BadSchemaError where a schema is not a JSON object, or exceeds the bounds."""
    if not isinstance(schema, dict):
        raise BadSchemaError("it is missing, or no JSON object")
    if sum(1 for _ in walk(schema)) > MAX_NODES:
        raise BadSchemaError(f"it holds more than {MAX_NODES} values")


def compile_listed(schema: JsonValue, formats: bool | Formats) -> Check:
    """A listed schema, compiled. Raises BadSchemaError."""
    check_size(schema)
    if isinstance(schema, dict) and "$schema" not in schema:
        schema = _without_old_limits(schema)
    try:
        return compile_check(normalise(schema)[0], formats=formats, is_trusted=False)
    except SchemaError as error:
        raise BadSchemaError(f"{format_pointer(error.path)}: {error.message}"[:300]) from None


def _without_old_limits(schema: JsonValue) -> JsonValue:
    """A schema in which limits are spelled as since draft 6: `exclusiveMinimum: true` beside a `minimum` comes out of
    real servers that name no draft, and means one thing only."""
    if isinstance(schema, list):
        return [_without_old_limits(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: item if key in _DATA else _without_old_limits(item) for key, item in schema.items()}
    for limit, exclusive in _LIMITS:
        number = made.get(limit)
        if isinstance(made.get(exclusive), bool) and isinstance(number, int | float | LosslessFloat):
            holds = made.pop(exclusive)
            made |= {exclusive: made.pop(limit)} if holds else {}
    return made
