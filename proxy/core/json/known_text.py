"""A text that was read before: what its reader found, so that reading it again takes a tenth of the time.

Reading checks what two parsers could read differently, and for a megabyte of small values those checks take a tenth of
a second. A child process does them (`call/judging.py`) and says which plain reader gives the same value; or what is
wrong, or what text repair made of it. `jsontext.parse` and `textrepair.read_document` ask a `KnownText` first.

The value of such a text takes ten to forty times the memory of its bytes. So an `UnreadDocument` reads it when it is
first asked for, and most calls pass without that.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any, Final

from orjson import loads as quick_read

from proxy.core.json.strictreader import TextLimits, has_minus_zero, read_keeping_minus_zero, read_lossless
from proxy.core.model.values import Document, JsonProblem, JsonValue

# What an outline keeps: members of so many objects inside each other, texts of so many characters, keys of one object.
_LEVELS: Final = 4
_SHORT: Final = 1024
_KEYS: Final = 64


class PlainReader(StrEnum):
    """Which reader gives the value of a text that was checked before."""

    QUICK = "quick"
    """No number needs its own text."""
    LOSSLESS = "lossless"
    """Numbers keep their text."""
    MINUS_ZERO = "minus_zero"
    """So does `-0`."""


class KnownText(bytes):
    """A text with what was found in it under `limits`: the reader that it needs, or why it is unreadable.

    `mended` is the text that the repairs named in `repairs` make of an unreadable one, with their names; `outline` is
    what an unreadable one seems to be (`outline`), b'' for nothing.
    """

    limits: TextLimits
    found: PlainReader | JsonProblem
    repairs: frozenset[str] = frozenset()
    mended: tuple[KnownText, tuple[str, ...]] | None = None
    outline: bytes = b""

    @classmethod
    def of(cls, text: bytes, limits: TextLimits, found: PlainReader | JsonProblem) -> KnownText:
        """The same bytes, with what was found."""
        made = cls(text)
        made.limits, made.found = limits, found
        return made

    def holds_under(self, limits: TextLimits) -> bool:
        """Whether a reader with these limits would find the same."""
        own = self.limits
        if isinstance(self.found, JsonProblem):
            return limits == own
        return limits.depth >= own.depth and limits.nodes >= own.nodes

    def read(self) -> JsonValue | JsonProblem:
        """The value, or why there is none."""
        match self.found:
            case PlainReader.QUICK:
                return quick_read(memoryview(self))  # it takes no subclass of bytes
            case PlainReader.LOSSLESS:
                return read_lossless(self)
            case PlainReader.MINUS_ZERO:
                return read_keeping_minus_zero(self)
            case problem:
                return problem


class UnreadDocument(Document):
    """A document whose text is known to be readable, and whose value is read when it is first asked for."""

    __slots__ = ()

    def __init__(self, text: KnownText) -> None:
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "repairs", ())

    def __getattr__(self, name: str) -> JsonValue:
        # Python asks here for a slot that is empty, as `value` is until now.
        if name != "value" or not isinstance(self.text, KnownText):
            raise AttributeError(name)
        value = self.text.read()
        object.__setattr__(self, "value", value)
        return value


def reader_of(text: bytes, *, is_quick: bool) -> PlainReader:
    """The reader of a text that was read without a problem, `is_quick`: by the quick reader."""
    if is_quick:
        return PlainReader.QUICK
    return PlainReader.MINUS_ZERO if has_minus_zero(text) else PlainReader.LOSSLESS


def outline(text: bytes) -> bytes:
    """What an unreadable text seems to be, as a lenient reader takes it: its outer members as JSON, without lists and
    long texts. b'' where no reader takes it. Numbers with several spellings, or none in JSON, are null."""
    try:
        value = json.loads(text, parse_float=_nothing, parse_constant=_nothing)
    except (ValueError, RecursionError):
        return b""
    return json.dumps(_prune_value(value, _LEVELS)).encode()


def _nothing(_text: str) -> None:
    return None


def _prune_value(value: Any, levels: int) -> Any:
    if isinstance(value, dict):
        kept = list(value.items())[:_KEYS] if levels else ()
        return {key: _prune_value(item, levels - 1) for key, item in kept if len(key) <= _SHORT}
    if isinstance(value, list) or (isinstance(value, str) and len(value) > _SHORT):
        return None
    return value
