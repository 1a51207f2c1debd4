"""Events of a streamed answer beside text and calls: its opening, errors and usage."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from proxy.core.json.jsontext import dumps, parse
from proxy.core.model.values import JsonValue, Pointer
from proxy.extensions.chat.core.events import change_event, read_event
from proxy.extensions.chat.core.found_calls import FoundCall
from proxy.extensions.chat.core.model_request import Api
from proxy.extensions.chat.core.next_question import sum_usage

# Events without content.
_OPENINGS: Final = frozenset({"message_start", "ping", "response.created", "response.in_progress", "response.queued"})
# Where usage stands in the events of any API.
_PLACES: Final[tuple[Pointer, ...]] = (("usage",), ("response", "usage"), ("message", "usage"))


def is_opening(api: Api, event: bytes) -> bool:
    """Whether an event has no content, so that another answer may still follow it."""
    value = read_event(event)
    if not isinstance(value, dict):
        return event.startswith(b":")
    if api is not Api.CHAT:
        return value.get("type") in _OPENINGS
    choices = value.get("choices")
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        return False
    deltas = [choice.get("delta") for choice in choices]
    contents = [inner for delta in deltas if isinstance(delta, dict) for key, inner in delta.items() if key != "role"]
    return not any(contents) and all(choice.get("finish_reason") is None for choice in choices)


def is_error(value: JsonValue) -> bool:
    """Whether the data of an event says that the answer failed."""
    return isinstance(value, dict) and (value.get("type") in ("error", "response.failed") or bool(value.get("error")))


def find_usage(events: Iterable[bytes]) -> dict[str, JsonValue]:
    """The usage that the events of an answer report, later ones over earlier ones."""
    found: dict[str, JsonValue] = {}
    for event in events:
        value = read_event(event)
        for place in _PLACES:
            usage = _look_up(value, place)
            found |= usage if isinstance(usage, dict) else {}
    return found


def add_usage(event: bytes, before: JsonValue) -> bytes:
    """An event with the usage of earlier answers added to what it reports."""
    value, changes = read_event(event), dict[Pointer, bytes]()
    for place in _PLACES:
        usage = _look_up(value, place)
        if isinstance(usage, dict) and isinstance(before, dict) and (keys := usage.keys() & before.keys()):
            changes[place] = dumps(sum_usage({key: before[key] for key in keys}, usage))
    return change_event(event, changes)


def _look_up(value: JsonValue, place: Pointer) -> Any:
    for step in place:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def make_answer(api: Api, calls: Iterable[FoundCall]) -> dict[str, JsonValue]:
    """An answer in one piece with these calls alone, for the next question."""
    if api is Api.MESSAGES:
        head = {"type": "tool_use"}
        return {"content": [{**head, "id": e.call_id, "name": e.name, "input": _read_object(e.text)} for e in calls]}
    texts = [(call, call.text.decode("utf-8", "surrogatepass")) for call in calls]
    if api is Api.RESPONSES:
        head = {"type": "function_call"}
        return {"output": [{**head, "call_id": e.call_id, "name": e.name, "arguments": text} for e, text in texts]}
    made = [
        {"id": each.call_id, "type": "function", "function": {"name": each.name, "arguments": text}}
        for each, text in texts
    ]
    return {"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": made}}]}


def _read_object(text: bytes) -> JsonValue:
    """The value of arguments; an empty one where they are not a JSON object."""
    value = parse(text)
    return value if isinstance(value, dict) else {}
