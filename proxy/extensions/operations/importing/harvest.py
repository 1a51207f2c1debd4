"""The result of an import, and its record.

A `Harvest` holds the tools that can be judged, the relayed paths, and those left out with the reasons. `imported.json`
records the sources of an import beside the config, with each schema as the source had it, so that `check --live` finds
later changes. Users edit other files, so an edit never looks like a change at the source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final, Literal

from proxy.core.json.jsontext import TextLimits, dumps, parse
from proxy.core.lint.contradictions import describe_gaps
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonProblem, JsonValue
from proxy.core.schema.dialects import normalise
from proxy.plugin import RequestForm, SchemaError, compile_check


class ImportProblem(Exception):  # noqa: N818 - a problem of the user's input, not an error of the proxy
    """Nothing can be imported. `hint` says what to do instead. `asks_who`: the server requires a login."""

    def __init__(self, message: str, hint: str = "", *, asks_who: bool = False) -> None:
        super().__init__(message)
        self.asks_who = asks_who
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}  ({self.hint})" if self.hint else self.message


@value_class
class FoundTool:
    """A tool whose arguments can be judged. `origin` is its name at the source: `POST /book`, or an MCP tool's name.

    `path` and `method` are its route's; '' if the route serves many tools. `notes` name the parts that were read
    differently from how they are written. `request`: how its arguments become an HTTP request.
    """

    name: str
    description: str
    schema: JsonValue
    origin: str
    path: str = ""
    method: str = ""
    notes: tuple[str, ...] = ()
    request: RequestForm | None = None


def describe_unguarded(tool: FoundTool) -> str:
    """The constraints that the tool's schema surely means and does not check, in one line; '' without any."""
    try:
        return describe_gaps(compile_check(normalise(tool.schema)[0]))
    except SchemaError:
        return ""


@value_class
class RelayedPath:
    """A path that is passed on unjudged, and why."""

    method: str
    path: str
    why: str


@value_class
class LeftOut:
    """A tool or operation that gets no route. `name` is its name at the source; `why` and `hint` give the reason and a
    remedy; `method` and `path` are set if a route can refuse it with that reason."""

    name: str
    why: str
    hint: str = ""
    method: str = ""
    path: str = ""


def flatten_text(text: str) -> str:
    """Foreign text on one line: whitespace becomes spaces, and characters that control a terminal are dropped."""
    spaced = (" " if character.isspace() else character for character in text)
    return "".join(character for character in spaced if character.isprintable())


Kind = Literal["openapi", "mcp"]


@value_class
class Harvest:
    """One source. `upstream` is the URL for the config; `path` is the path of an MCP endpoint, otherwise ''; `about` is
    one line about the source. `seen` names everything at the source, including tools left out or not requested.
    `definitions` are the entries of an MCP server's list, by name.
    """

    kind: Kind
    source: str
    upstream: str
    about: str
    tools: tuple[FoundTool, ...]
    relayed: tuple[RelayedPath, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    path: str = ""
    definitions: Mapping[str, Mapping[str, JsonValue]] = field(default_factory=dict, repr=False)


FILE: Final = "imported.json"
_LIMITS: Final = TextLimits(depth=200, nodes=5_000_000)
_ABOUT: Final = (
    "Written by `toolcall-proxy import`. `check --live` compares the sources with it: keep it, do not edit it."
)


@value_class
class Recorded:
    """One source at the time of the import. `tools`: name -> (name at the source, schema); `seen`: all names at the
    source."""

    kind: Kind
    source: str
    upstream: str
    seen: frozenset[str]
    tools: Mapping[str, tuple[str, JsonValue]]


def write_record(harvest: Harvest) -> str:
    """The text of `imported.json` for one import, with one line for each tool."""
    tools = ",\n".join(
        f"{_write_json(tool.name)}: {_write_json({'origin': tool.origin, 'schema': tool.schema})}"
        for tool in harvest.tools
    )
    head = {"kind": harvest.kind, "from": harvest.source, "upstream": harvest.upstream, "seen": list(harvest.seen)}
    source = f'{_write_json(head)[:-1]}, "tools": {{\n{tools}\n}}}}'
    return f'{{\n"about": {_write_json(_ABOUT)},\n"version": 1,\n"sources": [\n{source}\n]\n}}\n'


def _write_json(value: JsonValue) -> str:
    return dumps(value).decode()


def read_record(text: bytes) -> tuple[Recorded, ...]:
    """The sources in a record. Raises ImportProblem for any other text."""
    value = parse(text, _LIMITS)
    if isinstance(value, JsonProblem) or not isinstance(value, dict) or value.get("version") != 1:
        raise ImportProblem(f"{FILE} is not a record of an import", "import again")
    try:
        return tuple(_read_source(source) for source in value["sources"])
    except (KeyError, TypeError, AttributeError):
        raise ImportProblem(f"{FILE} lacks something", "import again") from None


def _read_source(source: dict[str, JsonValue]) -> Recorded:
    tools = {name: (tool["origin"], tool["schema"]) for name, tool in source["tools"].items()}
    kind: Kind = "mcp" if source["kind"] == "mcp" else "openapi"
    return Recorded(kind, source["from"], source["upstream"], frozenset(source["seen"]), tools)
