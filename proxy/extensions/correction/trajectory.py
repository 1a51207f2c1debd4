"""The memory of a conversation for layer 4: the user's wish, and the results of its last delivered calls.

It is kept only if a tool's policy says `trajectory: on`, and only in this process, because no argument value may go to
a shared store. It holds no secrets, is cut, expires, and is kept for a bounded number of conversations. Several users
may share a conversation that is known only by its address: nothing of it is kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Final

from proxy.core.contract.attempts import hash_name
from proxy.core.display.graphemes import cut, replace_surrogates
from proxy.core.display.preview import is_secret_path
from proxy.core.display.secrets import MASK, mask_credentials
from proxy.core.json.contentcoding import Undecodable, decode, is_coded, list_data
from proxy.core.json.jsontext import are_equal, dumps, parse, walk
from proxy.core.model.value_class import value_class
from proxy.core.model.values import (
    ABSENT,
    CheckedCall,
    Conversation,
    FeedbackLimits,
    JsonProblem,
    JsonValue,
    Pointer,
    Rung,
    UpstreamReply,
)
from proxy.extensions.correction.core.settings import TrajectoryLimits

# --- arguments on their way to a model and back -----------------------------------------------------------------------
# Arguments on their way to a model and back: secrets are masked and restored, and places that did not fail stay.
# Pure.
#
#     `hide_secrets(value)` masks every secret in the arguments for the prompt.
#     `restore_secrets(answer, ...)` puts the original values back wherever the answer repeats shown ones.
#     `find_changes(before, after)` finds the places that differ.
#     `find_out_of_scope(...)` finds those of them that the failure does not name.
#     `keep_in_scope(...)` returns the answer without those.
#
# A value that is repeated keeps its own text: `1.10` stays `1.10`, also if the model writes 1.1.


def hide_secrets(value: JsonValue, limits: FeedbackLimits, path: Pointer = ()) -> JsonValue:
    """A copy with secrets masked: values under secret names, and texts that look like credentials. Nothing is cut."""
    if value is not None and path and is_secret_path(path[-1:], limits):
        return MASK
    if isinstance(value, dict):
        return {mask_credentials(key): hide_secrets(item, limits, (key,)) for key, item in value.items()}
    if isinstance(value, list):
        return [hide_secrets(item, limits) for item in value]
    return mask_credentials(value) if isinstance(value, str) else value


def restore_secrets(answer: JsonValue, was_shown: JsonValue, original: JsonValue) -> JsonValue:
    """The answer with each part that repeats what was shown replaced by the original."""
    if are_equal(answer, was_shown):
        return original
    if isinstance(answer, dict) and isinstance(was_shown, dict) and isinstance(original, dict):
        kept = {mask_credentials(key): key for key in original}
        return {
            kept.get(key, key): restore_secrets(item, was_shown[key], original[kept[key]]) if key in kept else item
            for key, item in answer.items()
        }
    if isinstance(answer, list) and isinstance(was_shown, list) and isinstance(original, list):
        return _restore_items(answer, was_shown, original)
    return answer


def _restore_items(answer: list[JsonValue], was_shown: list[JsonValue], original: list[JsonValue]) -> JsonValue:
    """Restores the items of a list. The model may have moved items, and a secret must not land in the wrong one: a
    changed item gets its parts back only if no other item changed."""
    same_length = len(answer) == len(was_shown)
    differing = [index for index, item in enumerate(answer) if not same_length or not are_equal(item, was_shown[index])]
    if same_length and len(differing) == 1:
        (index,) = differing
        return [
            restore_secrets(item, was_shown[index], original[index]) if place == index else original[place]
            for place, item in enumerate(answer)
        ]
    return [
        _find_moved(item, was_shown, original) if index in differing else original[index]
        for index, item in enumerate(answer)
    ]


def _find_moved(item: JsonValue, was_shown: list[JsonValue], original: list[JsonValue]) -> JsonValue:
    """The original of a moved item, if exactly one was shown like it; otherwise the item itself."""
    found = [kept for kept, seen in zip(original, was_shown, strict=True) if are_equal(item, seen)]
    return found[0] if len(found) == 1 else item


def lay_over(arguments: JsonValue, changes: JsonValue) -> JsonValue:
    """The arguments with changes merged in, nested objects too."""
    if not isinstance(arguments, dict) or not isinstance(changes, dict):
        return changes
    return {**arguments, **{key: lay_over(arguments.get(key), item) for key, item in changes.items()}}


def find_changes(before: JsonValue, after: JsonValue, path: Pointer = ()) -> list[Pointer]:
    """The deepest places where two values differ."""
    return list(_list_changed(before, after, path))


def _list_changed(before: JsonValue, after: JsonValue, path: Pointer) -> Iterator[Pointer]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in {**before, **after}:
            yield from _list_changed(before.get(key, ABSENT), after.get(key, ABSENT), (*path, key))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, pair in enumerate(zip(before, after, strict=True)):
            yield from _list_changed(*pair, (*path, index))
    elif before is ABSENT or after is ABSENT:
        if before is not after:
            yield path
    elif not are_equal(before, after):
        yield path


def find_out_of_scope(paths: list[Pointer], failing: list[tuple[str, ...]]) -> list[Pointer]:
    """The changed places that are neither at nor below one of `failing`; none where `failing` is empty."""
    return [path for path in paths if not _is_in_scope(path, failing)]


def keep_in_scope(before: JsonValue, after: JsonValue, failing: list[tuple[str, ...]], path: Pointer = ()) -> JsonValue:
    """The arguments after a change, with everything put back that `find_out_of_scope` names."""
    if isinstance(before, dict) and isinstance(after, dict):
        members = {
            key: keep_in_scope(before.get(key, ABSENT), after.get(key, ABSENT), failing, (*path, key))
            for key in {**after, **before}
        }
        return {key: item for key, item in members.items() if item is not ABSENT}
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [keep_in_scope(*pair, failing, (*path, index)) for index, pair in pairs]
    return after if _is_in_scope(path, failing) else before


def _is_in_scope(path: Pointer, failing: list[tuple[str, ...]]) -> bool:
    return not failing or any(tuple(map(str, path))[: len(place)] == place for place in failing)


def holds_mask(value: JsonValue, path: Pointer) -> bool:
    """Returns whether a changed place holds a masked secret: the model moved a value that it did not see."""
    for step in path:
        if isinstance(value, dict):
            value = value.get(step, ABSENT)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return False
    return any(isinstance(item, str) and MASK in item for item in walk(value))


# --- the memory of a conversation for layer 4 -------------------------------------------------------------------------
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
    """The remembered steps of a conversation, the oldest first. `query` is '' if the user's request is unknown."""

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
    """Returns the tool's result without secrets; None if the body is not a short text."""
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
    """Returns whether a JSON-RPC message holds the successful result of a call."""
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
