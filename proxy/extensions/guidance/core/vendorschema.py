"""Schemas that a vendor's strict mode takes (OpenAI "Structured Outputs"): every object closed, every key required.

`make_strict_schema` makes such a schema, which keeps the meaning but is closed. An optional key becomes a required one
that may be null, and the repair `drop_null_optional` removes the null again. Bounds that strict mode does not know are
left out, and listed as losses.

Translates JSON Schema to Gemini's `Schema`: an OpenAPI 3.0 subset with types in capitals and without references (Gemini
API, "Function calling", `Schema`).

References are replaced by their targets; recursion ends where it begins. Parts that the dialect cannot express are
listed as losses with their places.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from proxy.core.json.jsontext import dumps, format_pointer, make_decimal
from proxy.core.model.values import JsonValue, Pointer
from proxy.core.schema.dialects import FORMATS, KEPT, is_object, list_types

# Bounds on a value: without one, the model may send values that the proxy refuses.
_BOUNDS: Final = frozenset(
    ["minLength", "maxLength", "uniqueItems", "minProperties", "maxProperties", "minContains", "maxContains",
     "contains", "propertyNames", "default", "examples", "deprecated", "readOnly", "writeOnly", "contentEncoding",
     "contentMediaType", "dependentRequired", "not"]
)  # fmt: skip
# The keywords above that bound nothing.
_SILENT: Final = frozenset(["default", "examples", "deprecated", "readOnly", "writeOnly"])
_DEEPEST: Final = 10


class _NotStrictError(Exception):
    """Strict mode cannot express the schema."""


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
    """Makes strict copies of schemas, and notes their losses."""

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
        if is_object(made):
            self._close(made, path, depth)
        if "array" in list_types(made):
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
                    self._losses.append(f"{keyword} at {path or '/'} is left out")
            elif keyword not in KEPT:
                raise _NotStrictError(f"{keyword} at {path or 'the top'} cannot be expressed")
        if made.get("format", "date") not in FORMATS:
            self._losses.append(f"format {made.pop('format')} at {path or '/'} is left out")
        return made

    def _close(self, made: dict[str, JsonValue], path: str, depth: int) -> None:
        properties = made.get("properties", {})
        if isinstance(made.get("additionalProperties"), dict) or (not properties and "properties" not in made):
            raise _NotStrictError(f"{path or 'the top'} is an object with keys of any name")
        if made.get("additionalProperties") is not False:
            self._losses.append(f"further keys at {path or '/'} are left out")
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
        raise _NotStrictError(f"oneOf at {path or 'the top'} cannot be expressed")
    return {**{key: value for key, value in schema.items() if key != "oneOf"}, "anyOf": schema["oneOf"]}


def _or_null(schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """A schema that also takes null."""
    types = list_types(schema)
    if "null" in types:
        return schema
    if types and not schema.keys() & {"enum", "const", "anyOf", "$ref"}:
        return {**schema, "type": [*types, "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


# Keywords with the same meaning in both.
_GEMINI_KEPT: Final = frozenset(
    ["title", "description", "default", "pattern", "minimum", "maximum", "minLength", "maxLength", "minItems",
     "maxItems", "minProperties", "maxProperties"]
)  # fmt: skip
# Keywords whose loss does not matter: names, examples, defaults of the dialect.
_GEMINI_SILENT: Final = frozenset(
    ["$defs", "examples", "example", "deprecated", "readOnly", "writeOnly", "required", "type"]
)
_GEMINI_FORMATS: Final = {
    "STRING": frozenset({"date-time", "enum"}),
    "INTEGER": frozenset({"int32", "int64"}),
    "NUMBER": frozenset({"float", "double"}),
}
# type -> the keywords that apply to it, for a schema with several types
_OF_TYPE: Final[Mapping[str, frozenset[str]]] = {
    "string": frozenset({"pattern", "minLength", "maxLength", "format", "enum"}),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "format"}),
    "integer": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "format"}),
    "array": frozenset({"items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"}),
    "object": frozenset({"properties", "required", "additionalProperties", "minProperties", "maxProperties"}),
}
# The most places of one schema after its references are replaced.
_MAX_PLACES: Final = 3000


def make_gemini_schema(schema: dict[str, JsonValue]) -> tuple[dict[str, JsonValue], list[str]]:
    """The schema in Gemini's dialect, and the losses, each with its place. Takes a bundled schema; never raises."""
    adapter = _Adapter(schema.get("$defs", {}))
    made = adapter.adapt(schema, (), frozenset())
    return made, list(dict.fromkeys(adapter.losses))


@dataclass(slots=True)
class _Adapter:
    """One translation: the definitions that references lead to, the losses, and the number of places made so far."""

    definitions: Mapping[str, JsonValue]
    losses: list[str] = field(default_factory=list)
    places: int = 0

    def lose(self, path: Pointer, what: str) -> None:
        self.losses.append(f"{format_pointer(path) or 'the whole'}: {what}")

    def adapt(self, schema: JsonValue, path: Pointer, above: frozenset[str]) -> dict[str, JsonValue]:
        """Translates one schema. `above` names the definitions that contain it."""
        self.places += 1
        if not isinstance(schema, dict):
            if schema is False:
                self.lose(path, "nothing is allowed here, which cannot be expressed")
            return {}
        if self.places > _MAX_PLACES:
            self.lose(path, "the schema is too large; it ends here")
            return {}
        schema, above = self.put_in(schema, path, above)
        schema, above = self.merge_parts(schema, path, above)
        made: dict[str, JsonValue] = {}
        branches = schema.get("anyOf", schema.get("oneOf", ()))
        if "oneOf" in schema:
            self.lose(path, "oneOf becomes anyOf")
        nullable = any(branch == {"type": "null"} for branch in branches)
        branches = [branch for branch in branches if branch != {"type": "null"}]
        types = self.types(schema)
        nullable = nullable or "null" in types
        types = [name for name in types if name != "null"]
        if len(types) > 1 and not branches:
            branches = [{"type": name, **_only(schema, _OF_TYPE.get(name, frozenset()))} for name in types]
            schema = _without(schema, frozenset().union(*(_OF_TYPE.get(name, frozenset()) for name in types)))
        elif len(types) == 1:
            made["type"] = types[0].upper()
        self.keywords(schema, made, path, above)
        if branches:
            made["anyOf"] = [
                self.adapt(branch, (*path, "anyOf", index), above) for index, branch in enumerate(branches)
            ]
        return {**made, "nullable": True} if nullable else made

    def types(self, schema: Mapping[str, JsonValue]) -> list[str]:
        """The types that a schema names, or that its own keywords apply to."""
        named = schema.get("type")
        if named is not None:
            return [named] if isinstance(named, str) else list(named)
        if "properties" in schema:
            return ["object"]
        values = schema.get("enum", [schema["const"]] if "const" in schema else ())
        return ["string"] if values and all(isinstance(value, str) for value in values) else []

    def put_in(
        self, schema: dict[str, JsonValue], path: Pointer, above: frozenset[str]
    ) -> tuple[dict[str, JsonValue], frozenset[str]]:
        """A schema with its reference replaced by the target; its own keywords win."""
        while "$ref" in schema:
            name = str(schema["$ref"]).rpartition("/")[2]
            rest = _without(schema, frozenset({"$ref"}))
            target = self.definitions.get(name)
            if name in above or not isinstance(target, dict):
                self.lose(path, f"leads back to {name!r}, which cannot be expressed; it ends here" if name in above else
                          f"{name!r} takes anything")  # fmt: skip
                return {**rest, **({"type": "object"} if name in above else {})}, above
            schema, above = {**target, **rest}, above | {name}
        return schema, above

    def merge_parts(
        self, schema: dict[str, JsonValue], path: Pointer, above: frozenset[str]
    ) -> tuple[dict[str, JsonValue], frozenset[str]]:
        """`allOf` as one schema; a keyword that two parts declare differently keeps its first value."""
        whole = _without(schema, frozenset({"allOf"}))
        for written in schema.get("allOf", ()):
            if not isinstance(written, dict):
                continue
            part, above = self.put_in(written, path, above)
            part, above = self.merge_parts(part, path, above)
            for keyword, value in part.items():
                if keyword in ("properties", "$defs"):
                    whole[keyword] = {**value, **whole.get(keyword, {})}
                elif keyword == "required":
                    whole[keyword] = list(dict.fromkeys([*whole.get(keyword, ()), *value]))
                elif whole.setdefault(keyword, value) != value and keyword not in ("description", "title"):
                    self.lose(path, f"allOf has {keyword} twice; one of them is kept")
        return whole, above

    def keywords(self, schema: Mapping[str, JsonValue], made: dict[str, JsonValue], path: Pointer,
                 above: frozenset[str]) -> None:  # fmt: skip
        """Everything but types and branches, in the order written, after the description."""
        for keyword, value in sorted(schema.items(), key=lambda entry: entry[0] != "description"):
            if keyword in _GEMINI_KEPT:
                made[keyword] = value
            elif (rewrite := _REWRITTEN.get(keyword)) is not None:
                rewrite(self, value, made, path, above)
            elif keyword not in _GEMINI_SILENT and keyword not in ("anyOf", "oneOf"):
                self.lose(path, f"{keyword} has no word in this dialect")
        if isinstance(listed := schema.get("required"), list):
            known = [key for key in listed if key in made.get("properties", {})]
            if known:
                made["required"] = known
        if isinstance(shown := schema.get("examples"), list) and shown:
            made["example"] = shown[0]

    # --- keywords with another spelling there -------------------------------------------------------------------------
    def properties(self, value: JsonValue, made: dict[str, JsonValue], path: Pointer, above: frozenset[str]) -> None:
        made["properties"] = {
            key: self.adapt(schema, (*path, "properties", key), above) for key, schema in value.items()
        }

    def items(self, value: JsonValue, made: dict[str, JsonValue], path: Pointer, above: frozenset[str]) -> None:
        if isinstance(value, dict):
            made["items"] = self.adapt(value, (*path, "items"), above)

    def enum(self, value: JsonValue, made: dict[str, JsonValue], path: Pointer, _above: frozenset[str]) -> None:
        values = [item for item in value if item is not None]
        if len(values) < len(value):
            made["nullable"] = True
        if all(isinstance(item, str) for item in values):
            made |= {"enum": values, "format": "enum"}
        else:
            listed = "one of " + ", ".join(dumps(item).decode() for item in values)
            made["description"] = f"{made['description']} ({listed})" if "description" in made else listed
            self.lose(path, "only texts can be listed; the values are in the description")

    def const(self, value: JsonValue, made: dict[str, JsonValue], path: Pointer, above: frozenset[str]) -> None:
        self.enum([value], made, path, above)

    def format(self, value: JsonValue, made: dict[str, JsonValue], path: Pointer, _above: frozenset[str]) -> None:
        if value in _GEMINI_FORMATS.get(str(made.get("type", "")), frozenset()):
            made["format"] = value
        else:
            self.lose(path, f"the format {value!r} is not known there")

    def above_limit(self, value: JsonValue, made: dict[str, JsonValue], path: Pointer, _above: frozenset[str]) -> None:
        made["minimum"] = int(make_decimal(value)) + 1 if made.get("type") == "INTEGER" else value
        if made.get("type") != "INTEGER":
            self.lose(path, "exclusiveMinimum becomes minimum")

    def below_limit(self, value: JsonValue, made: dict[str, JsonValue], path: Pointer, _above: frozenset[str]) -> None:
        made["maximum"] = int(make_decimal(value)) - 1 if made.get("type") == "INTEGER" else value
        if made.get("type") != "INTEGER":
            self.lose(path, "exclusiveMaximum becomes maximum")

    def allow_others(
        self, value: JsonValue, _made: dict[str, JsonValue], path: Pointer, _above: frozenset[str]
    ) -> None:
        if value is False:
            self.lose(path, "that there are no further fields cannot be expressed")
        elif value is not True and value != {}:
            self.lose(path, "the schema of further fields cannot be expressed")


_REWRITTEN: Final = {
    "properties": _Adapter.properties,
    "items": _Adapter.items,
    "enum": _Adapter.enum,
    "const": _Adapter.const,
    "format": _Adapter.format,
    "exclusiveMinimum": _Adapter.above_limit,
    "exclusiveMaximum": _Adapter.below_limit,
    "additionalProperties": _Adapter.allow_others,
}


def _only(schema: Mapping[str, JsonValue], keywords: frozenset[str]) -> dict[str, JsonValue]:
    return {keyword: value for keyword, value in schema.items() if keyword in keywords}


def _without(schema: Mapping[str, JsonValue], keywords: frozenset[str]) -> dict[str, JsonValue]:
    return {keyword: value for keyword, value in schema.items() if keyword not in keywords}
