"""Mistakes of a schema's author, for a report when a schema is loaded: places that no value can satisfy, keys that are
required and refused, and defaults that their own type refuses. A model cannot get past the first two."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from proxy.core.json.jsontext import FRACTIONS, format_pointer, is_integral, make_decimal, name_json_type
from proxy.core.model.values import JsonValue
from proxy.core.rules.facts import applies_always, read_facts
from proxy.core.schema.matching import SearchGivenUp, make_matcher
from proxy.core.schema.nodes import Node, Schemas

# The most contradictions reported; more of them have one cause.
_MOST: Final = 10


def list_refused_defaults(schemas: Schemas) -> tuple[str, ...]:
    """A sentence for each default that its own type refuses, with its place and remedy, at most 10."""
    return tuple(islice(_list_defaults(schemas), _MOST))


def _list_defaults(schemas: Schemas) -> Iterator[str]:
    for node in schemas.nodes():
        if node.choices is not None and not read_facts(node).site.types:
            continue
        if node.has("default") and not _takes(node, node.get("default")):
            named = name_json_type(node.get("default"))
            where = f"`{format_pointer(node.path)}`" if node.path else "the schema"
            yield (
                f"{where}: the default is refused by the property's own type ({named} where "
                f"{' or '.join(sorted(read_facts(node).site.types)) or 'nothing'} is asked): allow it in `type`, or "
                f"say in `description` what holds where the property is left out"
            )


def list_unsatisfiable(schemas: Schemas) -> Iterator[tuple[Node, str, str]]:
    """The places that no value, or no object, can satisfy, each with (message, remedy)."""
    for node in schemas.nodes():
        if node.choices is not None and not read_facts(node).site.types:
            yield node, "no value can satisfy it, the type and the listed values exclude each other", _remedy(node)
        for name in list_refused_keys(node):
            message = f"no object can satisfy it, {format_pointer((name,))[1:]!r} is required and refused as well"
            yield node, message, "declare it under `properties`, or take it out of `required`"


def list_refused_keys(node: Node) -> Iterator[str]:
    """The keys that a place requires and that it refuses whatever their value."""
    parts = list(applies_always(node)) if node.required or node.all_of or node.references else []
    for name in dict.fromkeys(name for part in parts for name in part.required):
        if any(_refuses(part, name) for part in parts):
            yield name


def _refuses(part: Node, name: str) -> bool:
    """Whether one schema refuses a key whatever its value. A pattern that runs into its limit may allow it."""
    if name in part.properties:
        return part.properties[name].never
    if part.additional is None or not part.additional.never:
        return False
    try:
        return not any(make_matcher(pattern).search(name) for pattern in part.pattern_properties)
    except SearchGivenUp:
        return False


def _remedy(node: Node) -> str:
    """Says where the listed values belong."""
    keyword = "const" if node.has("const") else "enum"
    if node.types is not None and "array" in node.types:
        return f"move the `{keyword}` into `items`"
    return f"change the `type` or the `{keyword}`"


def _takes(node: Node, value: JsonValue) -> bool:
    """Whether a value's type is legal at a node; 3.0 counts as an integer too."""
    types, kind = read_facts(node).site.types, name_json_type(value)
    whole = isinstance(value, FRACTIONS) and "integer" in types and is_integral(make_decimal(value))
    return kind in types or (kind == "integer" and "number" in types) or whole
