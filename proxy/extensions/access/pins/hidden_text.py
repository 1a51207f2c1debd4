"""Finds text in a tool's definition that a model reads and a person may overlook: invisible and bidirectional
characters, tag characters, and instructions about other tools ("tool poisoning"). Pure.

A finding is a reason to look, not a proof. Joiners count only between letters and digits of ASCII, where no script
needs them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from proxy.core.json.jsontext import format_pointer
from proxy.core.model.values import JsonValue, Pointer

_BIDIRECTIONAL: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_JOINERS: Final = frozenset("\u200c\u200d")
# Letters that show nothing.
_BLANK: Final = frozenset("\u115f\u1160\u3164\uffa0\u2800")
_LAYOUT: Final = frozenset("\n\r\t")
# A code point of each of these is named by its block.
_TAGS: Final = range(0xE0000, 0xE0080)
_SELECTORS: Final = (range(0xFE00, 0xFE0F), range(0xE0100, 0xE01F0))
# The words that give a model orders about a tool, and their greatest distance before its name.
_ORDERS: Final = re.compile(
    r"\b(call|use|using|invoke|run|execute|prefer|avoid|ignore|instead of|before|after|never|always|must|first)\b",
    re.IGNORECASE,
)
_BEFORE: Final = 60
_WORD: Final = re.compile(r"[\w.-]*\w")
# A name that does not occur in a sentence by chance.
_DISTINCT: Final = re.compile(r"[_.\-0-9]|[a-z][A-Z]")
_MOST: Final = 20


def find_hidden(definition: Mapping[str, JsonValue], name: str, others: Collection[str]) -> list[str]:
    """The suspicious parts of a tool's definition, each with its place. `others`: the names of all tools."""
    found: list[str] = []
    for path, text in _list_texts({"name": name, **definition}, ()):
        place = format_pointer(path)
        found += [f"{place}: {what}" for what in (*_find_characters(text), *_find_orders(text, name, others))]
        if len(found) >= _MOST:
            break
    return found[:_MOST]


def _list_texts(value: JsonValue, path: Pointer) -> Iterator[tuple[Pointer, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield path, key
            yield from _list_texts(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _list_texts(item, (*path, index))


def _find_characters(text: str) -> Iterator[str]:
    """The first character of each kind that does not show, with its offset."""
    if text.isascii() and text.isprintable():
        return
    kinds: set[str] = set()
    for offset, character in enumerate(text):
        kind = _name_kind(character, text[max(0, offset - 1) : offset] + text[offset + 1 : offset + 2])
        if kind and kind not in kinds:
            kinds.add(kind)
            yield f"{kind} U+{ord(character):04X} at character {offset + 1}"


def _name_kind(character: str, beside: str) -> str:
    """The kind of an invisible character; '' for a visible one."""
    code = ord(character)
    if character in _BIDIRECTIONAL:
        return "bidirectional control character"
    if code in _TAGS:
        return "tag character"
    if character in _JOINERS:
        return "invisible character" if beside.isascii() else ""
    if character in _BLANK or any(code in block for block in _SELECTORS):
        return "invisible character"
    category = unicodedata.category(character)
    if category == "Cc" and character not in _LAYOUT:
        return "control character"
    return "invisible character" if category == "Cf" else ""


def _find_orders(text: str, name: str, others: Collection[str]) -> Iterator[str]:
    """The names of other tools that a text gives orders about."""
    for found in _WORD.finditer(text):
        other = found[0]
        if other == name or other not in others:
            continue
        before = text[max(0, found.start() - _BEFORE) : found.start()]
        is_named = before.endswith(("`", "'", '"')) or _DISTINCT.search(other) is not None
        if is_named and _ORDERS.search(before) is not None:
            yield f"an instruction about the tool {other!r} at character {found.start() + 1}"
            return
