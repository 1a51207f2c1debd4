"""Parameter Objects of OpenAPI: an operation's arguments in the path, query, headers, cookies and form of a request.

Each parameter has its own JSON Schema and the style of its text (OpenAPI 3.1.1 section 4.8.12.3; Swagger 2.0 calls
it `collectionFormat`). The names that a security scheme puts into the query are listed as well. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Final, Literal, cast

from proxy.core.json.jsontext import find_at_pointer
from proxy.core.model.fields import OF_THE_SENDER
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue, Pointer
from proxy.extensions.operations.core.openapi_schema import MAX_HOPS, OpenApiError, Translator, find_local

In = Literal["path", "query", "header", "cookie", "form", "file"]
_QUERY_STYLES: Final = ("form", "spaceDelimited", "pipeDelimited", "deepObject", "json")
# The styles in which a parameter's text may be written; `json` means JSON text (`content: application/json`).
STYLES: Final[Mapping[In, tuple[str, ...]]] = {
    "path": ("simple", "label", "matrix", "json"),
    "query": _QUERY_STYLES,
    "header": ("simple", "json"),
    "cookie": ("form", "json"),
    "form": _QUERY_STYLES,
    "file": ("form",),
}
# The style of each place if none is written.
USUAL_STYLE: Final[Mapping[In, str]] = {
    "path": "simple", "query": "form", "header": "simple", "cookie": "form", "form": "form", "file": "form",
}  # fmt: skip
# Swagger 2.0 `collectionFormat` -> style and explode.
_COLLECTIONS: Final = {
    "csv": ("form", False),
    "multi": ("form", True),
    "ssv": ("spaceDelimited", False),
    "pipes": ("pipeDelimited", False),
}
# Keys of a Swagger 2.0 parameter that are not part of its schema.
_NO_SCHEMA_2: Final = frozenset({"name", "in", "required", "collectionFormat", "allowEmptyValue", "description"})
# Headers that never count as arguments: OpenAPI excludes three (3.1.1 section 4.8.12.2), the others frame a message.
NO_ARGUMENTS: Final = OF_THE_SENDER | {
    "accept",
    "content-type",
    "authorization",
    "expect",
    "content-encoding",
    "cookie",
}


@value_class
class Parameter:
    """One declared parameter. `argument` is its name among the arguments of its tool, '' for its own.

    `kinds` are the JSON types that its schema allows, empty if it names none; `items` those of a list's items, and
    `members` those of an object's properties. `empty`: an empty text means no value (`allowEmptyValue`).
    """

    name: str
    place: In
    schema: JsonValue
    required: bool = False
    style: str = "form"
    explode: bool = True
    kinds: frozenset[str] = frozenset()
    properties: tuple[str, ...] = ()
    argument: str = ""
    items: frozenset[str] = frozenset()
    members: Mapping[str, frozenset[str]] = field(default_factory=dict, hash=False)
    empty: bool = False


def list_parameters(
    document: JsonValue, pointer: Pointer, version: str, translator: Translator
) -> tuple[Parameter, ...]:
    """The parameters of the operation at `pointer` (`paths`, path, method), the path's own included.

    Raises OpenApiError for a reference that leads nowhere and for a parameter that cannot be read.
    """
    found: dict[tuple[str, str], Pointer] = {}
    for holder in (pointer[:-1], pointer):
        listed = find_at_pointer(document, holder).get("parameters")
        for index in range(len(listed) if isinstance(listed, list) else 0):
            steps = _follow_reference(document, (*holder, "parameters", index))
            value = find_at_pointer(document, steps)
            if isinstance(value, dict):
                name = str(value.get("name"))
                found[str(value.get("in")), name.lower() if value.get("in") == "header" else name] = steps
    for (place, _), steps in found.items():
        if place not in (*STYLES, "formData", "body"):
            hint = "relay the operation, or leave it out"
            raise OpenApiError(f"a parameter is `in: {place}`, which is not judged", steps, hint)
    judged = [
        steps
        for (place, name), steps in found.items()
        if place != "body" and not (place == "header" and name in NO_ARGUMENTS)
    ]
    return tuple(read_parameter(document, steps, version, translator) for steps in judged)


def _follow_reference(document: JsonValue, steps: Pointer) -> Pointer:
    for _ in range(MAX_HOPS):
        value = find_at_pointer(document, steps)
        if not isinstance(value, dict) or not isinstance(value.get("$ref"), str):
            return steps
        steps = find_local(document, value["$ref"], steps)
    raise OpenApiError("references run in a circle", steps)


def read_parameter(
    document: JsonValue, steps: Pointer, version: str = "3.1", translator: Translator | None = None
) -> Parameter:
    """The Parameter Object at a place. Its schema is its own document, unless a `translator` collects the
    references of one operation's schemas. Raises OpenApiError."""
    value = find_at_pointer(document, steps)
    explode: JsonValue
    if version.startswith("2"):
        place = _place_2(value)
        style, explode = _COLLECTIONS.get(str(value.get("collectionFormat", "csv")), ("form", False))
        style = "simple" if place in ("path", "header") else style
        bare = {key: item for key, item in value.items() if key not in _NO_SCHEMA_2}
        schema = {"type": "string"} if place == "file" else Translator(bare, modern=False).root(())
    else:
        place = cast(In, value["in"])
        style, inner = _content(value, place)
        explode = value.get("explode", style in ("form", "deepObject"))
        there = inner is not None and _is_there(value, inner)
        schema = (
            _translate_schema(document, (*steps, *inner), version, translator) if there and inner is not None else True
        )
    if style not in STYLES[place]:
        raise OpenApiError(
            f"the {place} parameter {value.get('name')!r} has the style {style!r}",
            steps,
            f"known in a {place}: {', '.join(STYLES[place])}",
        )
    return Parameter(
        str(value.get("name")),
        place,
        _add_description(schema, value),
        place == "path" or value.get("required") is True,
        style,
        explode is True,
        list_schema_types(schema),
        list_properties(schema),
        empty=value.get("allowEmptyValue") is True,
    )


def _place_2(value: Mapping[str, JsonValue]) -> In:
    if value["in"] == "formData":
        return "file" if value.get("type") == "file" else "form"
    return cast(In, value["in"])


def _translate_schema(document: JsonValue, steps: Pointer, version: str, translator: Translator | None) -> JsonValue:
    if translator is not None:
        return translator.translate(find_at_pointer(document, steps), steps)
    return Translator(document, modern=not version.startswith("3.0")).root(steps)


def _add_description(schema: JsonValue, value: Mapping[str, JsonValue]) -> JsonValue:
    """The schema with the description and `deprecated` of the Parameter Object."""
    annotations = {key: value[key] for key in ("description", "deprecated") if value.get(key)}
    if not annotations or schema is False:
        return schema
    return {**annotations, **(schema if isinstance(schema, dict) else {})}


def _content(value: Mapping[str, JsonValue], place: In) -> tuple[str, Pointer | None]:
    """The style, and the place of the schema within the Parameter Object."""
    content = value.get("content")
    if isinstance(content, dict) and content:
        media_type = next(iter(content))
        if media_type.partition(";")[0].strip().lower().endswith("json"):
            return "json", ("content", media_type, "schema")
        return USUAL_STYLE[place], None  # the media type has a text format that this file does not know
    return str(value.get("style", USUAL_STYLE[place])), ("schema",)


def _is_there(value: JsonValue, steps: Pointer) -> bool:
    try:
        find_at_pointer(value, steps)
    except LookupError:
        return False
    return True


def list_query_credentials(document: JsonValue, operation: Mapping[str, JsonValue]) -> frozenset[str]:
    """The names that security schemes of an operation put into the query."""
    security = operation.get("security", document.get("security") if isinstance(document, dict) else None)
    components = document.get("components")
    schemes = (components.get("securitySchemes") if isinstance(components, dict) else None) or document.get(
        "securityDefinitions"
    )
    names = {name for entry in _list(security) if isinstance(entry, dict) for name in entry}
    found = (schemes.get(name) for name in names) if isinstance(schemes, dict) else ()
    return frozenset(
        str(scheme.get("name"))
        for scheme in found
        if isinstance(scheme, dict) and scheme.get("type") == "apiKey" and scheme.get("in") == "query"
    )


def _list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


# --- types and properties ---------------------------------------------------------------------------------------------
def list_schema_types(schema: JsonValue) -> frozenset[str]:
    """The JSON types that a schema names, including its branches and references; empty where it names none."""
    found: set[str] = set()
    for part in _parts(schema):
        written = part.get("type")
        found.update(name for name in (written if isinstance(written, list) else [written]) if isinstance(name, str))
    return frozenset(found)


def list_properties(schema: JsonValue) -> tuple[str, ...]:
    """The names of the properties that a schema declares at its top level."""
    names: dict[str, None] = {}
    for part in _parts(schema):
        written = part.get("properties")
        names.update(dict.fromkeys(written if isinstance(written, dict) else ()))
    return tuple(names)


def _parts(schema: JsonValue) -> Iterable[dict[str, JsonValue]]:
    """A schema, its branches and its references, each once, at most 100."""
    waiting, seen = [schema], 0
    while waiting and seen < 100:
        seen += 1
        part = waiting.pop(0)
        if not isinstance(part, dict):
            continue
        yield part
        waiting += [branch for key in ("allOf", "anyOf", "oneOf") for branch in _list(part.get(key))]
        reference = part.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/$defs/") and isinstance(schema, dict):
            definitions = schema.get("$defs")
            waiting.append(definitions.get(reference[8:]) if isinstance(definitions, dict) else None)
