"""The memory of a conversation for layer 4: the user's wish, and the results of its last delivered calls.

It is kept only where a tool's policy says `trajectory: on`, and in this process alone, because no argument value may go
to a shared store. It holds no secrets, is cut, expires, and is kept for a bounded number of conversations. Several
users may share a conversation that is known only by its address: nothing of it is kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Final

from proxy.core.contract.attempts import hash_name
from proxy.core.display.graphemes import cut, replace_surrogates
from proxy.core.display.secrets import mask_credentials
from proxy.core.json.contentcoding import Undecodable, decode, is_coded
from proxy.core.json.event_stream import list_data
from proxy.core.json.jsontext import dumps, parse
from proxy.core.model.value_class import value_class
from proxy.core.model.values import (
    CheckedCall,
    Conversation,
    FeedbackLimits,
    JsonProblem,
    JsonValue,
    Rung,
    UpstreamReply,
)
from proxy.extensions.correction.changes import hide_secrets
from proxy.extensions.correction.core.settings import TrajectoryLimits

# The longest answer that is read, in bytes; a longer one is a document, not a value for the next call.
_LOOKED_AT: Final = 64 * 1024


@value_class
class TrajectoryStep:
    """One delivered call: its arguments and its result, each without secrets."""

    tool: str
    arguments: JsonValue
    result: JsonValue


@value_class
class Trajectory:
    """The remembered steps of a conversation, the oldest first. `query` is '' where the user's request is unknown."""

    query: str = ""
    steps: tuple[TrajectoryStep, ...] = ()

    def write_json(self) -> str:
        """The steps as JSON."""
        return dumps(
            [{"tool": step.tool, "arguments": step.arguments, "result": step.result} for step in self.steps]
        ).decode()


_NOTHING: Final = Trajectory()


class Trajectories:
    """All trajectories of this process. `now` is a monotonic clock in seconds. Outlives a reload of the config."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._kept: OrderedDict[str, tuple[Trajectory, float]] = OrderedDict()

    def find(self, conversation: Conversation) -> Trajectory:
        """The trajectory of a conversation."""
        if conversation.rung is Rung.ADDRESS:
            return _NOTHING
        kept, expires = self._kept.get(hash_name(conversation), (_NOTHING, 0.0))
        return kept if expires > self._now() else _NOTHING

    def add(
        self, checked: CheckedCall, reply: UpstreamReply, query: str, limits: TrajectoryLimits, hidden: FeedbackLimits
    ) -> None:
        """Remembers a delivered call. `hidden` names what the schema marks as secret."""
        conversation = checked.call.conversation
        result = _read_result(reply, limits.max_chars, hidden)
        if conversation.rung is Rung.ADDRESS or result is None:
            return
        before = self.find(conversation)
        arguments = _bound_size(hide_secrets(checked.value, hidden), limits.max_chars)
        step = TrajectoryStep(checked.call.tool, arguments, result)
        after = replace(before, query=query or before.query, steps=(*before.steps, step)[-limits.steps :])
        self._kept[hash_name(conversation)] = (after, self._now() + limits.ttl)
        self._kept.move_to_end(hash_name(conversation))
        while len(self._kept) > limits.conversations:
            self._kept.popitem(last=False)


class GatheredStream:
    """A streamed answer on its way to the client. At its end `remember` receives the whole body, unless it is too
    long."""

    def __init__(self, body: AsyncIterator[bytes], remember: Callable[[bytes], None]) -> None:
        self._body = body
        self._remember: Callable[[bytes], None] | None = remember
        self._seen = bytearray()

    def __aiter__(self) -> GatheredStream:
        return self

    async def __anext__(self) -> bytes:
        try:
            piece = await anext(self._body)
        except StopAsyncIteration:
            self._end()
            raise
        if self._remember is not None:
            self._seen += piece
            if len(self._seen) > _LOOKED_AT:
                self._remember, self._seen = None, bytearray()
        return piece

    async def aclose(self) -> None:
        """Closes the stream early. MCP clients close after the last event, so the body may be whole even then."""
        self._end()
        close = getattr(self._body, "aclose", None)
        if close is not None:
            await close()

    def _end(self) -> None:
        remember, self._remember = self._remember, None
        if remember is not None:
            remember(bytes(self._seen))


def _read_result(reply: UpstreamReply, most: int, hidden: FeedbackLimits) -> JsonValue:
    """The tool's result without secrets; None where the body is not a short text."""
    if not isinstance(reply.body, bytes) or reply.status >= 300 or len(reply.body) > _LOOKED_AT:
        return None
    body: bytes | Undecodable = reply.body
    coding = reply.header("content-encoding")
    if is_coded(coding):
        body = decode(reply.body, coding, _LOOKED_AT)
    if isinstance(body, Undecodable) or not body.strip():
        return None
    if reply.header("content-type").partition(";")[0].strip().lower() == "text/event-stream":
        value = next((found for data in list_data(body) if _is_answer(found := parse(data))), None)
        return None if value is None else _bound_size(hide_secrets(_unwrap_result(value), hidden), most)
    value = parse(body)
    if isinstance(value, dict) and "jsonrpc" in value:
        return _bound_size(hide_secrets(_unwrap_result(value), hidden), most) if _is_answer(value) else None
    if isinstance(value, JsonProblem):
        return cut(mask_credentials(replace_surrogates(body.decode("utf-8", "replace")), most), most)
    return _bound_size(hide_secrets(value, hidden), most)


def _is_answer(value: JsonValue | JsonProblem) -> bool:
    """Whether a JSON-RPC message holds the successful result of a call."""
    result = value.get("result") if isinstance(value, dict) and "jsonrpc" in value else None
    return isinstance(result, dict) and result.get("isError") is not True


def _unwrap_result(message: JsonValue) -> JsonValue:
    """The tool's own value inside an MCP result."""
    result = message.get("result") if isinstance(message, dict) else None
    if not isinstance(result, dict):
        return result
    if "structuredContent" in result:
        return result["structuredContent"]
    content = result.get("content")
    block = content[0] if isinstance(content, list) and len(content) == 1 else None
    text = block.get("text") if isinstance(block, dict) else None
    if not isinstance(text, str):
        return result
    read = parse(text.encode("utf-8", "surrogatepass"))
    return text if isinstance(read, JsonProblem) else read


def _bound_size(value: JsonValue, most: int) -> JsonValue:
    """The value if its JSON has at most `most` characters, otherwise the beginning of its JSON as text."""
    text = dumps(value).decode()
    return value if len(text) <= most else cut(text, most)
