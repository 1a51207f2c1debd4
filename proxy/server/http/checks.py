"""The rules for a request's head that aiohttp's parser does not enforce, as one table.

An attacker smuggles a request where two programs read the same bytes differently. The parser (llhttp in strict mode)
refuses malformed heads: bare line feeds, folded fields, two lengths, a length beside a coding, bad chunks. The rules
below refuse heads that are well formed and still have two readings, or no meaning here.

    find_fault(request, fields)   the first rule a request breaks, as `BadRequest`, or None
    explain_fault(error)          an error of the parser as `BadRequest`
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from aiohttp import HttpVersion10, HttpVersion11
from aiohttp.http_exceptions import BadHttpMethod, InvalidHeader, InvalidURLError, LineTooLong

from proxy.core.model.codes import BAD_REQUEST, EXPECTATION_FAILED, HEADERS_TOO_LARGE, ErrorCode
from proxy.core.model.value_class import value_class
from proxy.core.model.values import Fields
from proxy.server.http.request_head import RequestHead


@value_class
class BadRequest:
    """Why a request is refused before its body is parsed, in words for its sender. `status` overrides the status of
    `code`."""

    code: ErrorCode
    message: str
    status: int | None = None


# Limits of the parser: bytes of the target, bytes of one header with its name, and headers of one request.
MAX_TARGET: Final = 16 * 1024
MAX_FIELD: Final = 16 * 1024
MAX_FIELDS: Final = 128
# Bytes of a head as a whole. A head that arrives in one piece may be longer by what is read at once (256 KB).
MAX_HEAD: Final = 64 * 1024
# Messages of the errors that `connection.py` adds to those of the parser.
HEAD_TOO_LONG: Final = "Head too long"
FRAMING_TOO_LONG: Final = "Chunk sizes, extensions and trailers too long"

LATE_HEAD: Final = BadRequest(BAD_REQUEST, "The head of the request did not arrive in time.", 408)
_TOO_LONG: Final = BadRequest(HEADERS_TOO_LARGE, f"The target or a header is longer than {MAX_FIELD} bytes.")
_HEAD_TOO_LONG: Final = BadRequest(HEADERS_TOO_LARGE, f"The head is longer than {MAX_HEAD} bytes.")
_TOO_MANY: Final = BadRequest(HEADERS_TOO_LARGE, f"The head has more than {MAX_FIELDS} headers.")

# RFC 9110 section 7.2, RFC 3986 section 3.2.2. It may be empty.
_HOST: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9\-._~%!$&'()*+,;=]*)(?::[0-9]{0,5})?")
_ABSOLUTE: Final = re.compile(r"[Hh][Tt][Tt][Pp][Ss]?://(?P<authority>[^/?@]+)(?:[/?].*)?")
# RFC 9112 section 3.2: printable ASCII. A `#` would end the target for some programs and not for others.
_TARGET: Final = re.compile(r"[!\"$-~]+")
_SUPPORTED: Final = (HttpVersion11, HttpVersion10)


# Clients send the same heads again and again. Those that broke no rule are remembered by all that `RULES` look at,
# which for most requests is no more than the request line, the host and the names of the fields.
_faultless: set[tuple[object, ...]] = set()
_WITH_MORE_TO_SEE: Final = frozenset({"transfer-encoding", "upgrade", "expect"})
_MOST_FAULTLESS: Final = 1024
_LONGEST: Final = 256


def is_word(value: str, word: str) -> bool:
    """Whether a value is a word in any case. Only ASCII counts, because some other letters become ASCII in lower
    case."""
    return value.isascii() and value.lower() == word


def find_fault(request: RequestHead, fields: Fields) -> BadRequest | None:
    """The first rule of `RULES` that a request breaks. `fields` are its headers, names in lower case."""
    names, host = fields.names, fields.get("host")
    head = (request.version, request.method, request.raw_path, host, names)
    if head in _faultless:
        return None
    by_name = fields.by_name
    for name, rule in RULES:
        if (not name or name in by_name) and (fault := rule(request, fields)) is not None:
            return fault
    length = len(request.raw_path) + len(host or "")
    if names is not None and names.is_shared and length <= _LONGEST and _WITH_MORE_TO_SEE.isdisjoint(by_name):
        if len(_faultless) >= _MOST_FAULTLESS:
            _faultless.clear()
        _faultless.add(head)
    return None


# --- the rules --------------------------------------------------------------------------------------------------------
def _version(request: RequestHead, _fields: Fields) -> BadRequest | None:
    return (
        None
        if request.version in _SUPPORTED
        else BadRequest(BAD_REQUEST, "Only HTTP/1.1 and HTTP/1.0 are spoken here.")
    )


def _method(request: RequestHead, _fields: Fields) -> BadRequest | None:
    connects = request.method == "CONNECT"
    return BadRequest(BAD_REQUEST, "This is not a forward proxy: CONNECT is not taken.") if connects else None


def _target(request: RequestHead, fields: Fields) -> BadRequest | None:
    target = request.raw_path
    if not _TARGET.fullmatch(target):
        return BadRequest(
            BAD_REQUEST, "The target of the request holds a `#`, or a character that is not printable ASCII."
        )
    if target[0] == "/":
        return None
    if target == "*" and request.method == "OPTIONS":
        return None
    found = _ABSOLUTE.fullmatch(target)
    if found is None or not _HOST.fullmatch(found["authority"]):  # the parser has refused ports above 65535
        return BadRequest(BAD_REQUEST, "The target is neither a path nor an http URL.")
    host = fields.get("host")
    if host is not None and found["authority"].lower() != host.lower():
        return BadRequest(BAD_REQUEST, "The target names another host than the Host header.")
    return None


def _host(_request: RequestHead, fields: Fields) -> BadRequest | None:
    host = fields.get("host")
    return (
        None
        if host is None or _HOST.fullmatch(host)
        else BadRequest(BAD_REQUEST, "The Host header is not a host and port.")
    )


def _coding(request: RequestHead, fields: Fields) -> BadRequest | None:
    coding = fields.get("transfer-encoding")
    if coding is None:
        return None
    if request.version != HttpVersion11:
        return BadRequest(BAD_REQUEST, "HTTP/1.0 knows no Transfer-Encoding: send a Content-Length.")
    return (
        None
        if is_word(coding, "chunked")
        else BadRequest(BAD_REQUEST, "The only Transfer-Encoding taken is a single `chunked`.")
    )


def _underscores(_request: RequestHead, _fields: Fields) -> BadRequest | None:
    """CGI-like servers read these as Content-Length and Transfer-Encoding; the parser does not."""
    return BadRequest(
        BAD_REQUEST, "Content_Length and Transfer_Encoding are not headers of HTTP: write them with a hyphen."
    )


def _upgrade(request: RequestHead, fields: Fields) -> BadRequest | None:
    upgrade = fields.get("upgrade")
    if upgrade is None or not is_word(upgrade, "websocket") or not request.body_exists:
        return None
    return BadRequest(BAD_REQUEST, "A request for a WebSocket has no body.")


def _expectation(_request: RequestHead, fields: Fields) -> BadRequest | None:
    expected = fields.get("expect")
    if expected is None or expected.lower() == "100-continue":
        return None
    return BadRequest(EXPECTATION_FAILED, EXPECTATION_FAILED.meaning)


Rule = Callable[[RequestHead, Fields], BadRequest | None]
# Each with the field that it is about, '' where it is about the request line.
RULES: Final[tuple[tuple[str, Rule], ...]] = (
    ("", _version),
    ("", _method),
    ("", _target),
    ("host", _host),
    ("transfer-encoding", _coding),
    ("content_length", _underscores),
    ("transfer_encoding", _underscores),
    ("upgrade", _upgrade),
    ("expect", _expectation),
)


# --- errors of the parser ---------------------------------------------------------------------------------------------
_EXPLAINED: Final[tuple[tuple[type[BaseException], BadRequest], ...]] = (
    (LineTooLong, _TOO_LONG),
    (BadHttpMethod, BadRequest(BAD_REQUEST, "The request does not begin with a method that HTTP knows, in capitals.")),
    (InvalidURLError, BadRequest(BAD_REQUEST, "The target is neither a path nor an http URL.")),
    (InvalidHeader, BadRequest(BAD_REQUEST, "A header is not allowed in HTTP/1.1, or holds a control character.")),
)


def explain_fault(error: BaseException | None) -> BadRequest:
    """Explains an error of the parser to the sender, without the bytes of the request that the parser quotes."""
    for kind, fault in _EXPLAINED:
        if isinstance(error, kind):
            return fault
    said = str(getattr(error, "message", "")).strip()
    if "Too many headers" in said:
        return _TOO_MANY
    if said == HEAD_TOO_LONG:
        return _HEAD_TOO_LONG
    reason = said.removeprefix("Bad status line:").strip().partition("\n")[0].rstrip(" :.")
    return BadRequest(BAD_REQUEST, f"The request is not well-formed HTTP/1.1: {reason or 'it cannot be read'}.")
