"""`multipart/form-data` (RFC 7578), read strictly: what two parsers could take apart differently is not read. Pure.

A part is `Content-Disposition: form-data; name="..."`, with `filename="..."` for a file. Contents stay as they came.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_BOUNDARY: Final = re.compile(
    r"""(?:^|;)\s*boundary=(?:"([^"\r\n]{1,70})"|([^\s";,]{1,70}))\s*(?:;|$)""", re.IGNORECASE
)
_FIELD: Final = re.compile(rb"([A-Za-z-]+):[ \t]*([^\r\n\0]*)")
_DISPOSITION: Final = re.compile(r'form-data((?:; ?(?:name|filename)="[^"\r\n]*")+)')
_PARAMETER: Final = re.compile(r'; ?(name|filename)="([^"\r\n]*)"')
_MOST_PARTS: Final = 1000
_KNOWN: Final = frozenset({"content-disposition", "content-type"})


@dataclass(frozen=True, slots=True)
class Part:
    """One part: its name, its file's name (None where it is no file), its type, and where its content stands."""

    name: str
    filename: str | None
    media_type: str
    start: int
    end: int


def find_boundary(content_type: str) -> str:
    """The boundary that a Content-Type names, '' where it names none or several."""
    found = _BOUNDARY.findall(content_type.partition(";")[2])
    return found[0][0] or found[0][1] if len(found) == 1 else ""


def split_parts(body: bytes, boundary: str) -> list[Part] | None:
    """The parts of a body; None where it is not what RFC 7578 describes."""
    line = b"--" + boundary.encode("ascii", "replace")
    if not boundary or not body.startswith(line + b"\r\n"):
        return None
    parts: list[Part] = []
    at = len(line) + 2
    while len(parts) < _MOST_PARTS:
        end = body.find(b"\r\n" + line, at)
        head, blank, _ = body[at : at + 4096].partition(b"\r\n\r\n")
        if end < 0 or not blank or at + len(head) + 2 > end:
            return None
        part = _part(head, at + len(head) + 4, end)
        if part is None:
            return None
        parts.append(part)
        rest = end + 2 + len(line)
        if body[rest : rest + 2] == b"--":
            return parts if body[rest + 2 :] in (b"", b"\r\n") else None
        if body[rest : rest + 2] != b"\r\n":
            return None
        at = rest + 2
    return None


def _part(head: bytes, start: int, end: int) -> Part | None:
    fields: dict[str, str] = {}
    for line in head.split(b"\r\n"):
        found = _FIELD.fullmatch(line)
        if found is None:
            return None
        name = found[1].decode().lower()
        if name in fields or name not in _KNOWN:
            return None
        try:
            fields[name] = found[2].decode().strip()
        except UnicodeDecodeError:
            return None
    disposition = _DISPOSITION.fullmatch(fields.get("content-disposition", ""))
    if disposition is None:
        return None
    told = _PARAMETER.findall(disposition[1])
    said = dict(told)
    if len(said) != len(told) or "name" not in said or "\\" in disposition[1]:
        return None
    return Part(said["name"], said.get("filename"), fields.get("content-type", ""), start, max(start, end))


def join_parts(parts: list[tuple[str, str | None, str, bytes]], boundary: str) -> bytes:
    """A body of parts (name, file name, media type, content)."""
    made = []
    for name, filename, media_type, content in parts:
        file = "" if filename is None else f'; filename="{_quote_text(filename)}"'
        kind = f"\r\ncontent-type: {media_type}" if media_type else ""
        head = f'--{boundary}\r\ncontent-disposition: form-data; name="{_quote_text(name)}"{file}{kind}\r\n\r\n'
        made.append(head.encode() + content + b"\r\n")
    return b"".join(made) + f"--{boundary}--\r\n".encode()


def _quote_text(text: str) -> str:
    """RFC 7578 section 2, as browsers do it."""
    return text.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
