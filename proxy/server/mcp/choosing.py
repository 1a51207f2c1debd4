"""The list of tools that clients see where a route serves some of a server's tools only (`mcp.allow`, `mcp.deny`).

A list from which tools are taken out is written anew, with nothing added. Every other byte of its message goes on as
its server wrote it, and a list that keeps all its tools does so too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final

from proxy.adapters.mcplist import MAX_LIST
from proxy.core.contract.listed_tools import LearnPolicy
from proxy.core.json.jsonspan import replace_values
from proxy.core.json.jsontext import dumps, parse
from proxy.core.model.values import JsonValue, UpstreamReply
from proxy.server.mcp.learner import decode_body, find_header
from proxy.upstream.stream import close_body

_DROPPED: Final = frozenset({"content-encoding", "content-length", "etag", "content-md5", "digest", "repr-digest"})


def filter_list(reply: UpstreamReply, rules: LearnPolicy) -> UpstreamReply:
    """Reduces an answer to `tools/list` to the tools that the route serves. An answer that cannot be read as a list
    shows none."""
    headers = tuple(field for field in reply.headers if field[0].lower() not in _DROPPED)
    streamed = find_header(reply, "content-type").partition(";")[0].strip().lower() == "text/event-stream"
    if isinstance(reply.body, bytes):
        body = decode_body(reply, reply.body)
        return replace(reply, headers=headers, body=_body(body or b"", rules, streamed))
    return replace(reply, headers=headers, body=_Gathered(reply, rules, streamed))


class _Gathered:
    """A stream that is read to its end before its one piece goes on."""

    def __init__(self, reply: UpstreamReply, rules: LearnPolicy, streamed: bool) -> None:
        self._reply = reply
        self._rules = rules
        self._streamed = streamed
        self._pieces = self._read()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._pieces

    async def _read(self) -> AsyncIterator[bytes]:
        whole = bytearray()
        if not isinstance(self._reply.body, bytes):
            async for piece in self._reply.body:
                whole += piece
                if len(whole) > MAX_LIST:
                    return
        yield _body(decode_body(self._reply, bytes(whole)) or b"", self._rules, self._streamed)

    async def __anext__(self) -> bytes:
        return await anext(self._pieces)

    async def aclose(self) -> None:
        """Closes the stream early."""
        await close_body(self._reply)


def _body(body: bytes, rules: LearnPolicy, streamed: bool) -> bytes:
    if not streamed:
        return _message(body, rules)
    whole = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return b"".join(_event(block, rules) + b"\n\n" for block in whole.split(b"\n\n") if block)


def _event(block: bytes, rules: LearnPolicy) -> bytes:
    lines = block.split(b"\n")
    data = [line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")]
    if not any(data):
        return block
    others = [line for line in lines if not line.startswith(b"data:")]
    return b"\n".join([*others, b"data: " + _message(b"\n".join(data), rules)])


def _message(text: bytes, rules: LearnPolicy) -> bytes:
    """A message; of a list of tools only what the route serves."""
    value = parse(text)
    result = value.get("result") if isinstance(value, dict) else None
    tools = result.get("tools") if isinstance(result, dict) else None
    if not isinstance(value, dict):
        return b"" if b'"tools"' in text else text  # its content is unknown
    if not isinstance(result, dict) or not isinstance(tools, list):
        return text
    kept: list[JsonValue] = [tool for tool in tools if isinstance(tool, dict) and rules.serves(str(tool.get("name")))]
    return text if len(kept) == len(tools) else replace_values(text, {("result", "tools"): dumps(kept)})
