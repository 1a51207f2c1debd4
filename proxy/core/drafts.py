"""How the drafts of JSON Schema spell things: `$schema`, which keyword each knows, which keywords hold subschemas.

Tables and the functions that read them, and how a reference joins its base. `schema.py` builds its graph from these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Final
from urllib.parse import urljoin, urlsplit

from proxy.core.model import JsonValue, Pointer


class Draft(IntEnum):
    """The drafts of JSON Schema, ordered by age."""

    D4 = 4
    D6 = 6
    D7 = 7
    D2019 = 2019
    D2020 = 2020


# `$schema` without its scheme and trailing '#'. A schema without `$schema` is 2020-12 (repair.md section 2).
DRAFTS: Final[Mapping[str, Draft]] = {
    "//json-schema.org/draft-04/schema": Draft.D4,
    "//json-schema.org/draft-06/schema": Draft.D6,
    "//json-schema.org/draft-07/schema": Draft.D7,
    "//json-schema.org/draft/2019-09/schema": Draft.D2019,
    "//json-schema.org/draft/2020-12/schema": Draft.D2020,
}

# Which keywords hold subschemas, by the shape that holds them (all drafts; a draft ignores what it does not know).
SINGLE: Final = frozenset(
    [
        "additionalItems",
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    ]
)
PATTERNS: Final = ("pattern", "patternProperties")
REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
LISTS: Final = frozenset(["allOf", "anyOf", "items", "oneOf", "prefixItems"])
MAPS: Final = frozenset(["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"])

# The drafts that know a keyword, first and last; the others pass it over. Keywords not named here belong to all.
KNOWN_BY: Final[Mapping[str, tuple[Draft, Draft]]] = {
    **dict.fromkeys(("const", "contains", "propertyNames", "$id"), (Draft.D6, Draft.D2020)),
    **dict.fromkeys(("if", "then", "else"), (Draft.D7, Draft.D2020)),
    **dict.fromkeys(
        ("dependentRequired", "dependentSchemas", "minContains", "maxContains", "unevaluatedItems"),
        (Draft.D2019, Draft.D2020),
    ),
    **dict.fromkeys(("unevaluatedProperties", "$anchor", "contentSchema"), (Draft.D2019, Draft.D2020)),
    **dict.fromkeys(("prefixItems", "$dynamicRef", "$dynamicAnchor"), (Draft.D2020, Draft.D2020)),
    **dict.fromkeys(("$recursiveRef", "$recursiveAnchor"), (Draft.D2019, Draft.D2019)),
    "additionalItems": (Draft.D4, Draft.D2019),
    "id": (Draft.D4, Draft.D4),
}

# References to a published meta-schema start so. Nothing here walks one: the engine that knows them judges.
META_SCHEMAS: Final = ("http://json-schema.org/", "https://json-schema.org/")

# Steps from the root of a schema document to a subschema: beyond any real schema, and safe for all that walk one.
MAX_DEPTH: Final = 400

# The base of a schema that names none and was given none. Nothing is ever looked up there.
ROOT_URI: Final = "json-schema:///schema"


class SchemaError(ValueError):
    """A schema that cannot be used. `path` is where in the schema; the message says what is wrong and what to do."""

    def __init__(self, message: str, path: Pointer = ()) -> None:
        super().__init__(message)
        self.message = message
        self.path = path


def draft_of(
    schema: JsonValue, default: Draft = Draft.D2020, documents: Mapping[str, JsonValue] | None = None
) -> Draft:
    """The draft a schema document names by `$schema`, directly or through a meta-schema among `documents`.

    Raises SchemaError for one that is not supported.
    """
    named = schema.get("$schema") if isinstance(schema, dict) else None
    if named is None:
        return default
    draft = published(named)
    if draft is None and (own := (documents or {}).get(str(named).rstrip("#"))) is not None:
        return draft_of(own, default)
    if draft is None:
        raise SchemaError(
            f"$schema {str(named)!r} is not supported: use one of drafts 4, 6, 7, 2019-09, 2020-12, or leave it out",
            ("$schema",),
        )
    return draft


def published(named: JsonValue) -> Draft | None:
    """The draft whose published meta-schema `$schema` names, or None."""
    return DRAFTS.get(str(named).rstrip("#").split(":", 1)[-1])


def subschemas(schema: dict[str, JsonValue]) -> Iterator[tuple[Pointer, JsonValue]]:
    """The direct subschemas of a raw schema object, each with the steps that lead to it."""
    for keyword, value in schema.items():
        if keyword in SINGLE and isinstance(value, dict | bool):
            yield (keyword,), value
        elif keyword in LISTS and isinstance(value, list):
            yield from (((keyword, index), item) for index, item in enumerate(value))
        elif keyword in MAPS and isinstance(value, dict):
            yield from (((keyword, key), item) for key, item in value.items() if isinstance(item, dict | bool))


def knows(draft: Draft, keyword: str) -> bool:
    """Whether a draft gives a keyword a meaning; what no draft defines is left alone."""
    first, last = KNOWN_BY.get(keyword, (Draft.D4, Draft.D2020))
    return first <= draft <= last


def join(base: str, reference: str, at: Pointer = ()) -> str:
    """RFC 3986 resolution for any scheme (`urljoin` alone knows a fixed list of schemes). Raises SchemaError, with the
    place `at`, for what is no URI reference (an address in brackets that are never closed)."""
    if reference == "" or reference.startswith("#"):
        return base.partition("#")[0] + reference
    scheme, _, rest = base.partition(":")
    try:
        if urlsplit(reference).scheme or not rest.startswith("/"):
            return reference
        return scheme + urljoin("http:" + rest, reference).removeprefix("http")
    except ValueError:
        raise SchemaError(f"{reference!r} is no URI reference", at) from None
