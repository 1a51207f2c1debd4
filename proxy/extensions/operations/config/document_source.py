"""Takes an operation out of an OpenAPI description, for `schema: {openapi: FILE, operation: ID}`."""

from __future__ import annotations

from dataclasses import replace

from proxy.config.mistakes import split_url
from proxy.config.schemas import FoundSchema, SourceProblem
from proxy.core.model.values import JsonValue
from proxy.extensions.operations.core.openapi import import_operation, list_servers
from proxy.extensions.operations.core.openapi_schema import OpenApiError


def read_operation(document: JsonValue, name: str, provided: frozenset[str]) -> FoundSchema | SourceProblem:
    """The operation called `name`: an `operationId`, or a method and a path. The path of its request stands behind that
    of the description's first server."""
    try:
        found = import_operation(document, name, provided)
    except OpenApiError as error:
        return SourceProblem(error.message, error.hint)
    servers = list_servers(document)
    base = split_url(servers[0]).path.rstrip("/") if servers else ""
    request = replace(found.request, path=base + found.request.path)
    return FoundSchema(found.schema, found.description, found.notes, request)
