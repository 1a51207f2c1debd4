"""What is judged of an HTTP request beside its body, and how a request is written from arguments. Pure.

The main job knows what becomes of a query string. What an operation is, and how its parameters stand in path, query,
headers and forms, the extension `operations` knows; a policy holds what judges (`ChannelJudge`, `OperationRule`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Final, Protocol

from proxy.core.model.value_class import value_class
from proxy.core.model.values import ABSENT, Headers, JsonValue, RawRequest, Violation

# The keyword of a violation that tells of a parameter under another spelling; its limit is the parameter's name.
OTHER_SPELLING: Final = "spelling"


class QueryPolicy(StrEnum):
    """What becomes of a query string: `judge` holds declared parameters to their schemas, `strict` refuses undeclared
    ones as well, `forward` lets everything go on unjudged, `refuse` takes no query."""

    JUDGE = "judge"
    STRICT = "strict"
    FORWARD = "forward"
    REFUSE = "refuse"


class ChannelJudge(Protocol):
    """Judges the path and the query of requests whose body is the arguments."""

    @property
    def matrix(self) -> frozenset[str]:
        """The path parameters in whose text `;` has a meaning."""

    @property
    def described(self) -> str:
        """All that decides what is judged, as text for a hash."""

    def judge(self, params: Mapping[str, str], query: str) -> tuple[Violation, ...]:
        """Everything that is wrong with decoded path parameters and a query as it was sent; warnings too."""


class RequestForm(Protocol):
    """How the arguments of a tool become an HTTP request, before the schema of the tool is known."""

    @property
    def method(self) -> str:
        """The method."""

    @property
    def path(self) -> str:
        """The path, its parameters in braces."""

    @property
    def body(self) -> str:
        """The media type of the body, '' where there is none."""

    @property
    def path_names(self) -> tuple[str, ...]:
        """The names of its path parameters."""

    @property
    def is_plain(self) -> bool:
        """Whether the body alone is the arguments, as on a route written by hand."""

    @property
    def has_json(self) -> bool:
        """Whether the body is JSON."""

    def write_entry(self) -> dict[str, JsonValue]:
        """The form as an entry of a config; texts are not escaped."""


@value_class
class WrittenRequest:
    """The written parts of an HTTP request. `segments`: path parameter -> escaped segment; `headers` replace those of
    the same name, and those named in `removed` are dropped. `media_type` is that of the body, '' for the client's own.
    """

    segments: Mapping[str, str] = field(repr=False)
    query: str = field(repr=False)
    headers: Headers = field(default=(), repr=False)
    removed: frozenset[str] = frozenset()
    body: bytes = field(default=b"", repr=False)
    media_type: str = ""

    def fill_path(self, path: str) -> str:
        """A path with its parameters in braces replaced by the segments."""
        filled = (self.segments[part[1:-1]] if part[:1] == "{" else part for part in path.split("/"))
        return "/".join(filled)


class OperationRule(Protocol):
    """How the calls of one tool stand in HTTP requests."""

    @property
    def template(self) -> RequestForm:
        """What it was made from."""

    @property
    def by_name(self) -> bool:
        """Whether clients send the arguments as JSON, so that each request has to be written from them; else they send
        the request itself."""

    @property
    def matrix(self) -> frozenset[str]:
        """The path parameters in whose text `;` has a meaning."""

    @property
    def argument_names(self) -> Mapping[tuple[str, str], str]:
        """Place and name of each parameter outside of the body -> the argument that it is."""

    def find_unwritable(self, value: JsonValue, sent: JsonValue = ABSENT) -> tuple[Violation, ...]:
        """Why arguments cannot be written as a request; nothing where they can. What is as it was `sent` is not
        written."""

    def write(self, value: JsonValue) -> WrittenRequest:
        """The whole request of a call by name. `decide` has checked that it can be written."""

    def rewrite(self, request: RawRequest, route_path: str, shape: object, value: JsonValue | None) -> WrittenRequest:
        """The client's request with the changed arguments of `value`; unchanged for None. `shape` is the `CallShape`
        of its route, whose path is `route_path`."""
