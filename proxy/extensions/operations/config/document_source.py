"""Takes an operation out of an OpenAPI description, for `schema: {openapi: FILE, operation: ID}`."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlsplit

from proxy.config.schemas import SourceProblem
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue
from proxy.extensions.operations.core.http.operations import RequestTemplate
from proxy.extensions.operations.core.openapi import import_operation, list_servers
from proxy.extensions.operations.core.openapi_schema import OpenApiError


@value_class
class FoundOperation:
    """Implements `FoundSchema`. `base` is the path of the description's first server."""

    schema: JsonValue
    description: str
    notes: tuple[str, ...]
    request: RequestTemplate
    base: str

    def place_request(self) -> RequestTemplate:
        """The request, its path behind that of the server."""
        return replace(self.request, path=self.base + self.request.path)


def read_operation(document: JsonValue, name: str, provided: frozenset[str]) -> FoundOperation | SourceProblem:
    """The operation called `name`: an `operationId`, or a method and a path."""
    try:
        found = import_operation(document, name, provided)
    except OpenApiError as error:
        return SourceProblem(error.message, error.hint)
    servers = list_servers(document)
    base = urlsplit(servers[0]).path.rstrip("/") if servers else ""
    return FoundOperation(found.schema, found.description, found.notes, found.request, base)
