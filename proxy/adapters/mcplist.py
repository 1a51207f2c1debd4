"""Asking an MCP server which tools it has, and reading what it answers (specification, "Listing Tools"). Pure.

The list is asked for as the client would ask: with its credentials, in its session and in its revision, so that the
answer is the one that counts for it. Answers come as JSON or as server-sent events; both are read here, also those that
were asked for by the client itself and merely flow by.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from proxy.adapters.mcpheaders import METHOD_HEADER, NAME_HEADER, PARAM_PREFIX
from proxy.adapters.mcpmessage import LIST, VERSION_META, Message
from proxy.core.jsontext import TextLimits, dumps, parse
from proxy.core.learned import ListedTool, Listing
from proxy.core.model import ABSENT, JsonValue, RawRequest

# Bytes of one list, all its pages together: a thousand tools with large schemas.
MAX_LIST: Final = 16 * 1024 * 1024
# Pages: a server that always names a next one has to end somewhere.
MAX_PAGES: Final = 200
_LIMITS: Final = TextLimits(depth=64, nodes=2_000_000)
_DESCRIPTION: Final = 2000
# The longest time for which a server's word on its list counts, in milliseconds: a day.
_LONGEST_TTL: Final = 86_400_000

# What of a client's request does not belong to a request of ours.
_DROPPED: Final = frozenset(
    [METHOD_HEADER, NAME_HEADER, "accept", "accept-encoding", "content-type", "idempotency-key", "last-event-id",
     "range", "x-tool-call-id"]
)  # fmt: skip
_ACCEPT: Final = "application/json, text/event-stream"
# `_meta` that a request must carry since 2026-07-28, and what says who asks; nothing else of the client's goes along.
_META_PREFIX: Final = "io.modelcontextprotocol/"


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list. `cursor` leads to the next one, None at the end; `ttl` in seconds, None: not said."""

    tools: tuple[ListedTool, ...]
    cursor: str | None
    ttl: float | None


def asking(
    client: RawRequest, message: Message, cursor: str | None, request_id: str, key_header: str = ""
) -> RawRequest:
    """The request for a page of the list, made out of a client's own. `request_id` is a text that no client uses.
    `key_header` bears the key of the client's call: whoever has seen it with this request would not run the call."""
    params: dict[str, JsonValue] = {} if cursor is None else {"cursor": cursor}
    if message.modern:
        meta = {key: value for key, value in message.meta.items() if key.startswith(_META_PREFIX)}
        params["_meta"] = {VERSION_META: message.revision, **meta}
    body: dict[str, JsonValue] = {"jsonrpc": "2.0", "id": request_id, "method": LIST}
    kept = [
        field
        for field in client.headers
        if field[0] not in _DROPPED and field[0] != key_header and not field[0].startswith((PARAM_PREFIX, "if-"))
    ]
    own = [("accept", _ACCEPT), ("content-type", "application/json")]
    if message.modern:
        own.append((METHOD_HEADER, LIST))
    return replace(
        client, method="POST", headers=(*kept, *own), body=dumps({**body, "params": params} if params else body)
    )


# --- answers ----------------------------------------------------------------------------------------------------------
def answered(content_type: str, body: bytes, request_id: JsonValue) -> dict[str, JsonValue] | None:
    """The JSON-RPC answer to a request, in a body of either kind; None where it is not (or not yet) there."""
    if content_type.partition(";")[0].strip().lower() == "text/event-stream":
        candidates: Iterable[bytes] = events(body)
    else:
        candidates = (body,)
    for text in candidates:
        value = parse(text, _LIMITS)
        if isinstance(value, dict) and "method" not in value and _same(value.get("id", ABSENT), request_id):
            return value
    return None


def _same(left: JsonValue, right: JsonValue) -> bool:
    return type(left) is type(right) and bool(left == right)


def events(body: bytes) -> Iterator[bytes]:
    """The data of every complete server-sent event (WHATWG HTML, "Interpreting an event stream")."""
    whole = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    for block in whole.split(b"\n\n")[:-1]:
        lines = [line[5:].removeprefix(b" ") for line in block.split(b"\n") if line.startswith(b"data:")]
        if any(lines):
            yield b"\n".join(lines)


def read_page(answer: dict[str, JsonValue]) -> Page | None:
    """A page of the list in a JSON-RPC answer; None where it is an error or no list."""
    result = answer.get("result")
    tools = result.get("tools") if isinstance(result, dict) else None
    if not isinstance(result, dict) or not isinstance(tools, list):
        return None
    cursor, ttl = result.get("nextCursor"), result.get("ttlMs")
    listed = (_tool(entry) for entry in tools)
    return Page(
        tuple(tool for tool in listed if tool is not None),
        cursor if isinstance(cursor, str) else None,
        min(ttl, _LONGEST_TTL) / 1000 if isinstance(ttl, int) and not isinstance(ttl, bool) and ttl >= 0 else None,
    )


def _tool(entry: JsonValue) -> ListedTool | None:
    name = entry.get("name") if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(name, str):
        return None
    described, hints = entry.get("description"), entry.get("annotations")
    hints = hints if isinstance(hints, dict) else {}
    return ListedTool(
        name,
        described[:_DESCRIPTION] if isinstance(described, str) else "",
        entry.get("inputSchema", ABSENT),
        entry.get("outputSchema", ABSENT),
        hints.get("idempotentHint") is True or hints.get("readOnlyHint") is True,
    )


def listing_of(pages: Iterable[Page], size: int) -> Listing:
    """All pages together; of two tools with one name the first counts."""
    tools: dict[str, ListedTool] = {}
    for page in pages:
        for tool in page.tools:
            if tool.name not in tools:
                tools[tool.name] = replace(tool, digest=_digest(tool))
    names = "\n".join(f"{tool.digest} {tool.name}" for tool in tools.values())
    return Listing(tools, hashlib.sha256(names.encode("utf-8", "surrogatepass")).hexdigest(), size)


def _digest(tool: ListedTool) -> str:
    parts = [tool.name, tool.description, _shown(tool.schema), _shown(tool.output), tool.idempotent]
    return hashlib.blake2b(dumps(parts), digest_size=16).hexdigest()


def _shown(schema: JsonValue) -> JsonValue:
    return None if schema is ABSENT else [schema]
