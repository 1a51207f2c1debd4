"""Schemas that are taken out of a document which is no JSON Schema: what an extension finds in one."""

from __future__ import annotations

from typing import Protocol

from proxy.core.contract.request_rules import RequestForm
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue


@value_class
class SourceProblem:
    """Why nothing can be taken out of a document, and what to do."""

    message: str
    hint: str = ""


class FoundSchema(Protocol):
    """A tool's schema in a document, with what else the document says of the tool."""

    @property
    def schema(self) -> JsonValue:
        """The JSON Schema of its arguments."""

    @property
    def description(self) -> str:
        """What the tool does."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What was read differently from how it is written."""

    def place_request(self) -> RequestForm:
        """How its arguments become an HTTP request at the document's first server."""


class ReadSource(Protocol):
    """Takes one tool out of a parsed document."""

    def __call__(self, document: JsonValue, name: str, provided: frozenset[str], /) -> FoundSchema | SourceProblem:
        """The tool called `name`. `provided`: headers that the route sets itself, which are not arguments."""
