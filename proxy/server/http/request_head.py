"""A request's head, read and checked.

An attacker smuggles a request where two programs read the same bytes differently. The parser (llhttp in strict mode)
refuses malformed heads: bare line feeds, folded fields, two lengths, a length beside a coding, bad chunks. The rules
below refuse heads that are well formed and still have two readings, or no meaning here.

    ParsedRequest                 a request that has no task yet
    read_fields(request)          its headers
    make_id()                     its id, if it has none
    find_fault(request, fields)   the first rule that it breaks, as `BadRequest`, or None
    explain_fault(error)          an error of the parser as `BadRequest`
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Iterable
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from aiohttp.http import HttpVersion, HttpVersion10, HttpVersion11
from aiohttp.http_exceptions import BadHttpMethod, InvalidHeader, InvalidURLError, LineTooLong
from aiohttp.streams import StreamReader
from aiohttp.web_request import BaseRequest

from proxy.core.model.codes import BAD_REQUEST, EXPECTATION_FAILED, HEADERS_TOO_LARGE, ErrorCode
from proxy.core.model.fields import NO_NAMES, FieldNames
from proxy.core.model.value_class import value_class
from proxy.core.model.values import Fields

if TYPE_CHECKING:
    from aiohttp import web


@value_class
class ParsedRequest:
    """A request as aiohttp's parser gives it: the part of `web.BaseRequest` that needs no task."""

    method: str
    version: HttpVersion
    raw_path: str
    raw_headers: tuple[tuple[bytes, bytes], ...]
    headers: Any
    content: StreamReader
    body_exists: bool
    protocol: web.RequestHandler
    keep_alive: bool = True


RequestHead = BaseRequest | ParsedRequest


@value_class
class BadRequest:
    """The reason why a request is refused before its body is parsed, in words for its sender. `status` overrides the
    status of `code`."""

    code: ErrorCode
    message: str
    status: int | None = None


# --- reading ----------------------------------------------------------------------------------------------------------
# Names of requests that are remembered, and their characters in one request.
_MOST_NAMES: Final = 512
_LONGEST_NAMES: Final = 1024
_name_of: Final = itemgetter(0)
_known_names: dict[tuple[bytes, ...], FieldNames] = {}
# An absolute-form target (RFC 9112 section 3.2.2): the path begins after the authority.
_AUTHORITY: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")
# Some frameworks and gateways take the method of a request from these fields in place of its first line. Judged routes
# refuse such a request.
METHOD_OVERRIDES: Final = ("x-http-method-override", "x-http-method", "x-method-override", "x-method")


def read_fields(request: RequestHead) -> Fields:
    """The headers of a request in their order, names in lower case. Bytes that are not UTF-8 are kept
    (surrogateescape): they are forwarded as they came."""
    sent = tuple(map(_name_of, request.raw_headers))
    if (names := _known_names.get(sent)) is None:
        is_shared = sum(map(len, sent)) <= _LONGEST_NAMES
        names = FieldNames([name.decode("utf-8", "surrogateescape") for name in sent], is_shared=is_shared)
        names.method_override = _find_method_override(names.lower)
        if is_shared:
            if len(_known_names) >= _MOST_NAMES:
                _known_names.clear()
            _known_names[sent] = names
    return make_fields(names, request.headers.values())


def make_fields(names: FieldNames, values: Iterable[str]) -> Fields:
    """The fields of a request with such names, and these values."""
    if names.is_unique:
        by_name = dict(zip(names.lower, values, strict=True))
        made = Fields(by_name.items())
        made.by_name = by_name
    else:
        made = Fields(zip(names.lower, values, strict=True))
    made.names = names
    # One call looks up about a dozen fields, so `get` is the index's own method.
    made.get = made.by_name.get  # type: ignore[assignment, method-assign]
    return made


def split_target(target: str) -> tuple[str, str]:
    """Splits a target into path and query. A URL inside it, such as in the query, is not an authority."""
    if not target.startswith("/"):
        target = _AUTHORITY.sub("", target, count=1)
    path, _, query = target.partition("?")
    return path, query


def _find_method_override(names: tuple[str, ...]) -> str:
    """The first field that asks for another method, or ''; `_` is read as `-` too."""
    plain = next((name for name in METHOD_OVERRIDES if name in names), "")
    return plain or next((name for name in names if "_" in name and name.replace("_", "-") in METHOD_OVERRIDES), "")


def is_word(value: str, word: str) -> bool:
    """Returns whether a value is a word in any case. Only ASCII counts, because lowercasing makes others ASCII."""
    return value.isascii() and value.lower() == word


# --- its id -----------------------------------------------------------------------------------------------------------
_chance: Final = random.Random()  # noqa: S311 - of request ids alone
if hasattr(os, "register_at_fork"):  # else two processes of one parent would give the same ids
    os.register_at_fork(after_in_child=_chance.seed)
random_bits: Final = _chance.getrandbits  # so many of them, for the ids of traces


def make_id() -> str:
    """A new request id: a UUID of version 7 (RFC 9562 section 5.7), which sorts by time, with milliseconds since the
    epoch and 74 random bits. It guards nothing, so its chance need not be the kernel's, which costs a system call."""
    now, chance = time.time_ns() // 1_000_000, random_bits(74)
    early, second, last = now >> 16 & 0xFFFFFFFF, chance >> 60 | 0x8000, chance >> 12 & 0xFFFFFFFFFFFF
    return "%08x-%04x-7%03x-%04x-%012x" % (early, now & 0xFFFF, chance & 0xFFF, second, last)  # noqa: UP031 - fastest


# --- checking ---------------------------------------------------------------------------------------------------------
# RFC 9110 section 7.2, RFC 3986 section 3.2.2. It may be empty.
_HOST: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9\-._~%!$&'()*+,;=]*)(?::[0-9]{0,5})?")
_HTTP_URL: Final = re.compile(r"[Hh][Tt][Tt][Pp][Ss]?://(?P<authority>[^/?@]+)(?:[/?].*)?")
# RFC 9112 section 3.2: printable ASCII. A `#` would end the target for some programs and not for others.
_TARGET: Final = re.compile(r"[!\"$-~]+")
_SUPPORTED: Final = (HttpVersion11, HttpVersion10)
_NO_EXPECTATION: Final = BadRequest(EXPECTATION_FAILED, EXPECTATION_FAILED.meaning)

# Clients send the same heads again and again. Those that broke no rule are remembered by all that the rules look at.
# For most requests this is no more than the request line, the host and the names of the fields.
_faultless: set[tuple[object, ...]] = set()
_WITH_MORE_TO_SEE: Final = frozenset({"transfer-encoding", "upgrade", "expect"})
_MOST_FAULTLESS: Final = 1024
_LONGEST: Final = 256


def find_fault(request: RequestHead, fields: Fields) -> BadRequest | None:
    """The first rule that a request breaks. `fields` are its headers, names in lower case."""
    names, host = fields.names, fields.get("host")
    head = (request.version, request.method, request.raw_path, host, names)
    if head in _faultless:
        return None
    if why := _check_line(request, host) or _check_fields(request, fields):
        return BadRequest(BAD_REQUEST, why)
    expected = fields.get("expect")
    if expected is not None and expected.lower() != "100-continue":
        return _NO_EXPECTATION
    is_usual = names is not NO_NAMES and names.is_shared and _WITH_MORE_TO_SEE.isdisjoint(fields.by_name)
    if is_usual and len(request.raw_path) + len(host or "") <= _LONGEST:
        if len(_faultless) >= _MOST_FAULTLESS:
            _faultless.clear()
        _faultless.add(head)
    return None


def _check_line(request: RequestHead, host: str | None) -> str:
    """Returns what is wrong with the request line and the host, or ''."""
    target = request.raw_path
    if request.version not in _SUPPORTED:
        return "Only HTTP/1.1 and HTTP/1.0 are spoken here."
    if request.method == "CONNECT":
        return "This is not a forward proxy: CONNECT is not taken."
    if not _TARGET.fullmatch(target):
        return "The target of the request holds a `#`, or a character that is not printable ASCII."
    if target[0] != "/" and not (target == "*" and request.method == "OPTIONS"):
        found = _HTTP_URL.fullmatch(target)
        if found is None or not _HOST.fullmatch(found["authority"]):  # the parser has refused ports above 65535
            return "The target is neither a path nor an http URL."
        if host is not None and found["authority"].lower() != host.lower():
            return "The target names another host than the Host header."
    return "" if host is None or _HOST.fullmatch(host) else "The Host header is not a host and port."


def _check_fields(request: RequestHead, fields: Fields) -> str:
    """Returns what is wrong with the fields that frame the body, or ''."""
    coding = fields.get("transfer-encoding")
    if coding is not None and request.version != HttpVersion11:
        return "HTTP/1.0 knows no Transfer-Encoding: send a Content-Length."
    if coding is not None and not is_word(coding, "chunked"):
        return "The only Transfer-Encoding taken is a single `chunked`."
    # CGI-like servers read these as Content-Length and Transfer-Encoding; the parser does not.
    if "content_length" in fields.by_name or "transfer_encoding" in fields.by_name:
        return "Content_Length and Transfer_Encoding are not headers of HTTP: write them with a hyphen."
    if request.body_exists and is_word(fields.get("upgrade") or "", "websocket"):
        return "A request for a WebSocket has no body."
    return ""


# --- errors of the parser ---------------------------------------------------------------------------------------------
# Limits of the parser: bytes of the target, bytes of one header with its name, and headers of one request.
MAX_TARGET: Final = 16 * 1024
MAX_FIELD: Final = 16 * 1024
MAX_FIELDS: Final = 128
# Bytes of a head as a whole. A head that arrives in one piece may be longer by what is read at once (256 KB).
MAX_HEAD: Final = 64 * 1024
# Messages of the errors that `reading.py` adds to those of the parser.
HEAD_TOO_LONG: Final = "Head too long"
FRAMING_TOO_LONG: Final = "Chunk sizes, extensions and trailers too long"

LATE_HEAD: Final = BadRequest(BAD_REQUEST, "The head of the request did not arrive in time.", 408)
_EXPLAINED: Final[tuple[tuple[type[BaseException], BadRequest], ...]] = (
    (LineTooLong, BadRequest(HEADERS_TOO_LARGE, f"The target or a header is longer than {MAX_FIELD} bytes.")),
    (BadHttpMethod, BadRequest(BAD_REQUEST, "The request does not begin with a method that HTTP knows, in capitals.")),
    (InvalidURLError, BadRequest(BAD_REQUEST, "The target is neither a path nor an http URL.")),
    (InvalidHeader, BadRequest(BAD_REQUEST, "A header is not allowed in HTTP/1.1, or holds a control character.")),
)


def explain_fault(error: BaseException | None) -> BadRequest:
    """Explains an error of the parser to the sender, without the bytes of the request that the parser quotes."""
    for kind, fault in _EXPLAINED:
        if isinstance(error, kind):
            return fault
    message = str(getattr(error, "message", "")).strip()
    if "Too many headers" in message:
        return BadRequest(HEADERS_TOO_LARGE, f"The head has more than {MAX_FIELDS} headers.")
    if message == HEAD_TOO_LONG:
        return BadRequest(HEADERS_TOO_LARGE, f"The head is longer than {MAX_HEAD} bytes.")
    reason = message.removeprefix("Bad status line:").strip().partition("\n")[0].rstrip(" :.")
    return BadRequest(BAD_REQUEST, f"The request is not well-formed HTTP/1.1: {reason or 'it cannot be read'}.")
