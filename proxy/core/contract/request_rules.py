"""The judged parts of an HTTP request beside its body, and the writing of a request from arguments. Pure.

The main job knows the treatment of a query string. The extension `operations` knows operations, and their parameters in
path, query, headers and forms. A policy holds the judges (`ChannelJudge`, `OperationRule`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Final, Protocol

from proxy.core.model.values import ABSENT, Headers, JsonValue, RawRequest, Violation, value_class

# The keyword of a violation that tells of a parameter under another spelling; its limit is the parameter's name.
OTHER_SPELLING: Final = "spelling"


class QueryPolicy(StrEnum):
    """The treatment of a query string: `judge` holds declared parameters to their schemas, `strict` refuses undeclared
    ones as well, `forward` lets everything pass unjudged, `refuse` takes no query."""

    JUDGE = "judge"
    STRICT = "strict"
    FORWARD = "forward"
    REFUSE = "refuse"


class ChannelJudge(Protocol):
    """Judges the path and the query of requests whose body is the arguments. `matrix`: the path parameters in whose
    text `;` has a meaning; `described`: all that decides what is judged, as text for a hash."""

    @property
    def matrix(self) -> frozenset[str]: ...
    @property
    def described(self) -> str: ...

    def judge(self, params: Mapping[str, str], query: str) -> tuple[Violation, ...]:
        """Everything that is wrong with decoded path parameters and a query as it was sent; warnings too."""


class RequestForm(Protocol):
    """The form of a tool's arguments in an HTTP request, before the schema of the tool is known.

    `path` has its parameters (`path_names`) in braces, `body` is the media type of the body, '' if there is none.
    `is_plain`: only the body is the arguments, as on a route written by hand; `has_json`: it is JSON.
    """

    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def body(self) -> str: ...
    @property
    def path_names(self) -> tuple[str, ...]: ...
    @property
    def is_plain(self) -> bool: ...
    @property
    def has_json(self) -> bool: ...

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
    """The form of one tool's calls in HTTP requests, made from a `template`.

    `by_name`: clients send the arguments as JSON, so that each request has to be written from them; else they send the
    request itself. `matrix`: the path parameters in whose text `;` has a meaning. `argument_names`: place and name of
    each parameter outside of the body -> the argument that it is.
    """

    @property
    def template(self) -> RequestForm: ...
    @property
    def by_name(self) -> bool: ...
    @property
    def matrix(self) -> frozenset[str]: ...
    @property
    def argument_names(self) -> Mapping[tuple[str, str], str]: ...

    def find_unwritable(self, value: JsonValue, sent: JsonValue = ABSENT) -> tuple[Violation, ...]:
        """Returns why arguments cannot be written as a request; nothing if they can. Arguments that are as they were
        `sent` are not written."""

    def write(self, value: JsonValue) -> WrittenRequest:
        """The whole request of a call by name. `decide` has checked that it can be written."""

    def rewrite(self, request: RawRequest, route_path: str, shape: object, value: JsonValue | None) -> WrittenRequest:
        """The client's request with the changed arguments of `value`; unchanged for None. `shape` is the `CallShape`
        of its route, whose path is `route_path`."""
