"""Asks an MCP server for its tools and reads the answers (specification, "Listing Tools"). Pure.

The request repeats the client's credentials, session and revision, so the list is this client's own. Answers come as
JSON or as server-sent events; both are read here, also in answers to the client's own requests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from proxy.core.contract.listed_tool import LISTED, USUAL_HINTS, Hints, Unparsed, define_tool, hash_definition
from proxy.core.json.contentcoding import list_data
from proxy.core.json.jsontext import TextLimits, dumps, find_case_duplicate, join_frame, parse, split_frame
from proxy.core.model.value_class import value_class
from proxy.core.model.values import ABSENT, Fields, JsonValue, Pointer, RawRequest
from proxy.extensions.mcp.adapters.mcpmessage import (
    LIST,
    METHOD_HEADER,
    NAME_HEADER,
    PARAM_PREFIX,
    VERSION_META,
    Message,
)
from proxy.extensions.mcp.core.listed_tools import ListedTool, Listing

# The most bytes of one list, all pages together: room for a thousand tools with large schemas.
MAX_LIST: Final = 16 * 1024 * 1024
# The most pages of one list, because a server could always name a next one.
MAX_PAGES: Final = 200
# Tools of one page that is read in a child process, and bytes of one schema there: the largest real one has 60 KB.
MAX_TOOLS: Final = 10_000
MAX_SCHEMA: Final = 256 * 1024
# The length of a schema that is missing, or was too large to keep.
_NONE: Final = -1
_TOO_LARGE: Final = -2
_TWO_READINGS: Final = -3
_LIMITS: Final = TextLimits(depth=64, nodes=2_000_000)
_DESCRIPTION: Final = 2000
# The longest validity of a list that a server may declare, in milliseconds: a day.
_LONGEST_TTL: Final = 86_400_000

# The keys that are read. No other key may equal them but for case.
_MESSAGE: Final[tuple[Pointer, ...]] = (
    ("id",), ("method",), ("error",), ("result", "tools"), ("result", "nextCursor"), ("result", "ttlMs"),
)  # fmt: skip
_ENTRY: Final[tuple[Pointer, ...]] = (
    *((key,) for key in ("name", *LISTED)), *(("annotations", hint) for hint in ("title", *USUAL_HINTS)),
)  # fmt: skip

# Headers of the client's request that do not belong in a request of the proxy.
_DROPPED: Final = frozenset(
    [METHOD_HEADER, NAME_HEADER, "accept", "accept-encoding", "content-type", "idempotency-key", "last-event-id",
     "range", "x-tool-call-id"]
)  # fmt: skip
_ACCEPT: Final = "application/json, text/event-stream"
# The `_meta` keys that a request must carry since 2026-07-28 or that name the client; only these are copied.
_META_PREFIX: Final = "io.modelcontextprotocol/"


@value_class
class ToolsPage:
    """One page of a list. `cursor` leads to the next page, None at the end; `ttl` in seconds, None if the server
    gives none. `digest` differs for pages read from different bytes."""

    tools: tuple[ListedTool, ...]
    cursor: str | None
    ttl: float | None
    digest: bytes = b""


def make_list_request(
    client: RawRequest, message: Message, cursor: str | None, request_id: str, key_header: str = ""
) -> RawRequest:
    """Builds the request for a page of the list from a client's request. `request_id` is an id that no client uses.
    `key_header` names the idempotency key of the client's call: a server that saw it here would not run the call."""
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
        client, method="POST", headers=Fields((*kept, *own)), body=dumps({**body, "params": params} if params else body)
    )


# --- answers ----------------------------------------------------------------------------------------------------------
def find_answer(content_type: str, body: bytes, request_id: JsonValue) -> dict[str, JsonValue] | None:
    """Returns the JSON-RPC answer to a request, in a body of either kind; None if it is not (or not yet) there."""
    if content_type.partition(";")[0].strip().lower() == "text/event-stream":
        candidates: Iterable[bytes] = list_data(body)
    else:
        candidates = (body,)
    for text in candidates:
        value = parse(text, _LIMITS)
        if isinstance(value, dict) and "method" not in value:
            found = value.get("id", ABSENT)
            if type(found) is type(request_id) and found == request_id:  # 1 is neither true nor 1.0
                return value
    return None


def read_page(answer: dict[str, JsonValue]) -> ToolsPage | None:
    """The page of the list in a JSON-RPC answer; None for an error or anything else."""
    result = answer.get("result")
    tools = result.get("tools") if isinstance(result, dict) else None
    if not isinstance(result, dict) or not isinstance(tools, list) or find_twin(answer, _MESSAGE):
        return None
    cursor, ttl = result.get("nextCursor"), result.get("ttlMs")
    listed = (read_tool(entry) for entry in tools)
    return ToolsPage(
        tuple(tool for tool in listed if tool is not None),
        cursor if isinstance(cursor, str) else None,
        min(ttl, _LONGEST_TTL) / 1000 if isinstance(ttl, int) and not isinstance(ttl, bool) and ttl >= 0 else None,
    )


def find_twin(value: JsonValue, places: Iterable[Pointer] = _MESSAGE) -> str:
    """Returns why a client that ignores the case of keys reads another list in a message (or with `_ENTRY` another tool
    in an entry), and '' without such a key."""
    return next((found.reason for place in places if (found := find_case_duplicate(value, place)) is not None), "")


def read_tool(entry: JsonValue) -> ListedTool | None:
    """The tool of a list's entry; None for an invalid entry. The schema of an entry with two readings is unusable."""
    name = entry.get("name") if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(name, str):
        return None
    described, twin = entry.get("description"), find_twin(entry, _ENTRY)
    return ListedTool(
        name,
        described[:_DESCRIPTION] if isinstance(described, str) else "",
        Unparsed(b"", twin) if twin else entry.get("inputSchema", ABSENT),
        entry.get("outputSchema", ABSENT),
        read_hints(entry),
        definition=hash_definition(define_tool(entry)),
    )


def read_hints(entry: Mapping[str, JsonValue]) -> Hints:
    """The hints that an entry of a list gives; one that is neither true nor false is none."""
    written = entry.get("annotations")
    found = written if isinstance(written, dict) else {}
    return {name: value for name in USUAL_HINTS if isinstance(value := found.get(name), bool)}


def make_listing(pages: Iterable[ToolsPage], size: int) -> Listing:
    """All pages together; of two tools with one name the first counts."""
    tools: dict[str, ListedTool] = {}
    for page in pages:
        for tool in page.tools:
            if tool.name not in tools:
                tools[tool.name] = tool if tool.digest else replace(tool, digest=_hash_tool(tool))
    names = "\n".join(f"{tool.digest} {tool.name}" for tool in tools.values())
    return Listing(tools, hashlib.sha256(names.encode("utf-8", "surrogatepass")).hexdigest(), size)


def _hash_tool(tool: ListedTool) -> str:
    parts = [
        tool.name,
        tool.description,
        _show_schema(tool.schema),
        _show_schema(tool.output),
        dict(tool.hints),
        list(tool.definition),
    ]
    return hashlib.blake2b(dumps(parts), digest_size=16).hexdigest()


def _show_schema(schema: JsonValue) -> JsonValue:
    return None if schema is ABSENT else [schema.reason if isinstance(schema, Unparsed) else schema]


# --- large answers, read in a child process ---------------------------------------------------------------------------
def make_reading_job(content_type: str, body: bytes, request_id: JsonValue) -> bytes:
    """The payload of `pack_page`."""
    return join_frame([content_type, request_id], body)


def pack_page(payload: bytes) -> bytes:
    """Reads a large answer, for `unpack_page`: names and digests, and each schema as text."""
    (content_type, request_id), body = split_frame(payload)
    answer = find_answer(content_type, body, request_id)
    if answer is None:
        return join_frame(None)
    page = read_page(answer)
    if page is None:
        error = answer.get("error")
        return join_frame({"error": {"code": error.get("code")}} if isinstance(error, dict) else {})
    if len(page.tools) > MAX_TOOLS:
        return join_frame(None)
    texts: list[bytes] = []
    tools = [
        [
            *(tool.name, tool.description, dict(tool.hints), _hash_tool(tool), list(tool.definition)),
            *_list_texts(tool, texts),
        ]
        for tool in page.tools
    ]
    ttl = None if page.ttl is None else int(page.ttl * 1000)
    return join_frame({"cursor": page.cursor, "ttl": ttl, "tools": tools}, b"".join(texts))


def _list_texts(tool: ListedTool, texts: list[bytes]) -> Iterator[int]:
    """The lengths of a tool's two schemas, whose texts are added; below zero for one that is absent, or too large."""
    for schema in (tool.schema, tool.output):
        text = b"" if schema is ABSENT or isinstance(schema, Unparsed) else dumps(schema)
        if isinstance(schema, Unparsed):
            yield _TWO_READINGS
        elif schema is ABSENT or len(text) > MAX_SCHEMA:
            yield _NONE if schema is ABSENT else _TOO_LARGE
        else:
            texts.append(text)
            yield len(text)


def unpack_page(result: bytes) -> ToolsPage | dict[str, JsonValue] | None:
    """The page that a child has read, the answer without a page, or None without an answer."""
    head, texts = split_frame(result)
    if not isinstance(head, dict) or "tools" not in head:
        return head if isinstance(head, dict) else None
    tools: list[ListedTool] = []
    at = 0
    for name, description, hints, digest, definition, *lengths in head["tools"]:
        schemas: list[JsonValue] = []
        for length in lengths:
            schemas.append(_unpack_text(texts, at, length))
            at += max(length, 0)
        tools.append(ListedTool(name, description, schemas[0], schemas[1], hints, digest, tuple(definition)))
    return ToolsPage(tuple(tools), head["cursor"], None if head["ttl"] is None else head["ttl"] / 1000)


def _unpack_text(texts: bytes, at: int, length: int) -> JsonValue:
    if length == _NONE:
        return ABSENT
    if length == _TOO_LARGE:
        return Unparsed(b"", f"it is longer than {MAX_SCHEMA} bytes")
    if length == _TWO_READINGS:
        return Unparsed(b"", "a key of its entry equals another one except for case")
    return Unparsed(texts[at : at + length])
