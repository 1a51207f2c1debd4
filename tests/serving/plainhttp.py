"""A second, plain reading of HTTP/1 requests, to hold the proxy against: it shares no code with it and no parser.

It knows the one strict way of RFC 9112 and stops at the first byte that departs from it. The requests that it reads are
those that may reach an upstream: as many as these, framed like these.
"""

from __future__ import annotations

from dataclasses import dataclass

TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


class NoRequest(Exception):  # noqa: N818 - it is not an error: half of the cases are meant to end here
    """The next bytes are not a request, or not a whole one."""


@dataclass(frozen=True)
class Request:
    """One request. Header names in lower case; `body` decoded from its chunks."""

    method: str
    target: str
    version: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def values(self, name: str) -> list[str]:
        """All values of a header."""
        return [value for key, value in self.headers if key == name]


def requests(raw: bytes) -> tuple[list[Request], bytes]:
    """The requests at the beginning of `raw`, and the rest from the first byte that begins no request."""
    found: list[Request] = []
    while raw:
        try:
            request, raw = one(raw)
        except NoRequest:
            break
        found.append(request)
    return found, raw


def one(raw: bytes) -> tuple[Request, bytes]:
    """The first request and what follows it. One empty line may precede it. Raises NoRequest."""
    lines, rest = head(raw.removeprefix(b"\r\n"))
    parts = lines[0].split(" ")
    if len(parts) != 3 or not parts[0] or set(parts[0]) - TOKEN or not parts[1] or "#" in parts[1]:
        raise NoRequest
    if parts[2] not in ("HTTP/1.1", "HTTP/1.0") or not all("!" <= character <= "~" for character in parts[1]):
        raise NoRequest
    fields = tuple(field(line) for line in lines[1:])
    made = Request(parts[0], parts[1], parts[2], fields, b"")
    if parts[2] == "HTTP/1.1" and len(made.values("host")) != 1:
        raise NoRequest
    lengths, codings = made.values("content-length"), made.values("transfer-encoding")
    if codings:
        if lengths or parts[2] == "HTTP/1.0" or [coding.lower() for coding in codings] != ["chunked"]:
            raise NoRequest
        body, rest = chunks(rest)
    else:
        if len(lengths) > 1 or any(not length.isascii() or not length.isdigit() for length in lengths):
            raise NoRequest
        size = int(lengths[0]) if lengths else 0
        if len(rest) < size:
            raise NoRequest
        body, rest = rest[:size], rest[size:]
    return Request(parts[0], parts[1], parts[2], fields, body), rest


def head(raw: bytes) -> tuple[list[str], bytes]:
    """The lines of a head, each ended by CR LF and nothing else, and what follows the empty one."""
    part, end, rest = raw.partition(b"\r\n\r\n")
    lines = part.decode("latin-1").split("\r\n")
    if not end or any(character in line for line in lines for character in "\r\n\0"):
        raise NoRequest
    return lines, rest


def field(line: str) -> tuple[str, str]:
    """One header."""
    name, colon, value = line.partition(":")
    if not colon or not name or set(name) - TOKEN:
        raise NoRequest
    if any((character < " " and character != "\t") or character == "\x7f" for character in value):
        raise NoRequest
    return name.lower(), value.strip(" \t")


def chunks(raw: bytes) -> tuple[bytes, bytes]:
    """The body in chunks, and what follows its trailers."""
    body = b""
    while True:
        line, end, raw = raw.partition(b"\r\n")
        size, _, extension = line.partition(b";")
        if not end or not size or set(size) - set(b"0123456789abcdefABCDEF") or set(extension) & set(b"\r\n\0"):
            raise NoRequest
        length = int(size, 16)
        if not length:
            return body, trailers(raw)
        if raw[length : length + 2] != b"\r\n":
            raise NoRequest
        body, raw = body + raw[:length], raw[length + 2 :]


def trailers(raw: bytes) -> bytes:
    """Returns what follows the trailers."""
    while True:
        line, end, raw = raw.partition(b"\r\n")
        if not end:
            raise NoRequest
        if not line:
            return raw
        field(line.decode("latin-1"))
