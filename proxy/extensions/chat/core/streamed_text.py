"""Calls that stand as markup in the text of a streamed answer (Chat Completions and Messages).

Text passes until its end may be the beginning of markup. From there on events are held until that is clear: they pass
where it was none, and once the answer has ended its calls take their place, if all of it is whole and valid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from proxy.core.json.jsontext import dumps
from proxy.core.model.values import JsonValue, Pointer
from proxy.extensions.chat.core.call_markup import LONGEST, find_sign, has_sign
from proxy.extensions.chat.core.events import change_event, read_event, write_event
from proxy.extensions.chat.core.found_calls import encode_arguments
from proxy.extensions.chat.core.model_request import Api
from proxy.extensions.chat.core.written_calls import ENDS, NewCall

_CONTENT: Final[Pointer] = ("choices", 0, "delta", "content")
_DELTA: Final[Pointer] = ("choices", 0, "delta")
_FINISH: Final[Pointer] = ("choices", 0, "finish_reason")


@dataclass(frozen=True, slots=True)
class TextEvent:
    """An event: its bytes, its data, the text that it adds (None for none), and whether the answer's text ends."""

    raw: bytes = field(repr=False)
    value: Mapping[str, Any] = field(repr=False)
    text: str | None
    is_end: bool


class HeldText:
    """The text of one answer. `text` is all of it so far, of which `passed` characters have gone out; `size` bytes of
    events are held. `is_off`: nothing is held any more."""

    def __init__(self, api: Api, *, is_off: bool) -> None:
        self.text = ""
        self.passed = 0
        self.size = 0
        self.is_off = is_off or api is Api.RESPONSES
        self._api = api
        self._is_sure = False  # whether a whole sign has come
        self._held: list[TextEvent] = []

    @property
    def is_holding(self) -> bool:
        """Whether markup may have begun."""
        return bool(self._held)

    @property
    def is_complete(self) -> bool:
        """Whether the answer's text has ended while it was held."""
        return self.is_holding and self._held[-1].is_end

    def take(self, raw: bytes) -> list[bytes]:
        """Takes the next event, and gives those that pass now."""
        value = None if self.is_off else read_event(raw)
        if not isinstance(value, dict):
            return [*self.give_up(), raw] if self.is_holding and not raw.startswith(b":") else [raw]
        event = (_read_chat if self._api is Api.CHAT else _read_messages)(raw, value)
        if event is None or (self.is_holding and value.get("type") == "content_block_start"):
            return [*self.give_up(), raw]
        self.text += event.text or ""
        if self.is_holding or (event.text and find_sign(self.text[self.passed :]) is not None):
            self._held.append(event)
            self.size += len(raw)
        else:
            self.passed = len(self.text)
            return [raw]
        if len(self.text) - self.passed > LONGEST:
            return self.give_up()
        self._is_sure = self._is_sure or has_sign(self.text[self.passed :])
        return [] if self._is_sure or find_sign(self.text[self.passed :]) is not None else self.release()

    def release(self) -> list[bytes]:
        """The held events as they came; what follows is watched on."""
        held = [event.raw for event in self._held]
        self._held, self.passed, self.size = [], len(self.text), 0
        return held

    def give_up(self) -> list[bytes]:
        """The held events as they came; nothing is held from here on."""
        self.is_off = True
        return self.release()

    def write(self, before: str, calls: Sequence[NewCall]) -> list[bytes]:
        """The held events with calls in the place of their markup. `before` is the answer's text without it."""
        left = before[self.passed :]
        written = [*(_write_chat if self._api is Api.CHAT else _write_messages)(self._held, left, calls)]
        self._held, self.size, self.is_off = [], 0, True
        return written


def _read_chat(raw: bytes, value: Mapping[str, Any]) -> TextEvent | None:
    """An event of Chat Completions; None where it is one of several choices, or ends a text that is not whole."""
    choices = value.get("choices")
    if not isinstance(choices, list) or not choices:
        return TextEvent(raw, value, None, is_end=False)
    choice = choices[0]
    if len(choices) > 1 or not isinstance(choice, dict) or choice.get("index", 0) != 0:
        return None
    if choice.get("finish_reason") not in ENDS:
        return None
    delta = choice.get("delta")
    text = delta.get("content") if isinstance(delta, dict) else None
    return TextEvent(raw, value, text if isinstance(text, str) else None, choice.get("finish_reason") is not None)


def _read_messages(raw: bytes, value: Mapping[str, Any]) -> TextEvent | None:
    """An event of Messages; None where it ends a text that is not whole."""
    change = value.get("delta")
    if value.get("type") == "message_delta" and isinstance(change, dict) and change.get("stop_reason") not in ENDS:
        return None
    delta = value.get("delta") if value.get("type") == "content_block_delta" else None
    text = delta.get("text") if isinstance(delta, dict) and delta.get("type") == "text_delta" else None
    return TextEvent(raw, value, text if isinstance(text, str) else None, value.get("type") == "message_delta")


def _write_chat(held: Sequence[TextEvent], left: str, calls: Sequence[NewCall]) -> Iterator[bytes]:
    first = held[0].raw
    open_end: dict[Pointer, bytes] = {_FINISH: b"null"} if held[0].is_end else {}
    if left:
        yield change_event(first, {_CONTENT: dumps(left), **open_end})
    parts = [
        b'{"index":%d,"id":%b,"type":"function","function":{"name":%b,"arguments":%b}}'
        % (at, dumps(call.call_id), dumps(call.name), encode_arguments(call.arguments))
        for at, call in enumerate(calls)
    ]
    yield change_event(first, {_DELTA: b'{"tool_calls":[%b]}' % b",".join(parts), **open_end})
    for event in held:
        if event.is_end:
            yield change_event(event.raw, {_DELTA: b"{}", _FINISH: b'"tool_calls"'})
        elif event.text is None:
            yield event.raw


def _write_messages(held: Sequence[TextEvent], left: str, calls: Sequence[NewCall]) -> Iterator[bytes]:
    if left:
        yield change_event(held[0].raw, {("delta", "text"): dumps(left)})
    index = held[0].value.get("index")
    index = index if isinstance(index, int) else 0
    for event in held:
        if event.is_end:
            for at, call in enumerate(calls, index + 1):
                yield from _write_block(at, call)
            yield change_event(event.raw, {("delta", "stop_reason"): b'"tool_use"'})
        elif event.text is None:
            yield event.raw


def _write_block(index: int, call: NewCall) -> Iterator[bytes]:
    """A call as the events of one block."""
    block: dict[str, JsonValue] = {"type": "tool_use", "id": call.call_id, "name": call.name, "input": {}}
    arguments = call.arguments.decode("utf-8", "surrogatepass")
    delta = {"type": "input_json_delta", "partial_json": arguments}
    for name, rest in (
        ("content_block_start", {"content_block": block}),
        ("content_block_delta", {"delta": delta}),
        ("content_block_stop", {}),
    ):
        yield write_event(dumps({"type": name, "index": index, **rest}), name)
