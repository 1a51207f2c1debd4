"""`multipart/form-data` (RFC 7578), read strictly and written. Pure.

A body that two parsers could take apart differently is not read. A part is `Content-Disposition: form-data; name="..."`
with `filename="..."` for a file. Contents stay as they came.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import unquote

from proxy.core.model.value_class import value_class

# --- one rule for the names of an HTTP request ------------------------------------------------------------------------
# One rule for the names of an HTTP request, used for both reading and writing it. Pure.
#
# Services read names differently: one ignores their case, one cuts them at a bracket, one begins a new parameter at
# `;`, one reads a cookie behind a blank. A value whose name some service reads as a declared one is judged under that
# name, or not sent. `fold_name` gives the name that the most lenient of them reads. `list_hidden_names` gives the names
# that some find inside of a value. `read_cookies` gives the cookies, and those that two services read in two ways.

Pairs = list[tuple[str, str]]

# RFC 9110 section 5.6.2.
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
# A cookie within the text of another, as readers of RFC 2109 find it: behind a comma or a blank.
_COOKIE_WITHIN: Final = re.compile(r"[,\s]\s*\"?([^=;,\s\"]+)\"?\s*=")
_FIRST_WORD: Final = re.compile(r"^\s*\"?([^=;,\s\"]+)\"?(?=[,\s]+[^=,\s]|[,\s]*$)")
_ESCAPE: Final = re.compile(r"%[0-9A-Fa-f]{2}")


def fold_name(name: str) -> str:
    """A name as the most lenient frameworks read it: without case, brackets, quotes and outer blanks, cut at a NUL,
    with `_` for `.` and a blank (PHP)."""
    plain = name.partition("\0")[0].strip().strip("\"'").strip()
    return plain.partition("[")[0].casefold().replace(".", "_").replace(" ", "_")


def find_declared(name: str, folded: Mapping[str, str]) -> str | None:
    """The declared name as which some service reads a name of a query or a form. `folded`: folded name -> declared
    name. Spring's data binding takes `!limit` for the default of `limit`, and `_limit` for an unticked one."""
    plain = fold_name(name)
    return folded.get(plain) or (folded.get(plain[1:]) if plain[:1] in ("!", "_") else None)


def list_hidden_names(query: str) -> Iterator[str]:
    """Yields the names behind a `;` in a query or a form. Services that follow HTML 4 (appendix B.2.2) begin a
    parameter there, and `&amp;` is such a place too."""
    if ";" not in query:
        return
    for part in query.split("&"):
        for hidden in part.split(";")[1:]:
            name = hidden.partition("=")[0]
            yield unquote(name.replace("+", " "))


# --- cookies ----------------------------------------------------------------------------------------------------------
def list_cookies(lines: Iterable[str]) -> Pairs:
    """Name and value of each cookie (RFC 6265 section 5.4). The value has its quotes."""
    parts = (part.partition("=") for line in lines for part in line.split(";"))
    return [(name.strip(" \t"), value.strip(" \t")) for name, _, value in parts]


def strip_quotes(value: str) -> str:
    """A cookie's value without the quotes around it."""
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value


def find_doubtful_cookies(
    lines: Iterable[str], declared: Iterable[str], json_text: Container[str] = ()
) -> Iterator[str]:
    """Yields the declared cookies that some service reads differently from `list_cookies`, or reads although that has
    none. The values of those in `json_text` may hold any character."""
    by_fold = {fold_name(name): name for name in declared}
    for line in lines:
        quoted = False  # whether a quote before this part is still open
        for part in line.split(";"):
            name, separator, value = part.partition("=")
            is_padded, value = value != value.strip(" \t"), value.strip(" \t")  # Go and PHP keep the blanks
            within = quoted
            quoted ^= _has_open_quote(part if quoted else value)
            if (cookie := by_fold.get(fold_name(decode_cookie(name)))) is not None:
                is_exact = name.lstrip(" ") == cookie and separator and not within and not is_padded
                if not is_exact or not (cookie in json_text or _is_plain(strip_quotes(value))):
                    yield cookie
            bare = _FIRST_WORD.findall(part)  # a name without a value
            for hidden in (*bare, *_COOKIE_WITHIN.findall(part.strip(" \t"))):
                if (cookie := by_fold.get(fold_name(decode_cookie(hidden)))) is not None:
                    yield cookie


def _has_open_quote(text: str) -> bool:
    """Returns whether a quote that begins in the text does not end in it. A backslash takes the next character's
    meaning."""
    return text.replace("\\\\", "").replace('\\"', "").count('"') % 2 == 1


def _is_plain(value: str) -> bool:
    """RFC 6265 section 4.1.1, cookie-octet, and the comma of lists."""
    return all("!" <= character <= "~" and character not in '";\\' for character in value)


def is_cookie_octets(value: str) -> bool:
    """Returns whether every service reads a written cookie's value unchanged: no list, no quote, no escape."""
    return _is_plain(value) and "," not in value and _ESCAPE.search(value) is None


def decode_cookie(value: str) -> str:
    """The value for services that decode `%XX`."""
    return unquote(value)


def is_token(name: str) -> bool:
    """Returns whether a name can be that of a cookie or a header."""
    return _TOKEN.fullmatch(name) is not None


# --- `multipart/form-data` (RFC 7578) ---------------------------------------------------------------------------------
# One parameter of a media type (RFC 9110 section 5.6.6). Blanks around `=` are no part of it.
_MEDIA_PARAMETER: Final = re.compile(
    r"""[ \t]*;[ \t]*([!#$%&'*+.^_`|~0-9A-Za-z-]+)=(?:"([^"\\\r\n]*)"|([^\s";,]+))[ \t]*"""
)
_BOUNDARY: Final = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]")
_CHARSETS: Final = frozenset({"utf-8", "us-ascii"})
_FIELD: Final = re.compile(rb"([A-Za-z-]+):[ \t]*([^\r\n\0]*)")
_DISPOSITION: Final = re.compile(r'form-data((?:; ?(?:name|filename)="[^"\r\n]*")+)')
_PARAMETER: Final = re.compile(r'; ?(name|filename)="([^"\r\n]*)"')
_MOST_PARTS: Final = 1000
_KNOWN: Final = frozenset({"content-disposition", "content-type"})


@value_class
class Part:
    """One part: its name, its file's name (None if it is not a file), its type, and the place of its content."""

    name: str
    filename: str | None
    media_type: str
    start: int
    end: int


def find_boundary(content_type: str) -> str:
    """The boundary that a Content-Type names (RFC 2046 section 5.1.1), '' where it names none, several, or one in the
    parts of RFC 2231 (`boundary*0`)."""
    parameters = _read_media_parameters(content_type)
    names = [name.partition("*")[0] for name, _ in parameters or ()]
    if names.count("boundary") != 1 or parameters is None:
        return ""
    boundary = dict(parameters).get("boundary", "")
    return boundary if _BOUNDARY.fullmatch(boundary) else ""


def _read_media_parameters(content_type: str) -> Pairs | None:
    """Returns the parameters of a media type, names in lower case; None if the text is not all parameters."""
    _, semicolon, rest = content_type.partition(";")
    rest, found = semicolon + rest, Pairs()
    while rest:
        parameter = _MEDIA_PARAMETER.match(rest)
        if parameter is None:
            return found if not rest.strip(" \t;") else None
        found.append((parameter[1].lower(), parameter[2] if parameter[2] is not None else parameter[3]))
        rest = rest[parameter.end() :]
    return found


def is_field_text(media_type: str) -> bool:
    """Returns whether a field's media type leaves its text in UTF-8 for every reader: no other charset, no parts."""
    parameters = _read_media_parameters(media_type)
    if parameters is None or media_type.lower().startswith("multipart/"):
        return False
    return all(value.lower() in _CHARSETS for name, value in parameters if name.startswith("charset"))


def split_parts(body: bytes, boundary: str) -> list[Part] | None:
    """The parts of a body; None where it breaks RFC 7578."""
    line = b"--" + boundary.encode("ascii", "replace")
    if boundary and body in (line + b"--", line + b"--\r\n"):
        return []  # as clients send a form without fields
    if not boundary or not body.startswith(line + b"\r\n"):
        return None
    parts: list[Part] = []
    at = len(line) + 2
    while len(parts) < _MOST_PARTS:
        end = body.find(b"\r\n" + line, at)
        head, blank, _ = body[at : at + 4096].partition(b"\r\n\r\n")
        if end < 0 or not blank or at + len(head) + 4 > end:
            return None
        if b"\n" + line in body[at:end] or b"\r" + line in body[at:end]:  # begins a part for lenient parsers
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
    pairs = _PARAMETER.findall(disposition[1])
    named = dict(pairs)
    if len(named) != len(pairs) or "name" not in named or "\\" in disposition[1]:
        return None
    return Part(named["name"], named.get("filename"), fields.get("content-type", ""), start, max(start, end))


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
