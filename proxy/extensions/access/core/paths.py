"""Paths in arguments as the service may read them: escapes decoded, `.` and `..` resolved. Pure.

A rule about arguments holds for what was sent and for this reading of it, so that `/data/../etc/passwd` and
`/data/%2e%2e/etc/passwd` are no paths below `/data/`. What only the service knows stays open: links in its file system,
names that it expands (`~`, `$HOME`), and file systems that ignore case.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final
from urllib.parse import unquote_to_bytes

from proxy.core.model.values import JsonValue

# How often a text may be escaped; one that still changes then is refused.
_MOST_DECODED: Final = 5
# RFC 3986 section 3: the scheme and the authority, which hold no path.
_BEFORE_PATH: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/]*")


class UnclearPathError(ValueError):
    """A path that nobody can say the meaning of: escaped too often, not UTF-8, or with a control character."""


def resolve_paths(value: JsonValue) -> JsonValue:
    """A value with every text that is a path resolved; the same object where none is another one then. Raises
    UnclearPathError."""
    if isinstance(value, str):
        return resolve_path(value)
    if isinstance(value, list):
        return [resolve_paths(item) for item in value]
    if isinstance(value, dict):
        return {key: resolve_paths(item) for key, item in value.items()}
    return value


def resolve_path(text: str) -> str:
    """A path with its escapes decoded, in its compatibility form, with `/` for `\\`, and without `.`, `..` and empty
    segments. A text without any slash or dot segment is no path and stays. Raises UnclearPathError."""
    plain = unicodedata.normalize("NFKC", _decode(text)).replace("\\", "/")
    if "/" not in plain and plain not in (".", ".."):
        return text
    if any(ord(character) < 32 or ord(character) == 127 for character in plain):
        raise UnclearPathError("a control character stands in it")
    head = found[0] if (found := _BEFORE_PATH.match(plain)) else ""
    path = plain[len(head) :]
    kept: list[str] = []
    steps = path.split("/")
    for step in steps:
        if step == ".." and kept and kept[-1] != "..":
            kept.pop()
        elif step not in ("", ".") and (step != ".." or not path.startswith("/")):
            kept.append(step)
    is_folder = steps[-1] in ("", ".", "..") and bool(kept)
    return head + ("/" if path.startswith("/") else "") + "/".join(kept) + ("/" if is_folder else "")


def _decode(text: str) -> str:
    for _ in range(_MOST_DECODED):
        if "%" not in text:
            return text
        try:
            decoded = unquote_to_bytes(text.encode("utf-8", "surrogatepass")).decode("utf-8")
        except UnicodeDecodeError:
            raise UnclearPathError("its escapes are not UTF-8") from None
        if decoded == text:
            return text
        text = decoded
    raise UnclearPathError("it is escaped too often")
