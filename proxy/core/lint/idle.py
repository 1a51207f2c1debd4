"""Keywords that JSON Schema knows and that refuse nothing in their place: the classes of Ajv's strict mode. Pure.

A keyword of another type (`minimum` beside `type: string`), half of a pair (`then` without `if`), a format that nobody
checks, and a keyword that stands among the properties although it is written like no property.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Final

from proxy.core.lint.findings import KNOWN, Finding, count_edits, fold
from proxy.core.model.values import JsonValue
from proxy.core.schema.formats import Formats, list_formats
from proxy.core.schema.nodes import Node

# Type -> the keywords that say something about values of that type only.
_OF_TYPE: Final[Mapping[str, tuple[str, ...]]] = {
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "string": ("minLength", "maxLength", "pattern"),
    "array": ("items", "prefixItems", "additionalItems", "contains", "minItems", "maxItems", "uniqueItems",
              "minContains", "maxContains", "unevaluatedItems"),
    "object": ("properties", "patternProperties", "additionalProperties", "propertyNames", "required", "minProperties",
               "maxProperties", "dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties"),
}  # fmt: skip
_TYPE_OF: Final = {keyword: kind for kind, keywords in _OF_TYPE.items() for keyword in keywords}
# Keyword -> what bounds another type in its place.
_BOUNDS: Final[Mapping[str, Mapping[str, str]]] = {
    "string": {"minimum": "minLength", "maximum": "maxLength", "minItems": "minLength", "maxItems": "maxLength"},
    "number": {"minLength": "minimum", "maxLength": "maximum", "minItems": "minimum", "maxItems": "maximum"},
    "array": {"minLength": "minItems", "maxLength": "maxItems", "minimum": "minItems", "maximum": "maxItems",
              "minProperties": "minItems", "maxProperties": "maxItems"},
    "object": {"minItems": "minProperties", "maxItems": "maxProperties"},
}  # fmt: skip
# Keyword -> the keywords of which it needs one beside it.
_NEEDS: Final = {
    "if": ("then", "else"), "then": ("if",), "else": ("if",), "minContains": ("contains",),
    "maxContains": ("contains",),
}  # fmt: skip
# Keywords that take a boolean, and those that take a mapping of names: under `properties` neither is a property.
_SWITCHES: Final = frozenset(
    ["additionalProperties", "unevaluatedProperties", "additionalItems", "unevaluatedItems", "uniqueItems",
     "exclusiveMinimum", "exclusiveMaximum"]
)  # fmt: skip
_MAPS: Final = frozenset(["properties", "patternProperties", "dependentSchemas", "$defs", "definitions"])
# Formats of OpenAPI's registry and of common libraries, which are remarks about a value and check nothing.
_REMARKS: Final = frozenset(
    ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float", "double", "decimal",
     "decimal128", "byte", "binary", "password", "base64url", "base64", "char", "html", "commonmark", "json",
     "json-string", "markdown", "media-range", "sf-binary", "sf-boolean", "sf-decimal", "sf-integer", "sf-string",
     "sf-token", "http-date", "unixtime", "double-int", "single-quoted", "date-time-local", "time-local"]
)  # fmt: skip
# Names that people give to formats of JSON Schema.
_OTHER_NAMES: Final = {"url": "uri", "guid": "uuid", "ip": "ipv4"}


def list_idle(node: Node, formats: Formats, referenced: Set[int]) -> Iterator[Finding]:
    """The findings about the keywords of one schema. `referenced` are the identities of the nodes to which references
    lead: what stands under `then` may be read by one."""
    document, path = node.place.document, node.path
    for keyword, message, hint, is_grave in (
        *_list_inapplicable(node),
        *_list_halves(node, referenced),
        *(_list_formats(node) if formats.asserted and node.get("x-format") != "off" else ()),
    ):
        yield Finding(document, (*path, keyword), message, hint, is_grave)
    for name in list_misplaced(node):
        message = f"{name!r} under `properties` is read as a property of that name and checks nothing"
        yield Finding(document, (*path, "properties", name), message, "write it beside `properties`", True)


def list_misplaced(node: Node) -> Iterator[str]:
    """The keys under `properties` whose values are written as those of the keywords of the same name."""
    properties = node.get("properties")
    for name, value in properties.items() if isinstance(properties, dict) else ():
        is_map = name in _MAPS and isinstance(value, dict) and bool(value) and value.keys().isdisjoint(KNOWN)
        if (is_map and all(isinstance(each, dict | bool) for each in value.values())) or (
            name in _SWITCHES and isinstance(value, bool)
        ):
            yield name


def _list_inapplicable(node: Node) -> Iterator[tuple[str, str, str, bool]]:
    types = node.types
    if not types:
        return
    allowed = "number" if types & {"number", "integer"} else next(iter(types)) if len(types) == 1 else ""
    for keyword, value in node.keywords.items():
        kind = _TYPE_OF.get(keyword)
        if kind is None or kind in types or (kind == "number" and allowed == "number") or not _refuses(keyword, value):
            continue
        message = (
            f"{keyword!r} refuses nothing: it applies to {_PLURAL[kind]}, and the type is {' or '.join(sorted(types))}"
        )
        if kind == "object" and "array" in types:
            hint = f"write `{keyword}` in `items`"
        elif (nearby := _BOUNDS.get(allowed, {}).get(keyword)) is not None:
            hint = f"did you mean {nearby!r}?"
        else:
            hint = f"change the type to {kind!r}, or remove {keyword!r}"
        yield keyword, message, hint, True


_PLURAL: Final = {"number": "numbers", "string": "strings", "array": "arrays", "object": "objects"}


def _refuses(keyword: str, value: JsonValue) -> bool:
    """Returns whether a keyword could refuse a value of its own type."""
    if keyword == "uniqueItems":
        return value is True
    return value not in (True, {}, []) if isinstance(value, bool | dict | list) else value != 0


def _list_halves(node: Node, referenced: Set[int]) -> Iterator[tuple[str, str, str, bool]]:
    for keyword, others in _NEEDS.items():
        if not node.has(keyword) or any(map(node.has, others)):
            continue
        if (inner := node.inner(keyword)) is not None and id(inner) in referenced:
            continue
        # The properties that an `if` names count as evaluated.
        if keyword == "if" and not node.schemas.mentioned.isdisjoint(("unevaluatedProperties", "unevaluatedItems")):
            continue
        needed = " or ".join(f"`{other}`" for other in others)
        hint = f"write {needed} beside it"
        if keyword in ("minContains", "maxContains"):
            hint += f", or `{keyword.replace('Contains', 'Items')}` in its place"
        yield keyword, f"{keyword!r} refuses nothing without {needed}", hint, True


def _list_formats(node: Node) -> Iterator[tuple[str, str, str, bool]]:
    name, types = node.get("format"), node.types
    if not isinstance(name, str) or name in _REMARKS or (types is not None and "string" not in types):
        return
    known = list_formats(node.draft)
    if name in known:
        return
    folded = fold(name)
    counted = [(count_edits(folded, fold(other)), other) for other in known]
    edits, nearest = min(counted)
    is_near = edits == 0 or (len(folded) >= 4 and edits <= (2 if len(fold(nearest)) >= 8 else 1))
    nearby = nearest if is_near else _OTHER_NAMES.get(name.lower(), "")
    hint = f"did you mean {nearby!r}?" if nearby else "any text passes: add a `pattern` if not every text is right"
    yield "format", f"the format {name!r} checks nothing", hint, is_near
