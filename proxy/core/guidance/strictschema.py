"""Schemas that a vendor's strict mode takes (OpenAI "Structured Outputs"): every object closed, every key required.

`is_strict` says whether a schema is one as it stands; `make_strict_schema` makes one of it where nothing of its
meaning but the closing is lost: an optional key becomes a required one that may be null, which the rule
`drop_null_optional` of this proxy takes for left out. Bounds that strict mode does not know are left away, and listed
as losses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from proxy.core.model.values import JsonValue

# The keywords that strict mode keeps; descriptions are for the model alone.
_KEPT: Final = frozenset(
    ["type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf", "$ref", "$defs",
     "description", "title", "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
     "multipleOf", "minItems", "maxItems"]
)  # fmt: skip
_FORMATS: Final = frozenset(["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"])
# Bounds on a value: without one, the model may send what the proxy's check refuses; the answer then says so.
_BOUNDS: Final = frozenset(
    ["minLength", "maxLength", "uniqueItems", "minProperties", "maxProperties", "minContains", "maxContains",
     "contains", "propertyNames", "default", "examples", "deprecated", "readOnly", "writeOnly", "contentEncoding",
     "contentMediaType", "dependentRequired", "not"]
)  # fmt: skip
# The keywords above that bound nothing.
_SILENT: Final = frozenset(["default", "examples", "deprecated", "readOnly", "writeOnly"])
_DEEPEST: Final = 10


class _NotStrictError(Exception):
    """The schema holds what strict mode cannot say."""


def is_strict(schema: JsonValue) -> bool:
    """Whether strict mode takes a schema as it stands."""
    if isinstance(schema, list):
        return all(map(is_strict, schema))
    if not isinstance(schema, dict):
        return False
    if not schema.keys() <= _KEPT or schema.get("format", "date") not in _FORMATS:
        return False
    if not (schema.keys() & {"type", "anyOf", "$ref", "enum", "const"}):
        return False
    if _is_object(schema) and not _is_closed(schema):
        return False
    members = (schema.get("properties", {}), schema.get("$defs", {}))
    below = [*(item for group in members for item in group.values()), *schema.get("anyOf", ())]
    below += [schema["items"]] if "items" in schema else []
    return all(map(is_strict, below)) and not ("array" in _types(schema) and "items" not in schema)


def make_strict_schema(
    schema: Mapping[str, JsonValue], unknown: frozenset[str] = frozenset()
) -> tuple[dict[str, JsonValue] | None, list[str]]:
    """The schema for strict mode with the losses; None and the reason, where strict mode cannot express it. `unknown`:
    further bounds that this vendor does not know."""
    losses: list[str] = []
    try:
        made = _Strict(losses, _BOUNDS | unknown).copy(dict(schema), "", 0)
    except _NotStrictError as error:
        return None, [f"strict is off: {error}"]
    return made, losses


class _Strict:
    """Makes strict copies of schemas, and notes what they lose."""

    def __init__(self, losses: list[str], bounds: frozenset[str]) -> None:
        self._losses = losses
        self._bounds = bounds

    def copy(self, schema: JsonValue, path: str, depth: int) -> dict[str, JsonValue]:
        """A strict copy of one schema. Raises _NotStrictError."""
        if not isinstance(schema, dict):
            raise _NotStrictError(f"{path or 'the top'} takes any value")
        if depth > _DEEPEST:
            raise _NotStrictError(f"{path} is nested deeper than {_DEEPEST} levels")
        made = self._keep_keywords(_one_any_of(schema, path), path)
        if not (made.keys() & {"type", "anyOf", "$ref", "enum", "const"}):
            raise _NotStrictError(f"{path or 'the top'} takes any value")
        if _is_object(made):
            self._close(made, path, depth)
        if "array" in _types(made):
            if "items" not in made:
                raise _NotStrictError(f"{path or 'the top'} is a list of anything")
            made["items"] = self.copy(made["items"], f"{path}/items", depth + 1)
        if "anyOf" in made:
            branches = enumerate(made["anyOf"])
            made["anyOf"] = [self.copy(branch, f"{path}/anyOf/{number}", depth) for number, branch in branches]
        if "$defs" in made:
            made["$defs"] = {
                name: self.copy(item, f"{path}/$defs/{name}", depth) for name, item in made["$defs"].items()
            }
        return made

    def _keep_keywords(self, schema: dict[str, JsonValue], path: str) -> dict[str, JsonValue]:
        """The keywords that strict mode knows. An unknown bound is a loss; any other unknown keyword raises."""
        made = dict(schema)
        for keyword in schema:
            if keyword in self._bounds:
                del made[keyword]
                if keyword not in _SILENT:
                    self._losses.append(f"{keyword} at {path or '/'} is not told")
            elif keyword not in _KEPT:
                raise _NotStrictError(f"{keyword} at {path or 'the top'} cannot be said")
        if made.get("format", "date") not in _FORMATS:
            self._losses.append(f"format {made.pop('format')} at {path or '/'} is not told")
        return made

    def _close(self, made: dict[str, JsonValue], path: str, depth: int) -> None:
        properties = made.get("properties", {})
        if isinstance(made.get("additionalProperties"), dict) or (not properties and "properties" not in made):
            raise _NotStrictError(f"{path or 'the top'} is an object with keys of any name")
        if made.get("additionalProperties") is not False:
            self._losses.append(f"further keys at {path or '/'} are not told of")
        required = made.get("required", ())
        closed: dict[str, JsonValue] = {}
        for key, item in properties.items():
            strict = self.copy(item, f"{path}/{key}", depth + 1)
            closed[key] = strict if key in required else _or_null(strict)
        made |= {"properties": closed, "required": list(closed), "additionalProperties": False}


def _one_any_of(schema: dict[str, JsonValue], path: str) -> dict[str, JsonValue]:
    """Writes `oneOf` as `anyOf`, which accepts more; strict mode takes no keyword beside it."""
    if "oneOf" not in schema:
        return schema
    if "anyOf" in schema or not path:
        raise _NotStrictError(f"oneOf at {path or 'the top'} cannot be said")
    return {**{key: value for key, value in schema.items() if key != "oneOf"}, "anyOf": schema["oneOf"]}


def _or_null(schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """A schema that also takes null."""
    types = _types(schema)
    if "null" in types:
        return schema
    if types and not schema.keys() & {"enum", "const", "anyOf", "$ref"}:
        return {**schema, "type": [*types, "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def _types(schema: Mapping[str, JsonValue]) -> list[str]:
    types = schema.get("type", [])
    return list(types) if isinstance(types, list | tuple) else [types]


def _is_object(schema: Mapping[str, JsonValue]) -> bool:
    return "object" in _types(schema) or "properties" in schema


def _is_closed(schema: Mapping[str, JsonValue]) -> bool:
    properties = schema.get("properties", {})
    return schema.get("additionalProperties") is False and set(properties) == set(schema.get("required", ()))
