"""What is remembered of a conversation for layer 4: what the user wants, and what its last delivered calls gave.

Kept only where a tool's policy says `trajectory: on`, in this process alone (no argument value ever goes to a shared
store), without secrets, cut, for a time, and of a bounded number of conversations. A conversation known by its address
alone may be several users': nothing of it is kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Final

from proxy.adapters.mcplist import read_events
from proxy.core.contract.correction import TrajectoryLimits
from proxy.core.display.graphemes import cut, replace_surrogates
from proxy.core.display.secrets import mask_credentials
from proxy.core.json.contentcoding import Undecodable, decode, is_coded
from proxy.core.json.jsontext import dumps, parse
from proxy.core.model.values import (
    CheckedCall,
    Conversation,
    FeedbackLimits,
    Headers,
    JsonProblem,
    JsonValue,
    Rung,
    UpstreamReply,
)
from proxy.correction.changes import hide_secrets

# Bytes of an answer that are looked at; a longer one is a document and no figure to compute with.
_LOOKED_AT: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class TrajectoryStep:
    """One delivered call: what was asked and what came, each as shown."""

    tool: str
    arguments: JsonValue
    result: JsonValue


@dataclass(frozen=True, slots=True)
class Trajectory:
    """What is known of a conversation, oldest step first. `query` is '' where the user's wish was never told."""

    query: str = ""
    steps: tuple[TrajectoryStep, ...] = ()

    def told(self) -> str:
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

    def of(self, conversation: Conversation) -> Trajectory:
        """What is known of a conversation."""
        if conversation.rung is Rung.ADDRESS:
            return _NOTHING
        kept, expires = self._kept.get(conversation.key, (_NOTHING, 0.0))
        return kept if expires > self._now() else _NOTHING

    def add(
        self, checked: CheckedCall, reply: UpstreamReply, query: str, limits: TrajectoryLimits, hidden: FeedbackLimits
    ) -> None:
        """Remembers a delivered call. `hidden` names what the schema marks as secret."""
        conversation = checked.call.conversation
        result = _result(reply, limits.max_chars, hidden)
        if conversation.rung is Rung.ADDRESS or result is None:
            return
        before = self.of(conversation)
        arguments = _bounded(hide_secrets(checked.value, hidden), limits.max_chars)
        step = TrajectoryStep(checked.call.tool, arguments, result)
        after = replace(before, query=query or before.query, steps=(*before.steps, step)[-limits.steps :])
        self._kept[conversation.key] = (after, self._now() + limits.ttl)
        self._kept.move_to_end(conversation.key)
        while len(self._kept) > limits.conversations:
            self._kept.popitem(last=False)


class GatheredStream:
    """A streamed answer on its way to the client. At its end `remember` gets what came, unless that is too much."""

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
        """Closes the stream early. Clients of MCP leave with the last event, so what came may be all there was."""
        self._end()
        close = getattr(self._body, "aclose", None)
        if close is not None:
            await close()

    def _end(self) -> None:
        remember, self._remember = self._remember, None
        if remember is not None:
            remember(bytes(self._seen))


def _result(reply: UpstreamReply, most: int, hidden: FeedbackLimits) -> JsonValue:
    """What the tool said; None where that is no short text."""
    if not isinstance(reply.body, bytes) or reply.status >= 300 or len(reply.body) > _LOOKED_AT:
        return None
    body: bytes | Undecodable = reply.body
    coding = _header(reply.headers, "content-encoding")
    if is_coded(coding):
        body = decode(reply.body, coding, _LOOKED_AT)
    if isinstance(body, Undecodable) or not body.strip():
        return None
    if _header(reply.headers, "content-type").partition(";")[0].strip().lower() == "text/event-stream":
        value = next((found for data in read_events(body) if _answers(found := parse(data))), None)
        return None if value is None else _bounded(hide_secrets(_said(value), hidden), most)
    value = parse(body)
    if isinstance(value, dict) and "jsonrpc" in value:
        return _bounded(hide_secrets(_said(value), hidden), most) if _answers(value) else None
    if isinstance(value, JsonProblem):
        return cut(mask_credentials(replace_surrogates(body.decode("utf-8", "replace")), most), most)
    return _bounded(hide_secrets(value, hidden), most)


def _answers(value: JsonValue | JsonProblem) -> bool:
    """Whether a message of JSON-RPC holds the result of a call, which is no error."""
    result = value.get("result") if isinstance(value, dict) and "jsonrpc" in value else None
    return isinstance(result, dict) and result.get("isError") is not True


def _said(message: JsonValue) -> JsonValue:
    """What a tool said, without the frame of an MCP result around it."""
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


def _bounded(value: JsonValue, most: int) -> JsonValue:
    """A value whose JSON is no longer than `most`, or the beginning of that as text."""
    text = dumps(value).decode()
    return value if len(text) <= most else cut(text, most)


def _header(headers: Headers, name: str) -> str:
    return next((value for key, value in headers if key.lower() == name), "")
