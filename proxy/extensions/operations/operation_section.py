"""Reads a tool's `request`: how its arguments become an HTTP request. `core/http/entries.py` writes such entries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from proxy.config.context import Context
from proxy.config.files.secrets import reveal
from proxy.config.mistakes import ConfigError, split_url, suggest_word
from proxy.config.policies import Written
from proxy.config.schemas import FoundSchema, ReadSchema, SchemaPlace, SourceProblem, word_error
from proxy.config.sections.units import read_switch
from proxy.config.tools import ToolReader
from proxy.core.check.validation import SchemaError, compile_check
from proxy.core.contract.request_rules import QueryPolicy
from proxy.core.model.values import JsonValue, Pointer
from proxy.core.schema.dialects import normalise, suggest_remedy
from proxy.extensions.operations.core.channels import JudgedChannels
from proxy.extensions.operations.core.http.operations import BODIES, RequestTemplate
from proxy.extensions.operations.core.http.parameters import (
    NO_ARGUMENTS,
    STYLES,
    USUAL_STYLE,
    In,
    Parameter,
    list_properties,
    list_schema_types,
    read_parameter,
)
from proxy.extensions.operations.core.http_operation import JudgedParameter
from proxy.extensions.operations.core.openapi import import_operation, list_servers
from proxy.extensions.operations.core.openapi_schema import OpenApiError

if TYPE_CHECKING:
    from proxy.plugin import WrittenRoute

# --- reads the parameters that a route judges besides the body --------------------------------------------------------
_JUDGING = (QueryPolicy.JUDGE, QueryPolicy.STRICT)


def read_channels(
    catalogue: ToolReader, route: WrittenRoute, formats: JsonValue, policy: QueryPolicy
) -> JudgedChannels:
    """The judged `parameters` of a route that calls one tool, under its query policy. `formats` as written."""
    return ChannelReader(catalogue, route).read(formats, policy)


class ChannelReader:
    """Reads the channels of one route that calls one tool."""

    def __init__(self, catalogue: ToolReader, route: WrittenRoute) -> None:
        self._catalogue = catalogue
        self._context = catalogue.context
        self._route = route

    def read(self, formats: JsonValue, policy: QueryPolicy) -> JudgedChannels:
        """The judged parameters of the route's requests."""
        judged = [
            each
            for index, parameter in list(self._read_declared())
            if (each := self._make_judged(index, parameter, read_switch(formats))) is not None
        ]
        path = tuple(each for each in judged if each.declared.place == "path")
        query = tuple(each for each in judged if each.declared.place == "query")
        return JudgedChannels(path, query, frozenset(), policy in _JUDGING, policy is QueryPolicy.STRICT)

    def _read_declared(self) -> Iterator[tuple[int, Parameter]]:
        """The declared parameters, each with its index in the list."""
        entries = self._route.entry.get("parameters", [])
        for index in range(len(entries)):
            at = (*self._route.at, "parameters", index)
            written = entries[index]
            name = reveal(written["name"])
            try:
                bare = read_parameter([{key: item for key, item in written.items() if key != "schema"}], (0,))
            except OpenApiError as error:
                self._context.mistake(at, error.message, error.hint)
                continue
            if written["in"] == "path" and name not in self._route.parameters:
                hint = suggest_word(name, self._route.parameters) or "its path has the names in braces"
                self._context.mistake((*at, "name"), f"the route's path has no {{{name}}}", hint)
            schema = written.get("schema", True)
            kinds, properties = list_schema_types(schema), list_properties(schema)
            yield index, replace(bare, name=name, schema=schema, kinds=kinds, properties=properties)

    def _make_judged(self, index: int, parameter: Parameter, formats: bool) -> JudgedParameter | None:
        if parameter.place == "path" and parameter.name not in self._route.parameters:
            return None  # reported in `_read_declared`
        at = (*self._route.at, "parameters", index, "schema")
        place = SchemaPlace(self._context.source, at, self._context.where(self._route.at))
        schema = parameter.schema
        try:
            check = compile_check(normalise(schema)[0], formats=formats)
        except SchemaError as error:
            subject = f"the schema of the {parameter.place} parameter {parameter.name!r}"
            message = f"{subject} does not compile: {word_error(error)}"
            self._context.mistakes.append(place.mistake(message, suggest_remedy(schema, error.path)))
            return None
        read = ReadSchema(schema, place, check.schemas.base)
        try:
            notes = [] if schema is True else list(self._catalogue.schemas.examine(check, read))
        except ConfigError as error:
            self._context.mistakes.extend(error.mistakes)
            return None
        self._context.notes.extend(f"parameter {parameter.name!r}: {note}" for note in notes)
        return JudgedParameter(parameter, check, parameter.name)


# --- reads a tool's `request` -----------------------------------------------------------------------------------------
# --- takes an operation out of an OpenAPI description -----------------------------------------------------------------
def read_operation(document: JsonValue, name: str, provided: frozenset[str]) -> FoundSchema | SourceProblem:
    """The operation called `name`: an `operationId`, or a method and a path. The path of its request is behind that
    of the description's first server."""
    try:
        found = import_operation(document, name, provided)
    except OpenApiError as error:
        return SourceProblem(error.message, error.hint)
    servers = list_servers(document)
    base = split_url(servers[0]).path.rstrip("/") if servers else ""
    request = replace(found.request, path=base + found.request.path)
    return FoundSchema(found.schema, found.description, found.notes, request)


# --- reads a tool's `request` -----------------------------------------------------------------------------------------
def read_request(context: Context, at: Pointer, written: Written) -> RequestTemplate | None:
    """The request that an entry describes; None, with the mistakes reported, where it describes none."""
    before = len(context.mistakes)
    path = reveal(written["path"])
    in_braces = [part[1:-1] for part in path.split("/") if part.startswith("{") and part.endswith("}")]
    entries = written.get("parameters", [])
    parameters = [_read_parameter(context, (*at, "parameters", index), entry) for index, entry in enumerate(entries)]
    named = {each.name for each in parameters if each.place == "path"}
    for index, each in enumerate(parameters):
        if each.place == "path" and each.name not in in_braces:
            hint = suggest_word(each.name, in_braces) or "its path has the names in braces"
            context.mistake((*at, "parameters", index, "name"), f"the request's path has no {{{each.name}}}", hint)
    own = [
        Parameter(name, "path", True, True, "simple", False, argument=name) for name in in_braces if name not in named
    ]
    body = reveal(written.get("body", "none"))
    if len(context.mistakes) > before:
        return None
    return RequestTemplate(
        reveal(written.get("method", "POST")),
        path,
        (*own, *parameters),
        BODIES.get(body, body),
        reveal(written.get("body_argument", "")),
        read_switch(written.get("body_required", False)),
        frozenset(reveal(name) for name in written.get("credentials", ())),
    )


def _read_parameter(context: Context, at: Pointer, written: Written) -> Parameter:
    name, place = reveal(written["name"]), cast(In, reveal(written["in"]))
    style = reveal(written.get("style", USUAL_STYLE[place]))
    if style not in STYLES[place]:
        context.mistake(
            (*at, "style"), f"no style of a {place} parameter: {style!r}", f"known: {', '.join(STYLES[place])}"
        )
    if place == "header" and name.lower() in NO_ARGUMENTS:
        context.mistake((*at, "name"), f"the header {name!r} is not an argument", "leave it out; `headers` can set it")
    explode = written.get("explode", style in ("form", "deepObject"))
    return Parameter(
        name,
        place,
        True,
        place == "path" or read_switch(written.get("required", False)),
        style,
        read_switch(explode),
        argument=reveal(written.get("argument", name)),
        empty=read_switch(written.get("empty", False)),
    )
