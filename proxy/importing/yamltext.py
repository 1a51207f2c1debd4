"""A JSON value as YAML text that `config/files/yaml12.py` reads back as the same value, laid out as a person would.

Plain text where it can only mean itself, block text for what has several lines, JSON's own quotes for the rest: a
JSON string is a double-quoted YAML scalar (YAML 1.2 section 1.3, of which JSON is meant to be a subset).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from proxy.config.files.yaml12 import read_scalar
from proxy.core.json.jsontext import dumps
from proxy.core.model.values import JsonValue

WIDTH: Final = 100  # columns that a list may fill before it is written one item a line
# What needs no quotes: begins and ends with a letter or digit, and has nothing YAML reads as a sign of its own.
_PLAIN: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_./()$+-]*(?: [A-Za-z0-9_./()$+-]+)*")
_PATH: Final = re.compile(r"/[A-Za-z0-9_./-]*|https?://[A-Za-z0-9_./:-]*[A-Za-z0-9_/-]")
# What a block scalar can hold: printable lines without blanks at either end that would be lost or would indent.
_LINE: Final = re.compile(r"(?:[^\s\x00-\x1f\x7f-\xa0\u2028\u2029\ufeff\ud800-\udfff](?:.*\S)?)?")
_UNPRINTABLE: Final = re.compile(
    r"[^\t\n\x20-\x7e\xa1-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]|[\u2028\u2029]"
)


def write_yaml(value: JsonValue, indent: int = 0) -> str:
    """A JSON value (numbers as `jsontext.parse` gives them) as YAML lines that end in a line break."""
    return "".join(f"{line}\n" for line in _block(value, indent))


def write_scalar(text: str) -> str:
    """One line of YAML for a text: as it is where that is safe, else quoted."""
    plain = _PLAIN.fullmatch(text) or _PATH.fullmatch(text)
    if plain and read_scalar(text) == text and not text.endswith(":"):
        return text
    return _quoted(text)


def _quoted(text: str) -> str:
    """JSON's quotes, with everything escaped that YAML would not take as it is (section 5.1, printable)."""
    return _UNPRINTABLE.sub(lambda found: _escape(found[0]), dumps(text).decode())


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _block(value: JsonValue, indent: int) -> Iterator[str]:
    pad = " " * indent
    if (short := _flow(value)) is not None and indent + len(short) <= WIDTH:
        yield pad + short
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _entry(f"{pad}{write_scalar(key)}:", item, indent + 2)
    elif isinstance(value, list):
        for item in value:
            first, *rest = _block(item, indent + 2)
            yield f"{pad}- {first[indent + 2 :]}"
            yield from rest
    else:
        yield pad + _one_line(value)


def _entry(head: str, item: JsonValue, indent: int) -> Iterator[str]:
    """A key with its value: beside it where it fits, else below."""
    if isinstance(item, str) and _is_blocky(item):
        yield f"{head} |-"
        yield from (f"{' ' * indent}{line}".rstrip() for line in item.split("\n"))
        return
    short = _flow(item)
    if short is not None and len(head) + 1 + len(short) <= WIDTH:
        yield f"{head} {short}"
    elif isinstance(item, dict | list):
        yield head
        yield from _block(item, indent)
    else:
        yield f"{head} {_one_line(item)}"


def _is_blocky(text: str) -> bool:
    lines = text.split("\n")
    printable = not _UNPRINTABLE.search(text) and "\t" not in text
    return len(lines) > 1 and bool(lines[0] and lines[-1]) and printable and all(map(_LINE.fullmatch, lines))


def _flow(value: JsonValue) -> str | None:
    """The value on one line; None for a mapping, and for a list of more than single values."""
    if isinstance(value, dict | list) and value:
        if isinstance(value, dict) or any(isinstance(item, dict | list) and item for item in value):
            return None
        return f"[{', '.join(map(_one_line, value))}]"  # nothing that is plain has a `,` or a bracket
    return _one_line(value)


def _one_line(value: JsonValue) -> str:
    return write_scalar(value) if isinstance(value, str) else dumps(value).decode()
