"""Texts and numbers that a schema may accept, best first, for examples. The caller has to check them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation
from itertools import islice
from typing import Final

from proxy.core.guidance.patterntext import make_text_for
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
