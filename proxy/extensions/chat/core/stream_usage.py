"""Events of a streamed answer beside text and calls: its opening, errors and usage; and the answer as a turn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeGuard

from proxy.core.json.jsontext import dumps, parse
from proxy.core.model.values import JsonValue, Pointer
from proxy.extensions.chat.core.events import change_event, read_event
from proxy.extensions.chat.core.found_calls import FoundCall
from proxy.extensions.chat.core.model_request import Api
from proxy.extensions.chat.core.next_question import sum_usage

# Events without content, and the members of those that may have some: text, which may be blank.
_OPENINGS: Final = frozenset(
    {
        "message_start", "ping", "content_block_stop", "response.created", "response.in_progress", "response.queued",
        "response.output_item.added", "response.content_part.added", "response.output_text.done",
        "response.content_part.done", "response.output_item.done",
    }
)  # fmt: skip
_TEXTS: Final[tuple[Pointer, ...]] = (
    ("delta",), ("text",), ("delta", "text"), ("content_block", "text"), ("part", "text"),
    ("item", "content", 0, "text"),
)  # fmt: skip
# Reasoning: members of a delta of Chat Completions, and types of blocks, deltas and items.
_REASONING: Final = frozenset({"reasoning_content", "reasoning", "reasoning_details", "thinking", "thinking_blocks"})
_THINKING: Final = frozenset({"thinking", "redacted_thinking", "thinking_delta", "signature_delta", "reasoning"})
_BLANK: Final = frozenset({"text", "text_delta", "message", "output_text"})
# Where usage stands in the events of any API.
_PLACES: Final[tuple[Pointer, ...]] = (("usage",), ("response", "usage"), ("message", "usage"))


def is_opening(api: Api, event: bytes, *, with_reasoning: bool) -> bool:
    """Whether an event says nothing yet, so that another answer may still follow it: it has no content or blank text,
    or reasoning if that waits, too."""
    value = read_event(event)
    if not isinstance(value, dict):
        return event.startswith(b":")
    if api is not Api.CHAT:
        return _is_opening_part(value, with_reasoning=with_reasoning)
    choices = value.get("choices")
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        return False
    members = [
        (key, inner)
        for choice in choices
        if isinstance(delta := choice.get("delta"), dict)
        for key, inner in delta.items()
        if key != "role" and not (with_reasoning and key in _REASONING)
    ]
    says_nothing = all(not inner or (key == "content" and _is_blank(inner)) for key, inner in members)
    return says_nothing and all(choice.get("finish_reason") is None for choice in choices)


def _is_opening_part(value: Mapping[str, Any], *, with_reasoning: bool) -> bool:
    """The same of an event that begins, goes on with or ends a part of Messages or Responses."""
    parts = (value.get("content_block"), value.get("delta"), value.get("item"), value.get("part"))
    kind, kinds = value.get("type"), {part.get("type") for part in parts if isinstance(part, dict)}
    if kinds & _THINKING or str(kind).startswith("response.reasoning"):
        return with_reasoning
    if kinds - _BLANK:
        return False
    is_known = kind in _OPENINGS or bool(kinds) or kind == "response.output_text.delta"
    return is_known and all(_is_blank(_look_up(value, place) or "") for place in _TEXTS)


def _is_blank(value: object) -> bool:
    return not isinstance(value, str) or not value.strip()


def is_error(value: JsonValue) -> TypeGuard[dict[str, JsonValue]]:
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


def _look_up(value: Any, place: Pointer) -> Any:
    for step in place:
        if isinstance(value, list):
            value = value[0] if value else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value


def rebuild_answer(api: Api, calls: Iterable[FoundCall], events: Iterable[bytes]) -> dict[str, JsonValue]:
    """The answer that these events are, with these calls and the reasoning before them, for the next question."""
    answer: dict[str, Any] = make_answer(api, calls)
    values = [value for event in events if isinstance(value := read_event(event), dict)]
    if api is Api.MESSAGES:
        ends = [stop for value in values if (stop := _look_up(value, ("delta", "stop_reason")))]
        return {"content": [*_read_thinking(values), *answer["content"]], "stop_reason": ends[-1] if ends else None}
    if api is Api.RESPONSES:
        last = next((found for value in reversed(values) if (found := _look_up(value, ("response", "output")))), None)
        items = [value["item"] for value in values if value.get("type") == "response.output_item.done"]
        output = last or [each for each in items if each.get("type") == "reasoning"] + answer["output"]
        return {"output": output, "status": "incomplete" if _ends_incomplete(values) else "completed"}
    deltas = [_look_up(value, ("choices", 0, "delta")) or {} for value in values]
    reasoning = "".join(text for delta in deltas if isinstance(text := delta.get("reasoning_content"), str))
    ends = [end for value in values if (end := _look_up(value, ("choices", 0, "finish_reason")))]
    choice = answer["choices"][0]
    message = choice["message"] | ({"reasoning_content": reasoning} if reasoning else {})
    return {"choices": [{"message": message, "finish_reason": ends[-1] if ends else None}]}


def _ends_incomplete(values: Iterable[Mapping[str, Any]]) -> bool:
    return any(value.get("type") == "response.incomplete" for value in values)


def _read_thinking(values: Iterable[Mapping[str, Any]]) -> list[JsonValue]:
    """The blocks of thinking, each with the text and the signature that came in its events."""
    blocks: dict[object, dict[str, Any]] = {}
    for value in values:
        block, delta, at = value.get("content_block"), value.get("delta"), value.get("index")
        if isinstance(block, dict) and block.get("type") in _THINKING:
            blocks[at] = dict(block)
        elif isinstance(delta, dict) and at in blocks and delta.get("type") in _THINKING:
            for key in ("thinking", "signature"):
                if isinstance(piece := delta.get(key), str):
                    blocks[at][key] = (blocks[at].get(key) or "") + piece
    return [*blocks.values()]


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
