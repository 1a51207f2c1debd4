"""Finds the place of a value in a JSON text, so that an adapter can cut arguments out of a body or replace them without
changing any other byte.

Only for texts that `jsontext.parse` has accepted: this scanner checks nothing, and relies on unique keys.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from proxy.core.json.jsontext import dumps, format_pointer, parse
from proxy.core.model.values import ABSENT, JsonProblem, JsonValue, Pointer

_SPACE: Final = re.compile(rb"[ \t\n\r]*")
_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_SCALAR: Final = re.compile(rb"[^ \t\n\r,\]}]+")
# The expressions are possessive throughout, so they never backtrack. They match: the next bracket, past strings and
# everything else that is not a bracket; a key with its colon; the comma between two members.
_BRACKET: Final = re.compile(rb'[^"{}\[\]]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"{}\[\]]*+)*+[{}\[\]]', re.DOTALL)
_KEY: Final = re.compile(rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"[ \t\n\r]*+:[ \t\n\r]*+', re.DOTALL)
_MARK: Final = re.compile(rb'["{}\[\]]')
_QUOTE: Final = ord('"')
_BACKSLASH: Final = ord("\\")
# Bytes from which a container counts as large.
_LARGE: Final = 256 * 1024
_BETWEEN: Final = re.compile(rb"[ \t\n\r]*+,?[ \t\n\r]*+")


def find_span(text: bytes, path: Pointer) -> tuple[int, int]:
    """The offsets of the first byte of the value at `path` and of the byte behind it, or raises LookupError."""
    start = _skip(text, 0)
    for step in path:
        start = next((at for name, at in _list_members(text, start) if str(name) == str(step)), -1)
        if start < 0:
            raise LookupError(format_pointer(path))
    return start, _end(text, start)


_read_texts: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def cut_value(text: bytes, path: tuple[str, ...]) -> bytes:
    """Returns the text of the value at `path`, or raises LookupError. Takes a tenth of the time of `find_span`."""
    inner: bytes | msgspec.Raw = text
    try:
        for step in path:
            inner = _read_texts(inner)[step]
    except (ValueError, RecursionError):  # such as a text that is too deep for this reader
        return text[slice(*find_span(text, path))]
    return bytes(inner)


def read_members(text: bytes, names: Container[str]) -> dict[str, JsonValue | JsonProblem]:
    """The outer members of an object: the values of those in `names`, ABSENT for all others. The depth and the size of
    the others do not count. It takes any text, and of equal keys the last one."""
    with suppress(ValueError, RecursionError):
        return {name: parse(bytes(each)) if name in names else ABSENT for name, each in _read_texts(text).items()}
    start = _skip(text, 0)
    members = _list_members(text, start) if text[start : start + 1] == b"{" else ()
    return {str(name): parse(text[at : _end(text, at)]) if name in names else ABSENT for name, at in members}


def replace_value(text: bytes, path: Pointer, new: bytes) -> bytes:
    """The body with the value at `path` replaced; a missing member is added to its object."""
    try:
        start, end = find_span(text, path)
    except LookupError:
        return _add_member(text, path, new)
    return text[:start] + new + text[end:]


def replace_values(text: bytes, changes: Mapping[Pointer, bytes]) -> bytes:
    """The text with the values at these places replaced, in one pass. Raises LookupError for a place without one."""
    if () in changes:
        return replace_value(text, (), changes[()])
    tree: dict[str | int, Any] = {}
    for path, new in changes.items():
        inner = tree
        for step in path[:-1]:
            inner = inner.setdefault(step, {})
        inner[path[-1]] = new
    spans: list[tuple[int, int, bytes]] = []
    _collect(text, _skip(text, 0), tree, spans)
    if len(spans) != len(changes):
        raise LookupError("a place to be rewritten is not there")
    parts, done = list[bytes](), 0
    for start, end, new in spans:
        parts += (text[done:start], new)
        done = end
    return b"".join((*parts, text[done:]))


def _add_member(text: bytes, path: Pointer, new: bytes) -> bytes:
    """The body with a missing member added. A value in the place of a needed object (such as null) is replaced."""
    parents, member = path[:-1], dumps(str(path[-1])) + b":" + new
    try:
        start, end = find_span(text, parents)
    except LookupError:
        return _add_member(text, parents, b"{" + member + b"}")
    if text[start : start + 1] != b"{":
        return text[:start] + b"{" + member + b"}" + text[end:]
    rest = text[start + 1 : end]
    return text[: start + 1] + member + (b"" if rest.strip() == b"}" else b",") + rest + text[end:]


def _skip(text: bytes, at: int, over: re.Pattern[bytes] = _SPACE) -> int:
    found = over.match(text, at)
    return at if found is None else found.end()


def _end(text: bytes, at: int) -> int:
    """The offset behind the value that begins at `at`."""
    opening = text[at : at + 1]
    if opening not in (b"{", b"["):
        return _skip(text, at, _STRING if opening == b'"' else _SCALAR)
    depth = 0
    if len(text) - at > _LARGE:
        return _end_of_large(text, at)
    while (found := _BRACKET.match(text, at)) is not None:
        at = found.end()
        depth += 1 if text[at - 1] in b"{[" else -1
        if depth == 0:
            return at
    return len(text)


def _end_of_large(text: bytes, at: int) -> int:
    """The same for a large container: a long string is passed by searching for its end, many times as fast."""
    depth = 0
    while (found := _MARK.search(text, at)) is not None:
        at = found.end()
        mark = text[at - 1]
        if mark == _QUOTE:
            at = _end_of_string(text, at)
        else:
            depth += 1 if mark in b"{[" else -1
            if depth == 0:
                return at
    return len(text)


def _end_of_string(text: bytes, at: int) -> int:
    """The offset behind the string whose first character is at `at`."""
    while (end := text.find(b'"', at)) >= 0:
        last = end - 1
        while text[last] == _BACKSLASH:
            last -= 1
        if (end - last) % 2:
            return end + 1
        at = end + 1
    return len(text)


def _collect(text: bytes, at: int, tree: Mapping[str | int, Any], spans: list[tuple[int, int, bytes]]) -> None:
    for step, start in _list_members(text, at):
        change = tree.get(step)
        if isinstance(change, dict):
            _collect(text, start, change, spans)
        elif change is not None:
            spans.append((start, _end(text, start), change))


def _list_members(text: bytes, at: int) -> Iterator[tuple[str | int, int]]:
    """The name or index of each member of the container at `at`, and where its value begins; nothing for a scalar."""
    kind, index = text[at : at + 1], 0
    if kind not in (b"{", b"["):
        return
    at = _skip(text, at + 1)
    while text[at : at + 1] not in (b"}", b"]", b""):
        step: str | int = index
        if kind == b"{" and (key := _KEY.match(text, at)) is not None:
            name = key[1].decode("utf-8", "replace")
            step, at = (str(parse(b'"' + key[1] + b'"')) if "\\" in name else name), key.end()
        yield step, at
        behind = _skip(text, _end(text, at), _BETWEEN)
        if behind <= at:
            return  # not JSON
        at = behind
        index += 1
