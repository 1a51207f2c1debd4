"""The calls of a whole answer, each with the places of its name and arguments in the JSON text, by API; and the tools
they call."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import field
from typing import Any, Final

from proxy.core.contract.toolname import RULE as TRIMS
from proxy.core.contract.toolname import trim
from proxy.core.json.jsonspan import find_span, replace_value
from proxy.core.json.jsontext import dumps
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue, Pointer
from proxy.extensions.chat.core.model_request import Api

# --- calls in the text of a whole answer ------------------------------------------------------------------------------
# The values of finish_reason, stop_reason and status for a model that ended by itself; None: the answer has no such
# member. After any other end, such as `length` or `content_filter`, no text becomes a call.
ENDS: Final = ("stop", "end_turn", "completed", None)
# The types of the parts of an answer that may be before a text with calls.
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
    """Returns the only text of an answer without calls, preceded at most by thinking. None if there is no such text, if
    the answer has several choices, or if the model did not end by itself (`ENDS`)."""
    if not isinstance(answer, dict):
        return None
    return _find_text_in_chat(answer) if api is Api.CHAT else _find_in_list(api, answer)


def _find_text_in_chat(answer: Mapping[str, Any]) -> AnswerText | None:
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


# --- the calls of a whole answer --------------------------------------------------------------------------------------
# The key that holds the parts of an answer.
_PARTS: Final = {Api.CHAT: "choices", Api.RESPONSES: "output", Api.MESSAGES: "content"}
# Separators, which make no difference between two tools' names.
_SEPARATORS: Final = re.compile(r"[\s_.\-/:]+")


@value_class
class FoundCall:
    """One call of an answer. `text` holds its arguments as JSON text. `name_at` and `arguments_at` are the places in
    the answer; `is_encoded`: the API has the arguments as a string that holds JSON. `was_plain`: the server sent an
    object in its place."""

    call_id: str
    name: str
    text: bytes = field(repr=False)
    name_at: Pointer = ()
    arguments_at: Pointer = ()
    is_encoded: bool = True
    was_plain: bool = False


@value_class
class CallChange:
    """The change of one call: another name ('' for the same), other arguments (None for the same)."""

    found: FoundCall
    name: str = ""
    arguments: bytes | None = field(default=None, repr=False)


def find_calls(api: Api, text: bytes, answer: JsonValue) -> list[FoundCall]:
    """The calls of tools of the request in an answer, in its order. `text` is the JSON of `answer`."""
    return [call for call in _FINDERS[api](text, answer) if call is not None] if isinstance(answer, dict) else []


def is_answer(api: Api, value: JsonValue) -> bool:
    """Returns whether a JSON value is an answer of a model; some servers send others with status 200."""
    return isinstance(value, dict) and isinstance(value.get(_PARTS[api]), list) and not value.get("error")


def list_places(changes: Iterable[CallChange]) -> dict[Pointer, bytes]:
    """The places of an answer that change, with their JSON."""
    places: dict[Pointer, bytes] = {}
    for change in changes:
        found = change.found
        if change.name:
            places[found.name_at] = dumps(change.name)
        if change.arguments is not None:
            places[found.arguments_at] = encode_arguments(change.arguments) if found.is_encoded else change.arguments
    return places


def encode_arguments(arguments: bytes) -> bytes:
    """Arguments as a JSON string that holds them."""
    return dumps(arguments.decode("utf-8", "surrogatepass"))


def _list_members(value: JsonValue, key: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The objects in the list under a key, each with its index."""
    items = value.get(key) if isinstance(value, dict) else None
    for index, item in enumerate(items if isinstance(items, list) else ()):
        if isinstance(item, dict):
            yield index, item


def _find_in_chat(text: bytes, answer: Mapping[str, Any]) -> Iterator[FoundCall | None]:
    for at, choice in _list_members(answer, "choices"):
        for index, call in _list_members(choice.get("message"), "tool_calls"):
            function = call.get("function")
            if call.get("type", "function") in ("function", "", None) and isinstance(function, dict):
                place = ("choices", at, "message", "tool_calls", index, "function")
                yield _read_encoded(text, function, place, call.get("id"))
        message = choice.get("message")
        legacy = message.get("function_call") if isinstance(message, dict) else None
        if isinstance(legacy, dict):
            yield _read_encoded(text, legacy, ("choices", at, "message", "function_call"), "")


def _find_in_responses(text: bytes, answer: Mapping[str, Any]) -> Iterator[FoundCall | None]:
    for index, item in _list_members(answer, "output"):
        if item.get("type") == "function_call":
            yield _read_encoded(text, item, ("output", index), item.get("call_id"))


def _find_in_messages(text: bytes, answer: Mapping[str, Any]) -> Iterator[FoundCall | None]:
    for index, block in _list_members(answer, "content"):
        name, at = block.get("name"), ("content", index)
        if block.get("type") == "tool_use" and isinstance(name, str) and "input" in block:
            start, end = find_span(text, (*at, "input"))
            places = ((*at, "name"), (*at, "input"))
            yield FoundCall(_read_id(block.get("id")), name, text[start:end], *places, is_encoded=False)


_FINDERS: Final = {Api.CHAT: _find_in_chat, Api.RESPONSES: _find_in_responses, Api.MESSAGES: _find_in_messages}


def _read_encoded(text: bytes, holder: Mapping[str, Any], at: Pointer, call_id: object) -> FoundCall | None:
    """The call whose name and arguments `holder` has; None if it has none. Some servers send the arguments as an
    object, which no client of the API reads."""
    name, arguments = holder.get("name"), holder.get("arguments", "")
    if not isinstance(name, str):
        return None
    was_plain = not isinstance(arguments, str)
    if "arguments" not in holder or arguments is None:
        return FoundCall(_read_id(call_id), name, b"", (*at, "name"), (*at, "arguments"))
    if was_plain:
        start, end = find_span(text, (*at, "arguments"))
        written = text[start:end]
    else:
        written = arguments.encode("utf-8", "surrogatepass")
    return FoundCall(_read_id(call_id), name, written, (*at, "name"), (*at, "arguments"), was_plain=was_plain)


def _read_id(written: object) -> str:
    return written if isinstance(written, str) else ""


def find_tool_name(called: str, tools: Iterable[str], rules: Set[str]) -> str | None:
    """The tool's own name; None if no tool, or more than one, can be meant. `rules` are those of the repairs: without
    one, only the name itself counts."""
    known = list(tools)
    if called in known:
        return called
    if not rules:
        return None
    if TRIMS in rules and "<|" not in called and (trimmed := trim(called, known)) is not None:
        return trimmed  # a template's token in a name is the rest of another message
    folded = _fold_name(called)
    alike = [tool for tool in known if folded and _fold_name(tool) == folded]
    return alike[0] if len(alike) == 1 else None


def _fold_name(name: str) -> str:
    return _SEPARATORS.sub("", name).casefold()
