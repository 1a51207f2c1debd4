"""Where a value stands in a JSON text: what lets an adapter cut arguments out of a body, or put repaired ones back,
without touching a byte around them.

Only for texts that `jsontext.parse` has accepted: this scanner checks nothing, and relies on unique keys.
"""

from __future__ import annotations

import re
from typing import Final

from proxy.core.jsontext import dumps, format_pointer, parse
from proxy.core.model import Pointer

_SPACE: Final = re.compile(rb"[ \t\n\r]*")
_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_SCALAR: Final = re.compile(rb"[^ \t\n\r,\]}]+")
# Possessive throughout: what was passed is never looked at again. A bracket, over all that is none and all strings; a
# key with its colon; the comma between two members.
_BRACKET: Final = re.compile(rb'[^"{}\[\]]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"{}\[\]]*+)*+[{}\[\]]', re.DOTALL)
_KEY: Final = re.compile(rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"[ \t\n\r]*+:[ \t\n\r]*+', re.DOTALL)
_BETWEEN: Final = re.compile(rb"[ \t\n\r]*+,?[ \t\n\r]*+")


def span_at(text: bytes, path: Pointer) -> tuple[int, int]:
    """The first byte of the value at `path` and the one after its last. Raises LookupError where there is none."""
    start = _skip(text, 0)
    for step in path:
        start = _child(text, start, step, path)
    return start, _end(text, start)


def spliced(text: bytes, path: Pointer, new: bytes) -> bytes:
    """The body with the value at `path` exchanged; a member that is not there is added to its object."""
    try:
        start, end = span_at(text, path)
    except LookupError:
        return _added(text, path, new)
    return text[:start] + new + text[end:]


def _added(text: bytes, path: Pointer, new: bytes) -> bytes:
    """The body with a member that it lacks; what stands in the way of it (such as null) makes room."""
    parents, member = path[:-1], dumps(str(path[-1])) + b":" + new
    try:
        start, end = span_at(text, parents)
    except LookupError:
        return _added(text, parents, b"{" + member + b"}")
    if text[start : start + 1] != b"{":
        return text[:start] + b"{" + member + b"}" + text[end:]
    rest = text[start + 1 : end]
    return text[: start + 1] + member + (b"" if rest.strip() == b"}" else b",") + rest + text[end:]


def _skip(text: bytes, at: int, over: re.Pattern[bytes] = _SPACE) -> int:
    found = over.match(text, at)
    return at if found is None else found.end()


def _end(text: bytes, at: int) -> int:
    """Where the value that begins at `at` ends."""
    opening = text[at : at + 1]
    if opening not in (b"{", b"["):
        return _skip(text, at, _STRING if opening == b'"' else _SCALAR)
    depth = 0
    while (found := _BRACKET.match(text, at)) is not None:
        at = found.end()
        depth += 1 if text[at - 1] in b"{[" else -1
        if depth == 0:
            return at
    return len(text)


def _child(text: bytes, at: int, step: str | int, path: Pointer) -> int:
    """Where the member or item `step` of the container at `at` begins."""
    kind = text[at : at + 1]
    if kind not in (b"{", b"["):
        raise LookupError(format_pointer(path))
    at = _skip(text, at + 1)
    index, wanted = 0, str(step).encode("utf-8", "surrogatepass")
    while text[at : at + 1] not in (b"}", b"]", b""):
        name = b"%d" % index
        if kind == b"{" and (key := _KEY.match(text, at)) is not None:
            name, at = key[1], key.end()
            if b"\\" in name:
                name = str(parse(b'"' + name + b'"')).encode()
        if name == wanted:
            return at
        at = _skip(text, _end(text, at), _BETWEEN)
        index += 1
    raise LookupError(format_pointer(path))
