"""The values that pages of the operator's port take and return: `PageRequest`, and `Page` or `EventPage`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Final

from proxy.core.json.jsontext import dumps
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue
from proxy.server.admin.operator_access import Role

_JSON: Final = "application/json"
# The most open streams; further readers get a 503.
READERS: Final = 8


@value_class
class PageRequest:
    """A request to a page of the operator's port.

    `rest` is the part of the path behind the page's own path, still percent-encoded. `body` is the JSON body of a POST.
    `role` is the role of the sender, `address` the sender's IP address. `accept`, `known` and `resume` are the headers
    `Accept`, `If-None-Match` and `Last-Event-ID`.
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
        """Whether the sender accepts a stream of events."""
        return "text/event-stream" in self.accept


@value_class
class Page:
    """A complete answer. `headers` are added to the usual headers and replace those of the same name."""

    body: bytes
    status: int = 200
    content_type: str = _JSON
    headers: tuple[tuple[str, str], ...] = ()


@value_class
class EventPage:
    """An answer that is a stream of server-sent events. Each item of `events` holds whole events."""

    events: AsyncGenerator[bytes, None]


class Readers:
    """Counts the open streams. Setting `ending` ends each of them with the event `bye`."""

    def __init__(self) -> None:
        self.count = 0
        self.ending = False

    def is_full(self) -> bool:
        """Whether the highest number of streams is open."""
        return self.count >= READERS


def make_json_page(value: JsonValue, status: int = 200) -> Page:
    """Returns a page that shows a JSON value."""
    return Page(dumps(value) + b"\n", status)


def refuse_question(why: str, status: int = 400) -> Page:
    """Returns a page that says why a request is refused."""
    return make_json_page({"error": why}, status)
