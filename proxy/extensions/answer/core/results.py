"""Masks, cuts or withholds the result of a tool in an MCP message, which stays a result.

Pointers count from `structuredContent`, from the result that an SDK wraps in it, and from each text block that is a
JSON object or list. The secret patterns count everywhere in the message. A cut result has a text block that says so. If
the tool lists an `outputSchema`, a cut `structuredContent` still matches it. Clients reject any other result, so it is
withheld.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from proxy.core.display.secrets import MASK
from proxy.core.json.jsonspan import replace_values
from proxy.core.json.jsontext import dumps_known as dumps
from proxy.core.json.jsontext import parse
from proxy.core.model.values import ABSENT, JsonProblem, JsonValue, Pointer
from proxy.extensions.answer.core.answer_rules import LIMITS, AnswerRules
from proxy.extensions.answer.core.bodies import TOO_LARGE, UNCHANGED, UNREAD, Filtered, FilterTask, filter_body, judge
from proxy.extensions.answer.core.hiding import Unreadable, find_masks
from proxy.extensions.answer.core.shortening import NOTE_ROOM, Missing, NoteWriter, Shortener
from proxy.extensions.answer.core.texts import ReadText, read_text, shorten_text
from proxy.extensions.answer.core.unfinished import close_text
from proxy.plugin import Check

# Puts a result into the message that answers the call.
MakeMessage = Callable[[dict[str, JsonValue]], dict[str, JsonValue] | None]
_STRUCTURED: Final = "structuredContent"
# The only member of `structuredContent` if a tool's result is no object (the SDKs of MCP).
_WRAPPER: Final = "result"
_SECRETS: Final = AnswerRules(secrets=True)
# The members that a result keeps when its other members are removed.
_SMALL: Final = ("isError", "resultType")
# The room for the JSON around the parts of a result, in bytes.
_AROUND: Final = 96


def filter_message(text: bytes, task: FilterTask, make_message: MakeMessage, *, is_whole: bool) -> Filtered:
    """Returns what becomes of a JSON-RPC message. `is_whole` False: only its beginning has been read."""
    rules = task.rules
    is_large = not is_whole or len(text) > rules.max_bytes
    if is_large and not rules.cuts:
        return TOO_LARGE
    closed = None if is_whole else close_text(text)
    data, open_at = (text, None) if closed is None else (closed.text, closed.open_at)
    value = parse(data, LIMITS)
    if is_whole and not isinstance(value, JsonProblem) and not _is_message(value):  # what a hook answers
        return filter_body(text, "application/json", "", task, is_whole=True)
    if not isinstance(value, dict):
        return UNREAD if rules.masks else TOO_LARGE if is_large else UNCHANGED
    result = value.get("result")
    if not isinstance(result, dict):
        return _filter_other(data, value, task, is_large=is_large)
    judged = _judge_result(result, task) if is_whole else UNCHANGED
    if judged.withheld:
        return judged
    masks = _Masks(rules, open_at).find(value, result)
    if masks is None:
        return UNREAD
    masked = replace_values(data, {place: dumps(mask) for place, mask in masks.changes.items()})
    is_masked = masks.has_masked
    if is_whole and len(masked) <= rules.max_bytes:
        return Filtered(masked if is_masked else None, "", is_masked, False, judged.verdict, judged.broken)
    if not rules.cuts:
        return TOO_LARGE
    shown = parse(masked, LIMITS)
    cut = (
        _cut_message(shown["result"], masks.open_text, task, make_message, open_at) if isinstance(shown, dict) else None
    )
    if cut is None:
        return TOO_LARGE
    return Filtered(cut, "", is_masked, True, judged.verdict, judged.broken)


def is_answer(text: bytes) -> bool:
    """Returns whether the beginning of a message is that of an answer, as far as it says so."""
    closed = close_text(text)
    value = parse(text if closed is None else closed.text, LIMITS)
    return not (isinstance(value, dict) and "method" in value)


def _is_message(value: JsonValue) -> bool:
    """Returns whether a value is a JSON-RPC message, or a batch of them."""
    listed = value if isinstance(value, list) else [value]
    return any(isinstance(each, dict) and not each.keys().isdisjoint(("jsonrpc", "result")) for each in listed)


def _filter_other(data: bytes, value: JsonValue, task: FilterTask, *, is_large: bool) -> Filtered:
    """Returns what becomes of a message that is no result: an error, a notification, or a request of the server."""
    if is_large:
        return TOO_LARGE
    masks = find_masks(value, _SECRETS) if task.rules.secrets else {}
    masked = replace_values(data, {place: dumps(mask) for place, mask in masks.items()}) if masks else data
    if len(masked) > task.rules.max_bytes:
        return TOO_LARGE
    return Filtered(masked if masks else None, is_masked=bool(masks))


def _judge_result(result: Mapping[str, JsonValue], task: FilterTask) -> Filtered:
    """Returns what the tool's schema says of a result. Errors, and questions to the client, need not match it."""
    if result.get("isError") is True or result.get("resultType") == "input_required":
        return UNCHANGED
    structured = result.get(_STRUCTURED, ABSENT)
    if structured is not ABSENT:
        return judge(structured, task)
    if task.check is None or not task.rules.schema:
        return UNCHANGED
    return Filtered(withheld="unread" if task.rules.schema == "enforce" else "", verdict="unread")


# --- masks ------------------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class _Masks:
    """The changes to a message by place. `open_text` is the text block whose end is missing."""

    rules: AnswerRules
    open_at: Pointer | None
    changes: dict[Pointer, JsonValue] = field(default_factory=dict)
    open_text: ReadText | None = None

    @property
    def has_masked(self) -> bool:
        """Returns whether anything is masked. A text whose end is missing may have been changed only to close it."""
        return self.rules.masks and any(MASK in str(mask) for mask in self.changes.values())

    def find(self, message: JsonValue, result: Mapping[str, JsonValue]) -> _Masks | None:
        """Itself with the masks of a message; None if a text cannot be masked."""
        if self.rules.masks and _STRUCTURED in result:
            structured: JsonValue = result[_STRUCTURED]
            self._mask_structured(structured, ("result", _STRUCTURED))
            # SDKs wrap a result that is no object, and the text block beside it has no wrapper.
            if isinstance(structured, dict) and structured.keys() == {_WRAPPER}:
                self._mask_structured(structured[_WRAPPER], ("result", _STRUCTURED, _WRAPPER))
        content = result.get("content")
        for index, block in enumerate(content if isinstance(content, list) else ()):
            for place, text in _list_texts(block):
                if not self._mask_text(("result", "content", index, *place), text):
                    return None
        if self.rules.secrets:
            rest = find_masks(message, _SECRETS, self.open_at)
            # A secret name around a text hides the text as well.
            self.changes = {at: mask for at, mask in self.changes.items() if not _has_outer(at, rest)}
            for place, mask in rest.items():
                if not _has_outer(place, self.changes):
                    self.changes.setdefault(place, mask)
        return self

    def _mask_structured(self, value: JsonValue, at: Pointer) -> None:
        opened = self.open_at[len(at) :] if self.open_at is not None and self.open_at[: len(at)] == at else None
        for place, mask in find_masks(value, self.rules, opened).items():
            if not _has_outer((*at, *place), self.changes):
                self.changes[*at, *place] = mask

    def _mask_text(self, place: Pointer, text: str) -> bool:
        is_open = self.open_at == place
        if not is_open and not self.rules.masks:
            return True
        found = read_text(text, self.rules.for_texts(), is_open=is_open)
        if isinstance(found, Unreadable):
            return False
        if is_open:
            self.open_text = found
        if found.text != text:
            self.changes[place] = found.text
        return True


def _has_outer(place: Pointer, places: Mapping[Pointer, JsonValue]) -> bool:
    return any(place[:length] in places for length in range(len(place)))


def _list_texts(block: JsonValue) -> list[tuple[Pointer, str]]:
    """The texts of a block of a result, with their places in it: its own, and that of an embedded resource."""
    if not isinstance(block, dict):
        return []
    found: list[tuple[Pointer, str]] = []
    if isinstance(block.get("text"), str):
        found.append((("text",), block["text"]))
    resource = block.get("resource")
    if isinstance(resource, dict) and isinstance(resource.get("text"), str):
        found.append((("resource", "text"), resource["text"]))
    return found


# --- cutting ----------------------------------------------------------------------------------------------------------
def _cut_message(
    result: JsonValue, open_text: ReadText | None, task: FilterTask, make_message: MakeMessage, open_at: Pointer | None
) -> bytes | None:
    """The message with a shorter result; None if the result cannot be cut."""
    around = make_message({})
    if not isinstance(result, dict) or around is None:
        return None
    room = task.rules.max_bytes - len(dumps(around))
    inner = open_at[1:] if open_at is not None and open_at[:1] == ("result",) else None
    # A message whose end is missing may have lost members of its result.
    cut = _ResultCutter(room, task.notes, task.check, open_text, inner, lost_end=open_at is not None).cut(result)
    message = make_message(cut) if cut is not None else None
    text = dumps(message) if message is not None else b""
    return text if text and len(text) <= task.rules.max_bytes else None


@dataclass(slots=True)
class _ResultCutter:
    """Cuts one result into `left` bytes."""

    left: int
    notes: NoteWriter
    check: Check | None
    open_text: ReadText | None
    open_at: Pointer | None
    lost_end: bool
    missing: list[Missing] = field(default_factory=list)

    def cut(self, result: dict[str, JsonValue]) -> dict[str, JsonValue] | None:
        """The shorter result; None if clients would reject it."""
        others = {name: item for name, item in result.items() if name not in ("content", _STRUCTURED)}
        if len(dumps(others)) > self.left // 8:
            others = {name: others[name] for name in _SMALL if name in others}
        self.left -= len(dumps(others)) + _AROUND + NOTE_ROOM
        structured = self._cut_structured(result[_STRUCTURED]) if _STRUCTURED in result else ABSENT
        if self.check is not None and structured is ABSENT and result.get("isError") is not True:
            return None
        content = result.get("content")
        blocks = self._cut_blocks(content if isinstance(content, list) else [])
        kept = {} if structured is ABSENT else {_STRUCTURED: structured}
        return {**others, "content": blocks, **kept}

    def _cut_structured(self, value: JsonValue) -> JsonValue:
        is_open = self.open_at is not None and self.open_at[:1] == (_STRUCTURED,)
        shortener = Shortener(self.open_at[1:] if is_open and self.open_at is not None else None, marks=False)
        kept = shortener.shorten(value, self.left // 2)
        if kept is ABSENT or (self.check is not None and not self.check.accepts(kept)):
            return ABSENT
        self.left -= len(dumps(kept)) + len(_STRUCTURED) + 4
        self.missing += shortener.missing
        return kept

    def _cut_blocks(self, content: list[JsonValue]) -> list[JsonValue]:
        blocks: list[JsonValue] = []
        for index, block in enumerate(content):
            is_open = self.open_at is not None and self.open_at[:2] == ("content", index)
            size = len(dumps(block)) + 2
            if size <= self.left and not is_open:
                blocks.append(block)
                self.left -= size
                continue
            text = block.get("text") if isinstance(block, dict) else None
            is_last = index + 1 == len(content)
            if isinstance(text, str) and (is_last or not blocks):
                read = self.open_text if is_open else read_text(text, AnswerRules())
                room = self.left + (NOTE_ROOM if is_last else 0) - _AROUND
                blocks.append(
                    _make_block(shorten_text(read if isinstance(read, ReadText) else ReadText(text), room, self.notes))
                )
                if is_last:
                    return blocks
            self.missing.append(Missing((), "blocks", len(blocks), None if self.lost_end else len(content)))
            break
        return [*blocks, _make_block(self.notes.write(self.missing))]


def _make_block(text: str) -> JsonValue:
    return {"type": "text", "text": text}
