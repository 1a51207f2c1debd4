"""Finds JSON inside prose: `Here is the result: {...}`. Pure, and linear in the length of the text.

    find_embedded(text)   each outermost object and array that stands in it, as bytes and value

A text that ends inside a bracket may have been cut off, and then nothing in it is what was meant: there is no result.
Brackets of prose (`[sic]`, `{ }` around words) hold no JSON and are passed over.
"""

from __future__ import annotations

import re
from typing import Final

from proxy.core.json.jsontext import TextLimits, parse
from proxy.core.model.values import JsonProblem, JsonValue

# A longer text is no final word with a little prose around it, and so many pieces are no single answer.
_LONGEST: Final = 256 * 1024
_MOST: Final = 16
_OPENING: Final = re.compile(rb"[{\[]")
_MARK: Final = re.compile(rb'["{}\[\]]')
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_CLOSES: Final = {b"}": b"{", b"]": b"["}


def find_embedded(text: bytes, limits: TextLimits) -> list[tuple[bytes, JsonValue]]:
    """The JSON objects and arrays in a text, in their order; none where the text may have been cut off."""
    if len(text) > _LONGEST:
        return []
    found: list[tuple[bytes, JsonValue]] = []
    at = 0
    while (opening := _OPENING.search(text, at)) is not None:
        end = _find_end(text, opening.start())
        if end is None or len(found) == _MOST:
            return []
        piece = text[opening.start() : end]
        value = parse(piece, limits)
        if not isinstance(value, JsonProblem):
            found.append((piece, value))
        at = end
    return found


def _find_end(text: bytes, start: int) -> int | None:
    """The offset behind the bracket that closes the one at `start`; None where the text ends before it."""
    opened: list[bytes] = []
    at = start
    while (mark := _MARK.search(text, at)) is not None:
        at = mark.end()
        if mark[0] == b'"':
            string = _STRING.match(text, mark.start())
            if string is None:
                return None
            at = string.end()
        elif mark[0] in _CLOSES:
            if not opened or opened.pop() != _CLOSES[mark[0]]:
                return at  # no JSON, whatever it is
            if not opened:
                return at
        else:
            opened.append(mark[0])
    return None
