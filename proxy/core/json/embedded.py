"""JSON values inside other text: in prose, and spelt as Python literals. Pure, and linear in the length of the text.

`find_embedded` finds JSON in prose, `Here is the result: {...}`: each outermost object and array, as bytes and value. A
text that ends inside a bracket may have been cut off, and then nothing in it is what was meant: there is no result.
Brackets of prose (`[sic]`, `{ }` around words) hold no JSON and are passed over.

`read_python_value` reads `"['a', 'b']"` as the list that it spells, and nothing else. A literal counts only if it
consists of JSON values alone: lists, dicts with text keys, text, numbers in JSON's spelling (which they keep), True,
False, None. The text is split into tokens first, so that Python's own parser never sees an operator, a name or a deep
nesting, and its cost stays in proportion to the length.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from threading import RLock
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
_MAX_DEPTH: Final = 32
_MAX_TOKENS: Final = 50_000

_NUMBER: Final = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![0-9A-Za-z_.])"
_TOKEN: Final = re.compile(
    r"[ \t\n\r]*(?:(?P<open>[\[{])|(?P<close>[\]}])|(?P<between>[,:])"
    r"|'(?:[^'\\\n\r]|\\.)*'|\"(?:[^\"\\\n\r]|\\.)*\""
    rf"|{_NUMBER}|(?:True|False|None)(?![0-9A-Za-z_]))[ \t\n\r]*",
    re.ASCII | re.DOTALL,
)
_PARSING: Final = RLock()
_JSON_NUMBER: Final = re.compile(_NUMBER, re.ASCII)


def read_python_value(text: str) -> JsonValue | None:
    """The list or dict that a text spells as one Python literal of JSON values alone, or None. Never raises."""
    text = text.strip(_SPACE)
    if text[:1] not in ("[", "{") or len(text) > _MAX_TEXT or not _is_literal(text):
        return None
    try:
        with _PARSING, warnings.catch_warnings():  # the filters are those of the whole process
            warnings.simplefilter("error")  # an escape that Python does not know has no defined meaning: refuse it
            tree = parse_expression(text)
        lines = [line.encode("utf-8", "surrogatepass") for line in re.split("\r\n|\r|\n", text)]
        written = _write_tree(tree, lines)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    value = parse(written.encode("utf-8", "surrogatepass"))
    return None if isinstance(value, JsonProblem) else value


def parse_expression(text: str) -> ast.expr:
    """The syntax tree of a Python expression. Raises SyntaxError, ValueError, RecursionError or MemoryError.

    One thread at a time: CPython 3.11 counts the depth of all trees under way together, and raises SystemError where
    two threads build one (python/cpython issue 106905).
    """
    with _PARSING:
        return ast.parse(text, mode="eval").body


def _is_literal(text: str) -> bool:
    """Whether a text consists only of a literal's tokens, few and not too deep. Two adjacent values are refused: Python
    joins two adjacent texts, but a model that wrote them forgot a comma."""
    at = depth = 0
    after_value = False
    for _ in range(_MAX_TOKENS):
        found = _TOKEN.match(text, at)
        if found is None or (after_value and found.lastgroup is None):
            return False
        after_value = found.lastgroup is None
        depth += (found["open"] is not None) - (found["close"] is not None)
        if depth > _MAX_DEPTH:
            return False
        at = found.end()
        if at == len(text):
            return depth == 0
    return False


def _write_tree(tree: ast.expr, lines: list[bytes]) -> str:
    """JSON text of a literal's syntax tree. Raises ValueError for what is not a JSON value."""
    if isinstance(tree, ast.List):
        return "[" + ",".join(_write_tree(item, lines) for item in tree.elts) + "]"
    if isinstance(tree, ast.Dict):
        pairs = [
            _write_tree(_text_key(key), lines) + ":" + _write_tree(item, lines)
            for key, item in zip(tree.keys, tree.values, strict=True)
        ]
        return "{" + ",".join(pairs) + "}"
    if isinstance(tree, ast.Constant) and (tree.value is None or isinstance(tree.value, str | bool)):
        return json.dumps(tree.value)
    source = lines[tree.lineno - 1][tree.col_offset : tree.end_col_offset].decode()
    if tree.lineno != tree.end_lineno or not _JSON_NUMBER.fullmatch(source):
        raise ValueError("no JSON value")
    return source


def _text_key(key: ast.expr | None) -> ast.expr:
    if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
        raise ValueError("keys of an object are strings")
    return key
