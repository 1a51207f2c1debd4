"""A request as bytes (RFC 9112). Only this file writes the framing, whatever the headers say.

It adds Host, the length or coding of the body, and Connection for an upgrade. Text that would end a line early is
refused, not cleaned: a checked request cannot hold it, so it is an attack.
"""

from __future__ import annotations

import re
from typing import Final

from proxy.core.model.fields import NO_SPELLINGS, OF_THE_SENDER, Spellings
from proxy.core.model.values import Headers
from proxy.upstream.http1.faults import UNSENDABLE, ExchangeError

# Methods whose missing body is stated as length 0 (RFC 9110 section 8.6).
_LENGTH_ANYWAY: Final = frozenset(["POST", "PUT", "PATCH"])
_METHOD: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110 section 5.6.2: a token
_TARGET: Final = re.compile(r"[/*][!-~]*")  # origin-form or `*`: no space, no control, ASCII

CHUNKED: Final = -1
LAST_CHUNK: Final = b"0\r\n\r\n"


def write_head(
    method: str,
    target: str,
    authority: str,
    headers: Headers,
    length: int,
    upgrade: str = "",
    spellings: Spellings = NO_SPELLINGS,
) -> bytes:
    """The bytes of a request up to its body.

    `length` is the body's in bytes, or `CHUNKED`. A `host` among `headers` replaces `authority`. `upgrade` is the
    protocol to ask for. `spellings`: how the client wrote the names of headers.
    Raises Broken(UNSENDABLE) where a line would break.
    """
    if not _TARGET.fullmatch(target) or not (method in _LENGTH_ANYWAY or _METHOD.fullmatch(method)):
        raise ExchangeError(UNSENDABLE)
    lines: list[str] = []
    spell = spellings.get
    for name, value in headers:  # each call comes here: CPython 3.11 calls a comprehension, a loop it only goes round
        if name not in OF_THE_SENDER:
            lines.append(f"{spell(name, name)}: {value}")
    if len(lines) < len(headers):
        authority = next((value for name, value in headers if name == "host"), authority)
    if length == CHUNKED:
        lines.append("transfer-encoding: chunked")
    elif length or method in _LENGTH_ANYWAY:
        lines.append(f"content-length: {length}")
    if upgrade:
        lines += ("connection: upgrade", f"upgrade: {upgrade}")
    said = authority + "".join(lines)  # searched before the line breaks are added, which is faster than counting them
    if "\n" in said or "\r" in said or "\0" in said:
        raise ExchangeError(UNSENDABLE)
    lines += ("", "")
    rest = "\r\n".join(lines)
    # surrogateescape: bytes of a client's header that are not UTF-8 go out as they came.
    return f"{method} {target} HTTP/1.1\r\nhost: {authority}\r\n{rest}".encode("utf-8", "surrogateescape")


def read_upgrade(headers: Headers) -> str:
    """The protocol a request asks to switch to, or ''."""
    return next((value for name, value in headers if name == "upgrade"), "")


def encode_chunk(data: bytes) -> bytes:
    """One chunk of a chunked body. `data` is not empty."""
    return b"%x\r\n%b\r\n" % (len(data), data)
