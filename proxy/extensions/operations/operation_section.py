"""Reads a tool's `request`: how its arguments become an HTTP request. `core/http/entries.py` writes such entries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from proxy.config.keys.kinds import PATH, SOME_TEXT, ConfigKey, Kind, choice, list_of, mapping, name_kind, text
from proxy.config.policies import Written
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
from proxy.plugin import (
    ConfigError,
    Context,
    FoundSchema,
    QueryPolicy,
    ReadSchema,
    SchemaError,
    SchemaPlace,
    SourceProblem,
    ToolReader,
    compile_check,
    read_switch,
    reveal,
    split_url,
    suggest_word,
    word_error,
)

if TYPE_CHECKING:
    from proxy.plugin import WrittenRoute

# --- the keys ---------------------------------------------------------------------------------------------------------
_YES: Final = Kind({"type": "boolean"})
_STYLE: Final = ConfigKey(
    "style",
    choice("simple", "label", "matrix", "form", "spaceDelimited", "pipeDelimited", "deepObject", "json"),
    "How a list or an object is written (OpenAPI 3.1.1, Style Values); `json`: as JSON text.",
    default=None,
)
_EXPLODE: Final = ConfigKey(
    "explode", _YES, "Gives each item of a list a separate name. Default: on for `form` and `deepObject`.", default=None
)
_NEEDS_NAME: Final[list[JsonValue]] = ["name", "in"]
_JUDGED: Final = mapping(
    Parameter,
    ConfigKey("name", SOME_TEXT, "Its name; of a path parameter the one in braces."),
    ConfigKey("in", choice("path", "query"), "Its place: `path` or `query`.", default=None),
    ConfigKey("required", _YES, "Rejects a request without it. In the path it is always present."),
    _STYLE,
    _EXPLODE,
    ConfigKey("schema", Kind({}), "The JSON Schema of its value."),
    required=_NEEDS_NAME,
)
_PARAMETER: Final = mapping(
    Parameter,
    ConfigKey("name", SOME_TEXT, "Its name in the request; of a path parameter the one in braces."),
    ConfigKey("in", choice(*STYLES), "Its place; `form` and `file` are fields of a form.", field="place"),
    ConfigKey("argument", SOME_TEXT, "Its name among the tool's arguments. Default: the same.", default=None),
    ConfigKey("required", _YES, "A request needs it; the tool's schema says so to the model."),
    _STYLE,
    _EXPLODE,
    ConfigKey("empty", _YES, "Reads an empty text as no value."),
    make=dict,
    required=_NEEDS_NAME,
)
_REQUEST: Final = mapping(
    RequestTemplate,
    ConfigKey(
        "method", choice("POST", "PUT", "PATCH", "DELETE", "GET", "HEAD"), "The method of the request.", default="POST"
    ),
    ConfigKey("path", PATH, "The path, with its parameters in braces."),
    ConfigKey(
        "parameters",
        list_of(_PARAMETER, minItems=1),
        "The arguments outside a JSON body; those in the path need no entry.",
        default=None,
        is_read=False,
    ),
    ConfigKey(
        "body",
        replace(
            text(
                pattern=r"^(json|form|multipart|none|[\w.-]+/[\w.-]+\+json)$",
                x_expects="json, form, multipart, none or a media type that ends in +json",
            ),
            read=lambda written: BODIES.get(reveal(written), reveal(written)),
        ),
        "How other arguments are sent: `json`, `form`, `multipart`, or another JSON media type; `none`: no body.",
        default="none",
    ),
    ConfigKey(
        "body_argument",
        SOME_TEXT,
        "The argument that is the whole body, if its members are not arguments.",
        default=None,
    ),
    ConfigKey("body_required", _YES, "Sends an empty body if a request has no members for it."),
    ConfigKey(
        "credentials",
        list_of(SOME_TEXT, frozenset, minItems=1, uniqueItems=True),
        "Names of the query that nothing judges.",
        default=None,
    ),
    make=dict,
    required=["path"],
)
_REQUEST_KIND: Final = name_kind(
    "request",
    "Request",
    _REQUEST,
    "How arguments become an HTTP request. A route with `tool` then takes that request itself; `{tool}` and `dispatch` "
    "take the arguments by the tool's name (docs/http-apis.md).",
)
KEYS: Final = {
    "tool": mapping(None, ConfigKey("request", _REQUEST_KIND)),
    "route": mapping(
        None,
        ConfigKey(
            "parameters",
            list_of(_JUDGED, minItems=1),
            "The path and query parameters of a tool without `request`, as in OpenAPI.",
        ),
    ),
}

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
    if len(context.mistakes) > before:
        return None
    return RequestTemplate(**{"method": "POST", **_REQUEST.read(written), "parameters": (*own, *parameters)})


def _read_parameter(context: Context, at: Pointer, written: Written) -> Parameter:
    made = _PARAMETER.read(written)
    name, place = made["name"], cast(In, made["place"])
    style = made.setdefault("style", USUAL_STYLE[place])
    if style not in STYLES[place]:
        context.mistake(
            (*at, "style"), f"no style of a {place} parameter: {style!r}", f"known: {', '.join(STYLES[place])}"
        )
    if place == "header" and name.lower() in NO_ARGUMENTS:
        context.mistake((*at, "name"), f"the header {name!r} is not an argument", "leave it out; `headers` can set it")
    usual = {"argument": name, "explode": style in ("form", "deepObject")}
    return Parameter(**{**usual, **made, "required": place == "path" or made.get("required", False)}, schema=True)
