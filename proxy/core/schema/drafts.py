"""The differences between the drafts of JSON Schema: `$schema`, the keywords of each, the keywords with subschemas.

The published meta-schemas are files of the package `jsonschema-specifications`; they are read without importing it, and
only when a schema is checked against one or refers to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import urljoin, urlsplit

from proxy.core.json.jsontext import parse
from proxy.core.model.values import JsonValue, Pointer


class Draft(IntEnum):
    """The drafts of JSON Schema, ordered by age."""

    D4 = 4
    D6 = 6
    D7 = 7
    D2019 = 2019
    D2020 = 2020


# A schema without `$schema` is 2020-12 (docs/engine.md).
META_SCHEMA: Final = {
    Draft.D4: "http://json-schema.org/draft-04/schema#", Draft.D6: "http://json-schema.org/draft-06/schema#",
    Draft.D7: "http://json-schema.org/draft-07/schema#", Draft.D2019: "https://json-schema.org/draft/2019-09/schema",
    Draft.D2020: "https://json-schema.org/draft/2020-12/schema",
}  # fmt: skip
# `$schema` without its scheme and trailing '#'.
DRAFTS: Final = {uri.rstrip("#").partition(":")[2]: draft for draft, uri in META_SCHEMA.items()}

# Keywords that hold subschemas, by the shape that holds them (all drafts; a draft ignores keywords it does not know).
SINGLE: Final = frozenset([
    "additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not",
    "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
])  # fmt: skip
PATTERNS: Final = ("pattern", "patternProperties")
REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
LISTS: Final = frozenset(["allOf", "anyOf", "items", "oneOf", "prefixItems"])
MAPS: Final = frozenset(["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"])

# The first and the last draft that know a keyword; other drafts ignore it. Keywords not named here belong to all.
KNOWN_BY: Final[Mapping[str, tuple[Draft, Draft]]] = {
    **dict.fromkeys(("const", "contains", "propertyNames", "$id"), (Draft.D6, Draft.D2020)),
    **dict.fromkeys(("if", "then", "else"), (Draft.D7, Draft.D2020)),
    **dict.fromkeys(
        ("dependentRequired", "dependentSchemas", "minContains", "maxContains", "unevaluatedItems",
         "unevaluatedProperties", "$anchor", "contentSchema"), (Draft.D2019, Draft.D2020)),
    **dict.fromkeys(("prefixItems", "$dynamicRef", "$dynamicAnchor"), (Draft.D2020, Draft.D2020)),
    **dict.fromkeys(("$recursiveRef", "$recursiveAnchor"), (Draft.D2019, Draft.D2019)),
    "additionalItems": (Draft.D4, Draft.D2019),
    "id": (Draft.D4, Draft.D4),
}  # fmt: skip

# The beginnings of references to a published meta-schema (`load_documents` reads those).
META_SCHEMAS: Final = ("http://json-schema.org/", "https://json-schema.org/")

# The most steps from the root of a schema document to a subschema: deeper than any real schema, and safe to walk.
MAX_DEPTH: Final = 400

# The base of a schema without a URI. Nothing is ever looked up there.
ROOT_URI: Final = "json-schema:///schema"


class SchemaError(ValueError):
    """A schema that cannot be used: the place in it, and a message that says what is wrong and what to do."""

    def __init__(self, message: str, path: Pointer = ()) -> None:
        super().__init__(message)
        self.message = message
        self.path = path


def find_draft(
    schema: JsonValue, default: Draft = Draft.D2020, documents: Mapping[str, JsonValue] | None = None
) -> Draft:
    """The draft a schema document names by `$schema`, directly or through a meta-schema among `documents`. Raises
    SchemaError for one that is not supported."""
    named = schema.get("$schema") if isinstance(schema, dict) else None
    if named is None:
        return default
    if (draft := find_published_draft(named)) is not None:
        return draft
    if (own := (documents or {}).get(str(named).rstrip("#"))) is not None:
        return find_draft(own, default)
    message = f"$schema {str(named)!r} is not supported: use one of drafts 4, 6, 7, 2019-09, 2020-12, or leave it out"
    raise SchemaError(message, ("$schema",))


def find_published_draft(named: JsonValue) -> Draft | None:
    """The draft whose published meta-schema `$schema` names, or None."""
    return DRAFTS.get(str(named).rstrip("#").split(":", 1)[-1])


def list_subschemas(schema: Mapping[str, JsonValue]) -> Iterator[tuple[Pointer, JsonValue]]:
    """The direct subschemas of a raw schema object, each with the steps that lead to it."""
    for keyword, value in schema.items():
        if keyword in SINGLE and isinstance(value, (dict, bool)):
            yield (keyword,), value
        elif keyword in LISTS and isinstance(value, list):
            yield from (((keyword, index), item) for index, item in enumerate(value))
        elif keyword in MAPS and isinstance(value, dict):
            yield from (((keyword, key), item) for key, item in value.items() if isinstance(item, (dict, bool)))


def find_moved(schema: JsonValue, step: str | int, following: str | int) -> str | int:
    """Returns the key of the part of a schema that a reference seeks at `step`. A tuple that was written under `items`
    is read as `prefixItems` (dialects.py), and the former `additionalItems` as `items`."""
    if isinstance(schema, dict) and isinstance(schema.get("prefixItems"), list):
        if step == "items" and str(following).isdecimal() and not isinstance(schema.get(step), list):
            return "prefixItems"
        if step == "additionalItems" and step not in schema:
            return "items"
    return step


def is_conditional(path: Pointer) -> bool:
    """Returns whether a place in a schema counts only for some values of its object: a branch, negation, condition."""
    steps = iter(path)
    for step in steps:
        if step in ("anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies", "contains"):
            return True
        if step in MAPS or step in LISTS:
            next(steps, None)
    return False


def knows(draft: Draft, keyword: str) -> bool:
    """Returns whether a draft gives a keyword a meaning."""
    first, last = KNOWN_BY.get(keyword, (Draft.D4, Draft.D2020))
    return first <= draft <= last


def join(base: str, reference: str, at: Pointer = ()) -> str:
    """RFC 3986 resolution for any scheme (`urljoin` knows only a fixed list). Raises SchemaError, with the place `at`,
    for a text that is not a URI reference."""
    if reference == "" or reference.startswith("#"):
        return base.partition("#")[0] + reference
    scheme, _, rest = base.partition(":")
    try:
        if urlsplit(reference).scheme or not rest.startswith("/"):
            return reference
        return scheme + urljoin("http:" + rest, reference).removeprefix("http")
    except ValueError:
        raise SchemaError(f"{reference!r} is not a URI reference", at) from None


# --- the published meta-schemas ---------------------------------------------------------------------------------------
_FOLDERS: Final = {
    Draft.D4: "draft4", Draft.D6: "draft6", Draft.D7: "draft7", Draft.D2019: "draft201909", Draft.D2020: "draft202012",
}  # fmt: skip


def load_documents(uri: str) -> Mapping[str, JsonValue]:
    """The documents, by URI, of the draft that publishes `uri` (without a fragment); none for an unknown URI."""
    for draft, published in META_SCHEMA.items():
        meta = published.rstrip("#")
        if uri == meta or uri.startswith(meta.removesuffix("schema") + "meta/"):
            return _documents(draft)
    return {}


@cache
def list_vocabularies(draft: Draft) -> Mapping[str, frozenset[str]]:
    """The vocabularies of a draft, by URI, each with its keywords."""
    return {
        uri.replace("/meta/", "/vocab/"): frozenset(document["properties"])
        for uri, document in _documents(draft).items()
        if "/meta/" in uri
    }


@cache
def _documents(draft: Draft) -> Mapping[str, JsonValue]:
    spec = find_spec("jsonschema_specifications")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("jsonschema-specifications is not installed; it comes with jsonschema")
    folder = Path(spec.origin).with_name("schemas") / _FOLDERS[draft]
    documents: list[JsonValue] = [parse(file.read_bytes()) for file in sorted(folder.rglob("*")) if file.is_file()]
    return {str(document.get("$id") or document["id"]).rstrip("#"): document for document in documents}
