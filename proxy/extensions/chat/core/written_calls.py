"""Calls in the text of a whole answer: where such text stands, and the answer with the calls in its API's own form."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from proxy.core.json.jsonspan import find_span, replace_value
from proxy.core.json.jsontext import dumps
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue, Pointer
from proxy.extensions.chat.core.model_request import Api

# The values of finish_reason, stop_reason and status for a model that ended by itself; None: the answer has no such
# member. After any other end, such as `length` or `content_filter`, no text becomes a call.
ENDS: Final = ("stop", "end_turn", "completed", None)
# The types of the parts of an answer that may stand before a text with calls.
SILENT: Final = ("thinking", "redacted_thinking", "reasoning")


@value_class
class AnswerText:
    """A text of an answer that may hold calls: the places of its holder and of the text."""

    holder: Pointer
    place: Pointer
    text: str = field(repr=False)


@value_class
class NewCall:
    """A call to put into an answer. `arguments` is JSON text."""

    call_id: str
    name: str
    arguments: bytes = field(repr=False)


def find_answer_text(api: Api, answer: JsonValue) -> AnswerText | None:
    """The only text of an answer without calls, behind thinking at most; None if there is no such text, if the answer
    has several choices, or if the model did not end by itself (`ENDS`)."""
    if not isinstance(answer, dict):
        return None
    return _find_in_chat(answer) if api is Api.CHAT else _find_in_list(api, answer)


def _find_in_chat(answer: Mapping[str, Any]) -> AnswerText | None:
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and len(choices) == 1 else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or choice.get("finish_reason") not in ENDS:
        return None
    if not isinstance(message, dict) or message.get("tool_calls") or not isinstance(message.get("content"), str):
        return None
    holder = ("choices", 0)
    return AnswerText(holder, (*holder, "message", "content"), message["content"])


def _find_in_list(api: Api, answer: Mapping[str, Any]) -> AnswerText | None:
    """The text of the last block (Messages), or of the last item, a message of one part (Responses)."""
    key, kind = ("content", "text") if api is Api.MESSAGES else ("output", "message")
    items = answer.get(key)
    if answer.get("stop_reason" if api is Api.MESSAGES else "status") not in ENDS:
        return None
    if not isinstance(items, list) or not items or not isinstance(items[-1], dict) or items[-1].get("type") != kind:
        return None
    if any(not isinstance(item, dict) or item.get("type") not in SILENT for item in items[:-1]):
        return None
    holder = (key, len(items) - 1)
    if api is Api.MESSAGES:
        text = items[-1].get("text")
        place: Pointer = (*holder, "text")
    else:
        parts = items[-1].get("content")
        part = parts[0] if isinstance(parts, list) and len(parts) == 1 and isinstance(parts[0], dict) else {}
        text, place = part.get("text"), (*holder, "content", 0, "text")
    return AnswerText(holder, place, text) if isinstance(text, str) else None


def make_call_id(api: Api, seed: bytes, number: int) -> str:
    """An id for a call without one: the same for the same answer."""
    head = "toolu_" if api is Api.MESSAGES else "call_"
    return head + hashlib.sha256(seed + b"/%d" % number).hexdigest()[:24]


def write_calls(api: Api, text: bytes, found: AnswerText, before: str, calls: Sequence[NewCall]) -> bytes:
    """The answer with the calls in its API's form, and `before` as the rest of the text."""
    if api is Api.CHAT:
        text = replace_value(text, found.place, dumps(before) if before else b"null")
        text = replace_value(text, (*found.holder, "message", "tool_calls"), dumps([*map(_make_function, calls)]))
        return replace_value(text, (*found.holder, "finish_reason"), b'"tool_calls"')
    if before:
        text = replace_value(text, found.place, dumps(before))
    start, end = find_span(text, found.holder)
    items = [text[start:end]] if before else []
    items += [_write_block(call) if api is Api.MESSAGES else dumps(make_item(call)) for call in calls]
    text = text[:start] + b",".join(items) + text[end:]
    return replace_value(text, ("stop_reason",), b'"tool_use"') if api is Api.MESSAGES else text


def _make_function(call: NewCall) -> dict[str, JsonValue]:
    arguments = call.arguments.decode("utf-8", "surrogatepass")
    return {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _write_block(call: NewCall) -> bytes:
    """A call as a block of Messages, with the very bytes of its arguments."""
    head = dumps({"type": "tool_use", "id": call.call_id, "name": call.name})
    return b'%b,"input":%b}' % (head[:-1], call.arguments)


def make_item(call: NewCall) -> dict[str, JsonValue]:
    """A call as an item of Responses."""
    number, arguments = call.call_id.partition("_")[2], call.arguments.decode("utf-8", "surrogatepass")
    head: dict[str, JsonValue] = {"type": "function_call", "id": f"fc_{number}", "call_id": call.call_id}
    return {**head, "name": call.name, "arguments": arguments, "status": "completed"}
