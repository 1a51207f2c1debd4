"""The ways an HTTP/1.1 exchange with an upstream can fail, as rows of the table of `proxy.upstream.faults`.

Inside this package a failure travels as `ExchangeError`; `client.py` turns it into an `UpstreamFault` at its one
border. `executed` is `no` only where not one byte of the request reached the network (contract section 7).
"""

from __future__ import annotations

import errno
import socket
import ssl
from dataclasses import replace
from typing import Final

from proxy.core.model.codes import (
    BAD_REQUEST,
    RESTARTING,
    UPSTREAM_BAD_ANSWER,
    UPSTREAM_TIMEOUT,
    UPSTREAM_UNAVAILABLE,
    ErrorCode,
)
from proxy.core.model.values import Executed
from proxy.upstream.faults import CONNECTION_LIMIT, RESPONSE_TIMEOUT, UNASKED_UPGRADE, FaultKind

__all__ = ["CONNECTION_LIMIT", "RESPONSE_TIMEOUT", "UNASKED_UPGRADE", "ExchangeError", "FaultKind"]


class ExchangeError(Exception):
    """An exchange failed. `fault` says how."""

    def __init__(self, fault: FaultKind) -> None:
        super().__init__(fault.message)
        self.fault = fault


def _answer(token: str, message: str) -> FaultKind:
    return FaultKind(UPSTREAM_BAD_ANSWER, token, Executed.UNKNOWN, message)


def _unsent(token: str, message: str, code: ErrorCode = UPSTREAM_UNAVAILABLE) -> FaultKind:
    return FaultKind(code, token, Executed.NO, message)


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

# --- no answer --------------------------------------------------------------------------------------------------------
UNANSWERED: Final = _answer("connection_terminated", "it closed the connection unanswered")
INCOMPLETE: Final = _answer("http_response_incomplete", "its answer broke off")
NOT_HTTP: Final = _answer("http_protocol_error", "its answer is not valid HTTP")
SURPLUS: Final = _answer("http_protocol_error", "it sent more than its answer")
ENDLESS_INTERIM: Final = _answer("http_protocol_error", "it sent interim answers without end")
HEAD_TOO_LARGE: Final = _answer("http_response_header_section_size", "the headers of its answer are too large")
TRANSFER_CODING: Final = _answer("http_response_transfer_coding", "its answer has a transfer coding nobody asked for")
SPOKE_FIRST: Final = replace(SURPLUS, executed=Executed.NO, message="it sent bytes before it was asked")
# The client stopped sending a streamed request; its own error goes to the caller, this one to the rest of the answer.
BODY_BROKE: Final = FaultKind(
    BAD_REQUEST, "http_request_error", Executed.UNKNOWN, "the body of the request broke off"
)  # fmt: skip
GIVEN_UP: Final = FaultKind(
    RESTARTING, "connection_terminated", Executed.UNKNOWN, "this proxy closed the connection"
)  # fmt: skip

_BY_ERRNO: Final = {
    errno.ECONNREFUSED: REFUSED,
    errno.ENOENT: REFUSED,  # a unix socket that does not exist
    errno.EHOSTUNREACH: UNROUTABLE,
    errno.ENETUNREACH: UNROUTABLE,
}

# The first row that fits decides, so a subclass stands before its base. `_BY_ERRNO` refines an OSError.
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
