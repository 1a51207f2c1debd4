"""The body of an OpenAPI operation: the schema of a JSON body, or the fields of a form. Pure.

If a body may have several types, JSON goes first, then `multipart/form-data`, then `application/x-www-form-urlencoded`.
A body of any other type cannot be judged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from proxy.core.json.jsontext import find_at_pointer
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue, Pointer
from proxy.extensions.operations.core.http.parameters import Parameter, list_properties, list_schema_types
from proxy.extensions.operations.core.openapi_schema import MAX_HOPS, OpenApiError, Translator, find_local

JSON: Final = "application/json"
MULTIPART: Final = "multipart/form-data"
FORM: Final = "application/x-www-form-urlencoded"
_JSON_TYPE: Final = re.compile(r"(?:application/json|[\w.-]+/[\w.-]+\+json|application/\*|\*/\*)", re.IGNORECASE)
_LEAVE_IT: Final = "only JSON and form bodies are judged: relay the operation, or write a schema for the tool by hand"


@value_class
class DescribedBody:
    """A body: its media type ('' without a body), the schema of a JSON body (None without one), and the fields of a
    form. `others` is the schema of the form's other fields; by default none are allowed."""

    media_type: str = ""
    schema: JsonValue = None
    fields: tuple[Parameter, ...] = ()
    required: bool = False
    others: JsonValue = False


def find_body(
    document: JsonValue, pointer: Pointer, version: str, parameters: tuple[Parameter, ...], translator: Translator
) -> DescribedBody:
    """The body of the operation at a place; `parameters` are all its own. Raises OpenApiError for a body that cannot be
    judged."""
    if version.startswith("2"):
        return _body_2(document, pointer, parameters, translator)
    steps: Pointer = (*pointer, "requestBody")
    body = find_at_pointer(document, pointer).get("requestBody")
    for _ in range(MAX_HOPS):
        if not isinstance(body, dict) or not isinstance(body.get("$ref"), str):
            break
        steps = find_local(document, body["$ref"], steps)
        body = find_at_pointer(document, steps)
    content = body.get("content") if isinstance(body, dict) else None
    if not isinstance(body, dict) or not isinstance(content, dict) or not content:
        return DescribedBody()
    return _body_3(content, steps, bool(body.get("required")), translator)


def _body_3(content: dict[str, JsonValue], steps: Pointer, required: bool, translator: Translator) -> DescribedBody:
    found = {media_type.partition(";")[0].strip(): media_type for media_type in content}
    for plain, written in found.items():
        if _JSON_TYPE.fullmatch(plain):
            inner = (*steps, "content", written)
            media = content[written]
            there = isinstance(media, dict) and "schema" in media
            schema = translator.translate(media["schema"], (*inner, "schema")) if there else True
            return DescribedBody(JSON if "*" in plain else plain.lower(), schema, (), required)
    for kind in (MULTIPART, FORM):
        for plain, written in found.items():
            if plain.lower() == kind:
                inner = (*steps, "content", written)
                whole = _read_form_schema(content[written], inner, translator)
                fields = tuple(_fields(content[written], whole, inner, kind, translator))
                others = next(_list_values(whole, "additionalProperties"), False)
                return DescribedBody(kind, None, fields, required, others)
    raise OpenApiError(f"its body is {', '.join(found)}, neither JSON nor a form", steps, _LEAVE_IT)


def _read_form_schema(media: JsonValue, at: Pointer, translator: Translator) -> dict[str, JsonValue]:
    """A form's schema with the definitions that it refers to."""
    written = media.get("schema") if isinstance(media, dict) else None
    schema = translator.translate(written, (*at, "schema")) if written is not None else {}
    return {**schema, "$defs": translator.definitions()} if isinstance(schema, dict) else {}


def _fields(
    media: JsonValue, whole: dict[str, JsonValue], at: Pointer, kind: str, translator: Translator
) -> Iterator[Parameter]:
    """The properties of a form's schema as parameters."""
    encoding = media.get("encoding") if isinstance(media, dict) else None
    names, required = list_properties(whole), _list_required(whole)
    if not names and list_schema_types(whole) - {"object"}:
        raise OpenApiError("its form is not an object with properties", at, _LEAVE_IT)
    for name in names:
        field = _property(whole, name)
        described = encoding.get(name) if isinstance(encoding, dict) else None
        yield _field(
            name,
            field,
            described if isinstance(described, dict) else {},
            kind,
            name in required,
            translator.definitions(),
        )


def _field(
    name: str,
    schema: JsonValue,
    encoding: Mapping[str, Any],
    kind: str,
    required: bool,
    definitions: dict[str, JsonValue],
) -> Parameter:
    inner = {**schema, "$defs": definitions} if isinstance(schema, dict) else schema
    kinds = list_schema_types(inner)
    media_type = str(encoding.get("contentType", ""))
    if kind == MULTIPART and _is_file(schema, media_type):
        explode = "array" in kinds
        one: JsonValue = {"type": "string", "contentEncoding": "base64", "description": "The file, as base64."}
        return Parameter(name, "file", {"type": "array", "items": one} if explode else one, required, "form", explode)
    complex_items = isinstance(schema, dict) and list_schema_types(schema.get("items", {})) & {"object", "array"}
    as_json = "style" not in encoding and ("object" in kinds or bool(complex_items) or media_type.endswith("json"))
    style = "json" if as_json else str(encoding.get("style", "form"))
    explode = encoding.get("explode", True) is True
    return Parameter(name, "form", schema, required, style, explode, kinds, list_properties(inner))


def _is_file(schema: JsonValue, media_type: str) -> bool:
    if not isinstance(schema, dict):
        return False
    if isinstance(schema.get("items"), dict) and schema.get("type") == "array":
        return _is_file(schema["items"], media_type)
    members = [part for key in ("anyOf", "oneOf", "allOf") for part in schema.get(key) or ()]
    media = schema.get("contentMediaType", "")
    return (
        schema.get("format") == "binary"
        or (isinstance(media, str) and media != "" and "contentEncoding" not in schema and not media.endswith("json"))
        or (not schema.get("type") and not members and media_type not in ("", "text/plain", JSON))
        or any(_is_file(part, media_type) for part in members)
    )


def _property(schema: JsonValue, name: str) -> JsonValue:
    """The schema of a property that a schema, its `allOf` or its references declare first."""
    waiting, seen = [schema], 0
    while waiting and seen < 100:
        seen += 1
        part = waiting.pop(0)
        if not isinstance(part, dict):
            continue
        properties = part.get("properties")
        if isinstance(properties, dict) and name in properties:
            return properties[name]
        waiting += [branch for key in ("allOf", "anyOf", "oneOf") for branch in part.get(key) or ()]
        if isinstance(reference := part.get("$ref"), str) and isinstance(schema, dict):
            waiting.append(schema["$defs"].get(reference.removeprefix("#/$defs/")))
    return True


def _list_required(schema: JsonValue) -> frozenset[str]:
    """The names that a schema, its `allOf` and its references require."""
    lists = _list_values(schema, "required")
    return frozenset(name for names in lists for name in names or () if isinstance(name, str))


def _list_values(schema: JsonValue, keyword: str) -> Iterator[JsonValue]:
    """The values of a keyword in a schema, its `allOf` and its references."""
    waiting, seen = [schema], 0
    while waiting and seen < 100:
        seen += 1
        part = waiting.pop(0)
        if isinstance(part, dict):
            if keyword in part:
                yield part[keyword]
            waiting += part.get("allOf") or ()
            if isinstance(reference := part.get("$ref"), str) and isinstance(schema, dict):
                waiting.append(schema["$defs"].get(reference.removeprefix("#/$defs/")))


# --- Swagger 2.0 ------------------------------------------------------------------------------------------------------
def _body_2(
    document: JsonValue, pointer: Pointer, parameters: tuple[Parameter, ...], translator: Translator
) -> DescribedBody:
    """Returns the body of an operation of Swagger 2.0: a body parameter, or fields among the parameters."""
    operation = find_at_pointer(document, pointer)
    consumes = operation.get("consumes", document.get("consumes", [JSON]))
    types = [str(media_type).partition(";")[0].strip().lower() for media_type in consumes or [JSON]]
    for steps in _places(document, pointer):
        parameter = find_at_pointer(document, steps)
        if isinstance(parameter, dict) and parameter.get("in") == "body" and "schema" in parameter:
            json_type = next((each for each in types if _JSON_TYPE.fullmatch(each)), "")
            if not json_type:
                raise OpenApiError(f"its body is {', '.join(types)}, neither JSON nor a form", pointer, _LEAVE_IT)
            schema = translator.translate(parameter["schema"], (*steps, "schema"))
            return DescribedBody(JSON if "*" in json_type else json_type, schema, (), bool(parameter.get("required")))
    fields = tuple(each for each in parameters if each.place in ("form", "file"))
    if not fields:
        return DescribedBody()
    in_parts = MULTIPART in types or any(each.place == "file" for each in fields)
    return DescribedBody(MULTIPART if in_parts else FORM, None, fields, any(each.required for each in fields))


def _places(document: JsonValue, pointer: Pointer) -> Iterator[Pointer]:
    for holder in (pointer, pointer[:-1]):
        listed = find_at_pointer(document, holder).get("parameters")
        for index, parameter in enumerate(listed if isinstance(listed, list) else ()):
            steps: Pointer = (*holder, "parameters", index)
            if isinstance(parameter, dict) and isinstance(parameter.get("$ref"), str):
                yield find_local(document, parameter["$ref"], steps)
            else:
                yield steps
