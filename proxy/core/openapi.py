"""An OpenAPI operation -> the JSON Schema of its JSON body (OpenAPI 3.1 and 3.2, 3.0, Swagger 2.0). Pure.

Only the body is judged, so only operations that need nothing else can be taken: a required query, header or cookie
parameter, or a path parameter that the route does not provide, is refused with what to do about it.

`openapi_schema.py` makes JSON Schema of the body.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from proxy.core.jsontext import at_pointer
from proxy.core.model import JsonValue, Pointer
from proxy.core.openapi_schema import MAX_HOPS, OpenApiError, Translator, local, resolved

__all__ = [
    "METHODS",
    "ImportedOperation",
    "ListedOperation",
    "OpenApiError",
    "import_operation",
    "list_operations",
    "servers_of",
]

METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch", "trace")

_IN_PATH: Final = re.compile(r"\{([^{}]+)\}")
_JSON_TYPE = re.compile(r"\s*(?:application/json|[\w.-]+/[\w.-]+\+json|application/\*|\*/\*)\s*(?:;.*)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ImportedOperation:
    """The JSON body of one operation. `notes` says what was read differently from how it is written."""

    schema: JsonValue
    method: str
    path: str
    description: str
    body_required: bool
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListedOperation:
    """One operation of a description. `name` is its operationId or ''; `in_path` are the names in its path.

    `parameters`: what it takes outside of a body, such as `status (query)`. `elsewhere`: it has servers of its own.
    """

    name: str
    method: str
    path: str
    summary: str
    in_path: tuple[str, ...]
    parameters: tuple[str, ...]
    takes_body: bool
    elsewhere: bool


@dataclass(frozen=True, slots=True)
class _Operation:
    name: str
    method: str
    path: str
    value: Mapping[str, JsonValue]
    shared: tuple[JsonValue, ...]  # the parameters of the whole path

    @property
    def pointer(self) -> Pointer:
        return ("paths", self.path, self.method)


def import_operation(
    document: JsonValue, operation: str, provided: frozenset[str] | None = frozenset()
) -> ImportedOperation:
    """The schema of one operation's JSON body.

    Takes a parsed OpenAPI description, an `operationId` or `METHOD /path`, and what the route provides: names of path
    parameters and, in lower case, of headers that it sets; None leaves other parameters unlooked at. Raises
    OpenApiError for a description, an operation or a body that cannot be taken.
    """
    version = _version(document)
    found = _find(document, operation)
    optional = [] if provided is None else list(_other_parameters(document, found, provided))
    pointer, required = (_body_2 if version.startswith("2") else _body_3)(document, found)
    translator = Translator(document, modern=not version.startswith(("2", "3.0")))
    schema = translator.root(pointer)
    if optional:
        translator.notes["optional parameters are not judged: " + ", ".join(optional)] = 1
    notes = tuple(text if times == 1 else f"{text} ({times} times)" for text, times in translator.notes.items())
    description = str(found.value.get("description") or found.value.get("summary") or "")
    return ImportedOperation(schema, found.method.upper(), found.path, description, required, notes)


def list_operations(document: JsonValue) -> tuple[ListedOperation, ...]:
    """Every operation of a parsed description, in its order. Raises OpenApiError for what is no description."""
    _version(document)
    return tuple(_listed_operation(document, operation) for operation in _operations(document))


def servers_of(document: JsonValue) -> tuple[str, ...]:
    """The URLs the description says its paths start at, variables filled with their defaults; they may be relative to
    where the description was read (OpenAPI 3.1.1, Server Object; 2.0: `schemes`, `host` and `basePath`)."""
    if _version(document).startswith("2"):
        base = str(document.get("basePath") or "")
        host = document.get("host")
        schemes = _listed(document.get("schemes")) or ["https"]
        return tuple(f"{scheme}://{host}{base}" for scheme in schemes) if host else ((base,) if base else ())
    return _servers(document.get("servers"))


def _servers(value: JsonValue) -> tuple[str, ...]:
    return tuple(_server(entry) for entry in _listed(value) if isinstance(entry, dict))


def _server(entry: dict[str, JsonValue]) -> str:
    variables = entry.get("variables")
    url = str(entry.get("url", ""))
    for name, variable in (variables if isinstance(variables, dict) else {}).items():
        if isinstance(variable, dict):
            url = url.replace(f"{{{name}}}", str(variable.get("default", "")))
    return url


def _version(document: JsonValue) -> str:
    if isinstance(document, dict):
        version = str(document.get("openapi") or document.get("swagger") or "")
        if version.startswith(("2.", "3.")):
            return version
    raise OpenApiError("no OpenAPI description", (), "the file must say `openapi: 3.x` or `swagger: '2.0'`")


# --- the operation ----------------------------------------------------------------------------------------------------
def _operations(document: dict[str, JsonValue]) -> Iterator[_Operation]:
    paths = document.get("paths")
    for path, item in (paths if isinstance(paths, dict) else {}).items():
        if not isinstance(item, dict):
            continue
        for method in METHODS:
            if isinstance(value := item.get(method), dict):
                yield _Operation(
                    str(value.get("operationId", "")), method, path, value, tuple(_listed(item.get("parameters")))
                )


def _listed_operation(document: JsonValue, operation: _Operation) -> ListedOperation:
    places = [
        (str(found.get("in")), str(found.get("name")))
        for parameter in (*operation.shared, *_listed(operation.value.get("parameters")))
        if isinstance(found := _as_parameter(document, parameter, operation.pointer), dict)
    ]
    in_body = ("body", "formData")
    own = _servers(operation.value.get("servers") or document["paths"][operation.path].get("servers"))
    return ListedOperation(
        operation.name,
        operation.method.upper(),
        operation.path,
        str(operation.value.get("summary") or operation.value.get("description") or ""),
        tuple(_IN_PATH.findall(operation.path)),
        tuple(dict.fromkeys(f"{name} ({where})" for where, name in places if where not in in_body)),
        "requestBody" in operation.value or any(where in in_body for where, _ in places),
        bool(own) and own != servers_of(document),
    )


def _as_parameter(document: JsonValue, value: JsonValue, origin: Pointer) -> JsonValue:
    try:
        return resolved(document, value, origin)
    except OpenApiError:
        return {"in": "nowhere", "name": str(value.get("$ref"))}  # a parameter all the same


def _find(document: dict[str, JsonValue], wanted: str) -> _Operation:
    operations = list(_operations(document))
    method, _, path = wanted.partition(" ")
    found = [
        entry for entry in operations if entry.name == wanted or (entry.method == method.lower() and entry.path == path)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        hint = f"name it by method and path: `{found[0].method.upper()} {found[0].path}`"
        raise OpenApiError(f"{len(found)} operations are called {wanted!r}", ("paths",), hint)
    names = [entry.name or f"{entry.method.upper()} {entry.path}" for entry in operations]
    nearest = get_close_matches(wanted, names, n=1)
    hint = f"did you mean {nearest[0]!r}?" if nearest else "name it by its operationId or as `POST /path`"
    raise OpenApiError(f"no operation {wanted!r} in the description", ("paths",), hint)


def _other_parameters(document: JsonValue, operation: _Operation, provided: frozenset[str]) -> Iterator[str]:
    """The names of optional parameters. Raises OpenApiError for a required one that nothing provides."""
    merged: dict[tuple[str, str], JsonValue] = {}
    for parameter in (*operation.shared, *_listed(operation.value.get("parameters"))):
        found = resolved(document, parameter, operation.pointer)
        if isinstance(found, dict) and found.get("in") != "body":
            merged[str(found.get("in")), str(found.get("name"))] = found
    for (where, name), parameter in merged.items():
        if where == "formData":
            raise OpenApiError(f"the body is a form (field {name!r}), no JSON", operation.pointer, _WRITE_IT)
        if (name.lower() if where == "header" else name) in provided and where in _PROVIDABLE:
            continue
        if where == "path" or parameter.get("required"):
            hint = _PROVIDABLE.get(where, _WRITE_IT).format(name=name)
            raise OpenApiError(f"the operation needs the {where} parameter {name!r}", operation.pointer, hint)
        yield f"{name} ({where})"


def _listed(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


# Where a route can provide a parameter, and how.
_PROVIDABLE: Final = {
    "path": "put it into the route's path, as in `path: /.../{{{name}}}`",
    "header": "set it on the route: `headers: {{set: {{{name}: ...}}}}`",
}
_WRITE_IT: Final = "only JSON bodies are judged: leave the operation out, or write a schema for the tool by hand"


# --- the body ---------------------------------------------------------------------------------------------------------
def _body_3(document: JsonValue, operation: _Operation) -> tuple[Pointer, bool]:
    """Where the schema of the JSON body stands (OpenAPI 3), and whether a body must be sent."""
    steps: Pointer = (*operation.pointer, "requestBody")
    body = operation.value.get("requestBody")
    for _ in range(MAX_HOPS):
        if not isinstance(body, dict) or not isinstance(body.get("$ref"), str):
            break
        steps = local(document, body["$ref"], steps)
        body = at_pointer(document, steps)
    content = body.get("content") if isinstance(body, dict) else None
    if not isinstance(body, dict) or not isinstance(content, dict):
        raise OpenApiError(f"the operation {operation.name!r} takes no body", operation.pointer, _WRITE_IT)
    for media_type, media in content.items():
        if _JSON_TYPE.fullmatch(media_type) and isinstance(media, dict) and "schema" in media:
            return (*steps, "content", media_type, "schema"), bool(body.get("required"))
    raise OpenApiError(f"the body is {', '.join(content) or 'nothing'}, no JSON", steps, _WRITE_IT)


def _body_2(document: JsonValue, operation: _Operation) -> tuple[Pointer, bool]:
    """Where the schema of the JSON body stands (Swagger 2.0), and whether a body must be sent."""
    consumes = operation.value.get("consumes", document.get("consumes", ["application/json"]))
    if consumes and not any(_JSON_TYPE.fullmatch(str(media_type)) for media_type in consumes):
        raise OpenApiError(f"the body is {', '.join(map(str, consumes))}, no JSON", operation.pointer, _WRITE_IT)
    for steps in _parameter_places(document, operation):
        parameter = at_pointer(document, steps)
        if isinstance(parameter, dict) and parameter.get("in") == "body" and "schema" in parameter:
            return (*steps, "schema"), bool(parameter.get("required"))
    raise OpenApiError(f"the operation {operation.name!r} takes no body", operation.pointer, _WRITE_IT)


def _parameter_places(document: JsonValue, operation: _Operation) -> Iterator[Pointer]:
    lists = (((*operation.pointer, "parameters"), _listed(operation.value.get("parameters"))),
             (("paths", operation.path, "parameters"), operation.shared))  # fmt: skip
    for steps, parameters in lists:
        for index, parameter in enumerate(parameters):
            if isinstance(parameter, dict) and isinstance(parameter.get("$ref"), str):
                yield local(document, parameter["$ref"], (*steps, index))
            else:
                yield (*steps, index)
