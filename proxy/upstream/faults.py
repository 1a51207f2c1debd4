"""The ways an upstream can fail, as rows: error code, error type, and whether the tool may have run.

Error types come from RFC 9209 section 2.3; `Proxy-Status` and a metric label show them. `executed` is `no` only if not
one byte of the request reached the network (docs/upstream.md). A timeout proves nothing, and neither does a connection
that breaks while an answer is awaited. Inside `http1/` a failure travels as `ExchangeError`, which `client.py` turns
into an `UpstreamFault` at its one border.
"""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Final

from proxy.core.model.codes import (
    BAD_REQUEST,
    CIRCUIT_OPEN,
    OVERLOADED,
    RESTARTING,
    UPSTREAM_BAD_ANSWER,
    UPSTREAM_TIMEOUT,
    UPSTREAM_UNAVAILABLE,
    ErrorCode,
)
from proxy.core.model.value_class import value_class
from proxy.core.model.values import Executed, UpstreamFault, UpstreamReply


@value_class
class FaultKind:
    """One row: what happened means this."""

    code: ErrorCode
    token: str
    executed: Executed
    message: str

    def of(self, upstream: str, retry_after: int | None = None) -> UpstreamFault:
        """The fault of one named upstream. It never quotes the exception, which may name addresses."""
        message = f"upstream '{upstream}': {self.message}"
        return UpstreamFault(self.code, self.token, self.executed, message, retry_after)


class ExchangeError(Exception):
    """An exchange failed. `fault` says how."""

    def __init__(self, fault: FaultKind) -> None:
        super().__init__(fault.message)
        self.fault = fault


def _unsent(token: str, message: str, code: ErrorCode = UPSTREAM_UNAVAILABLE) -> FaultKind:
    return FaultKind(code, token, Executed.NO, message)


def _unclear(token: str, message: str, code: ErrorCode = UPSTREAM_BAD_ANSWER) -> FaultKind:
    return FaultKind(code, token, Executed.UNKNOWN, message)


# --- no connection ----------------------------------------------------------------------------------------------------
REFUSED: Final = _unsent("connection_refused", "the connection was refused")
UNROUTABLE: Final = _unsent("destination_ip_unroutable", "there is no way to its address")
UNAVAILABLE: Final = _unsent("destination_unavailable", "no connection could be made")
DNS_ERROR: Final = _unsent("dns_error", "its name is unknown")
CONNECT_TIMEOUT: Final = _unsent("connection_timeout", "no connection was made in time", UPSTREAM_TIMEOUT)
TLS_FAILED: Final = _unsent("tls_protocol_error", "TLS failed")
TLS_UNTRUSTED: Final = _unsent("tls_certificate_error", "its TLS certificate is not trusted")
# With TLS 1.3 a server refuses our certificate only after our side has finished its handshake.
TLS_ALERT: Final = _unsent("tls_alert_received", "it refused the TLS handshake")
CLOSED: Final = _unsent("destination_unavailable", "this proxy no longer uses it")
UNSENDABLE: Final = _unsent("http_request_error", "the request cannot be written as HTTP", BAD_REQUEST)
CONNECTION_LIMIT: Final = _unsent("connection_limit_reached", "every connection to it is busy", OVERLOADED)
TOO_MANY_CALLS: Final = _unsent("connection_limit_reached", "too many calls are under way", OVERLOADED)
# RFC 9209 section 2.3.3: "the intermediary considers the next hop to be unavailable".
CIRCUIT_BROKEN: Final = _unsent("destination_unavailable", "it failed repeatedly", CIRCUIT_OPEN)

# --- no answer --------------------------------------------------------------------------------------------------------
RESPONSE_TIMEOUT: Final = _unclear("http_response_timeout", "no complete answer in time", UPSTREAM_TIMEOUT)
UNANSWERED: Final = _unclear("connection_terminated", "it closed the connection unanswered")
INCOMPLETE: Final = _unclear("http_response_incomplete", "its answer broke off")
NOT_HTTP: Final = _unclear("http_protocol_error", "its answer is not valid HTTP")
SURPLUS: Final = _unclear("http_protocol_error", "it sent more than its answer")
ENDLESS_INTERIM: Final = _unclear("http_protocol_error", "it sent interim answers without end")
HEAD_TOO_LARGE: Final = _unclear("http_response_header_section_size", "the headers of its answer are too large")
FINELY_CHUNKED: Final = _unclear("http_response_transfer_coding", "its answer comes in too many small chunks")
TRANSFER_CODING: Final = _unclear("http_response_transfer_coding", "its answer has a transfer coding nobody asked for")
UNASKED_UPGRADE: Final = _unclear("http_protocol_error", "switched protocols without being asked")
SPOKE_FIRST: Final = replace(SURPLUS, executed=Executed.NO, message="it sent bytes before it was asked")
# The client stopped sending a streamed request; its own error goes to the caller, this one to the rest of the answer.
BODY_BROKE: Final = _unclear("http_request_error", "the body of the request broke off", BAD_REQUEST)
GIVEN_UP: Final = _unclear("connection_terminated", "this proxy closed the connection", RESTARTING)

_BY_ERRNO: Final = {
    errno.ECONNREFUSED: REFUSED,
    errno.ENOENT: REFUSED,  # a unix socket that does not exist
    errno.EHOSTUNREACH: UNROUTABLE,
    errno.ENETUNREACH: UNROUTABLE,
}

# The first row that fits decides, so a subclass is before its base. `_BY_ERRNO` refines an OSError.
_CONNECTING: Final[tuple[tuple[type[Exception], FaultKind], ...]] = (
    (ssl.SSLCertVerificationError, TLS_UNTRUSTED),
    (ssl.SSLError, TLS_FAILED),
    (socket.gaierror, DNS_ERROR),
    (UnicodeError, DNS_ERROR),  # a host name IDNA cannot encode
    (TimeoutError, CONNECT_TIMEOUT),
    (OSError, UNAVAILABLE),
)

CONNECT_ERRORS: Final = (OSError, UnicodeError)  # ssl.SSLError, gaierror and TimeoutError are OSErrors


def connect_fault(error: Exception, tls: bool) -> FaultKind:
    """The fault that an exception while connecting means. With `tls` a reset belongs to the handshake."""
    if tls and isinstance(error, ConnectionResetError | ConnectionAbortedError):
        return TLS_FAILED
    row = next(fault for kind, fault in _CONNECTING if isinstance(error, kind))
    if row is UNAVAILABLE and isinstance(error, OSError):
        return _BY_ERRNO.get(error.errno or 0, row)
    return row


def lost_fault(error: Exception | None, begun: bool, first: bool) -> FaultKind:
    """The fault that a lost connection means for the awaited answer.

    `begun` says that a part of the answer has come, `first` that this is the connection's first exchange.
    """
    if begun:
        return INCOMPLETE
    if first and isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or ""):
        return TLS_ALERT
    return UNANSWERED


# --- streamed answers -------------------------------------------------------------------------------------------------
class ReplyBroken(Exception):  # noqa: N818 - it names an event
    """A streamed answer broke off after its head was passed on. `fault` says why."""

    def __init__(self, fault: UpstreamFault) -> None:
        super().__init__(fault.message)
        self.fault = fault


async def close_body(reply: UpstreamReply) -> None:
    """Closes an answer whose body will not be read to its end."""
    await close_stream(reply.body)


async def close_stream(body: object) -> None:
    """Closes the stream of a body that will not be read to its end. A body of bytes has nothing to close."""
    close = getattr(body, "aclose", None)
    if close is not None:
        await close()


class EndingStream:
    """A streamed body that calls `end` once when it is over: read to its end, broken off, or closed early."""

    def __init__(self, body: AsyncIterator[bytes], end: Callable[[], object]) -> None:
        self._body = body
        self._end: Callable[[], object] | None = end

    def __aiter__(self) -> EndingStream:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await anext(self._body)
        except BaseException:
            self._end_once()
            raise

    async def aclose(self) -> None:
        """Closes the stream early."""
        self._end_once()
        await close_stream(self._body)

    def __del__(self) -> None:
        # A reader that forgets `aclose` must not keep a place for ever.
        self._end_once()

    def _end_once(self) -> None:
        end, self._end = self._end, None
        if end is not None:
            end()
