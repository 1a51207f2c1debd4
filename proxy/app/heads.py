"""Judges the head of a request: one reading of its bytes, or none (RFC 9112). Pure.

Requests are smuggled where two programs read the same bytes differently, so whatever some program is known to read in
another way is refused here, before any parser sees it: bare line feeds, folded fields, spaces before a colon, control
characters, two lengths, a length beside a coding, every coding but `chunked`, two hosts or none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from proxy.core.codes import BAD_REQUEST, HEADERS_TOO_LARGE, ErrorCode


@dataclass(frozen=True, slots=True)
class Malformed:
    """Why bytes are no request of ours, in words for their sender. `status` overrides the code's."""

    message: str
    code: ErrorCode = BAD_REQUEST
    status: int | None = None


@dataclass(frozen=True, slots=True)
class Head:
    """What a head says of what follows it: `length` bytes of body, or `CHUNKED`; or a WebSocket, if we agree."""

    length: int
    upgrade: bool = False


CHUNKED: Final = -1
# All lines together. Single lines and their number have closer bounds, which the parser keeps (`listener.py`).
MAX_HEAD: Final = 64 * 1024
# The length of a body in decimal digits: an exabyte, and nothing that overflows anywhere.
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")

TOO_LARGE: Final = Malformed("The head of the request is too large.", HEADERS_TOO_LARGE)
LATE: Final = Malformed("The head of the request did not arrive in time.", status=408)
_NO_HTTP: Final = Malformed("The request line is not `METHOD target HTTP/1.1`, or the target has a space or a `#`.")
_VERSION: Final = Malformed("Only HTTP/1.1 and HTTP/1.0 are spoken here.")
_NO_LINE_END: Final = Malformed("A line ends in a bare line feed or carriage return: every line ends in CR LF.")
_CONTROL: Final = Malformed("A control character stands in the head.")
_FOLDED: Final = Malformed("A header is folded over two lines: write it on one.")
_SPACE: Final = Malformed("A space stands before the colon of a header.")
_NO_FIELD: Final = Malformed("A line of the head is no header: it has no colon, or an invalid name.")
_NO_HOST: Final = Malformed("HTTP/1.1 wants exactly one Host header.")
_BAD_HOST: Final = Malformed("The Host header is no host and port.")
_TWO_LENGTHS: Final = Malformed("Content-Length stands there twice.")
_BAD_LENGTH: Final = Malformed("Content-Length is no number of bytes.")
_BOTH: Final = Malformed("Content-Length and Transfer-Encoding stand side by side: which one holds?")
_CODING: Final = Malformed("The only Transfer-Encoding taken is a single `chunked`.")
_OLD_CODING: Final = Malformed("HTTP/1.0 knows no Transfer-Encoding.")
_CONNECT: Final = Malformed("This is no forward proxy: CONNECT is not taken.")
_TARGET: Final = Malformed("The target is neither a path nor an http URL.")
_OTHER_HOST: Final = Malformed("The target names another host than the Host header.")
_UPGRADE_BODY: Final = Malformed("A request for a WebSocket has no body.")

# RFC 9110 section 5.6.2 (token), 5.5 (field values: no control but the tab), RFC 9112 section 3. Possessive, so that
# a long head that does not match costs no more than one that does.
_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
FIELD: Final = re.compile(_TOKEN + rb":[\t -~\x80-\xff]*+\r\n")
_HEAD: Final = re.compile(
    rb"(?P<method>" + _TOKEN + rb') (?P<target>[!"$-~]++) HTTP/1\.(?P<minor>[01])\r\n(?:' + FIELD.pattern + rb")*+"
)
_REQUEST_LINE: Final = re.compile(_TOKEN + rb' [!"$-~]++ (?P<version>HTTP/[0-9.]++)')
_ABSOLUTE: Final = re.compile(rb"[Hh][Tt][Tt][Pp][Ss]?://(?P<authority>[^/?@]+)(?:[/?].*)?")
# RFC 9110 section 7.2, RFC 3986 section 3.2.2. It may be empty.
_HOST: Final = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9\-._~%!$&'()*+,;=]*)(?::[0-9]{0,5})?")
_STRAY: Final = re.compile(rb"[\0-\x08\x0b\x0c\x0e-\x1f\x7f]")
_BARE: Final = re.compile(rb"(?<!\r)\n|\r(?!\n)")


def judge(head: bytes) -> Head | Malformed:
    """What a head means. `head` goes from the request line to the line end of its last field."""
    found = _HEAD.fullmatch(head)
    if found is None:
        return _why(head)
    lower = head.lower()
    hosts = lower.count(b"\nhost:")
    if hosts != 1 and (hosts or found["minor"] == b"1"):
        return _NO_HOST
    host = _value(lower, b"\nhost:") if hosts else b""
    if not _HOST.fullmatch(host):
        return _BAD_HOST
    wrong = None if found["target"][0] == 0x2F else _other_target(found["method"], found["target"], host, hosts)
    if wrong is not None:
        return wrong
    length = _length(lower, found["minor"])
    if isinstance(length, Malformed) or lower.find(b"\nupgrade:") < 0:  # `in` takes thrice as long (jsontext)
        return length if isinstance(length, Malformed) else Head(length)
    upgrade = _value(lower, b"\nupgrade:") == b"websocket" and found["minor"] == b"1"
    return _UPGRADE_BODY if upgrade and length else Head(length, upgrade)


def _value(lower: bytes, name: bytes) -> bytes:
    """The value of a field that is there once."""
    start = lower.index(name) + len(name)
    return lower[start : lower.index(b"\r", start)].strip(b" \t")


def _length(lower: bytes, minor: bytes) -> int | Malformed:
    """The length of the body (RFC 9112 section 6.3), without the cases in which a recipient may choose."""
    lengths = lower.count(b"\ncontent-length:")
    if lower.find(b"\ntransfer-encoding:") >= 0:
        if minor == b"0":
            return _OLD_CODING
        if lengths:
            return _BOTH
        single = lower.count(b"\ntransfer-encoding:") == 1 and _value(lower, b"\ntransfer-encoding:") == b"chunked"
        return CHUNKED if single else _CODING
    if not lengths:
        return 0
    value = _value(lower, b"\ncontent-length:")
    if lengths > 1:
        return _TWO_LENGTHS
    return int(value) if _LENGTH.fullmatch(value) else _BAD_LENGTH


def _other_target(method: bytes, target: bytes, host: bytes, hosts: int) -> Malformed | None:
    """What is wrong with a target that is no path (RFC 9112 section 3.2)."""
    if method == b"CONNECT":
        return _CONNECT
    if target == b"*":
        return None if method == b"OPTIONS" else _TARGET
    found = _ABSOLUTE.fullmatch(target)
    if found is None or not _HOST.fullmatch(found["authority"]):
        return _TARGET
    return _OTHER_HOST if hosts and found["authority"].lower() != host else None


def stray(part: bytes, start: int = 0) -> Malformed | None:
    """What can be said against the beginning of a head already, before the rest is there. `start`: what stands before
    has been looked at."""
    if _STRAY.search(part, start):
        return _CONTROL
    end = len(part) - part.endswith(b"\r")  # its line feed may be on its way
    return _NO_LINE_END if _BARE.search(part, start, end) else None


def _why(head: bytes) -> Malformed:
    """What is wrong with a head that does not match: the first reason, in the order of the bytes that matter most."""
    if (found := stray(head)) is not None:
        return found
    first, *lines = head.split(b"\r\n")[:-1]
    request_line = _REQUEST_LINE.fullmatch(first)
    if request_line is None:
        return _NO_HTTP
    if request_line["version"] not in (b"HTTP/1.1", b"HTTP/1.0"):
        return _VERSION
    for line in lines:
        if line.startswith((b" ", b"\t")):
            return _FOLDED
        if b":" in line and line.partition(b":")[0].endswith((b" ", b"\t")):
            return _SPACE
    return _NO_FIELD
