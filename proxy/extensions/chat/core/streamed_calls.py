"""The calls of a streamed answer, put together from its events, by API.

Events are held from the first one of a call on. Once the calls are complete, `write` gives the events: the same bytes,
or with other names and arguments in their places. Arguments that came in pieces then are whole in the first piece,
and the others are empty, so that identifiers, order and usage stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from proxy.core.json.jsontext import dumps
from proxy.core.model.values import JsonValue, Pointer
from proxy.extensions.chat.core.events import change_event, is_done, is_unreadable, read_event, write_event
from proxy.extensions.chat.core.found_calls import CallChange, FoundCall, encode_arguments
from proxy.extensions.chat.core.model_request import Api
from proxy.extensions.chat.core.whole_bodies import is_error

# The number of a held event, and a place in the JSON of its data.
Place = tuple[int, Pointer]


@dataclass(slots=True)
class StreamedCall:
    """One call so far. `names` and `pieces` are the places of its parts, `begun_at` the number of the first piece that
    is not empty. `copies` are the places that repeat the whole arguments, `name_copies` likewise. `plain_at` is the
    place of arguments that are JSON instead. `added_at` takes arguments if none came. `was_plain`: they came as JSON
    although the API has text."""

    added_at: Place
    call_id: str = ""
    name: str = ""
    parts: list[str] = field(default_factory=list, repr=False)  # those of the arguments that are not empty
    names: list[Place] = field(default_factory=list)
    name_copies: list[Place] = field(default_factory=list)
    pieces: list[Place] = field(default_factory=list)
    begun_at: int = 0
    copies: list[Place] = field(default_factory=list)
    plain_at: Place | None = None
    was_plain: bool = False

    def add_piece(self, text: str, place: Place) -> None:
        """Takes the next part of the arguments."""
        if text:
            if not self.parts:
                self.begun_at = len(self.pieces)
            self.parts.append(text)
        self.pieces.append(place)

    def replace_text(self, text: str) -> None:
        """Takes the whole arguments in place of the parts, unless they are empty."""
        if text:
            self.parts = [text]


class CallReader(Protocol):
    """Reads the events of one API. `calls` are those so far, `is_complete` says whether they are whole."""

    calls: dict[object, StreamedCall]

    @property
    def is_complete(self) -> bool: ...

    def read(self, value: Mapping[str, Any], number: int) -> None:
        """Takes an event's data; `number` is the event's place among the held ones, if it is held."""


# The marks that every event of a call, or one that reports usage, contains.
MARKS: Final[Mapping[Api, tuple[bytes, ...]]] = {
    Api.CHAT: (b"_call", b"usage"),
    Api.RESPONSES: (b"function_call", b"usage"),
    Api.MESSAGES: (b"tool_use", b"usage"),
}


class HeldCalls:
    """The held part of one answer, from the first event of a call on. The calls never become complete if one of their
    events cannot be read, because it may be a part of them, or if the server reports an error."""

    def __init__(self, api: Api) -> None:
        self._reader: CallReader = _READERS[api]()
        self._api = api
        self._is_done = False  # whether the answer has ended
        self.events: list[bytes] = []
        self.size = 0
        self._is_unread = False

    @property
    def is_holding(self) -> bool:
        """Returns whether a call has begun."""
        return bool(self.events)

    @property
    def is_complete(self) -> bool:
        """Returns whether the calls have come whole."""
        return self.is_holding and not self._is_unread and (self._reader.is_complete or self._is_done)

    def take(self, event: bytes, value: JsonValue) -> bool:
        """Takes the next event, whose data has this value; False if it belongs to no call and may pass."""
        if isinstance(value, dict):
            self._reader.read(value, len(self.events))
        if not self._reader.calls:
            return False
        self._is_done = value is None and is_done(event)
        is_failed = is_error(value) and value.get("type") != "response.failed"  # which repeats whole calls
        self._is_unread = self._is_unread or is_failed or (value is None and is_unreadable(event))
        self.events.append(event)
        self.size += len(event)
        return True

    def end(self) -> None:
        """Takes the proper end of the stream, behind which nothing comes."""
        self._is_done = True

    def list_calls(self) -> list[FoundCall]:
        """The calls that have come, in order. Anthropic's clients read no arguments at all as an empty object."""
        nothing = "{}" if self._api is Api.MESSAGES else ""
        return [
            FoundCall(
                call.call_id,
                call.name,
                ("".join(call.parts) or nothing).encode("utf-8", "surrogatepass"),
                was_plain=call.was_plain,
            )
            for call in self._reader.calls.values()
        ]

    def write(self, changes: Sequence[CallChange | None]) -> Iterator[bytes]:
        """The held events with the change of each call (None: it stays)."""
        places: dict[int, dict[Pointer, bytes]] = {}
        for call, change in zip(self._reader.calls.values(), changes, strict=True):
            for (number, pointer), value in _list_changes(call, change) if change is not None else ():
                places.setdefault(number, {})[pointer] = value
        for number, event in enumerate(self.events):
            if self._api is Api.MESSAGES:
                yield from _write(event, places.get(number, {}))
            else:
                yield change_event(event, places.get(number, {}))


def _list_changes(call: StreamedCall, change: CallChange) -> Iterator[tuple[Place, bytes]]:
    if change.name:
        for at, place in enumerate(call.names):
            yield place, dumps("" if at else change.name)
        for place in call.name_copies:
            yield place, dumps(change.name)
    if change.arguments is not None:
        whole = encode_arguments(change.arguments)
        if call.plain_at is not None:
            yield call.plain_at, change.arguments
        elif not call.pieces:
            yield call.added_at, whole
        for at, place in enumerate(call.pieces):
            yield place, whole if at == call.begun_at else b'""'
        for place in call.copies:
            yield place, whole


# The place of arguments that are added behind the start of a block.
_ADDED: Final = ("delta",)


def _write(event: bytes, changes: Mapping[Pointer, bytes]) -> list[bytes]:
    """One event of Messages; where a block had no arguments, an event with them follows its start."""
    written = [change_event(event, {place: value for place, value in changes.items() if place != _ADDED})]
    if _ADDED in changes and isinstance(value := read_event(event), dict):
        delta = b'{"type":"content_block_delta","index":%b,"delta":{"type":"input_json_delta","partial_json":%b}}'
        written.append(write_event(delta % (dumps(value.get("index")), changes[_ADDED]), "content_block_delta"))
    return written


def _as_text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""


def _write_plain(value: JsonValue) -> str:
    return dumps(value).decode("utf-8", "surrogatepass")


def _as_key(value: JsonValue) -> object:
    """The number by which events name their item; None for any other value."""
    return value if isinstance(value, int) else None


def _find_index(value: Mapping[str, Any], item_id: JsonValue) -> object:
    """An event's name for its item in Responses: the number in the answer, or the id (llama.cpp); None for neither."""
    number = _as_key(value.get("output_index"))
    return number if number is not None or not isinstance(item_id, str) else item_id


def _list_objects(value: JsonValue) -> Iterator[tuple[int, dict[str, Any]]]:
    for at, item in enumerate(value if isinstance(value, list) else ()):
        if isinstance(item, dict):
            yield at, item


class _Chat:
    """Chat Completions: `choices[].delta.tool_calls[]`, or the older `function_call`, until each choice with a call has
    its `finish_reason`."""

    def __init__(self) -> None:
        self.calls: dict[object, StreamedCall] = {}
        self._open: set[object] = set()
        self._latest: dict[object, object] = {}

    @property
    def is_complete(self) -> bool:
        return not self._open

    def read(self, value: Mapping[str, Any], number: int) -> None:
        for at, choice in _list_objects(value.get("choices")):
            index = _as_key(choice.get("index", 0))
            delta = choice.get("delta")
            for position, part in _list_objects(delta.get("tool_calls") if isinstance(delta, dict) else None):
                function = part.get("function")
                if isinstance(function, dict):
                    self._open.add(index)
                    place: Pointer = ("choices", at, "delta", "tool_calls", position, "function")
                    call = self._find(index, position, part, (number, (*place, "arguments")))
                    self._add(call, function, number, place)
            legacy = delta.get("function_call") if isinstance(delta, dict) else None
            if isinstance(legacy, dict):
                self._open.add(index)
                place = ("choices", at, "delta", "function_call")
                call = self.calls.setdefault((index, "legacy"), StreamedCall((number, (*place, "arguments"))))
                self._add(call, legacy, number, place)
            if choice.get("finish_reason") is not None:
                self._open.discard(index)

    def _find(self, choice: object, position: int, part: Mapping[str, Any], added_at: Place) -> StreamedCall:
        """The call of a part. On servers that do not number parts, an id begins a call. On servers that give all calls
        one number, another id with a name begins one."""
        numbered, call_id = part.get("index"), _as_text(part.get("id"))
        key: object = (choice, numbered) if isinstance(numbered, int) else (choice, call_id or f"at {position}")
        if not isinstance(numbered, int) and not call_id and self.calls:
            key = next(reversed(self.calls))
        latest = self.calls.get(self._latest.get(key, key))
        if latest is not None and call_id and latest.call_id not in ("", call_id) and part["function"].get("name"):
            self._latest[key] = (key, call_id)
        call = self.calls.setdefault(self._latest.get(key, key), StreamedCall(added_at))
        call.call_id = call.call_id or call_id
        return call

    @staticmethod
    def _add(call: StreamedCall, function: Mapping[str, Any], number: int, place: Pointer) -> None:
        if name := _as_text(function.get("name")):
            call.name += name
            call.names.append((number, (*place, "name")))
        if (arguments := function.get("arguments")) and not isinstance(arguments, str):
            call.was_plain = True
            arguments = _write_plain(arguments)
        if isinstance(arguments, str):
            call.add_piece(arguments, (number, (*place, "arguments")))


class _Responses:
    """Responses: `response.output_item.*` and `response.function_call_arguments.*`, until the response has ended. The
    last event repeats everything. Calls are matched by `call_id`, then by index: servers count streamed and repeated
    items differently."""

    def __init__(self) -> None:
        self.calls: dict[object, StreamedCall] = {}
        self.is_complete = False
        self._latest: dict[object, object] = {}  # by the events' names for items
        self._by_id: dict[str, object] = {}

    def read(self, value: Mapping[str, Any], number: int) -> None:
        kind, item = value.get("type"), value.get("item")
        if isinstance(item, dict) and item.get("type") == "function_call":
            if (index := _find_index(value, item.get("id"))) is not None:
                self._read_item(index, item, number, ("item",), is_first=kind == "response.output_item.added")
        elif kind in ("response.function_call_arguments.delta", "response.function_call_arguments.done"):
            self._read_arguments(value, number, is_piece=str(kind).endswith("delta"))
        elif kind in ("response.completed", "response.incomplete", "response.failed"):
            self.is_complete = True
            response = value.get("response")
            for at, each in _list_objects(response.get("output") if isinstance(response, dict) else None):
                index = at if at in self._latest else _find_index({}, each.get("id"))
                if each.get("type") == "function_call" and self._find(index, each) in self.calls:
                    self._read_item(index, each, number, ("response", "output", at), is_first=False)

    def _find(self, index: object, item: Mapping[str, Any]) -> object:
        """The key of an item's call, which may be new."""
        call_id, key = _as_text(item.get("call_id")), self._latest.get(index, index)
        if call_id in self._by_id:
            return self._by_id[call_id]
        return (index, call_id) if call_id and key in self.calls and self.calls[key].call_id else key

    def _read_item(
        self, index: object, item: Mapping[str, Any], number: int, place: Pointer, *, is_first: bool
    ) -> None:
        key = self._find(index, item)
        call = self.calls.setdefault(key, StreamedCall((number, (*place, "arguments"))))
        if place == ("item",):
            self._latest[index] = key
        call.call_id = call.call_id or _as_text(item.get("call_id"))
        if call.call_id:
            self._by_id.setdefault(call.call_id, key)
        call.name = call.name or _as_text(item.get("name"))
        call.name_copies.append((number, (*place, "name")))
        if is_first:
            self.is_complete = False
        else:
            call.replace_text(_as_text(item.get("arguments")))
            call.copies.append((number, (*place, "arguments")))

    def _read_arguments(self, value: Mapping[str, Any], number: int, *, is_piece: bool) -> None:
        index = _find_index(value, value.get("item_id"))
        call = self.calls.get(self._latest.get(index, index))
        if call is None:
            return
        if is_piece:
            call.add_piece(_as_text(value.get("delta")), (number, ("delta",)))
        else:
            call.replace_text(_as_text(value.get("arguments")))
            call.copies.append((number, ("arguments",)))
            if "name" in value:
                call.name_copies.append((number, ("name",)))


class _Messages:
    """Messages: blocks of type `tool_use`, until `message_delta` says why the message stopped. Each start begins a
    block, even if an earlier one had the same index."""

    def __init__(self) -> None:
        self.calls: dict[object, StreamedCall] = {}
        self.is_complete = False
        self._latest: dict[object, StreamedCall] = {}  # by index

    def read(self, value: Mapping[str, Any], number: int) -> None:
        kind, key = value.get("type"), _as_key(value.get("index"))
        block, delta = value.get("content_block"), value.get("delta")
        if kind == "content_block_start" and isinstance(block, dict) and block.get("type") == "tool_use":
            self.is_complete = False
            call = self._latest[key] = StreamedCall((number, _ADDED), _as_text(block.get("id")))
            self.calls[len(self.calls)] = call
            call.name = _as_text(block.get("name"))
            call.names.append((number, ("content_block", "name")))
            if block.get("input"):  # the whole of it at once
                call.replace_text(_write_plain(block["input"]))
                call.plain_at = (number, ("content_block", "input"))
        elif kind == "content_block_delta" and key in self._latest and isinstance(delta, dict):
            if isinstance(piece := delta.get("partial_json"), str):
                self._latest[key].add_piece(piece, (number, ("delta", "partial_json")))
        elif kind in ("message_delta", "message_stop"):
            self.is_complete = True


_READERS: Final[Mapping[Api, Callable[[], CallReader]]] = {
    Api.CHAT: _Chat,
    Api.RESPONSES: _Responses,
    Api.MESSAGES: _Messages,
}
