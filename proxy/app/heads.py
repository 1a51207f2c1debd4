"""Reads the head of a request: one reading of its bytes, or none (RFC 9112). Pure.

Requests are smuggled where two programs read the same bytes differently, so whatever some program is known to read in
another way is refused here, and nothing else ever reads these bytes again: bare line feeds, folded fields, spaces
before a colon, control characters, two lengths, a length beside a coding, every coding but `chunked`, two hosts or
none, two of a field that can be there but once.

    judge(head, lines)    a `Head`, or `Malformed` with the reason
    stray(part)           what is wrong already with the beginning of one

Clients repeat themselves, so most lines of a head were read before: `FieldLines` (http1/fields.py) remembers those.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Final

from proxy.app.http1.fields import FieldLines
from proxy.core.codes import BAD_REQUEST, HEADERS_TOO_LARGE, ErrorCode
from proxy.core.model import Fields
from proxy.core.noun import noun


@dataclass(frozen=True, slots=True)
class Malformed:
    """Why bytes are no request of ours, in words for their sender. `status` overrides the code's."""

    message: str
    code: ErrorCode = BAD_REQUEST
    status: int | None = None


@noun
class Head:
    """What a head says. `minor`: HTTP/1.`minor`. `length` bytes of body follow, or `CHUNKED` ones. `keep_alive`: the
    client wants to go on with its connection (RFC 9112 section 9.3)."""

    method: str
    target: str
    minor: int
    fields: Fields
    length: int
    keep_alive: bool


CHUNKED: Final = -1
# All lines together; the longest target, and the longest value of a field; and how many fields.
MAX_HEAD: Final = 64 * 1024
MAX_HEAD_FIELD: Final = 16 * 1024
MAX_HEAD_FIELDS: Final = 128
# The length of a body in decimal digits: an exabyte, and nothing that overflows anywhere.
_LENGTH: Final = re.compile(r"[0-9]{1,18}")

# The methods that HTTP knows (the IANA registry, with those that llhttp takes beside it). Of all others this port takes
# none, so that no log, no metric and no upstream sees what a client makes up; nor CONNECT, whatever its target: other
# programs read what follows it as no HTTP any more.
_METHODS: Final = {
    name.encode(): name
    for name in (
        "ACL", "BIND", "CHECKOUT", "COPY", "DELETE", "GET", "HEAD", "LINK", "LOCK", "M-SEARCH",
        "MERGE", "MKACTIVITY", "MKCALENDAR", "MKCOL", "MOVE", "NOTIFY", "OPTIONS", "PATCH", "POST", "PROPFIND",
        "PROPPATCH", "PURGE", "PUT", "QUERY", "REBIND", "REPORT", "SEARCH", "SOURCE", "SUBSCRIBE", "TRACE",
        "UNBIND", "UNLINK", "UNLOCK", "UNSUBSCRIBE",
    )
}  # fmt: skip
# Fields that say one thing and cannot say two: programs differ in which one of them holds.
_ONCE: Final = frozenset(
    {"content-location", "content-range", "content-type", "etag", "max-forwards", "server", "user-agent"}
)
# The first WebSocket of all had eight bytes of body that no field announces.
_HIXIE: Final = "sec-websocket-key1"
_NONE: Final[frozenset[str]] = frozenset()

TOO_LARGE: Final = Malformed("The head of the request is too large.", HEADERS_TOO_LARGE)
LATE: Final = Malformed("The head of the request did not arrive in time.", status=408)
_LONG_TARGET: Final = Malformed(f"The target is longer than {MAX_HEAD_FIELD} bytes.", HEADERS_TOO_LARGE)
_LONG_FIELD: Final = Malformed(f"A header is longer than {MAX_HEAD_FIELD} bytes.", HEADERS_TOO_LARGE)
_MANY_FIELDS: Final = Malformed(f"The head has more than {MAX_HEAD_FIELDS} headers.", HEADERS_TOO_LARGE)
_METHOD: Final = Malformed("The method is none that HTTP knows: they are written in capitals.")
_OLD_SOCKET: Final = Malformed("This is no WebSocket as RFC 6455 has it: Sec-WebSocket-Key1 belongs to a draft.")
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
_ABSOLUTE: Final = re.compile(r"[Hh][Tt][Tt][Pp][Ss]?://(?P<authority>[^/?@]+?(?::(?P<port>[0-9]{1,5}))?)(?:[/?].*)?")
_LAST_PORT: Final = 65_535
# RFC 9110 section 7.2, RFC 3986 section 3.2.2. It may be empty.
_HOST: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9\-._~%!$&'()*+,;=]*)(?::[0-9]{0,5})?")
_STRAY: Final = re.compile(rb"[\0-\x08\x0b\x0c\x0e-\x1f\x7f]")
_BARE: Final = re.compile(rb"(?<!\r)\n|\r(?!\n)")


def judge(head: bytes, lines: FieldLines) -> Head | Malformed:
    """What a head means. `head` goes from the request line to the line end of its last field."""
    found = _HEAD.fullmatch(head)
    if found is None:
        return _why(head)
    _, *rows, _ = head.split(b"\r\n")
    pairs: list[tuple[str, str]] = []
    known_line, read = lines.get, lines.read
    for row in rows:  # CPython 3.11 calls a comprehension, and `__missing__`; a loop it only goes round
        pairs.append(known_line(row) or read(row))  # noqa: PERF401
    index = dict(pairs)
    doubled = _NONE
    if len(index) != len(pairs):  # so each name is looked for in vain only where some stands there twice
        doubled = frozenset(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        index = dict(reversed(pairs))
    method, target, version = found.group("method", "target", "minor")
    minor = 1 if version == b"1" else 0
    wrong = _host(method, target, minor, index, doubled)
    if wrong is not None:
        return wrong
    length = _length(index, minor, doubled) if "content-length" in index or "transfer-encoding" in index else 0
    if isinstance(length, Malformed):
        return length
    if length and minor and "upgrade" in index and is_word(index["upgrade"], "websocket"):
        return _UPGRADE_BODY
    known = _METHODS.get(method)
    if known is None or doubled or len(pairs) > MAX_HEAD_FIELDS or len(head) > MAX_HEAD_FIELD or _HIXIE in index:
        unfit = _unfit(method, target, rows, index, doubled)
        if unfit is not None:
            return unfit
    wish = index.get("connection")
    plain = wish is None or (wish == "keep-alive" and not doubled)  # what nearly all say
    keep_alive = (wish is not None or minor == 1) if plain else _keeps_alive(pairs, minor)
    return Head(known or "", target.decode(), minor, Fields.indexed(pairs, index), length, keep_alive)


def _host(method: bytes, target: bytes, minor: int, index: dict[str, str], doubled: frozenset[str]) -> Malformed | None:
    """What is wrong with the name of the host that is asked (RFC 9112 section 3.2)."""
    host = index.get("host")
    if "host" in doubled or (host is None and minor):
        return _NO_HOST
    if host is not None and not _HOST.fullmatch(host):
        return _BAD_HOST
    return None if target[0] == 0x2F else _other_target(method, target.decode(), host)


def _length(index: dict[str, str], minor: int, doubled: frozenset[str]) -> int | Malformed:
    """The length of the body (RFC 9112 section 6.3), without the cases in which a recipient may choose."""
    announced, coding = index.get("content-length"), index.get("transfer-encoding")
    if coding is not None:
        if not minor:
            return _OLD_CODING
        if announced is not None:
            return _BOTH
        return CHUNKED if is_word(coding, "chunked") and "transfer-encoding" not in doubled else _CODING
    if announced is None:
        return 0
    if "content-length" in doubled:
        return _TWO_LENGTHS
    return int(announced) if _LENGTH.fullmatch(announced) else _BAD_LENGTH


def is_word(value: str, word: str) -> bool:
    """Whether a value is a word in any case. Of ASCII alone: some letters of others become ASCII in lower case."""
    return value.isascii() and value.lower() == word


def _unfit(
    method: bytes, target: bytes, rows: list[bytes], index: dict[str, str], doubled: frozenset[str]
) -> Malformed | None:
    """What there is against a head that frames its request soundly."""
    if method not in _METHODS:
        return _CONNECT if method == b"CONNECT" else _METHOD
    if len(target) > MAX_HEAD_FIELD:
        return _LONG_TARGET
    if len(rows) > MAX_HEAD_FIELDS:
        return _MANY_FIELDS
    for row in rows:
        if len(row.partition(b":")[2].lstrip(b" \t")) > MAX_HEAD_FIELD:
            return _LONG_FIELD
    if twice := doubled & _ONCE:
        return Malformed(f"{min(twice).title()} stands there twice.")
    return _OLD_SOCKET if _HIXIE in index else None


def _keeps_alive(pairs: list[tuple[str, str]], minor: int) -> bool:
    """What `Connection` says of the connection's end. `close` goes before everything else."""
    wishes = [wish.strip(" \t") for name, value in pairs if name == "connection" for wish in value.split(",")]
    if any(is_word(wish, "close") for wish in wishes):
        return False
    return minor == 1 or any(is_word(wish, "keep-alive") for wish in wishes)


def _other_target(method: bytes, target: str, host: str | None) -> Malformed | None:
    """What is wrong with a target that is no path (RFC 9112 section 3.2)."""
    if method == b"CONNECT":
        return _CONNECT
    if target == "*":
        return None if method == b"OPTIONS" else _TARGET
    found = _ABSOLUTE.fullmatch(target)
    if found is None or not _HOST.fullmatch(found["authority"]) or int(found["port"] or 0) > _LAST_PORT:
        return _TARGET
    return _OTHER_HOST if host is not None and found["authority"].lower() != host.lower() else None


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
