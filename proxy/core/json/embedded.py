"""JSON values inside other text, in time linear to its length.

`find_embedded` finds JSON in prose, `Here is the result: {...}`: each outermost object and array, as bytes and value. A
text that ends inside a bracket may have been cut off, and then no value in it can be trusted: there is no result.

`read_python_value` reads `"['a', 'b']"` as the list that it spells. A literal counts only if it consists of nothing but
JSON values: lists, dicts with text keys, text, numbers in JSON's spelling (which they keep), True, False, None.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from threading import Lock
from typing import Final

from proxy.core.json.jsontext import TextLimits, parse
from proxy.core.model.values import JsonProblem, JsonValue

# A final answer has a little prose around it. A longer text, and one with more pieces, is not searched.
_LONGEST: Final = 256 * 1024
_MOST: Final = 16
_OPENING: Final = re.compile(rb"[{\[]")
_MARK: Final = re.compile(rb'["{}\[\]]')
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_CLOSES: Final = {b"}": b"{", b"]": b"["}


def find_embedded(text: bytes, limits: TextLimits) -> list[tuple[bytes, JsonValue]]:
    """Returns the JSON objects and arrays in a text, in their order; none if the text may have been cut off."""
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
                return at  # brackets that do not match: not JSON
            if not opened:
                return at
        else:
            opened.append(mark[0])
    return None


# --- Python literals --------------------------------------------------------------------------------------------------
_SPACE: Final = " \t\n\r"
# A longer or deeper literal is not a model's slip.
_MAX_TEXT: Final = 100_000
_MAX_TOKENS: Final = 50_000
_LIMITS: Final = TextLimits(depth=32)

_TOKEN: Final = re.compile(
    r"[ \t\n\r]*([\[{\]},:]|'(?:[^'\\\n\r]|\\.)*'|\"(?:[^\"\\\n\r]|\\.)*\""
    r"|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![0-9A-Za-z_.])"
    r"|(?:True|False|None)(?![0-9A-Za-z_]))[ \t\n\r]*",
    re.ASCII | re.DOTALL,
)
_NAMES: Final = {"True": "true", "False": "false", "None": "null"}
# CPython 3.11 counts the depth of all syntax trees under way together, and raises SystemError where two threads build
# one (python/cpython issue 106905).
_PARSING: Final = Lock()


def read_python_value(text: str) -> JsonValue | None:
    """Returns the list or dict that a text spells as one Python literal of only JSON values, or None. Never raises. Its
    tokens are those of JSON, but for the spelling of texts and names and a comma at the end. They are joined to a JSON
    text, and the strict reader says whether they are in order."""
    text = text.strip(_SPACE)
    if text[:1] not in ("[", "{") or len(text) > _MAX_TEXT or not (tokens := _split(text)):
        return None
    quoted = ",".join(token for token in tokens if token[0] in "'\"")
    try:
        with _PARSING, warnings.catch_warnings():  # the filters are those of the whole process
            warnings.simplefilter("error")  # an escape that Python does not know has no defined meaning: refuse it
            texts = iter(ast.literal_eval(f"[{quoted}]"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    written = [json.dumps(next(texts)) if token[0] in "'\"" else _NAMES.get(token, token) for token in tokens]
    value = parse(" ".join(written).encode(), _LIMITS)
    return None if isinstance(value, JsonProblem) else value


def _split(text: str) -> list[str]:
    """The tokens of a literal, without commas at the end of a list or dict; none for any other text."""
    tokens: list[str] = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or len(tokens) == _MAX_TOKENS:
            return []
        if found[1] in "]}" and tokens[-1:] == [","] and tokens[-2] not in ("[", "{", ",", ":"):
            tokens.pop()
        tokens.append(found[1])
        at = found.end()
    return tokens
