"""Paths in arguments as services may read them: escapes decoded, look-alikes folded, `.` and `..` resolved. Pure.

A rule about arguments holds for the sent text and for each reading of it, so that `/data/../etc/passwd` and
`/data/%2e%2e/etc/passwd` are not below `/data/`. Services differ in their rewritings (one only decodes escapes, one
reads `\\` as a letter), so a path is read after each of them. Keys of maps are read like values. The readings do not
cover what only the service knows: links in its file system, names that it expands (`~`, `$HOME`), and file systems that
ignore case; nor rare spellings: `%u002e`, other characters that look like a slash, invisible characters within `..`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Final
from urllib.parse import unquote_to_bytes

from proxy.core.model.values import JsonValue

# The most rewritings in a row; a text that still changes after them is refused.
_MOST_REWRITTEN: Final = 8
# The most work for the readings of one call's arguments, in characters: those of each form, and a few for each value. A
# text of 1 MiB may have eight forms.
_MOST_WORK: Final = 8 * 1024 * 1024
_OF_A_VALUE: Final = 4
# RFC 3986 section 3: the scheme and the authority, which hold no path.
_BEFORE_PATH: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/]*")
# A tab or the end of a line, which readers of URLs leave out (WHATWG URL); any other control character is unclear.
_LEFT_OUT: Final = re.compile(r"[\t\n\r]")
# A segment of dots as some services read it: with a path parameter, with a blank behind.
_DOTS: Final = re.compile(r"\.\.? *(;[^/]*)?")
_PARAMETER: Final = re.compile(r"(?<![^/])(\.\.? *);[^/]*")
_BLANK: Final = re.compile(r"(?<![^/])(\.\.?) +(?![^/])")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class UnclearPathError(ValueError):
    """A path without a clear meaning: escaped too often, not UTF-8, or with a control character."""


class _Budget:
    """The rest of the work that the readings of one call may take."""

    def __init__(self) -> None:
        self._left = _MOST_WORK

    def spend(self, work: int) -> None:
        """Raises UnclearPathError where too little is left."""
        self._left -= work
        if self._left < 0:
            raise UnclearPathError("it can be read in too many ways")


def list_readings(value: JsonValue) -> Sequence[JsonValue]:
    """A value with the paths in it as services may read them, one reading after the other. Raises UnclearPathError."""
    return _list_readings(value, _Budget())


def _list_readings(value: JsonValue, budget: _Budget) -> Sequence[JsonValue]:
    if isinstance(value, str):
        return _list_path_readings(value, budget)
    if isinstance(value, list):
        aligned = _align([_list_readings(item, budget) for item in value], budget)
        return [list(reading) for reading in aligned]
    if isinstance(value, dict):
        keys = [_list_path_readings(key, budget) for key in value]
        if len({reading for found in keys for reading in found}) < sum(map(len, keys)):
            raise UnclearPathError("two keys may be the same")
        aligned = _align([*keys, *(_list_readings(item, budget) for item in value.values())], budget)
        return [dict(zip(reading[: len(keys)], reading[len(keys) :], strict=True)) for reading in aligned]
    return [value]


def _align(parts: Sequence[Sequence[JsonValue]], budget: _Budget) -> list[list[JsonValue]]:
    """The readings of parts side by side; one that has fewer keeps its last."""
    most = max(map(len, parts), default=1)
    budget.spend(most * len(parts) * _OF_A_VALUE)
    return [[part[min(at, len(part) - 1)] for part in parts] for at in range(most)]


def _list_path_readings(text: str, budget: _Budget) -> list[str]:
    """The readings of a text, each once: after any of the rewritings, without `.`, `..` and empty segments. One without
    a slash or dot segment is not a path and stays. Raises UnclearPathError."""
    forms, new = [text], [text]
    budget.spend(len(text))
    for _ in range(_MOST_REWRITTEN):
        rewritten = dict.fromkeys(rewrite(form) for form in new for rewrite in _REWRITINGS)
        new = [form for form in rewritten if form not in forms]
        budget.spend(sum(map(len, new)))
        if not new:
            found = [_list_dot_readings(form, budget) if _is_path(form) else [text] for form in forms]
            return list(dict.fromkeys(chain.from_iterable(found)))
        forms += new
    raise UnclearPathError("it is escaped too often")


def _is_path(text: str) -> bool:
    return "/" in text or _DOTS.fullmatch(text) is not None


def _list_dot_readings(text: str, budget: _Budget) -> list[str]:
    """A path as each service resolves it: some leave out what `;` begins (Tomcat), some a blank behind (Windows), so
    `..;x` and `.. ` are `..` to them and a name to others."""
    forms = [text]
    for pattern in (_PARAMETER, _BLANK):
        forms += [form for form in (pattern.sub(r"\1", form) for form in forms) if form not in forms]
    budget.spend(len(text) * (len(forms) - 1))
    return list(map(resolve_path, forms))


def resolve_path(path: str) -> str:
    """A path without `.`, `..` and empty segments. Raises UnclearPathError."""
    if _CONTROL.search(path):
        raise UnclearPathError("a control character stands in it")
    head = found[0] if (found := _BEFORE_PATH.match(path)) else ""
    path = path[len(head) :]
    kept: list[str] = []
    steps = path.split("/")
    for step in steps:
        if step == ".." and kept and kept[-1] != "..":
            kept.pop()
        elif step not in ("", ".") and (step != ".." or not path.startswith("/")):
            kept.append(step)
    is_folder = steps[-1] in ("", ".", "..") and bool(kept)
    return head + ("/" if path.startswith("/") else "") + "/".join(kept) + ("/" if is_folder else "")


# --- rewritings of a text by services, before they read a path --------------------------------------------------------
def _decode(text: str) -> str:
    if "%" not in text:
        return text
    try:
        return unquote_to_bytes(text.encode("utf-8", "surrogatepass")).decode("utf-8")
    except UnicodeDecodeError:
        raise UnclearPathError("its escapes are not UTF-8") from None


def _fold(text: str) -> str:
    """The compatibility form, in which a fullwidth `．`, `／` or `％` is the plain one."""
    return unicodedata.normalize("NFKC", text)


def _replace_backslashes(text: str) -> str:
    return text.replace("\\", "/")


def _leave_out(text: str) -> str:
    return _LEFT_OUT.sub("", text)


_REWRITINGS: Final[tuple[Callable[[str], str], ...]] = (_decode, _fold, _replace_backslashes, _leave_out)
