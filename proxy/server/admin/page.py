"""A request to a page of the operator's port, and the page's answer: whole, or as a stream of events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Final

from proxy.core.json.jsontext import dumps
from proxy.core.model.values import JsonValue
from proxy.server.admin.operator_access import Role

_JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class PageRequest:
    """An operator's request: the rest of the path behind a page's name (not decoded), the query, the body of a POST.

    `role` is who asks, `address` from where. `accept`, `known` and `resume` are the headers `Accept`, `If-None-Match`
    and `Last-Event-ID`.
    """

    method: str
    path: str
    rest: str
    query: str
    body: Mapping[str, JsonValue]
    role: Role = "operator"
    address: str = ""
    accept: str = ""
    known: str = ""
    resume: str = ""

    @property
    def wants_events(self) -> bool:
        """Whether a stream of events is asked for."""
        return "text/event-stream" in self.accept


@dataclass(frozen=True, slots=True)
class Page:
    """A page's answer. `headers` are added to the usual ones, and replace those of the same name."""

    body: bytes
    status: int = 200
    content_type: str = _JSON
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class EventPage:
    """A page that goes on as long as its reader stays: server-sent events, each piece whole."""

    events: AsyncGenerator[bytes, None]


def make_json_page(value: JsonValue, status: int = 200) -> Page:
    """A page that shows a JSON value."""
    return Page(dumps(value) + b"\n", status)


def refuse_question(why: str, status: int = 400) -> Page:
    """A page that says what is wrong with a question."""
    return make_json_page({"error": why}, status)
