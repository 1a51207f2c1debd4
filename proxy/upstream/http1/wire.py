"""A request as bytes (RFC 9112). The framing is written here and nowhere else, whatever the headers say.

Nothing is added but Host, the length or coding of the body, and Connection for an upgrade. Text that would end a line
early is refused rather than cleaned: it cannot come from a checked request, so somebody is trying something.
"""

from __future__ import annotations

import re
from typing import Final

from proxy.core.framing import OF_THE_SENDER
from proxy.core.model import Headers
from proxy.upstream.http1.faults import UNSENDABLE, Broken

# Methods whose missing body is worth saying (RFC 9110 section 8.6).
_LENGTH_ANYWAY: Final = frozenset(["POST", "PUT", "PATCH"])
_METHOD: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110 section 5.6.2: a token
_TARGET: Final = re.compile(r"[/*][!-~]*")  # origin-form or `*`: no space, no control, ASCII

CHUNKED: Final = -1
LAST_CHUNK: Final = b"0\r\n\r\n"


def request_head(method: str, target: str, authority: str, headers: Headers, length: int, upgrade: str = "") -> bytes:
    """The bytes of a request up to its body.

    `length` is the body's in bytes, or `CHUNKED`. A `host` among `headers` replaces `authority`. `upgrade` is the
    protocol to ask for. Raises Broken(UNSENDABLE) where a line would break.
    """
    if not _TARGET.fullmatch(target) or not (method in _LENGTH_ANYWAY or _METHOD.fullmatch(method)):
        raise Broken(UNSENDABLE)
    lines: list[str] = []
    for name, value in headers:  # each call comes here: CPython 3.11 calls a comprehension, a loop it only goes round
        if name not in OF_THE_SENDER:
            lines.append(f"{name}: {value}")
    if len(lines) < len(headers):
        authority = next((value for name, value in headers if name == "host"), authority)
    if length == CHUNKED:
        lines.append("transfer-encoding: chunked")
    elif length or method in _LENGTH_ANYWAY:
        lines.append(f"content-length: {length}")
    if upgrade:
        lines += ("connection: upgrade", f"upgrade: {upgrade}")
    said = authority + "".join(lines)  # to look before the breaks are in is faster than to count them
    if "\n" in said or "\r" in said or "\0" in said:
        raise Broken(UNSENDABLE)
    lines += ("", "")
    rest = "\r\n".join(lines)
    # surrogateescape: bytes that were no UTF-8 in a client's header go out as they came.
    return f"{method} {target} HTTP/1.1\r\nhost: {authority}\r\n{rest}".encode("utf-8", "surrogateescape")


def upgrade_asked(headers: Headers) -> str:
    """The protocol a request asks to switch to, or ''."""
    return next((value for name, value in headers if name == "upgrade"), "")


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body. `data` is not empty."""
    return b"%x\r\n%b\r\n" % (len(data), data)
