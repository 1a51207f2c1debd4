"""An OpenAPI operation -> a tool: one JSON Schema of all its arguments (OpenAPI 3.1 and 3.2, 3.0, Swagger 2.0). Pure.

`http/parameters.py` reads its parameters and `http/body.py` its body, `openapi_schema.py` turns their schemas into JSON
Schema, and `http/operations.py` merges them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Final

from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue, Pointer
from proxy.extensions.operations.core.http.body import find_body
from proxy.extensions.operations.core.http.operations import RequestTemplate, merge_arguments
from proxy.extensions.operations.core.http.parameters import Parameter, list_parameters, list_query_credentials
from proxy.extensions.operations.core.openapi_schema import OpenApiError, Translator, resolve_reference

__all__ = [
    "METHODS",
    "ImportedOperation",
    "ListedOperation",
    "OpenApiError",
    "import_operation",
    "list_operations",
    "list_servers",
]

METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch", "trace", "query")

# Operations of other methods (OpenAPI 3.2, Path Item Object). They are listed, and none of them can be imported.
_MORE: Final = "additionalOperations"

_WHOLE_SEGMENTS: Final = re.compile(r"(?:/(?:[^/{}?#]*|\{[^/{}]+\}))+")
_IN_PATH: Final = re.compile(r"\{([^{}]+)\}")


@value_class
class ImportedOperation:
    """One operation as a tool: the schema of all its arguments, and how they become a request. `path` is as the
    description has it. `notes` name the parts that were read differently from how they are written."""

    schema: JsonValue
    method: str
    path: str
    description: str
    notes: tuple[str, ...]
    request: RequestTemplate


@value_class
class ListedOperation:
    """One operation of a description. `name` is its operationId or ''.

    `parameters`: those outside of a body, such as `status (query)`. `elsewhere`: the operation has separate servers.
    """

    name: str
    method: str
    path: str
    summary: str
    parameters: tuple[str, ...]
    elsewhere: bool


@value_class
class _Operation:
    name: str
    method: str
    path: str
    value: Mapping[str, JsonValue]
    shared: tuple[JsonValue, ...]  # the parameters of the whole path
    holder: Pointer = ()  # the pointer of the path that has it, if not under its method

    @property
    def pointer(self) -> Pointer:
        return ("paths", self.path, *self.holder, self.method)


def import_operation(document: JsonValue, operation: str, provided: frozenset[str] = frozenset()) -> ImportedOperation:
    """One operation as a tool.

    Takes a parsed OpenAPI description, an `operationId` or `METHOD /path`, and the names (in lower case) of the headers
    that the route sets itself. Raises OpenApiError for a description, an operation or a body that cannot be used.
    """
    version = _version(document)
    found = _find(document, operation)
    _refuse_unroutable(found)
    translator = Translator(document, modern=not version.startswith(("2", "3.0")))
    declared = list_parameters(document, found.pointer, version, translator)
    body = find_body(document, found.pointer, version, declared, translator)
    parameters = [
        each
        for each in declared
        if each.place not in ("form", "file") and not (each.place == "header" and each.name.lower() in provided)
    ]
    in_path = {each.name for each in parameters if each.place == "path"}
    text = {"type": "string"}
    parameters += [
        Parameter(name, "path", text, True, "simple", False)
        for name in _IN_PATH.findall(found.path)
        if name not in in_path
    ]
    parameters = [each for each in parameters if each.place != "path" or f"{{{each.name}}}" in found.path]
    made = merge_arguments([*parameters, *body.fields], body, translator.definitions())
    notes = [text if times == 1 else f"{text} ({times} times)" for text, times in translator.notes.items()]
    request = RequestTemplate(
        found.method.upper(),
        found.path,
        made.parameters,
        body.media_type,
        made.body_argument,
        body.required,
        list_query_credentials(document, found.value),
    )
    description = str(found.value.get("description") or found.value.get("summary") or "")
    return ImportedOperation(made.schema, request.method, found.path, description, (*notes, *made.notes), request)


def _refuse_unroutable(found: _Operation) -> None:
    if found.holder or found.method == "query":
        raise OpenApiError(f"no route takes {found.method.upper()}", found.pointer, "leave the operation out")
    if not _WHOLE_SEGMENTS.fullmatch(found.path):
        hint = "relay the operation, or leave it out"
        raise OpenApiError("its path has a parameter in a part of a segment, or a ? or #", found.pointer, hint)


def list_operations(document: JsonValue) -> tuple[ListedOperation, ...]:
    """Every operation of a parsed description, in its order. Raises OpenApiError for anything but a description."""
    _version(document)
    return tuple(_listed_operation(document, operation) for operation in _operations(document))


def list_servers(document: JsonValue) -> tuple[str, ...]:
    """The base URLs of the description, with variables replaced by their defaults. They may be relative to the place
    that the description was read from (OpenAPI 3.1.1, Server Object; 2.0: `schemes`, `host` and `basePath`)."""
    if _version(document).startswith("2"):
        base = str(document.get("basePath") or "")
        host = document.get("host")
        schemes = _list_of(document.get("schemes")) or ["https"]
        return tuple(f"{scheme}://{host}{base}" for scheme in schemes) if host else ((base,) if base else ())
    return _servers(document.get("servers"))


def _servers(value: JsonValue) -> tuple[str, ...]:
    return tuple(_server(entry) for entry in _list_of(value) if isinstance(entry, dict))


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
        shared = tuple(_list_of(item.get("parameters")))
        for method in METHODS:
            if isinstance(value := item.get(method), dict):
                yield _Operation(str(value.get("operationId", "")), method, path, value, shared)
        more = item.get(_MORE)
        for method, value in (more if isinstance(more, dict) else {}).items():
            if isinstance(value, dict):
                yield _Operation(str(value.get("operationId", "")), method, path, value, shared, (_MORE,))


def _listed_operation(document: JsonValue, operation: _Operation) -> ListedOperation:
    places = [
        (str(found.get("in")), str(found.get("name")))
        for parameter in (*operation.shared, *_list_of(operation.value.get("parameters")))
        if isinstance(found := _as_parameter(document, parameter, operation.pointer), dict)
    ]
    in_body = ("body", "formData")
    own = _servers(operation.value.get("servers") or document["paths"][operation.path].get("servers"))
    return ListedOperation(
        operation.name,
        operation.method.upper(),
        operation.path,
        str(operation.value.get("summary") or operation.value.get("description") or ""),
        tuple(dict.fromkeys(f"{name} ({where})" for where, name in places if where not in in_body)),
        bool(own) and own != list_servers(document),
    )


def _as_parameter(document: JsonValue, value: JsonValue, origin: Pointer) -> JsonValue:
    try:
        return resolve_reference(document, value, origin)
    except OpenApiError:
        return {
            "in": "nowhere",
            "name": str(value.get("$ref")),
        }  # a parameter with a broken reference still counts as one


def _find(document: dict[str, JsonValue], operation: str) -> _Operation:
    operations = list(_operations(document))
    method, _, path = operation.partition(" ")
    found = [
        entry
        for entry in operations
        if entry.name == operation or (entry.method == method.lower() and entry.path == path)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        hint = f"name it by method and path: `{found[0].method.upper()} {found[0].path}`"
        raise OpenApiError(f"{len(found)} operations are called {operation!r}", ("paths",), hint)
    names = [entry.name or f"{entry.method.upper()} {entry.path}" for entry in operations]
    nearest = get_close_matches(operation, names, n=1)
    hint = f"did you mean {nearest[0]!r}?" if nearest else "name it by its operationId or as `POST /path`"
    raise OpenApiError(f"no operation {operation!r} in the description", ("paths",), hint)


def _list_of(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []
