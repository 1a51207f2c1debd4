"""Python literals in text: reads `"['a', 'b']"` as the list that it spells, and nothing else.

A literal counts only if it consists of JSON values alone: lists, dicts with text keys, text, numbers in JSON's spelling
(which they keep), True, False, None. The text is split into tokens first, so that Python's own parser never sees an
operator, a name or a deep nesting, and its cost stays in proportion to the length.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from typing import Final

from proxy.core.json.jsontext import parse
from proxy.core.model.values import JsonProblem, JsonValue

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
_JSON_NUMBER: Final = re.compile(_NUMBER, re.ASCII)


def read_python_value(text: str) -> JsonValue | None:
    """The list or dict that a text spells as one Python literal of JSON values alone, or None. Never raises."""
    text = text.strip(_SPACE)
    if text[:1] not in ("[", "{") or len(text) > _MAX_TEXT or not _is_literal(text):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # an escape that Python does not know has no defined meaning: refuse it
            tree = ast.parse(text, mode="eval").body
        lines = [line.encode("utf-8", "surrogatepass") for line in re.split("\r\n|\r|\n", text)]
        written = _write_tree(tree, lines)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    value = parse(written.encode("utf-8", "surrogatepass"))
    return None if isinstance(value, JsonProblem) else value


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
