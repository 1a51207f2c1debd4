"""Reads the parameters that a route judges besides the body: its key `parameters`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from proxy.config.combinations import WrittenRoute
from proxy.config.files.secrets import reveal
from proxy.config.mistakes import ConfigError, suggest_word
from proxy.config.schemas import ReadSchema, SchemaPlace, word_error
from proxy.config.sections.units import read_switch
from proxy.config.tools import ToolReader
from proxy.core.check.validation import SchemaError, compile_check
from proxy.core.contract.request_rules import QueryPolicy
from proxy.core.model.values import JsonValue
from proxy.core.schema.dialects import normalise, suggest_remedy
from proxy.extensions.operations.core.channels import JudgedChannels
from proxy.extensions.operations.core.http.parameters import (
    Parameter,
    list_properties,
    list_schema_types,
    read_parameter,
)
from proxy.extensions.operations.core.http_operation import JudgedParameter
from proxy.extensions.operations.core.openapi_schema import OpenApiError

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
