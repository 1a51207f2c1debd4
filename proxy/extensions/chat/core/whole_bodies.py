"""Reads and changes requests and answers in one piece. Large ones are read and written in a child process
(call/judging.py), so that other requests do not wait.

reduce_request, extend_request   the parts of a request that judging needs; the next question, from the whole request
read_answer, read_large_answer   the calls of an answer, or the text with which it ends
change_large_answer              an answer with other values at some places
write_large_calls                an answer with calls in place of their markup
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from proxy.core.json.jsonspan import replace_value, replace_values
from proxy.core.json.jsontext import DEFAULT_LIMITS, TRUSTED, TextLimits, dumps, join_frame, parse, split_frame
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonProblem, JsonValue, Pointer
from proxy.extensions.chat.core.found_calls import FoundCall, find_calls, is_answer
from proxy.extensions.chat.core.model_request import Api, ModelRequest, read_model_request
from proxy.extensions.chat.core.next_question import is_cut_off, write_next_question
from proxy.extensions.chat.core.stream_usage import make_answer
from proxy.extensions.chat.core.text_watch import LONGEST
from proxy.extensions.chat.core.written_calls import AnswerText, NewCall, find_answer_text, write_calls

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
    """The parts of an answer; None where it is not a JSON object."""
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
    """The parts of an answer, for `load_answer`; nothing where it is not a JSON object."""
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
