"""Schemas that are right at a glance, so that a start need not load the engine which knows the meta-schemas.

Most tools' schemas are made of a few keywords, each with a value of the right kind. Of those this file knows, for all
drafts at once, which values every meta-schema takes; `judge.check_schema` asks it first. It says no more than "yes":
of anything else, such as a keyword it does not know or one that the drafts see differently, it says that it cannot
tell, and the meta-schema itself is asked, which also finds the reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from proxy.core.drafts import Draft, subschemas
from proxy.core.jsontext import LosslessFloat, as_decimal
from proxy.core.model import JsonValue

# Levels of schemas within schemas, and how far numbers go: what is beyond is no matter of a glance.
_DEEP: Final = 60
_FAR: Final = 2**53
_TYPES: Final = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})


def is_obvious(schema: JsonValue, draft: Draft) -> bool:
    """Whether the meta-schema of the draft surely takes a schema. `format` is an annotation to meta-schemas, so any
    text is an address or an expression to them; what is none of those is found elsewhere."""
    pending = [(schema, 0)]
    while pending:
        schema, depth = pending.pop()
        if isinstance(schema, bool) and draft > Draft.D4:
            continue
        if not isinstance(schema, dict) or depth > _DEEP:
            return False
        for keyword, value in schema.items():
            if not keyword.startswith("x-") and not _GLANCE.get(keyword, _unknown)(value, draft):
                return False
        pending.extend((inner, depth + 1) for _, inner in subschemas(schema))
    return True


def _unknown(_value: JsonValue, _draft: Draft) -> bool:
    return False


def _any(_value: JsonValue, _draft: Draft) -> bool:
    return True


def _text(value: JsonValue, _draft: Draft) -> bool:
    return isinstance(value, str)


def _switch(value: JsonValue, _draft: Draft) -> bool:
    return isinstance(value, bool)


def _list(value: JsonValue, _draft: Draft) -> bool:
    return isinstance(value, list)


def _number(value: JsonValue, _draft: Draft) -> bool:
    is_number = isinstance(value, int | float | LosslessFloat) and not isinstance(value, bool)
    return is_number and -_FAR < as_decimal(value) < _FAR


def _strict_bound(value: JsonValue, draft: Draft) -> bool:
    return draft > Draft.D4 and _number(value, draft)  # a switch in draft 4


def _divisor(value: JsonValue, draft: Draft) -> bool:
    return _number(value, draft) and as_decimal(value) > 0


def _count(value: JsonValue, _draft: Draft) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _FAR


def _type(value: JsonValue, draft: Draft) -> bool:
    return value in _TYPES if isinstance(value, str) else _names(value, draft) and _TYPES.issuperset(value)


def _names(value: JsonValue, _draft: Draft) -> bool:
    """Texts, each once; at least one, as draft 4 wants it."""
    return isinstance(value, list) and _distinct(value, str)


def _choices(value: JsonValue, _draft: Draft) -> bool:
    """Texts, or whole numbers, each once: of other values "once" takes more than a glance."""
    return isinstance(value, list) and (_distinct(value, str) or _distinct(value, int))


def _distinct(values: list[JsonValue], kind: type) -> bool:
    return bool(values) and all(type(value) is kind for value in values) and len(set(values)) == len(values)


def _schema(value: JsonValue, draft: Draft) -> bool:
    """What stands there is looked at in its turn."""
    return isinstance(value, dict) or (isinstance(value, bool) and draft > Draft.D4)


def _schema_or_switch(value: JsonValue, _draft: Draft) -> bool:
    return isinstance(value, dict | bool)


def _schemas(value: JsonValue, draft: Draft) -> bool:
    return isinstance(value, list) and bool(value) and all(_schema(item, draft) for item in value)


def _named_schemas(value: JsonValue, draft: Draft) -> bool:
    return isinstance(value, dict) and all(_schema(item, draft) for item in value.values())


# Keyword -> whether each meta-schema surely takes this value of it.
_GLANCE: Final[Mapping[str, Callable[[JsonValue, Draft], bool]]] = {
    **dict.fromkeys(("$comment", "$ref", "$schema", "description", "format", "pattern", "title"), _text),
    **dict.fromkeys(("const", "default"), _any),
    **dict.fromkeys(("deprecated", "readOnly", "uniqueItems", "writeOnly"), _switch),
    **dict.fromkeys(("maximum", "minimum"), _number),
    **dict.fromkeys(("exclusiveMaximum", "exclusiveMinimum"), _strict_bound),
    **dict.fromkeys(("maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties"), _count),
    **dict.fromkeys(("allOf", "anyOf", "oneOf"), _schemas),
    **dict.fromkeys(("$defs", "definitions", "patternProperties", "properties"), _named_schemas),
    **dict.fromkeys(("contains", "else", "if", "items", "not", "propertyNames", "then"), _schema),
    "additionalProperties": _schema_or_switch,
    "enum": _choices,
    "examples": _list,
    "multipleOf": _divisor,
    "required": _names,
    "type": _type,
}
