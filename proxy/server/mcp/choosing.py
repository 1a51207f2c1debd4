"""The list of tools that clients see where a route serves some of a server's tools only (`mcp.allow`, `mcp.deny`).

A list from which tools are taken out is written anew, with nothing added. Every other byte of its message goes on as
its server wrote it, and a list that keeps all its tools does so too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final

from proxy.adapters.mcp import INTERNAL_ERROR
from proxy.adapters.mcplist import MAX_LIST
from proxy.core.contract.listed_tools import LearnPolicy
from proxy.core.json.jsonspan import replace_values
from proxy.core.json.jsontext import dumps, parse
from proxy.core.model.values import JsonValue, UpstreamReply
from proxy.server.mcp.learner import decode_body, find_header
from proxy.upstream.stream import close_body

_TOO_LONG: Final = (
    f"The server's list of tools has more than {MAX_LIST >> 20} MiB, which is too long to leave out the tools that are "
    "not served here. The server has to list them on several pages."
)
_UNREADABLE: Final = (
    "The server's list of tools cannot be read as strict JSON, so what is not served here cannot be left out."
)
_DROPPED: Final = frozenset({"content-encoding", "content-length", "etag", "content-md5", "digest", "repr-digest"})


def filter_list(reply: UpstreamReply, rules: LearnPolicy, request_id: JsonValue) -> UpstreamReply:
    """Reduces an answer to `tools/list` to the tools that the route serves. In place of an answer that cannot be read
    as a list, or is too long for that, stands an error that says so."""
    headers = tuple(field for field in reply.headers if field[0].lower() not in _DROPPED)
    if isinstance(reply.body, bytes):
        return replace(reply, headers=headers, body=_Reading(reply, rules, request_id).write(reply.body))
    return replace(reply, headers=headers, body=_Gathered(reply, _Reading(reply, rules, request_id)))


class _Gathered:
    """A stream that is read to its end before its one piece goes on."""

    def __init__(self, reply: UpstreamReply, reading: _Reading) -> None:
        self._reply = reply
        self._reading = reading
        self._pieces = self._read()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._pieces

    async def _read(self) -> AsyncIterator[bytes]:
        whole = bytearray()
        if not isinstance(self._reply.body, bytes):
            async for piece in self._reply.body:
                whole += piece
                if len(whole) > MAX_LIST:
                    break
        yield self._reading.write(bytes(whole))

    async def __anext__(self) -> bytes:
        return await anext(self._pieces)

    async def aclose(self) -> None:
        """Closes the stream early."""
        await close_body(self._reply)


class _Reading:
    """What an answer becomes. `request_id` is that of the question, under which an error is told."""

    def __init__(self, reply: UpstreamReply, rules: LearnPolicy, request_id: JsonValue) -> None:
        self._reply = reply
        self._rules = rules
        self._request_id = request_id
        kind = find_header(reply, "content-type").partition(";")[0].strip().lower()
        self._is_streamed = kind == "text/event-stream"

    def write(self, sent: bytes) -> bytes:
        """The whole answer, as the client gets it."""
        body = decode_body(self._reply, sent) if len(sent) <= MAX_LIST else None
        if body is None:
            error = self._error(_TOO_LONG if len(sent) > MAX_LIST else _UNREADABLE)
            return b"data: " + error + b"\n\n" if self._is_streamed else error
        if not self._is_streamed:
            return self._message(body)
        whole = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return b"".join(self._event(block) + b"\n\n" for block in whole.split(b"\n\n") if block)

    def _event(self, block: bytes) -> bytes:
        lines = block.split(b"\n")
        data = [line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")]
        if not any(data):
            return block
        others = [line for line in lines if not line.startswith(b"data:")]
        return b"\n".join([*others, b"data: " + self._message(b"\n".join(data))])

    def _message(self, text: bytes) -> bytes:
        """A message; of a list of tools only what the route serves."""
        value = parse(text)
        result = value.get("result") if isinstance(value, dict) else None
        tools = result.get("tools") if isinstance(result, dict) else None
        if not isinstance(value, dict):
            return self._error(_UNREADABLE) if b'"tools"' in text else text  # its content is unknown
        if not isinstance(result, dict) or not isinstance(tools, list):
            return text
        served = self._rules.serves
        kept: list[JsonValue] = [tool for tool in tools if isinstance(tool, dict) and served(str(tool.get("name")))]
        return text if len(kept) == len(tools) else replace_values(text, {("result", "tools"): dumps(kept)})

    def _error(self, message: str) -> bytes:
        error: JsonValue = {"code": INTERNAL_ERROR, "message": message}
        return dumps({"jsonrpc": "2.0", "id": self._request_id, "error": error})
