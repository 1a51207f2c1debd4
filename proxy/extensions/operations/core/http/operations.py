"""An HTTP operation as a tool: one JSON Schema for all its arguments, and their form as an HTTP request. Pure.

Path, query, header, cookie and form parameters become properties beside those of a JSON body. There are three cases:

1. Without parameters the body's schema is the tool's, as it is.
2. Beside parameters the body's members are their own arguments, unless its schema counts or closes them.
3. Otherwise the whole body is one argument, `body`.

A parameter whose name is taken gets its place as a prefix (`query_id`); the note says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue
from proxy.extensions.operations.core.http.body import FORM, JSON, MULTIPART, DescribedBody
from proxy.extensions.operations.core.http.parameters import (
    USUAL_STYLE,
    In,
    Parameter,
    list_properties,
    list_schema_types,
)

# --- writes parameters and bodies as the entry `request` of a config --------------------------------------------------
# The short names of bodies.
BODIES: Final = {"json": JSON, "form": FORM, "multipart": MULTIPART, "none": ""}
_SHORT: Final = {media_type: word for word, media_type in BODIES.items()}


def name_body(media_type: str) -> str:
    """The media type of a body as an entry has it."""
    return _SHORT.get(media_type, media_type)


def is_clear_from_path(parameter: Parameter) -> bool:
    """Returns whether the braces of the path describe a parameter completely."""
    usual = parameter.style == "simple" and not parameter.explode
    return parameter.place == "path" and usual and parameter.argument in ("", parameter.name)


def write_parameter(parameter: Parameter) -> dict[str, JsonValue]:
    """One parameter as an entry has it."""
    made: dict[str, JsonValue] = {"name": parameter.name, "in": parameter.place}
    if parameter.argument not in ("", parameter.name):
        made["argument"] = parameter.argument
    if parameter.required and parameter.place != "path":
        made["required"] = True
    if parameter.style != USUAL_STYLE[parameter.place]:
        made["style"] = parameter.style
    if parameter.explode != (parameter.style in ("form", "deepObject")):
        made["explode"] = parameter.explode
    if parameter.empty:
        made["empty"] = True
    return made


# --- an HTTP operation as a tool --------------------------------------------------------------------------------------
# The order in which parameters of one name keep it.
_ORDER: Final[tuple[In, ...]] = ("path", "query", "header", "cookie", "form", "file")
# The characters that vendors refuse in the name of an argument.
_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9_.-]+")
# Keywords that would count arguments from elsewhere among the members of a body, or refuse them.
_COUNTING: Final = frozenset(
    {"minProperties", "maxProperties", "propertyNames", "patternProperties", "unevaluatedProperties", "const", "enum",
     "not", "dependentSchemas", "dependencies", "$dynamicRef", "$recursiveRef"}
)  # fmt: skip
_BRANCHES: Final = ("allOf", "anyOf", "oneOf")
_CONDITIONS: Final = ("if", "then", "else")
_MOST_PARTS: Final = 200
_OPEN: Final[tuple[JsonValue, ...]] = (True, {})


@value_class
class RequestTemplate:
    """The form of a tool's arguments in an HTTP request. `path` has its parameters in braces.

    `body` is the media type of the body, '' if there is none. All arguments that no parameter has are members of a JSON
    body, unless the one called `body_argument` is all of it. `credentials` are names of the query that are not judged.
    """

    method: str
    path: str
    parameters: tuple[Parameter, ...] = ()
    body: str = ""
    body_argument: str = ""
    body_required: bool = False
    credentials: frozenset[str] = frozenset()

    @property
    def is_plain(self) -> bool:
        """Returns whether only the body is the arguments, as on a route written by hand."""
        return not self.parameters and not self.body_argument and self.has_json

    @property
    def has_json(self) -> bool:
        """Returns whether the body is JSON."""
        return self.body.partition(";")[0].strip().lower().endswith("json")

    @property
    def path_names(self) -> tuple[str, ...]:
        """The names of its path parameters."""
        return tuple(each.name for each in self.parameters if each.place == "path")

    @property
    def is_form(self) -> bool:
        """Returns whether the body is a form, whose fields are arguments too."""
        return self.body in (FORM, MULTIPART)

    def write_entry(self) -> dict[str, JsonValue]:
        """The template as the entry `request` of a config; texts are not escaped."""
        made: dict[str, JsonValue] = {"method": self.method, "path": self.path}
        if parameters := [write_parameter(each) for each in self.parameters if not is_clear_from_path(each)]:
            made["parameters"] = parameters
        if self.body:
            made["body"] = name_body(self.body)
        if self.body_argument:
            made["body_argument"] = self.body_argument
        if self.body_required:
            made["body_required"] = True
        if self.credentials:
            made["credentials"] = sorted(self.credentials)
        return made


@value_class
class MergedArguments:
    """One schema for all arguments of an operation, its parameters under the names that they have there."""

    schema: JsonValue
    parameters: tuple[Parameter, ...]
    body_argument: str
    notes: tuple[str, ...]


def merge_arguments(
    parameters: Iterable[Parameter], described: DescribedBody, definitions: dict[str, JsonValue]
) -> MergedArguments:
    """Merges parameters, those of a form included, with the schema of a JSON body. `definitions`: what both refer to by
    `#/$defs/`."""
    body = described.schema
    ordered = sorted(parameters, key=lambda each: _ORDER.index(each.place))
    if not ordered and body is not None and not _needs_a_name(body, definitions):
        return MergedArguments(_with_definitions(body, definitions), (), "", ())
    resolved = _resolve_reference(body, definitions)
    spread = isinstance(resolved, dict) and _spreads(resolved, definitions)
    whole = {**resolved, "$defs": definitions} if isinstance(resolved, dict) else resolved
    taken = set(list_properties(whole)) if spread else set()
    placed, notes = _name_arguments(ordered, taken)
    properties = {each.argument: _schema_in_place(each) for each in placed}
    required = [each.argument for each in placed if each.required]
    made: dict[str, JsonValue] = {"type": "object"}
    body_argument = ""
    if spread:
        own = resolved.get("properties", {})
        made = {**resolved, "type": "object", "properties": {**properties, **own}}
        required += resolved.get("required", [])
    else:
        if body is not None:
            body_argument = next(name for name in _number_names("body") if name not in properties)
            properties[body_argument] = body
            required += [body_argument] if described.required else []
        made |= {"properties": properties, "additionalProperties": described.others}
    if required:
        made["required"] = required
    return MergedArguments(_with_definitions(made, _list_used(made, definitions)), placed, body_argument, tuple(notes))


def _schema_in_place(parameter: Parameter) -> JsonValue:
    """The schema of a parameter; a text in a path must not be empty."""
    schema = parameter.schema
    if parameter.place != "path" or not isinstance(schema, dict):
        return schema
    least = {"string": "minLength", "array": "minItems"}.get(str(schema.get("type")), "")
    return {**schema, least: 1} if least and not schema.get(least) and "enum" not in schema else schema


def _needs_a_name(body: JsonValue, definitions: dict[str, JsonValue]) -> bool:
    """Returns whether a body cannot be the arguments of a tool, which are an object."""
    kinds = list_schema_types({**body, "$defs": definitions} if isinstance(body, dict) else body)
    return bool(kinds) and "object" not in kinds


def _with_definitions(schema: JsonValue, definitions: dict[str, JsonValue]) -> JsonValue:
    if not definitions or not isinstance(schema, dict):
        return schema
    own = schema.get("$defs")
    return {**schema, "$defs": {**(own if isinstance(own, dict) else {}), **definitions}}


def _list_used(schema: JsonValue, definitions: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """The definitions that a schema refers to."""
    names: dict[str, None] = {}
    waiting: list[JsonValue] = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        elif isinstance(part, dict):
            waiting += part.values()
            name = part["$ref"].removeprefix("#/$defs/") if isinstance(part.get("$ref"), str) else ""
            if name in definitions and name not in names:
                names[name] = None
                waiting.append(definitions[name])
    return {name: definitions[name] for name in definitions if name in names}


def _number_names(base: str) -> Iterator[str]:
    yield base
    for number in range(2, 1_000_000):
        yield f"{base}_{number}"


def _name_arguments(parameters: list[Parameter], taken: set[str]) -> tuple[tuple[Parameter, ...], list[str]]:
    """The parameters under unique names, and notes about the changed ones."""
    placed, notes = [], []
    for each in parameters:
        plain = each.argument or _UNUSUAL.sub("_", each.name).strip("_") or each.place
        if plain in taken:
            prefixed = next(name for name in _number_names(f"{each.place}_{plain}") if name not in taken)
            notes.append(f"the {each.place} parameter {each.name!r} is the argument {prefixed!r}: its name is taken")
            plain = prefixed
        taken.add(plain)
        placed.append(replace(each, argument=plain))
    return tuple(placed), notes


# --- what a body's schema allows beside it ----------------------------------------------------------------------------
def _resolve_reference(schema: JsonValue, definitions: dict[str, JsonValue]) -> JsonValue:
    """A schema that is a reference, replaced by its target; annotations beside the reference stay."""
    seen: set[str] = set()
    while isinstance(schema, dict) and isinstance(name := schema.get("$ref"), str) and name not in seen:
        seen.add(name)
        target = definitions.get(name.removeprefix("#/$defs/"))
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        if not isinstance(target, dict) or not rest.keys() <= {"description", "title", "$defs", "deprecated"}:
            return schema
        schema = {**target, **rest}
    return schema


def _spreads(schema: dict[str, JsonValue], definitions: dict[str, JsonValue]) -> bool:
    """Returns whether the members of a body may share a level with other arguments."""
    if {"object"} != list_schema_types({**schema, "$defs": definitions}) and not (
        "properties" in schema and "type" not in schema
    ):
        return False
    if schema.get("type", "object") != "object" or not _COUNTING.isdisjoint(schema):
        return False
    if schema.get("additionalProperties", True) not in (*_OPEN, False) or "$ref" in schema:
        return False
    waiting: list[JsonValue] = list(_inner(schema))
    for count, part in enumerate(waiting):
        if count > _MOST_PARTS:
            return False
        if part is False or (isinstance(part, dict) and _closes(part)):
            return False
        if isinstance(part, dict):
            waiting += _inner(part)
            if isinstance(name := part.get("$ref"), str):
                waiting.append(definitions.get(name.removeprefix("#/$defs/"), False))
    return True


def _closes(part: dict[str, JsonValue]) -> bool:
    return not _COUNTING.isdisjoint(part) or part.get("additionalProperties", True) not in _OPEN


def _inner(part: dict[str, JsonValue]) -> Iterator[JsonValue]:
    for keyword in _BRANCHES:
        branches = part.get(keyword)
        yield from branches if isinstance(branches, list) else ()
    yield from (part[keyword] for keyword in _CONDITIONS if keyword in part)
