"""Reads what a route judges besides the body: its keys `parameters` and `query`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from proxy.config.combinations import WrittenRoute
from proxy.config.files.secrets import reveal
from proxy.config.mistakes import suggest_word
from proxy.config.policies import Written
from proxy.config.schema_mistakes import SchemaPlace
from proxy.config.sections.units import read_switch
from proxy.config.tools import ToolReader
from proxy.core.contract.http_operation import Channels, JudgedParameter, QueryPolicy
from proxy.core.model.values import JsonValue
from proxy.core.schema.http.parameters import Parameter, list_properties, list_schema_types, read_parameter
from proxy.core.schema.openapi_schema import OpenApiError

_JUDGING = (QueryPolicy.JUDGE, QueryPolicy.STRICT)


class ChannelReader:
    """Reads the channels of one route that calls one tool."""

    def __init__(self, catalogue: ToolReader, route: WrittenRoute) -> None:
        self._catalogue = catalogue
        self._context = catalogue.context
        self._route = route

    def read(self, formats: JsonValue) -> tuple[Channels | None, QueryPolicy]:
        """What is judged of the route's requests besides the body, and how their query is handled. `formats` as
        written."""
        entry = self._route.entry
        declared = list(self._read_declared())
        judged = [
            each
            for index, parameter in declared
            if (each := self._make_judged(index, parameter, read_switch(formats))) is not None
        ]
        path = tuple(each for each in judged if each.declared.place == "path")
        query = tuple(each for each in judged if each.declared.place == "query")
        chosen = QueryPolicy(reveal(entry["query"])) if "query" in entry else None
        if chosen in _JUDGING and not declared:
            hint = "declare them under `parameters`, or say `query: refuse`"
            self._report("query", f"`query: {chosen}` where nothing declares query parameters", hint)
        policy = chosen or (QueryPolicy.JUDGE if declared else QueryPolicy.FORWARD)
        if not declared:
            return None, policy
        return Channels(path, query, frozenset(), policy in _JUDGING, policy is QueryPolicy.STRICT), policy

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
        made = self._catalogue.schemas.parameter_check(parameter, place, formats=formats)
        if made is None:
            return None
        self._context.notes.extend(f"parameter {parameter.name!r}: {note}" for note in made[1])
        return JudgedParameter(parameter, made[0], parameter.name)

    def _report(self, key: str, message: str, hint: str) -> None:
        self._context.mistake((*self._route.at, key), message, hint, key=True)


def select_query_policy(written: Written) -> QueryPolicy:
    """How a route without a tool of its own handles a query."""
    return QueryPolicy(reveal(written.get("query", "forward")))
