"""What to write instead where a schema is no JSON Schema. Pure; asked for after the meta-schema has refused one."""

from __future__ import annotations

import re
from typing import Final

from proxy.core.json.jsontext import JSON_TYPES, dumps, find_at_pointer, make_decimal
from proxy.core.model.values import JsonValue, Pointer
from proxy.core.schema.dialects import TYPE_NAMES

# Keywords that take a text, and those that take a number.
_TAKE_TEXT: Final = frozenset(["pattern", "format", "title", "description", "$ref", "$comment", "contentEncoding"])
_TAKE_NUMBER: Final = frozenset(
    ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "minItems",
     "maxItems", "minProperties", "maxProperties", "minContains", "maxContains"]
)  # fmt: skip
# Under these keys stand names of one's own.
_NAMED: Final = (("properties",), ("patternProperties",), ("$defs",), ("definitions",))
_DRAFT_4: Final = "http://json-schema.org/draft-04/schema#"
_DRAFT_7: Final = "http://json-schema.org/draft-07/schema#"
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?")


def suggest_remedy(schema: JsonValue, path: Pointer) -> str:
    """What to write instead where a schema fails its meta-schema at `path`, or '' without a better suggestion."""
    keyword = str(path[-1]) if path and path[-2:-1] not in _NAMED else ""
    try:
        value = find_at_pointer(schema, path)
    except LookupError:
        return ""
    if keyword in ("exclusiveMinimum", "exclusiveMaximum") and isinstance(value, bool):
        limit = keyword.replace("exclusiveM", "m")
        return (
            f"`{keyword}: {str(value).lower()}` is how draft 4 spells it: write the limit itself (`{keyword}: 0`) "
            f'and drop `{limit}`, or say `"$schema": "{_DRAFT_4}"`'
        )
    if keyword == "items" and isinstance(value, list):
        return (
            f'a list under `items` is called `prefixItems` since 2020-12: rename it, or say `"$schema": "{_DRAFT_7}"`'
        )
    if keyword == "required" and isinstance(value, bool):
        return "list the names of required properties on the object: `required: [name]`"
    if keyword == "type" or (len(path) > 1 and path[-2] == "type"):
        return _type_remedy(value)
    if keyword == "enum" and not isinstance(value, list):
        return "`enum` takes a list of values"
    return _value_remedy(keyword, value)


def _value_remedy(keyword: str, value: JsonValue) -> str:
    """For the value of a keyword that takes a text or a number."""
    if keyword in _TAKE_TEXT:
        if isinstance(value, str):
            return ""  # a text that the keyword cannot use: the message says why
        if value is None:
            return f"give `{keyword}` a text, or leave it out"
        quoted = "" if isinstance(value, dict | list) else f': put it in quotes, "{dumps(value).decode()}"'
        return f"`{keyword}` takes a text{quoted}"
    if keyword not in _TAKE_NUMBER:
        return ""
    if value is None:
        return f"give `{keyword}` a number, or leave it out"
    if isinstance(value, str):
        bare = f": write it without quotes, {value}" if _NUMBER.fullmatch(value) else ""
        return f"`{keyword}` takes a number{bare}"
    if isinstance(value, bool | dict | list):
        return f"`{keyword}` takes a number"
    if keyword == "multipleOf":
        return "`multipleOf` is more than 0"
    return f"`{keyword}` takes a whole number" if make_decimal(value) >= 0 else f"`{keyword}` is at least 0"


def _type_remedy(value: JsonValue) -> str:
    if isinstance(value, str):
        from difflib import get_close_matches  # imported here, because correct schemas do not need it

        nearest = get_close_matches(value.lower(), TYPE_NAMES, n=1)
        if nearest:
            return f"did you mean {TYPE_NAMES[nearest[0]] or nearest[0]!r}?"
    return "a type is one of " + ", ".join(JSON_TYPES) + ", or a list of them"
