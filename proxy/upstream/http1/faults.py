"""What can go wrong on our own connection to an upstream, as rows of the table of `proxy.upstream.faults`.

Inside this package trouble travels as `Broken`; `client.py` turns it into an `UpstreamFault` at the one border. `no`
stands only where not one byte of the request was handed to the network (contract section 7).
"""

from __future__ import annotations

import errno
import socket
import ssl
from dataclasses import replace
from typing import Final

from proxy.core.codes import (
    BAD_REQUEST,
    RESTARTING,
    UPSTREAM_BAD_ANSWER,
    UPSTREAM_TIMEOUT,
    UPSTREAM_UNAVAILABLE,
    ErrorCode,
)
from proxy.core.model import Executed
from proxy.upstream.faults import CONNECTION_LIMIT, RESPONSE_TIMEOUT, UNASKED_UPGRADE, Fault

__all__ = ["CONNECTION_LIMIT", "RESPONSE_TIMEOUT", "UNASKED_UPGRADE", "Broken", "Fault"]


class Broken(Exception):  # noqa: N818 - it names an event, not a mistake of ours
    """An exchange came to nothing. `fault` says how."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


def _answer(token: str, message: str) -> Fault:
    return Fault(UPSTREAM_BAD_ANSWER, token, Executed.UNKNOWN, message)


def _unsent(token: str, message: str, code: ErrorCode = UPSTREAM_UNAVAILABLE) -> Fault:
    return Fault(code, token, Executed.NO, message)


# --- no connection ----------------------------------------------------------------------------------------------------
REFUSED: Final = _unsent("connection_refused", "the connection was refused")
UNROUTABLE: Final = _unsent("destination_ip_unroutable", "there is no way to its address")
UNAVAILABLE: Final = _unsent("destination_unavailable", "no connection could be made")
DNS_ERROR: Final = _unsent("dns_error", "its name is unknown")
CONNECT_TIMEOUT: Final = _unsent("connection_timeout", "no connection was made in time", UPSTREAM_TIMEOUT)
TLS_FAILED: Final = _unsent("tls_protocol_error", "TLS failed")
TLS_UNTRUSTED: Final = _unsent("tls_certificate_error", "its TLS certificate is not trusted")
# TLS 1.3 lets a server refuse our certificate only after our side has finished its handshake.
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
# The client's side of a streamed request. Whoever reads the client knows more; this goes to what is left of an answer.
BODY_BROKE: Final = Fault(
    BAD_REQUEST, "http_request_error", Executed.UNKNOWN, "the body of the request broke off"
)  # fmt: skip
GIVEN_UP: Final = Fault(
    RESTARTING, "connection_terminated", Executed.UNKNOWN, "this proxy closed the connection"
)  # fmt: skip

_BY_ERRNO: Final = {
    errno.ECONNREFUSED: REFUSED,
    errno.ENOENT: REFUSED,  # a unix socket that is not there
    errno.EHOSTUNREACH: UNROUTABLE,
    errno.ENETUNREACH: UNROUTABLE,
}

# The first row that fits decides, so a subclass stands before its base. An OSError is looked up by its number.
_CONNECTING: Final[tuple[tuple[type[Exception], Fault], ...]] = (
    (ssl.SSLCertVerificationError, TLS_UNTRUSTED),
    (ssl.SSLError, TLS_FAILED),
    (socket.gaierror, DNS_ERROR),
    (UnicodeError, DNS_ERROR),  # a host name IDNA cannot encode
    (TimeoutError, CONNECT_TIMEOUT),
    (OSError, UNAVAILABLE),
)

CONNECT_ERRORS: Final = (OSError, UnicodeError)  # ssl.SSLError, gaierror and TimeoutError are OSErrors


def connect_fault(error: Exception, tls: bool) -> Fault:
    """What an exception of making a connection means. With `tls` a reset is one of the handshake."""
    if tls and isinstance(error, ConnectionResetError | ConnectionAbortedError):
        return TLS_FAILED
    row = next(fault for kind, fault in _CONNECTING if isinstance(error, kind))
    if row is UNAVAILABLE and isinstance(error, OSError):
        return _BY_ERRNO.get(error.errno or 0, row)
    return row


def lost_fault(error: Exception | None, begun: bool, first: bool) -> Fault:
    """What the end of a connection means for the answer awaited on it.

    `begun`: a part of the answer has come. `first`: it is the connection's first exchange.
    """
    if begun:
        return INCOMPLETE
    if first and isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or ""):
        return TLS_ALERT
    return UNANSWERED
