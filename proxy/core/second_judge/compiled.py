"""Judges values with fastjsonschema, for schemas of drafts 4 to 7 whose keywords it reads as we do.

fastjsonschema writes Python code from the schema. So it gets a copy that holds only keywords of the table below, with
only plain characters in every text that could stand in its code; patterns and formats become formats of ours.
fastjsonschema would judge other keywords (decimal limits, `uniqueItems`, `patternProperties`, `enum` of anything but
texts ...) by floats, by `re` or by Python's own equality, so schemas with them go to jsonschema.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from proxy.core.json.jsontext import make_decimal
from proxy.core.model.values import JsonValue
from proxy.core.schema.drafts import Draft
from proxy.core.schema.formats import KEYWORD, Formats
from proxy.core.schema.matching import make_matcher
from proxy.core.second_judge.reference import CannotTellError, Fault

# Texts that are safe in generated code.
_PLAIN: Final = re.compile(r"[\w .,:;/@+*()=-]*", re.ASCII)
_LOCAL: Final = re.compile(r"#(?:/[\w.-]+)*", re.ASCII)

_DIALECTS: Final = {
    Draft.D4: "http://json-schema.org/draft-04/schema#",
    Draft.D6: "http://json-schema.org/draft-06/schema#",
    Draft.D7: "http://json-schema.org/draft-07/schema#",
}

# Keywords that assert nothing here, and are left out.
_SILENT: Final = frozenset(
    [
        "$schema",
        "$comment",
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
        "contentEncoding",
        "contentMediaType",
        "contentSchema",
        "minContains",
        "maxContains",
        "dependentRequired",
        "dependentSchemas",
        "unevaluatedItems",
        "unevaluatedProperties",
        "prefixItems",
        "$defs",
        "$anchor",
        "$dynamicAnchor",
        "$dynamicRef",
        "$recursiveRef",
    ]
)
_COUNTS: Final = frozenset(["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"])
_LIMITS: Final = frozenset(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"])
_SINGLE: Final = frozenset(
    ["additionalItems", "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then"]
)
_LISTS: Final = frozenset(["allOf", "anyOf", "items", "oneOf"])
_MAPS: Final = frozenset(["definitions", "dependencies", "properties"])
_SINCE: Final = {"const": Draft.D6, "contains": Draft.D6, "propertyNames": Draft.D6} | dict.fromkeys(
    ("if", "then", "else"), Draft.D7
)


class CompiledJudge:
    """fastjsonschema's code for one schema. Raises CannotTellError for a schema that it does not read as we do."""

    name: Final = "fastjsonschema"

    def __init__(self, schema: JsonValue, draft: Draft, *, formats: Formats) -> None:
        import fastjsonschema

        if draft not in _DIALECTS:
            raise CannotTellError("fastjsonschema is asked about drafts 4 to 7 alone")
        rewriting = _Rewriting(draft, formats=formats)
        rewritten = rewriting.schema(schema)
        if not isinstance(rewritten, dict):
            rewritten = {} if rewritten else {"not": {}}
        try:
            self._validate: Callable[[Any], Any] = fastjsonschema.compile(
                {**rewritten, "$schema": _DIALECTS[draft]},
                formats=rewriting.formats,
                use_default=False,
                detailed_exceptions=False,
            )
        except Exception as error:  # its writer may raise any exception
            raise CannotTellError(f"fastjsonschema does not compile it: {type(error).__name__}") from error
        self._refusal = fastjsonschema.JsonSchemaValueException

    def find_fault(self, value: JsonValue) -> Fault | None:
        """The first thing a value (of exact numbers, see `make_exact`) breaks, or None."""
        try:
            self._validate(value)
        except self._refusal:
            return Fault("refused", ())
        return None


class _Rewriting:
    """Makes the copy of a schema that fastjsonschema gets; `formats` are the functions of the formats in it."""

    def __init__(self, draft: Draft, *, formats: Formats) -> None:
        self._draft = draft
        self._asserted = formats
        self.formats: dict[str, Callable[[Any], bool]] = {}

    def schema(self, schema: JsonValue) -> JsonValue:
        """A schema, rewritten. Raises CannotTellError."""
        if isinstance(schema, bool):
            if self._draft is Draft.D4:
                raise CannotTellError("a boolean schema in draft 4")
            return schema
        if "$ref" in schema:
            if not isinstance(schema["$ref"], str) or _LOCAL.fullmatch(schema["$ref"]) is None:
                raise CannotTellError("$ref out of the schema")
            kept = {"definitions": schema["definitions"]} if "definitions" in schema else {}
            return {"$ref": schema["$ref"], **self._keywords(kept)}
        return self._keywords(schema)

    def _keywords(self, schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
        made: dict[str, JsonValue] = {}
        texts: list[JsonValue] = []
        for keyword, value in schema.items():
            if keyword in ("pattern", "format"):
                texts.extend(self._format(keyword, value, schema.get(KEYWORD)))
            elif (
                keyword not in _SILENT and self._draft >= _SINCE.get(keyword, Draft.D4) and not keyword.startswith("x-")
            ):
                made[keyword] = self._keyword(keyword, value)
        if texts:
            made["allOf"] = [*made.get("allOf", []), *texts]
        return made

    def _keyword(self, keyword: str, value: JsonValue) -> JsonValue:
        if keyword in _LISTS and isinstance(value, list):
            return [self.schema(item) for item in value]
        if keyword in _SINGLE and isinstance(value, dict | bool):
            is_switch = isinstance(value, bool) and keyword in ("additionalItems", "additionalProperties")
            return value if is_switch else self.schema(value)
        if keyword in _MAPS and isinstance(value, dict):
            return {_plain(key): self._list_names(item) for key, item in value.items()}
        if keyword in _COUNTS or keyword in _LIMITS:
            return _whole(keyword, value)
        if keyword == "type":
            return value
        if keyword == "required":
            return [_plain(name) for name in value]
        if keyword == "enum" and isinstance(value, list) and value:
            return [item if item is None else _plain(item) for item in value]
        if keyword == "const":
            return value if value is None else _plain(value)
        raise CannotTellError(f"fastjsonschema is not asked about {_show_keyword(keyword)}")

    def _list_names(self, item: JsonValue) -> JsonValue:
        """A schema, or the names in `dependencies`."""
        return [_plain(name) for name in item] if isinstance(item, list) else self.schema(item)

    def _format(self, keyword: str, value: JsonValue, mode: JsonValue) -> list[JsonValue]:
        if keyword == "pattern":
            check: Callable[[str], bool] | None = make_matcher(value).search
        else:
            name = str(value)
            check = self._asserted.check(name, self._draft, self._asserted.mode(name, mode))
        if check is None:
            return []
        name = f"ours-{len(self.formats)}"
        self.formats[name] = check
        return [{"format": name}]


def _plain(text: JsonValue) -> str:
    if not isinstance(text, str) or _PLAIN.fullmatch(text) is None:
        raise CannotTellError("a text that is not plain")
    return text


def _whole(keyword: str, value: JsonValue) -> JsonValue:
    if isinstance(value, bool):
        if keyword.startswith("exclusive"):
            return value
        raise CannotTellError(f"{keyword} is a boolean")
    number = make_decimal(value)
    if number != int(number) or abs(number) >= 2**53:
        raise CannotTellError("a limit that is no small whole number")
    return int(number)


def _show_keyword(keyword: str) -> str:
    return keyword if _PLAIN.fullmatch(keyword) else "a keyword of another kind"
