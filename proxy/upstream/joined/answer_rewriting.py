"""Answers of one server of several, written as the client reads them. Pure.

Ids of the server's own requests and of its events get the server's name, so that what the client sends back finds its
way: `{"id": "git:17"}` and `Last-Event-ID: git/e4`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from proxy.core.json.jsonspan import replace_value
from proxy.core.json.jsontext import dumps, parse
from proxy.core.model.values import JsonProblem, JsonValue, Pointer
from proxy.upstream.joined.event_rewriting import LIMITS, ServerEvent

_ID: Final[Pointer] = ("id",)


@dataclass(frozen=True, slots=True)
class AnswerRewriting:
    """What changes in an answer: its id, where the request had one of our own (`own`, else ''), and `resultType`, where
    the server is of an old revision and the client is not (`completes`)."""

    server: str
    client_id: JsonValue
    own: str
    completes: bool

    @property
    def changes(self) -> bool:
        """Whether the answer itself has to change."""
        return bool(self.own) or self.completes

    def rewrite(self, text: bytes) -> bytes:
        """A message of the answer."""
        value = parse(text, LIMITS)
        if not isinstance(value, dict) or "method" in value:
            return text
        if self.own and value.get("id") == self.own:
            text = replace_value(text, _ID, dumps(self.client_id))
        result = value.get("result")
        if self.completes and isinstance(result, dict) and "resultType" not in result:
            text = replace_value(text, ("result", "resultType"), b'"complete"')
        return text

    def write_event(self, event: ServerEvent) -> bytes:
        """An event of the answer."""
        data = self.rewrite(event.data) if self.changes and event.data else event.data
        return name_event(event, self.server, data)


def name_event(event: ServerEvent, server: str, data: bytes) -> bytes:
    """An event whose ids lead back to its server."""
    event_id = None if event.id is None else f"{server}/".encode() + event.id
    return event.written(event_id, _named(data, server))


def _named(data: bytes, server: str) -> bytes:
    """A message; a request of the server gets an id that names it."""
    if b'"method"' not in data or b'"id"' not in data:
        return data
    value = parse(data, LIMITS)
    if not isinstance(value, dict) or "method" not in value or "id" not in value:
        return data
    return replace_value(data, _ID, dumps(f"{server}:" + dumps(value["id"]).decode()))


def read_question_id(value: JsonValue) -> tuple[str, JsonValue] | None:
    """The server that asked, and the id of its request there; None for an id that is none of ours."""
    server, found, text = value.partition(":") if isinstance(value, str) else ("", "", "")
    own = parse(text.encode()) if found else None
    return (server, own) if isinstance(own, str | int) and not isinstance(own, bool | JsonProblem) else None
