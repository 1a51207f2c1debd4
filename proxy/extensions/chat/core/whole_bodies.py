"""Reads and changes requests and answers in one piece. Large ones are read and written in a child process
(call/judging.py), so that other requests do not wait.

    reduce_request, extend_request   the parts of a request that judging needs; the next question, from the whole
    request
    read_answer, read_large_answer   the calls of an answer, or the text with which it ends
    change_large_answer              an answer with other values at some places
    write_large_calls                an answer with calls in place of their markup
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, TypeGuard

from proxy.core.json.jsonspan import replace_value, replace_values
from proxy.core.json.jsontext import DEFAULT_LIMITS, TRUSTED, TextLimits, dumps, join_frame, parse, split_frame
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonProblem, JsonValue, Pointer
from proxy.extensions.chat.core.events import change_event, read_event
from proxy.extensions.chat.core.found_calls import (
    AnswerText,
    FoundCall,
    NewCall,
    find_answer_text,
    find_calls,
    is_answer,
    write_calls,
)
from proxy.extensions.chat.core.model_request import (
    Api,
    ModelRequest,
    is_cut_off,
    read_model_request,
    sum_usage,
    write_next_question,
)
from proxy.extensions.chat.core.text_watch import LONGEST

# --- events of a streamed answer beside text and calls ----------------------------------------------------------------
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
# The places of usage in the events of any API.
_PLACES: Final[tuple[Pointer, ...]] = (("usage",), ("response", "usage"), ("message", "usage"))


def is_opening(api: Api, event: bytes, *, with_reasoning: bool) -> bool:
    """Returns whether an event says nothing yet, so that another answer may still follow it: it has no content or blank
    text, or reasoning if that waits, too."""
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
    """The same for an event that begins, continues or ends a part of Messages or Responses."""
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
    """Returns whether the data of an event says that the answer failed."""
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
        is_cut = any(value.get("type") == "response.incomplete" for value in values)
        return {"output": output, "status": "incomplete" if is_cut else "completed"}
    deltas = [_look_up(value, ("choices", 0, "delta")) or {} for value in values]
    reasoning = "".join(text for delta in deltas if isinstance(text := delta.get("reasoning_content"), str))
    ends = [end for value in values if (end := _look_up(value, ("choices", 0, "finish_reason")))]
    choice = answer["choices"][0]
    message = choice["message"] | ({"reasoning_content": reasoning} if reasoning else {})
    return {"choices": [{"message": message, "finish_reason": ends[-1] if ends else None}]}


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
    """Returns an answer in one piece with only these calls, for the next question."""
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
    """Returns the value of arguments; an empty one if they are not a JSON object."""
    value = parse(text)
    return value if isinstance(value, dict) else {}


# --- reads and changes requests and answers in one piece --------------------------------------------------------------
_HERE: Final = "proxy.extensions.chat.core.whole_bodies"
REDUCE: Final = f"{_HERE}:reduce_request"
EXTEND: Final = f"{_HERE}:extend_request"
READ: Final = f"{_HERE}:read_large_answer"
CHANGE: Final = f"{_HERE}:change_large_answer"
WRITE: Final = f"{_HERE}:write_large_calls"
_READ: Final = (
    "model", "stream", "n", "tools", "tool_choice", "parallel_tool_calls", "functions", "function_call", "background"
)  # fmt: skip


# --- requests ---------------------------------------------------------------------------------------------------------
def reduce_request(payload: bytes, _shared: bytes = b"") -> bytes:
    """A request without its messages; the tools that its `input` items bring stay. Gives b"" for bytes that are not
    JSON, and `null` for JSON that is not an object."""
    body = parse(payload, TRUSTED)
    if not isinstance(body, dict):
        return b"" if isinstance(body, JsonProblem) else b"null"
    reduced: dict[str, JsonValue] = {key: body[key] for key in _READ if key in body}
    items = body.get("input")
    if isinstance(items, list):
        reduced["input"] = [{"tools": item["tools"]} for item in items if isinstance(item, dict) and "tools" in item]
    return dumps(reduced)


def write_extending_job(
    api: Api,
    body: bytes,
    answer: JsonValue,
    calls: Sequence[FoundCall],
    results: Sequence[tuple[str, str]],
    *,
    is_cut: bool,
) -> bytes:
    """The payload of `extend_request`: an answer, or if that is None only its calls."""
    texts = [_as_text(each.text) for each in calls] if answer is None else []
    made: list[JsonValue] = [[each.call_id, each.name, text] for each, text in zip(calls, texts, strict=False)]
    listed: JsonValue = [[*each] for each in results]
    head: JsonValue = {"api": api.value, "answer": answer, "calls": made, "results": listed, "is_cut": is_cut}
    return join_frame(head, body)


def extend_request(payload: bytes, _shared: bytes = b"") -> bytes:
    """The body of the next question (next_question.py); nothing where there can be none."""
    head: Any
    head, body = split_frame(payload)
    request = read_model_request(Api(head["api"]), body)
    if not isinstance(request, ModelRequest):
        return b""
    results = [(call_id, text) for call_id, text in head["results"]]
    calls = [FoundCall(call_id, name, _as_bytes(text)) for call_id, name, text in head["calls"]]
    answer = head["answer"] or make_answer(request.api, calls)
    return write_next_question(request, answer, results, is_cut=head["is_cut"]) or b""


# --- answers ----------------------------------------------------------------------------------------------------------
@value_class
class ReadAnswer:
    """The parts of an answer: its calls, or without calls the text with which it ends, and its usage. `is_answer`: the
    body has the form of the API's answers. `is_cut`: it ended at its limit. `value` is its JSON value, None if a child
    process read it."""

    calls: list[FoundCall]
    text: AnswerText | None
    usage: JsonValue
    is_answer: bool
    value: JsonValue = field(default=None, repr=False)
    is_cut: bool = False


def read_answer(api: Api, body: bytes, limits: TextLimits = DEFAULT_LIMITS) -> ReadAnswer | None:
    """Returns the parts of an answer; None if it is not a JSON object."""
    value = parse(body, limits)
    if not isinstance(value, dict):
        return None
    calls = find_calls(api, body, value)
    text = None if calls else find_answer_text(api, value)
    return ReadAnswer(calls, text, value.get("usage"), is_answer(api, value), value, is_cut_off(api, value))


def change_answer(body: bytes, places: Mapping[Pointer, bytes]) -> bytes:
    """The answer with other values at these places; a single one that is missing is added."""
    for place, value in places.items() if len(places) == 1 else ():
        return replace_value(body, place, value)
    return replace_values(body, places)


def write_reading_job(api: Api, body: bytes) -> bytes:
    """The payload of `read_large_answer`."""
    return join_frame({"api": api.value}, body)


def read_large_answer(payload: bytes, _shared: bytes = b"") -> bytes:
    """Returns the parts of an answer, for `load_answer`; empty if it is not a JSON object."""
    head: Any
    head, body = split_frame(payload)
    read = read_answer(Api(head["api"]), body, TRUSTED)
    if read is None:
        return b""
    text = read.text if read.text is not None and len(read.text.text) <= LONGEST else None
    calls: list[JsonValue] = [
        [each.call_id, each.name, _as_text(each.text), [*each.name_at], [*each.arguments_at], each.is_encoded,
         each.was_plain]
        for each in read.calls
    ]  # fmt: skip
    text_part: JsonValue = None if text is None else [[*text.holder], [*text.place], text.text]
    parts: JsonValue = {"calls": calls, "text": text_part, "usage": read.usage, "is_answer": read.is_answer}
    return dumps([parts, read.is_cut])


def load_answer(result: bytes) -> ReadAnswer | None:
    """The result of `read_large_answer`."""
    read: Any = parse(result, TRUSTED) if result else None
    if read is None:
        return None
    found, is_cut = read
    calls = [
        FoundCall(call_id, name, _as_bytes(text), tuple(name_at), tuple(arguments_at), is_encoded, was_plain)
        for call_id, name, text, name_at, arguments_at, is_encoded, was_plain in found["calls"]
    ]
    text = None
    if found["text"] is not None:
        holder, place, whole = found["text"]
        text = AnswerText(tuple(holder), tuple(place), whole)
    return ReadAnswer(calls, text, found["usage"], found["is_answer"], is_cut=is_cut)


def write_changing_job(body: bytes, places: Mapping[Pointer, bytes]) -> bytes:
    """The payload of `change_large_answer`."""
    return join_frame({"places": [[[*place], _as_text(value)] for place, value in places.items()]}, body)


def change_large_answer(payload: bytes, _shared: bytes = b"") -> bytes:
    """The answer with other values at some places."""
    head: Any
    head, body = split_frame(payload)
    return change_answer(body, {tuple(place): _as_bytes(value) for place, value in head["places"]})


def write_calling_job(api: Api, body: bytes, text: AnswerText, before: str, calls: Sequence[NewCall]) -> bytes:
    """The payload of `write_large_calls`."""
    made: list[JsonValue] = [[each.call_id, each.name, _as_text(each.arguments)] for each in calls]
    head: JsonValue = {"api": api.value, "text": [[*text.holder], [*text.place]], "before": before, "calls": made}
    return join_frame(head, body)


def write_large_calls(payload: bytes, _shared: bytes = b"") -> bytes:
    """The answer with calls in its API's form (`write_calls`)."""
    head: Any
    head, body = split_frame(payload)
    holder, place = map(tuple, head["text"])
    calls = [NewCall(call_id, name, _as_bytes(text)) for call_id, name, text in head["calls"]]
    return write_calls(Api(head["api"]), body, AnswerText(holder, place, ""), head["before"], calls)


def _as_text(value: bytes) -> str:
    return value.decode("utf-8", "surrogatepass")


def _as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
