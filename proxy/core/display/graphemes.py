"""The Unicode rules of our answers: the places to cut a text, and its form on one line.

A cut never falls inside an extended grapheme cluster of UAX #29, which a reader sees as one character (Acode NFR-007).

`escape` writes every character that could control a terminal, a log or a model's reading as `\\uXXXX`. These are C0 and
C1 controls, line and paragraph separators, bidirectional controls, invisible characters, and lone surrogates.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

# --- templates --------------------------------------------------------------------------------------------------------
_PLACEHOLDER: Final = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")


def find_placeholders(prompt: str) -> frozenset[str]:
    """The names that a text wants filled in."""
    return frozenset(_PLACEHOLDER.findall(prompt))


def fill_placeholders(text: str, values: Mapping[str, str]) -> str:
    """The text with its placeholders filled in. Filled-in text is not searched again."""
    return _PLACEHOLDER.sub(lambda found: values[found[1]], text)


# --- the Unicode rules of our answers ---------------------------------------------------------------------------------
_SHORT_ESCAPES: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
# The flag of a region (black flag and tags) is an emoji and is kept; tags anywhere else are invisible text.
_UNSAFE: Final = re.compile(
    "(?P<flag>\U0001f3f4[\U000e0020-\U000e007f]{1,16})"
    "|[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
    "|[\U000e0000-\U000e0fff]"
)
_UNSAFE_OR_QUOTE: Final = re.compile(_UNSAFE.pattern + r'|["\\]')
# A value in quotes, which may be cut off, or the end of a part.
_PART: Final = re.compile(r"(?<!\w)'[^'\n]*(?:'|\Z)|(?P<end>, | \| |; )|.", re.DOTALL)
_SURROGATES: Final = re.compile("[\ud800-\udfff]")


def cut(text: str, limit: int) -> str:
    """Returns at most `limit` code points of `text`, a shortened one with `...` at its end; no character is split."""
    if len(text) <= limit:
        return text
    return f"{text[: find_boundary(text, limit - 3)]}..." if limit > 3 else "..."[: max(limit, 0)]


def cut_sentences(text: str, limit: int) -> str:
    """At most `limit` code points of a text, ending behind a sentence or else behind a word."""
    if len(text) <= limit:
        return text
    shown = text[: limit - 4]
    end = max(shown.rfind(mark) for mark in (". ", "! ", "? ", "; ")) + 1
    if end <= limit // 2:
        end = shown.rfind(" ")
    return f"{text[:end].rstrip()} ..." if end > limit // 2 else cut(text, limit)


def cut_parts(text: str, limit: int) -> str:
    """At most `limit` code points of a signature or a list of values, ending behind one of its parts: none is cut."""
    if len(text) <= limit:
        return text
    end = 0
    for found in _PART.finditer(text, 0, max(limit - 4, 0)):  # a value in quotes may hold a comma
        if found["end"]:
            end = found.end()
    if end:
        return f"{text[:end].rstrip()} ..."
    return "..."[: max(limit, 0)] if "'" in text[:limit] else cut(text, limit)


def find_boundary(text: str, index: int) -> int:
    """The greatest place at or before `index` where `text` may be cut."""
    if not 0 < index < len(text) or (text[index - 1 : index + 1].isascii() and text[index - 1] != "\r"):
        return index
    import regex  # type: ignore[import-untyped]  # imported here, because a text in ASCII does not need it

    end = 0
    for cluster in regex.finditer(r"\X", text):
        if cluster.end() > index:
            break
        end = cluster.end()
    return end


def escape(text: str, *, quotes: bool = False) -> str:
    """`text` on one line, without anything invisible; with `quotes`, as the inside of a JSON string."""
    if text.isascii() and text.isprintable() and not (quotes and ('"' in text or "\\" in text)):
        return text
    return (_UNSAFE_OR_QUOTE if quotes else _UNSAFE).sub(_escape_match, text)


def _escape_match(found: re.Match[str]) -> str:
    character = found[0]
    if found["flag"]:
        return character
    if character in ('"', "\\"):
        return "\\" + character
    code = ord(character)
    return _SHORT_ESCAPES.get(character) or (f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")


def replace_surrogates(text: str) -> str:
    """`text` as valid Unicode: a lone surrogate becomes U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATES.sub("\ufffd", text)
    return text
