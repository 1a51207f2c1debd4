"""Reads what a route judges besides the body: its keys `parameters` and `query`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from proxy.config.combinations import WrittenRoute
from proxy.config.files.secrets import reveal
from proxy.config.mistakes import suggest_word
from proxy.config.policies import Written
from proxy.config.schemas import SchemaPlace
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
            each for parameter in declared if (each := self._make_judged(parameter, read_switch(formats))) is not None
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

    def _read_declared(self) -> Iterator[Parameter]:
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
            yield replace(
                bare, name=name, schema=schema, kinds=list_schema_types(schema), properties=list_properties(schema)
            )

    def _make_judged(self, parameter: Parameter, formats: bool) -> JudgedParameter | None:
        if parameter.place == "path" and parameter.name not in self._route.parameters:
            return None  # reported in `_read_declared`
        place = SchemaPlace(self._context.source, self._route.at, self._context.where(self._route.at))
        check = self._catalogue.schemas.parameter_check(parameter, place, formats=formats)
        return None if check is None else JudgedParameter(parameter, check, parameter.name)

    def _report(self, key: str, message: str, hint: str) -> None:
        self._context.mistake((*self._route.at, key), message, hint, key=True)


def select_query_policy(written: Written) -> QueryPolicy:
    """How a route without a tool of its own handles a query."""
    return QueryPolicy(reveal(written.get("query", "forward")))
