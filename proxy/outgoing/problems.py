"""What an exception of aiohttp's client means, as the rows that calls to an upstream fail with too.

The words of the exceptions stay out: they may name addresses, and quote what a server sent.
"""

from __future__ import annotations

import ssl
from typing import Final

import aiohttp

from proxy.core.model.codes import BAD_REQUEST, UPSTREAM_BAD_ANSWER
from proxy.core.model.values import Executed
from proxy.upstream.faults import RESPONSE_TIMEOUT, FaultKind
from proxy.upstream.http1.faults import (
    CONNECT_TIMEOUT,
    INCOMPLETE,
    NOT_HTTP,
    TLS_ALERT,
    TLS_UNTRUSTED,
    UNANSWERED,
    UNSENDABLE,
    connect_fault,
)

TOO_LARGE: Final = FaultKind(
    UPSTREAM_BAD_ANSWER, "http_response_body_size", Executed.UNKNOWN, "its answer is too large"
)  # fmt: skip

TOO_MUCH: Final = FaultKind(
    BAD_REQUEST, "http_request_error", Executed.NO, "what was to be sent to it is too large"
)  # fmt: skip

# Everything that an exchange may raise, ClientError and TimeoutError first among it: a header with a line break is a
# ValueError, a host name IDNA cannot encode a UnicodeError, a socket that breaks while it is written to an OSError.
ERRORS: Final = (aiohttp.ClientError, OSError, ValueError)


def find_fault_row(error: Exception, *, begun: bool, tls: bool) -> FaultKind:
    """The row for an exception of one exchange. `begun`: the head of the answer had come."""
    match error:
        case aiohttp.ConnectionTimeoutError():
            return CONNECT_TIMEOUT
        case aiohttp.ClientConnectorCertificateError():
            return TLS_UNTRUSTED
        case aiohttp.ClientConnectorError():
            return connect_fault(error.os_error, tls)
        case TimeoutError():
            return RESPONSE_TIMEOUT
        case aiohttp.ClientResponseError():
            return NOT_HTTP
        case ValueError() | aiohttp.InvalidURL():
            return UNSENDABLE
        case _ if begun:
            return INCOMPLETE
        case _:  # TLS 1.3 lets a server refuse our certificate only after our side has finished its handshake
            return TLS_ALERT if isinstance(error.__cause__, ssl.SSLError) else UNANSWERED
