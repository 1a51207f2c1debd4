"""The Unicode rules of our answers: where a text may be cut, and how it is shown on one line.

A cut never falls inside what a reader sees as one character (Acode NFR-007). The rules are those of UAX #29
(extended grapheme clusters) as far as `unicodedata` supports them: GB3 (CR LF), GB6-8 (Hangul syllables), GB9 and GB9a
(no break before marks, joiners, emoji modifiers, tags), GB9c (no break after a virama), GB11 (no break after a zero
width joiner), GB12-13 (flags are pairs of regional indicators). GB9b (prepended marks, 27 rare characters) is left out.

`escape` writes every character that could control a terminal, a log or a model's reading as `\\uXXXX`: C0 and C1
controls, line and paragraph separators, bidirectional controls, invisible characters, lone surrogates.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_SHORT_ESCAPES: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
# The flag of a region (black flag and tags) is an emoji and is kept; tags anywhere else are invisible text.
_UNSAFE: Final = re.compile(
    "(?P<flag>\U0001f3f4[\U000e0020-\U000e007f]{1,16})"
    "|[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
    "|[\U000e0000-\U000e0fff]"
)
_UNSAFE_OR_QUOTE: Final = re.compile(_UNSAFE.pattern + r'|["\\]')
# Joiners, halfwidth voiced marks, and two vowels that extend a character without being marks (Thai, Lao AM).
_MORE_EXTENDING: Final = "\u200c\u200d\uff9e\uff9f\u0e33\u0eb3"
_REGIONAL: Final = re.compile("[\U0001f1e6-\U0001f1ff]")
# The Hangul syllable types that stay together.
_HANGUL_PAIRS: Final = frozenset({
    ("L", "L"), ("L", "V"), ("L", "LV"), ("L", "LVT"), ("LV", "V"), ("LV", "T"), ("V", "V"), ("V", "T"),
    ("LVT", "T"), ("T", "T"),
})  # fmt: skip
# A value in quotes, which may be cut off, or the end of a part.
_PART: Final = re.compile(r"(?<!\w)'[^'\n]*(?:'|\Z)|(?P<end>, | \| |; )|.", re.DOTALL)
_SURROGATES: Final = re.compile("[\ud800-\udfff]")


def cut(text: str, limit: int) -> str:
    """At most `limit` code points of `text`, ending with `...` where it is shortened; no character is split."""
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
    while 0 < index < len(text) and _is_joined(text, index):
        index -= 1
    return index


def _is_joined(text: str, index: int) -> bool:
    """Whether the characters before and at `index` belong to one grapheme cluster."""
    before, after = text[index - 1], text[index]
    if before.isascii() and after.isascii():
        return before == "\r" and after == "\n"
    if (
        before == "\u200d"
        or after in _MORE_EXTENDING
        or "\U0001f3fb" <= after <= "\U0001f3ff"
        or "\U000e0020" <= after <= "\U000e007f"
        or unicodedata.category(after) in ("Mn", "Me", "Mc")
    ):
        return True
    if _REGIONAL.match(before) and _REGIONAL.match(after):  # flags are pairs
        start = index
        while start > 0 and _REGIONAL.match(text[start - 1]):
            start -= 1
        return (index - start) % 2 == 1
    if unicodedata.combining(before) == 9:
        return True
    if "\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff":
        return True
    return (_hangul(before), _hangul(after)) in _HANGUL_PAIRS


def _hangul(character: str) -> str:
    """The Hangul syllable type of a character (Unicode 3.12), '' for all others."""
    code = ord(character)
    if 0x1100 <= code <= 0x115F or 0xA960 <= code <= 0xA97C:
        return "L"
    if 0x1160 <= code <= 0x11A7 or 0xD7B0 <= code <= 0xD7C6:
        return "V"
    if 0x11A8 <= code <= 0x11FF or 0xD7CB <= code <= 0xD7FB:
        return "T"
    if 0xAC00 <= code <= 0xD7A3:
        return "LV" if (code - 0xAC00) % 28 == 0 else "LVT"
    return ""


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
