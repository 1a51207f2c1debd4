"""The findings of an import: tools that can be judged, paths that are relayed, and what was left out and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from proxy.core.model.values import JsonValue
from proxy.core.schema.http.operations import RequestTemplate


class ImportProblem(Exception):  # noqa: N818 - it names what the user reads, not a defect of ours
    """Nothing can be imported. `hint` says what to do instead."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}  ({self.hint})" if self.hint else self.message


@dataclass(frozen=True, slots=True)
class FoundTool:
    """A tool whose arguments can be judged. `origin` is how its source names it: `POST /book`, or an MCP tool's name.

    `path` and `method` are its route's; '' where the route serves many tools. `notes`: what was read differently.
    `request`: how its arguments become an HTTP request.
    """

    name: str
    description: str
    schema: JsonValue
    origin: str
    path: str = ""
    method: str = ""
    notes: tuple[str, ...] = ()
    request: RequestTemplate | None = None


@dataclass(frozen=True, slots=True)
class RelayedPath:
    """A path that is passed on unjudged, and why."""

    method: str
    path: str
    why: str


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Harvest:
    """One source. `upstream` is the URL for the config; `path` is the path of an MCP endpoint, else ''; `about` is one
    line about the source; `seen` names everything at the source, including what was left out or not asked for.
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
