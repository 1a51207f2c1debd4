"""Texts and numbers that a schema may accept, best first, for examples. The caller has to check them.

`make_text_for` finds the shortest text that a regular expression describes; only common ECMA-262 patterns work. It is a
recursive descent over the pattern's grammar (ECMA-262 22.2.1), which reads assertions as empty text and classes as
their first good character. `stretch` is the number of additional repetitions of parts that may repeat without end, for
patterns beside a `minLength`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation
from itertools import islice
from typing import Final

from proxy.core.json.jsontext import LosslessFloat, make_decimal
from proxy.core.model.values import JsonValue
from proxy.core.schema.nodes import Node

# A value for each format that the judge asserts.
FORMATS: Final = {
    "date-time": "2026-01-31T12:00:00Z",
    "date": "2026-01-31",
    "time": "12:00:00Z",
    "duration": "P1D",
    "email": "name@example.com",
    "idn-email": "name@example.com",
    "hostname": "example.com",
    "idn-hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "uri-reference": "/path",
    "iri": "https://example.com/",
    "iri-reference": "/path",
    "uri-template": "/items/{id}",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "json-pointer": "/path",
    "relative-json-pointer": "0",
    "regex": "^a$",
}
_FILLER: Final = "..."
_LONGEST: Final = 2000
_STRETCHES: Final = (0, 1, 2, 3, 5, 8, 16, 32, 64, 128, 256)
_VARIANTS: Final = 60
# Enough digits for the limits of any real schema.
_ARITHMETIC: Final = Context(prec=60)


def make_texts(parts: Iterable[Node], patterns: Sequence[str] = ()) -> Iterator[str]:
    """Texts for places with these schemas (and these patterns), each once."""
    parts = list(parts)
    patterns = [*patterns, *(pattern for part in parts if isinstance(pattern := part.get("pattern"), str))]
    least = max((n for part in parts if isinstance(n := part.get("minLength"), int)), default=0)
    most = min((n for part in parts if isinstance(n := part.get("maxLength"), int)), default=_LONGEST)
    seen: set[str] = set()
    for text in _texts(parts, patterns, least, most):
        if text not in seen and least <= len(text) <= most:
            seen.add(text)
            yield text


def _texts(parts: list[Node], patterns: Sequence[str], least: int, most: int) -> Iterator[str]:
    for form in (str(part.get("format")) for part in parts if part.has("format")):
        if form in FORMATS:
            yield FORMATS[form]
            yield FORMATS[form] + "a" * max(least - len(FORMATS[form]), 0)
            yield "a" * max(least - len(FORMATS[form]), 0) + FORMATS[form]
    for pattern in patterns:
        for stretch in (*_STRETCHES, least):
            text = make_text_for(pattern, stretch)
            if text is not None:
                yield text
                yield text + "a" * max(least - len(text), 0)
    yield _FILLER if least <= len(_FILLER) <= most else "a" * min(least, _LONGEST)
    for number in range(_VARIANTS):
        base = f"value{number}"
        yield base if len(base) <= most else chr(ord("a") + number % 26) * max(least, min(most, 1 + number // 26))


def make_numbers(parts: list[Node], *, fractions: bool) -> Iterator[JsonValue]:
    """Numbers for places with these schemas, integers first; `fractions` says whether fractions may follow."""
    low, high = _bounds(parts, ("minimum", "exclusiveMinimum")), _bounds(parts, ("maximum", "exclusiveMaximum"))
    steps = [_exact(step) for part in parts if _is_number(step := part.get("multipleOf"))]
    seen: set[Decimal] = set()
    try:
        for number in islice(_numbers(low, high, steps), 4 * _VARIANTS):
            if number in seen or number.adjusted() > 300:
                continue
            seen.add(number)
            if number == number.to_integral_value(context=_ARITHMETIC):
                yield int(number)
            elif fractions:
                yield LosslessFloat(format(number.normalize(_ARITHMETIC), "f").encode())
    except InvalidOperation:  # a limit too large for the arithmetic
        return


def _numbers(low: list[Decimal], high: list[Decimal], steps: list[Decimal]) -> Iterator[Decimal]:
    bottom, top = max(low, default=None), min(high, default=None)
    yield from (Decimal(0), Decimal(1))
    start = bottom if bottom is not None else top if top is not None else Decimal(0)
    direction = 1 if bottom is not None or top is None else -1
    rounding = ROUND_CEILING if direction > 0 else ROUND_FLOOR
    whole = start.to_integral_value(rounding, _ARITHMETIC)
    for step in steps:
        first = _ARITHMETIC.multiply(_ARITHMETIC.divide(start, step).to_integral_value(rounding, _ARITHMETIC), step)
        yield from (_ARITHMETIC.add(first, direction * count * step) for count in range(_VARIANTS))
    yield start
    yield from (_ARITHMETIC.add(whole, Decimal(direction * count)) for count in range(_VARIANTS))
    if bottom is not None and top is not None:
        middle = _ARITHMETIC.divide(_ARITHMETIC.add(bottom, top), Decimal(2))
        yield middle
        yield from (_ARITHMETIC.divide(_ARITHMETIC.add(bottom, middle), Decimal(2 + count)) for count in range(5))


def _bounds(parts: list[Node], keywords: tuple[str, str]) -> list[Decimal]:
    return [_exact(limit) for part in parts for keyword in keywords if _is_number(limit := part.get(keyword))]


def _exact(number: JsonValue) -> Decimal:
    """The number that a schema's author wrote: 0.1, not the nearest double."""
    return Decimal(str(number)) if isinstance(number, float) else make_decimal(number)


def _is_number(value: JsonValue) -> bool:
    return isinstance(value, int | float | LosslessFloat | Decimal) and not isinstance(value, bool)


# --- texts of patterns ------------------------------------------------------------------------------------------------
_CLASSES: Final = {"d": "0", "w": "a", "s": " ", "D": "a", "W": "-", "S": "a", "n": "\n", "t": "\t", "r": "\r"}
_HEX: Final = {"x": 2, "u": 4}
# Characters for negated classes and dots, best first.
_ANY: Final = "a0-Z_ .x1"
_LONGEST_TEXT: Final = 2000
_DEEPEST: Final = 40


class _NoTextError(Exception):
    """The pattern is not one of the common ones."""


def make_text_for(pattern: str, stretch: int = 0) -> str | None:
    """A text that a pattern probably describes, or None. Never raises."""
    reader = _Reader(pattern, stretch)
    try:
        text = reader.alternatives(0)
    except (_NoTextError, IndexError):
        return None
    return text if reader.at == len(pattern) and len(text) <= _LONGEST_TEXT else None


class _Reader:
    """Reads a pattern once, from left to right."""

    def __init__(self, pattern: str, stretch: int) -> None:
        self.pattern = pattern
        self.stretch = stretch
        self.at = 0

    def peek(self) -> str:
        return self.pattern[self.at : self.at + 1]

    def alternatives(self, depth: int) -> str:
        """The text of the first alternative; the others are skipped."""
        if depth > _DEEPEST:
            raise _NoTextError
        first = self.sequence(depth)
        while self.peek() == "|":
            self.at += 1
            self.sequence(depth)
        return first

    def sequence(self, depth: int) -> str:
        parts: list[str] = []
        while self.peek() not in ("", "|", ")"):
            unit = self.unit(depth)
            low, endless = self.quantifier()
            parts.append(unit * min(low + (self.stretch if endless else 0), _LONGEST_TEXT))
        return "".join(parts)

    def unit(self, depth: int) -> str:
        char = self.peek()
        self.at += 1
        if char in "^$":
            return ""
        if char == "(":
            return self.group(depth)
        if char == "[":
            return self.character_class()
        if char == ".":
            return "a"
        return self.escape() if char == "\\" else char

    def group(self, depth: int) -> str:
        silent = False
        if self.peek() == "?":
            kind = self.pattern[self.at : self.at + 3]
            silent = kind[:2] in ("?=", "?!") or kind in ("?<=", "?<!")
            if kind[:2] == "?:" or silent:
                self.at += 3 if kind in ("?<=", "?<!") else 2
            elif kind[:2] == "?<":
                self.at = self.pattern.index(">", self.at) + 1 if ">" in self.pattern[self.at :] else len(self.pattern)
            else:
                raise _NoTextError
        text = self.alternatives(depth + 1)
        if self.peek() != ")":
            raise _NoTextError
        self.at += 1
        return "" if silent else text

    def escape(self) -> str:
        char = self.pattern[self.at]
        self.at += 1
        if char in "bB":
            return ""
        if char in _HEX:
            return self.code(_HEX[char])
        if char.isdigit() or char in "pPk":
            raise _NoTextError
        return _CLASSES.get(char, char)

    def code(self, digits: int) -> str:
        text = self.pattern[self.at : self.at + digits]
        self.at += digits
        try:
            return chr(int(text, 16))
        except ValueError:
            raise _NoTextError from None

    def character_class(self) -> str:
        negated = self.peek() == "^"
        self.at += negated
        spans: list[tuple[str, str]] = []
        while self.peek() != "]":
            low = self.member()
            high = low
            if self.peek() == "-" and self.pattern[self.at + 1] != "]":
                self.at += 1
                high = self.member()
            spans.append((low, high))
        self.at += 1
        if not negated:
            return min(
                (low for low, _ in spans), key=lambda low: (not (low.isascii() and low.isalnum()), low), default=""
            )
        free = [char for char in _ANY if not any(low <= char <= high for low, high in spans)]
        return free[0] if free else ""

    def member(self) -> str:
        char = self.pattern[self.at]
        self.at += 1
        return self.escape() if char == "\\" else char

    def quantifier(self) -> tuple[int, bool]:
        """(least number of repetitions, whether there is no upper limit) of the quantifier here; (1, False) without
        one."""
        char = self.peek()
        found = {"*": (0, True), "+": (1, True), "?": (0, False)}.get(char, (1, False))
        if char == "{":
            inside, closed, _ = self.pattern[self.at + 1 :].partition("}")
            low, comma, high = inside.partition(",")
            if not closed or not low.isdecimal() or not (high == "" or high.isdecimal()):
                raise _NoTextError
            self.at += len(inside) + 1
            found = int(low), bool(comma) and high == ""
            if comma and high and self.stretch:
                found = min(int(low) + self.stretch, int(high)), False
        if char and char in "*+?{":
            self.at += 1
            self.at += self.peek() == "?"
        return found
