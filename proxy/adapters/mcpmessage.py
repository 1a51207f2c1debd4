"""Messages that MCP clients post: one JSON-RPC message (or a batch, in old revisions), and its revision. Pure.

Two eras of the protocol are in use at once, and one connection can carry both while a client tries which one its server
knows. So the era belongs to each message: 2026-07-28 and later name their revision in the header
`MCP-Protocol-Version` and in `_meta`; all other messages are of the old era (`initialize`, sessions).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Final

from proxy.core.json.jsontext import LosslessFloat, TextLimits, find_case_duplicate, parse
from proxy.core.json.strictreader import KnownText, outline
from proxy.core.model.values import ABSENT, JsonProblem, JsonValue, Pointer, RawRequest

CALL: Final = "tools/call"
LIST: Final = "tools/list"
VERSION_HEADER: Final = "mcp-protocol-version"
VERSION_META: Final = "io.modelcontextprotocol/protocolVersion"
SESSION_HEADER: Final = "mcp-session-id"

# The members that define a message and a call; they must not have a second reading.
_MESSAGE: Final[tuple[Pointer, ...]] = (("method",), ("id",), ("params",))
_CALLED: Final[tuple[Pointer, ...]] = (("params", "name"), ("params", "arguments"))

# The first revision without sessions (specification 2026-07-28, changelog). Revisions are dates, so they can be
# compared.
_MODERN: Final = "2026-07-28"
_REVISION: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `id` is `ABSENT` for a notification, and where no answer could repeat it; `params` may be any value.

    `revision` is the revision that the message names, or ''; `modern` means 2026-07-28 or later.
    """

    id: JsonValue
    method: str
    params: JsonValue = field(default=ABSENT, repr=False)
    revision: str = ""

    @property
    def modern(self) -> bool:
        """Whether the message belongs to the revisions without sessions."""
        return self.revision >= _MODERN

    @property
    def is_call(self) -> bool:
        """Whether the message calls a tool."""
        return self.method == CALL

    def param(self, name: str) -> JsonValue:
        """A member of `params`, `ABSENT` where there is none."""
        return self.params.get(name, ABSENT) if isinstance(self.params, dict) else ABSENT

    @property
    def meta(self) -> dict[str, JsonValue]:
        """The message's `_meta`."""
        found = self.param("_meta")
        return found if isinstance(found, dict) else {}


@dataclass(frozen=True, slots=True)
class MessageBatch:
    """Several messages in one body (revision 2025-03-26). `may_pass` says that none of them calls a tool."""

    may_pass: bool


def is_bare(request: RawRequest) -> bool:
    """Whether a request carries no message: a GET or DELETE without a body. One with a body is read like a POST,
    because servers may treat it as one (`X-HTTP-Method-Override`)."""
    return request.method != "POST" and not request.body


def read_message(request: RawRequest, limits: TextLimits) -> Message | MessageBatch | JsonProblem:
    """The message of a POST, or why its body is unreadable. Never raises."""
    value = parse(request.body, limits)
    if isinstance(value, JsonProblem):
        return value
    if isinstance(value, list):
        return MessageBatch(
            all(isinstance(item, dict) and item.get("method") != CALL and not _twin(item) for item in value)
        )
    if not isinstance(value, dict):
        return JsonProblem("not a JSON-RPC message", 1, 1)
    return _twin(value) or _message(value, request)


def _twin(value: dict[str, JsonValue]) -> JsonProblem | None:
    """Why a server that ignores the case of names could take a message for another one."""
    places = _MESSAGE + _CALLED if value.get("method") == CALL else _MESSAGE
    return next((found for place in places if (found := find_case_duplicate(value, place)) is not None), None)


def guess_message(request: RawRequest) -> Message | None:
    """What an unreadable body seems to be: enough to answer it under its id, never enough to send it on.

    For bodies that `read_message` refuses although a lenient reader accepts them (duplicate keys, too much depth).
    """
    value = parse(request.body)
    if isinstance(value, JsonProblem):
        # Values with several spellings, or none in JSON (NaN, 1e999), are not accepted as ids.
        seen = request.body.outline if type(request.body) is KnownText else outline(request.body)
        value = json.loads(seen) if seen else None
    return _message(value, request) if isinstance(value, dict) else None


def _message(value: dict[str, JsonValue], request: RawRequest) -> Message:
    method, params = value.get("method"), value.get("params", ABSENT)
    return Message(_id(value), method if isinstance(method, str) else "", params, _revision(request, params))


def _id(value: dict[str, JsonValue]) -> JsonValue:
    """A JSON-RPC id: a text or a number (JSON-RPC 2.0 section 4; MCP forbids null)."""
    found = value.get("id", ABSENT)
    is_id = isinstance(found, str | int | float | LosslessFloat) and not isinstance(found, bool)
    return found if is_id else ABSENT


def _revision(request: RawRequest, params: JsonValue) -> str:
    """The later of the revisions in header and `_meta`; a message in which they differ is refused for that."""
    meta = params.get("_meta") if isinstance(params, dict) else None
    told = (value for name, value in request.headers if name == VERSION_HEADER)
    said: tuple[JsonValue, ...] = (*told, meta.get(VERSION_META) if isinstance(meta, dict) else None)
    return max((one for one in said if isinstance(one, str) and _REVISION.fullmatch(one)), default="")
