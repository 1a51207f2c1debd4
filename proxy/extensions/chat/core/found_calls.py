"""The calls of a whole answer, each with the places of its name and arguments in the JSON text, by API; and the tools
they call."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import field
from typing import Any, Final

from proxy.core.contract.toolname import RULE as TRIMS
from proxy.core.contract.toolname import trim
from proxy.core.json.jsonspan import find_span
from proxy.core.json.jsontext import dumps
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue, Pointer
from proxy.extensions.chat.core.model_request import Api

# Where an answer has its parts.
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
    """Whether a JSON value is an answer of a model; some servers send others with status 200."""
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
    """The call whose name and arguments `holder` has; None where it has none. Some servers send the arguments as an
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
