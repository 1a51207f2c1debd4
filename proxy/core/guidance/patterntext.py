"""Finds the shortest text that a regular expression describes, for examples. Only common ECMA-262 patterns work.

This is a recursive descent over the pattern's grammar (ECMA-262 22.2.1). It reads assertions as empty text and classes
as their first good character, so the result may be wrong, and the caller has to check it. `stretch` is the number of
additional repetitions of parts that may repeat without end, for patterns beside a `minLength`.
"""

from __future__ import annotations

from typing import Final

_CLASSES: Final = {"d": "0", "w": "a", "s": " ", "D": "a", "W": "-", "S": "a", "n": "\n", "t": "\t", "r": "\r"}
_HEX: Final = {"x": 2, "u": 4}
# Characters for negated classes and dots, best first.
_ANY: Final = "a0-Z_ .x1"
_LONGEST: Final = 2000
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
    return text if reader.at == len(pattern) and len(text) <= _LONGEST else None


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
            parts.append(unit * min(low + (self.stretch if endless else 0), _LONGEST))
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
            return min((low for low, _ in spans), key=_plainness) if spans else ""
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


def _plainness(char: str) -> tuple[bool, str]:
    return not (char.isascii() and char.isalnum()), char
