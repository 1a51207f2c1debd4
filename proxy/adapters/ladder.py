"""Finds the conversation of a request and the id of its call (docs/contract.md).

The ladder is the route's ordered list of places to look; the first that holds something wins. The last resort is a hash
of credentials, user agent and address, on the rung `ADDRESS`, which several users may share. Keys are hashed: neither a
session id nor a credential is ever stored as it came.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import sha256
from typing import Final

from proxy.adapters.base import ConversationSource
from proxy.core.json.jsontext import find_at_pointer, parse, parse_pointer
from proxy.core.model.values import ABSENT, Conversation, JsonProblem, JsonValue, Pointer, RawRequest, Rung

# The longest call id; a longer one is replaced by its hash. A call id appears in answers and logs, so it is printable.
_LONGEST_CALL_ID: Final = 1024
CALL_ID_HEADER: Final = "x-tool-call-id"

# `traceparent` (W3C Trace Context section 3.2): version, trace id, parent id, flags. Version ff and ids made only of
# zeros are invalid. Version 00 ends after the flags; a later version may continue behind another dash.
_IDS: Final = r"(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
_TRACEPARENT: Final = re.compile(f"00-{_IDS}|(?!00|ff)[0-9a-f]{{2}}-{_IDS}(?:-.*)?")

Finder = Callable[[RawRequest, str, JsonValue], str | None]


def read_trace_id(traceparent: str | None) -> str | None:
    """Returns the trace id of a header; None if it is missing or malformed."""
    return traceparent[3:35] if traceparent and _TRACEPARENT.fullmatch(traceparent) else None


def _find_header(request: RawRequest, name: str, _body: JsonValue) -> str | None:
    return request.headers.get(name.lower())


def _make_address_key(request: RawRequest, _name: str, _body: JsonValue) -> str:
    headers = request.headers
    return "\n".join((headers.get("authorization") or "", headers.get("user-agent") or "", request.peer))


_FINDERS: Final[dict[str, tuple[Rung, Finder]]] = {
    "header": (Rung.HEADER, _find_header),
    "meta": (Rung.META, lambda _request, name, body: _find_text_at(body, ("_meta", name))),
    "body": (Rung.BODY, lambda _request, name, body: _find_text_at(body, parse_pointer(name))),
    "trace": (Rung.TRACE, lambda request, _name, _body: read_trace_id(request.headers.get("traceparent"))),
    "session": (Rung.SESSION, _find_header),
    "address": (Rung.ADDRESS, _make_address_key),
}

_TRACE: Final = Rung.TRACE
_LAST_RESORT: Final = ConversationSource("address")


def find_conversation(
    request: RawRequest, ladder: tuple[ConversationSource, ...], body: JsonValue = ABSENT
) -> Conversation:
    """The conversation of a request. `body` is its parsed body, `ABSENT` if it could not be read.

    A trace may be new with every request, so the conversation by the rungs below is kept beside it (`otherwise`).
    """
    for index, source in enumerate(ladder):
        rung, find = _FINDERS[source.kind]
        found = find(request, source.name, body)
        if found:
            below = find_conversation(request, ladder[index + 1 :], body) if rung is _TRACE else None
            return Conversation(f"{source.kind}\n{source.name}\n{found}", rung, True, below)
    return make_conversation(_LAST_RESORT, _make_address_key(request, "", body))


def make_conversation(source: ConversationSource, name: str) -> Conversation:
    """The conversation of requests that hold `name` at this place of the ladder."""
    return Conversation(f"{source.kind}\n{source.name}\n{name}", _FINDERS[source.kind][0], True)


def find_text(request: RawRequest, places: tuple[tuple[str, str], ...]) -> str:
    """The first text at one of the places (kind of source, name), or ''. `_meta` is the body's or that of `params`
    (MCP)."""
    body: JsonValue = ABSENT
    for kind, name in places:
        if kind != "header" and body is ABSENT:
            read = parse(request.body)
            body = None if isinstance(read, JsonProblem) else read
        find = _FINDERS[kind][1]
        found = find(request, name, body)
        if not found and kind == "meta" and isinstance(body, dict):
            found = find(request, name, body.get("params"))
        if found:
            return found
    return ""


def find_call_id(request: RawRequest, pointer: Pointer | None, body: JsonValue, fresh_id: str) -> str:
    """The client's own id of the call, from its header or body; otherwise `fresh_id`."""
    found = request.headers.get(CALL_ID_HEADER)
    if found is None and pointer is not None:
        found = _find_text_at(body, pointer)
    if not found or not found.isprintable():
        return fresh_id
    if len(found) > _LONGEST_CALL_ID:
        return "sha256-" + sha256(found.encode()).hexdigest()
    return found


def _find_text_at(body: JsonValue, path: Pointer) -> str | None:
    """The text or integer at a place of the body, as text; None for other values."""
    try:
        found = find_at_pointer(body, path)
    except (LookupError, ValueError):
        return None
    if isinstance(found, int) and not isinstance(found, bool):
        return str(found)
    return found if isinstance(found, str) else None
