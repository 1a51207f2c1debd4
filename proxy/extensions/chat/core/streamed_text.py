"""Calls in markup in the text of a streamed answer.

Text passes until calls may begin in it (text_watch.py). From there on events are held. They pass once the text turns
out to be no call. At the end of the answer its calls replace them, if all are complete and valid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from proxy.core.json.jsontext import dumps
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue, Pointer
from proxy.extensions.chat.core.events import change_event, write_event
from proxy.extensions.chat.core.found_calls import ENDS, SILENT, NewCall, encode_arguments, make_item
from proxy.extensions.chat.core.model_request import Api
from proxy.extensions.chat.core.text_watch import TextWatch

# --- the events of a streamed text of Responses -----------------------------------------------------------------------
# The events of a streamed text of Responses, with calls in place of its markup.
#
# The client has seen the beginning of the text's item, so it stays, with the text before the markup. The calls follow
# as separate items, also in the last event, which repeats the whole answer. Events are renumbered.

# The events around a text, beside its parts and the end of the answer.
TEXT_KINDS: Final = frozenset(
    {
        "response.created", "response.queued", "response.in_progress", "response.output_item.added",
        "response.content_part.added", "response.output_text.done", "response.content_part.done",
        "response.output_item.done",
    }
)  # fmt: skip
# The place at which an event repeats the text of its part, by its type.
_COPIES: Final[Mapping[str, Pointer]] = {
    "response.output_text.done": ("text",),
    "response.content_part.done": ("part", "text"),
    "response.output_item.done": ("item", "content", 0, "text"),
    "response.completed": ("response", "output", -1, "content", 0, "text"),
}
_NUMBER: Final[Pointer] = ("sequence_number",)


def is_last_text(value: Mapping[str, Any]) -> bool:
    """Returns whether the answer of a last event ends with a message of one text."""
    response = value.get("response")
    output = response.get("output") if isinstance(response, dict) else None
    last = output[-1] if isinstance(output, list) and output else None
    if not isinstance(last, dict) or last.get("type") != "message":
        return False
    parts = last.get("content")
    return isinstance(parts, list) and len(parts) == 1 and isinstance(parts[0], dict) and "text" in parts[0]


def write_responses(
    events: Sequence[tuple[bytes, Mapping[str, Any]]], rest: str, text: str, calls: Sequence[NewCall]
) -> Iterator[bytes]:
    """The held events with calls. `rest` is the beginning of their text that stays."""
    number = events[0][1].get("sequence_number")
    for event in _write(events, rest, text, calls):
        if not isinstance(number, int) or event.startswith(b":"):
            yield event
        else:
            yield change_event(event, {_NUMBER: b"%d" % number})
            number += 1


def _write(
    events: Sequence[tuple[bytes, Mapping[str, Any]]], rest: str, text: str, calls: Sequence[NewCall]
) -> Iterator[bytes]:
    has_numbers, begun = "sequence_number" in events[0][1], rest
    for raw, value in events:
        kind, copy = value.get("type"), find_copy(value)
        item_text = "" if copy is None else copy.rstrip().removesuffix(text.rstrip()) + rest
        if kind == "response.output_text.delta":
            if begun:
                yield change_event(raw, {("delta",): dumps(begun)})
            begun = ""
        elif kind == "response.completed":
            output = value["response"]["output"]
            for at, call in enumerate(calls, len(output)):
                yield from _write_item(at, call, has_numbers=has_numbers)
            message = {**output[-1], "content": [{**output[-1]["content"][0], "text": item_text}]}
            made: JsonValue = [*output[:-1], message, *map(make_item, calls)]
            yield change_event(raw, {("response", "output"): dumps(made)})
        elif copy is not None:
            yield change_event(raw, {_COPIES[str(kind)]: dumps(item_text)})
        else:
            yield raw


def find_copy(value: Mapping[str, Any]) -> str | None:
    """The text of a whole part or item that an event repeats; None if it repeats none."""
    kind = value.get("type")
    inner: Any = value if kind in _COPIES else None
    for step in _COPIES.get(str(kind), ()):
        if isinstance(inner, list):
            inner = inner[-1] if inner else None
        else:
            inner = inner.get(step) if isinstance(inner, dict) else None
    return inner if isinstance(inner, str) else None


def ends_with(copy: str, text: str) -> bool:
    """Returns whether the text of a part ends with this one; white space at the end makes no difference."""
    return copy.rstrip().endswith(text.rstrip())


def _write_item(at: int, call: NewCall, *, has_numbers: bool) -> Iterator[bytes]:
    """A call as the events of one item."""
    item = make_item(call)
    arguments = item["arguments"]
    place: dict[str, JsonValue] = {"item_id": item["id"], "output_index": at}
    number: dict[str, JsonValue] = {"sequence_number": 0} if has_numbers else {}
    begun = {**item, "arguments": "", "status": "in_progress"}
    kinds: tuple[tuple[str, dict[str, JsonValue]], ...] = (
        ("response.output_item.added", {"output_index": at, "item": begun}),
        ("response.function_call_arguments.delta", {**place, "delta": arguments}),
        ("response.function_call_arguments.done", {**place, "name": call.name, "arguments": arguments}),
        ("response.output_item.done", {"output_index": at, "item": item}),
    )
    for kind, rest in kinds:
        yield write_event(dumps({"type": kind, **number, **rest}), kind)


# --- calls that stand as markup in the text of a streamed answer ------------------------------------------------------
_DELTA: Final[Pointer] = ("choices", 0, "delta")
_FINISH: Final[Pointer] = ("choices", 0, "finish_reason")


# Events that begin another part of an answer; a text with calls is its last one.
_BEGINNINGS: Final = ("content_block_start", "response.output_item.added", "response.content_part.added")


@value_class
class TextEvent:
    """An event: its bytes, its data, the text that it adds (None for none), and whether the answer's text ends."""

    raw: bytes = field(repr=False)
    value: Mapping[str, Any] = field(repr=False)
    text: str | None
    is_end: bool


class HeldText:
    """The text of one answer. `watch` says where calls may begin in it (None: nothing is held). `size` bytes of events
    are held. `is_complete`: the answer's text has ended and may be calls. Without `holds`, all events pass at once."""

    def __init__(self, api: Api, watch: TextWatch | None, *, holds: bool = True) -> None:
        self.size = 0
        self.is_complete = False
        self._holds = holds
        self._watch = watch
        self._api = api
        self._held: list[TextEvent] = []
        self._passed = 0  # the characters of the text that went before the held events

    @property
    def text(self) -> str:
        """The text from the place on where calls may begin."""
        return "" if self._watch is None else self._watch.text

    @property
    def is_holding(self) -> bool:
        """Returns whether calls may have begun."""
        return bool(self._held)

    @property
    def is_over(self) -> bool:
        """Returns whether all further events pass."""
        return self._watch is None and not self._held

    def take(self, raw: bytes, value: JsonValue) -> list[bytes]:
        """Takes the next event, whose data has this value, and gives those that pass."""
        watch = self._watch
        if watch is None:
            return [raw]
        is_comment = value is None and raw.startswith(b":")
        if not isinstance(value, dict) and not (is_comment and self.is_holding):
            return [*self.give_up(), raw] if self.is_holding else [raw]
        event = _READERS[self._api](raw, value) if isinstance(value, dict) else TextEvent(raw, {}, None, is_end=False)
        if event is None or (watch.start is not None and not self._continues(event.value)):
            return [*self.give_up(), raw]
        self._held.append(event)
        self.size += len(raw)
        if event.text:
            watch.feed(event.text)
        if watch.is_over:
            return self.give_up()
        self.is_complete = event.is_end and watch.start is not None
        return self._release(watch.start if self._holds else None)

    def _continues(self, value: Mapping[str, Any]) -> bool:
        """Returns whether an event belongs to the held text: it begins no other part, and repeats the same text."""
        copy = find_copy(value) if self._api is Api.RESPONSES else None
        return value.get("type") not in _BEGINNINGS and (copy is None or ends_with(copy, self._join()))

    def _join(self) -> str:
        return "".join(event.text or "" for event in self._held)

    def _release(self, start: int | None) -> list[bytes]:
        """The held events whose text ends before a place; all of them for None."""
        events = list[bytes]()
        for event in self._held:
            end = self._passed + len(event.text or "")
            if start is not None and end > start:
                break
            self._passed = end
            events.append(event.raw)
        if events:
            del self._held[: len(events)]
            self.size -= sum(map(len, events))
        return events

    def give_up(self) -> list[bytes]:
        """The held events unchanged; nothing is held from here on."""
        self._watch, self.is_complete = None, False
        return self._release(None)

    def write(self, calls: Sequence[NewCall]) -> list[bytes]:
        """The held events with calls in the place of their markup."""
        start = self._watch.start if self._watch is not None else None
        begun = (self._held[0].text or "")[: (start or 0) - self._passed].rstrip()
        if self._api is Api.RESPONSES:
            events = [(event.raw, event.value) for event in self._held]
            written = [*write_responses(events, begun, self._join(), calls)]
        else:
            written = [*(_write_chat if self._api is Api.CHAT else _write_messages)(self._held, begun, calls)]
        self._held, self.size = [], 0
        self.give_up()
        return written


def _read_chat(raw: bytes, value: Mapping[str, Any]) -> TextEvent | None:
    """Returns an event of Chat Completions; None if it is one of several choices, or ends an incomplete text."""
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
    """An event of Messages; None if it ends an incomplete text, or begins a block that is no text or thinking."""
    change, block = value.get("delta"), value.get("content_block")
    if isinstance(block, dict) and block.get("type") not in ("text", *SILENT):
        return None
    if value.get("type") == "message_delta" and isinstance(change, dict) and change.get("stop_reason") not in ENDS:
        return None
    delta = value.get("delta") if value.get("type") == "content_block_delta" else None
    text = delta.get("text") if isinstance(delta, dict) and delta.get("type") == "text_delta" else None
    return TextEvent(raw, value, text if isinstance(text, str) else None, value.get("type") == "message_delta")


def _read_responses(raw: bytes, value: Mapping[str, Any]) -> TextEvent | None:
    """An event of Responses; None if it belongs to no text or thinking, or ends an incomplete answer."""
    kind, item = value.get("type"), value.get("item")
    if isinstance(item, dict) and item.get("type") not in ("message", *SILENT):
        return None
    if kind == "response.completed":
        return TextEvent(raw, value, None, is_end=True) if is_last_text(value) else None
    if kind == "response.output_text.delta":
        text = value.get("delta")
        return TextEvent(raw, value, text if isinstance(text, str) else None, is_end=False)
    known = isinstance(kind, str) and (kind in TEXT_KINDS or kind.startswith("response.reasoning"))
    return TextEvent(raw, value, None, is_end=False) if known else None


_READERS: Final[Mapping[Api, Callable[[bytes, Mapping[str, Any]], TextEvent | None]]] = {
    Api.CHAT: _read_chat,
    Api.MESSAGES: _read_messages,
    Api.RESPONSES: _read_responses,
}


def _write_chat(events: Sequence[TextEvent], rest: str, calls: Sequence[NewCall]) -> Iterator[bytes]:
    """The parts beside the text stay: role, reasoning, usage. The calls follow before the end."""
    for event in events:
        if event.text is None and not event.is_end:
            yield event.raw
            continue
        delta = _list_beside(event.value)
        if rest and event.text is not None:
            delta["content"], rest = rest, ""
        if event.is_end:
            if delta:
                yield change_event(event.raw, {_DELTA: dumps(delta), _FINISH: b"null", **_blank(event.value)})
            yield change_event(
                events[0].raw, {_DELTA: _write_functions(calls), _FINISH: b"null", **_blank(events[0].value)}
            )
            yield change_event(event.raw, {_DELTA: b"{}", _FINISH: b'"tool_calls"'})
        elif delta or event.value.get("usage"):
            yield change_event(event.raw, {_DELTA: dumps(delta)})


def _list_beside(value: Mapping[str, Any]) -> dict[str, JsonValue]:
    """The members of an event's delta beside its text."""
    delta = value["choices"][0].get("delta")
    return {key: inner for key, inner in delta.items() if key != "content"} if isinstance(delta, dict) else {}


def _blank(value: Mapping[str, Any]) -> dict[Pointer, bytes]:
    """The changes that remove from a copy of an event the members that must not come twice."""
    places: dict[Pointer, bytes] = {("choices", 0, "logprobs"): b"null"} if "logprobs" in value["choices"][0] else {}
    return places | ({("usage",): b"null"} if "usage" in value else {})


def _write_functions(calls: Sequence[NewCall]) -> bytes:
    parts = [
        b'{"index":%d,"id":%b,"type":"function","function":{"name":%b,"arguments":%b}}'
        % (at, dumps(call.call_id), dumps(call.name), encode_arguments(call.arguments))
        for at, call in enumerate(calls)
    ]
    return b'{"tool_calls":[%b]}' % b",".join(parts)


def _write_messages(events: Sequence[TextEvent], rest: str, calls: Sequence[NewCall]) -> Iterator[bytes]:
    if rest:
        yield change_event(events[0].raw, {("delta", "text"): dumps(rest)})
    index = events[0].value.get("index")
    index = index if isinstance(index, int) else 0
    for event in events:
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
