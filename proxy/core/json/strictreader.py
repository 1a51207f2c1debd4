"""The strict reader of JSON text (jiter): gives the value that the text spells, or a problem with its place.

It refuses texts that two parsers could read differently (jsontext.py lists them). jiter does not check overflow, our
bounds and the sign of `-0`. Those are checked afterwards, and only if a cheap look at the bytes shows that they can
matter. The reader keeps the text of every number that is not a plain integer.

For a megabyte of small values these checks take a tenth of a second. A child process does them (`call/judging.py`),
and a `KnownText` holds what it found; reading it again takes a tenth of the time. The value takes ten to forty times
the memory of its bytes, so an `UnreadDocument` reads it when it is first asked for.
"""

from __future__ import annotations

import json
import re
from enum import StrEnum
from typing import Any, Final

from jiter import LosslessFloat as LosslessFloat
from jiter import from_json
from orjson import loads as quick_read

from proxy.core.model.value_class import Lazy, value_class
from proxy.core.model.values import Document, JsonProblem, JsonValue, Pointer
from proxy.core.model.work import READING


@value_class
class TextLimits:
    """Bounds of one JSON text: nesting depth and number of values (docs/repair.md)."""

    depth: int = 64
    nodes: int = READING


DEFAULT_LIMITS: Final = TextLimits()

_POSITION = re.compile(r"^(.*) at line (\d+) column (\d+)$", re.DOTALL)
_MINUS_ZERO = re.compile(rb"-0(?![.0-9eE])")
# An exponent of ten digits or more: no common arithmetic distinguishes such a number from zero or infinity.
_FAR_EXPONENT = re.compile(rb"[eE][+-]?0*[1-9][0-9]{9,}\Z")
# A bracket, or a string; an unclosed string reaches to the end of the text.
_BRACKET: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\Z)|[\[\]{}]', re.DOTALL)

_INFINITE: Final = (float("inf"), float("-inf"))

_PLAIN: Final = frozenset({str, bool, type(None)})


def read_strictly(text: bytes, limits: TextLimits) -> JsonValue | JsonProblem:
    """Reads one strict JSON text: the value, or a `JsonProblem` with line and column (VAL-004). Never raises."""
    try:
        value = from_json(
            text, allow_inf_nan=False, cache_mode="keys", catch_duplicate_keys=True, float_mode="lossless-float"
        )
    except ValueError as error:
        return _check_depth(text, limits.depth) or _problem(text, str(error))
    too_deep, nodes, far, zero = _survey(value, limits.depth)
    if too_deep:
        return _check_depth(text, limits.depth) or JsonProblem(f"nested deeper than {limits.depth} levels", 1, 1)
    if nodes > limits.nodes:
        return JsonProblem(f"more than {limits.nodes} values", 1, 1)
    if far is not None:
        line, column = _position(text, max(text.find(bytes(far)), 0))
        return JsonProblem("number out of range", line, column, path=_find_place(value, far))
    return read_keeping_minus_zero(text) if zero and _MINUS_ZERO.search(text) else value


def _survey(value: JsonValue, depth: int) -> tuple[bool, int, LosslessFloat | None, bool]:
    """Visits every value once; gives (deeper than `depth`, number of values, a number out of range, an integer 0)."""
    level: list[Any] = [value.values()] if type(value) is dict else [value if type(value) is list else (value,)]
    nodes, far, zero = int(type(value) in (dict, list)), None, False
    while level and depth:
        depth -= 1
        below: list[Any] = []
        for holder in level:
            nodes += len(holder)
            for item in holder:
                kind = type(item)
                if kind in _PLAIN:
                    continue
                if kind is int:
                    zero = zero or not item
                elif kind is LosslessFloat:
                    # It overflows a double, or has an exponent beyond all arithmetic (RFC 8259 section 6: a reader may
                    # set limits). One that only underflows is compared exactly, and its text is forwarded.
                    near = float(item)
                    if near in _INFINITE or (not near and _FAR_EXPONENT.search(bytes(item)) is not None):
                        far = item
                else:
                    below.append(item.values() if kind is dict else item)
        level = below
    return bool(level), nodes, far, zero


def _find_place(value: JsonValue, number: LosslessFloat) -> Pointer:
    """Returns the place of a number in a value, () if it is deeper than a reader looks."""
    queue: list[tuple[JsonValue, Pointer]] = [(value, ())]
    for holder, path in queue:
        members = holder.items() if isinstance(holder, dict) else enumerate(holder) if isinstance(holder, list) else ()
        for step, item in members:
            if item is number:
                return (*path, step)
            if isinstance(item, (dict, list)):
                queue.append((item, (*path, step)))
    return ()


def read_keeping_minus_zero(text: bytes) -> JsonValue:
    """Reads a text with `-0`, of which jiter loses the sign, with `json`: it has passed jiter, so that is safe."""

    def integer(digits: str) -> int | LosslessFloat:
        return LosslessFloat(b"-0") if digits == "-0" else int(digits)

    return json.loads(text, parse_int=integer, parse_float=lambda digits: LosslessFloat(digits.encode()))


def _problem(text: bytes, message: str) -> JsonProblem:
    if (found := _POSITION.match(message)) is None:
        return JsonProblem(message, 1, 1)
    reason, line, column = found[1], int(found[2]), max(int(found[3]), 1)
    if reason.startswith("Detected duplicate key"):
        reason = "duplicate key " + reason.removeprefix("Detected duplicate key ")
    if reason == "unexpected end of hex escape":  # a text that ends there is "EOF while parsing a string"
        reason = "lone leading surrogate in hex escape"
    truncated = reason.startswith("EOF while parsing")
    return JsonProblem(reason, line, column, truncated and text.strip() != b"")


def _check_depth(text: bytes, limit: int) -> JsonProblem | None:
    depth = 0
    for found in _BRACKET.finditer(text):
        depth += 1 if found[0] in (b"[", b"{") else -1 if found[0] in (b"]", b"}") else 0
        if depth > limit:
            return JsonProblem(f"nested deeper than {limit} levels", *_position(text, found.start()))
    return None


def _position(text: bytes, offset: int) -> tuple[int, int]:
    return text.count(b"\n", 0, offset) + 1, offset - text.rfind(b"\n", 0, offset)


# --- texts that were read before --------------------------------------------------------------------------------------
# The content of an outline: members of so many nested objects, texts of so many characters, keys of one object.
_LEVELS: Final = 4
_SHORT: Final = 1024
_KEYS: Final = 64


class PlainReader(StrEnum):
    """Which reader gives the value of a text that was checked before."""

    QUICK = "quick"  # no number needs its own text
    LOSSLESS = "lossless"  # numbers keep their text


class KnownText(bytes):
    """A text with the results of reading it under `limits`: the reader that it needs, or why it is unreadable. Then
    also the text that the repairs named in `repairs` make of it, with their names, and the `outline` (b'' for none).
    `accepted_by` is the check that accepts it, if its schema declares all its keys."""

    limits: TextLimits
    found: PlainReader | JsonProblem
    repairs: frozenset[str] = frozenset()
    repaired: tuple[KnownText, tuple[str, ...]] | None = None
    outline: bytes = b""
    accepted_by: object = None

    @classmethod
    def of(cls, text: bytes, limits: TextLimits, found: PlainReader | JsonProblem, by: object = None) -> KnownText:
        """The same bytes, with what was found."""
        made = cls(text)
        made.limits, made.found, made.accepted_by = limits, found, by
        return made

    def holds_under(self, limits: TextLimits) -> bool:
        """Returns whether a reader with these limits would find the same."""
        own = self.limits
        if isinstance(self.found, JsonProblem):
            return limits == own
        return limits.depth >= own.depth and limits.nodes >= own.nodes

    def read(self) -> JsonValue | JsonProblem:
        """The value, or why there is none."""
        match self.found:
            case PlainReader.QUICK:
                return quick_read(memoryview(self))  # it takes no subclass of bytes
            case PlainReader.LOSSLESS if _MINUS_ZERO.search(self) is None:
                return from_json(self, allow_inf_nan=False, cache_mode="keys", float_mode="lossless-float")
            case PlainReader.LOSSLESS:
                return read_keeping_minus_zero(self)
            case problem:
                return problem


class UnreadDocument(Document):
    """A document whose text is known to be readable, and whose value is read when it is first asked for."""

    value = Lazy(Document.value, lambda document: document.text.read())


def outline(text: bytes) -> bytes:
    """Returns what an unreadable text seems to be, as a lenient reader takes it: its outer members as JSON, without
    lists and long texts. b'' if no reader takes it. Numbers with several spellings, or none in JSON, are null."""
    try:
        value = json.loads(text, parse_float=lambda _: None, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return b""
    return json.dumps(_prune_value(value, _LEVELS)).encode()


def _prune_value(value: Any, levels: int) -> Any:
    if isinstance(value, dict):
        kept = list(value.items())[:_KEYS] if levels else ()
        return {key: _prune_value(item, levels - 1) for key, item in kept if len(key) <= _SHORT}
    if isinstance(value, list) or (isinstance(value, str) and len(value) > _SHORT):
        return None
    return value
