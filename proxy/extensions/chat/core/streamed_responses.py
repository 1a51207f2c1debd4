"""The events of a streamed text of Responses, with calls in place of its markup.

The client has seen the beginning of the text's item, so it stays, with the text before the markup. The calls follow as
items of their own, also in the last event, which repeats the whole answer. Events are numbered anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from proxy.core.json.jsontext import dumps
from proxy.core.model.values import JsonValue, Pointer
from proxy.extensions.chat.core.events import change_event, write_event
from proxy.extensions.chat.core.written_calls import NewCall, make_item

# The events around a text, beside its parts and the end of the answer.
TEXT_KINDS: Final = frozenset(
    {
        "response.created", "response.queued", "response.in_progress", "response.output_item.added",
        "response.content_part.added", "response.output_text.done", "response.content_part.done",
        "response.output_item.done",
    }
)  # fmt: skip
# Where an event repeats the text of its part, by its type.
_COPIES: Final[Mapping[str, Pointer]] = {
    "response.output_text.done": ("text",),
    "response.content_part.done": ("part", "text"),
    "response.output_item.done": ("item", "content", 0, "text"),
    "response.completed": ("response", "output", -1, "content", 0, "text"),
}
_NUMBER: Final[Pointer] = ("sequence_number",)


def is_last_text(value: Mapping[str, Any]) -> bool:
    """Whether the answer of a last event ends with a message of one text."""
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
        item_text = "" if copy is None else _cut(copy, text) + rest
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
    """Whether the text of a part ends with this one; white space at the end makes no difference."""
    return copy.rstrip().endswith(text.rstrip())


def _cut(copy: str, text: str) -> str:
    """The text of a part without this one at its end."""
    return copy.rstrip().removesuffix(text.rstrip())


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
