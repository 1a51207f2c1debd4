"""What can go wrong on the way to an upstream: aiohttp's exceptions -> `UpstreamFault`, as one table.

Each fault has its error type of RFC 9209 section 2.3 (shown in `Proxy-Status`, used as metric label) and says whether
the tool may have run (contract section 7): `no` only where the request was provably never sent. A connection that
breaks while an answer is awaited proves nothing, and neither does a timeout.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Final

import aiohttp

from proxy.core.codes import (
    OVERLOADED,
    UPSTREAM_BAD_ANSWER,
    UPSTREAM_TIMEOUT,
    UPSTREAM_UNAVAILABLE,
    ErrorCode,
)
from proxy.core.model import Executed, UpstreamFault


@dataclass(frozen=True, slots=True)
class Fault:
    """One row: what the exception means."""

    code: ErrorCode
    token: str
    executed: Executed
    message: str

    def of(self, upstream: str) -> UpstreamFault:
        """The fault of one named upstream. The exception's own words stay out: they may name addresses."""
        return UpstreamFault(self.code, self.token, self.executed, f"upstream '{upstream}': {self.message}")


CONNECTION_LIMIT: Final = Fault(
    OVERLOADED, "connection_limit_reached", Executed.NO, "every connection to it is busy"
)  # fmt: skip
RESPONSE_TIMEOUT: Final = Fault(
    UPSTREAM_TIMEOUT, "http_response_timeout", Executed.UNKNOWN, "no complete answer in time"
)  # fmt: skip
UNASKED_UPGRADE: Final = Fault(
    UPSTREAM_BAD_ANSWER, "http_protocol_error", Executed.UNKNOWN, "switched protocols without being asked"
)  # fmt: skip

_REFUSED = Fault(UPSTREAM_UNAVAILABLE, "connection_refused", Executed.NO, "the connection was refused")
_UNROUTABLE = Fault(UPSTREAM_UNAVAILABLE, "destination_ip_unroutable", Executed.NO, "there is no way to its address")
_UNAVAILABLE = Fault(UPSTREAM_UNAVAILABLE, "destination_unavailable", Executed.NO, "no connection could be made")

_BY_ERRNO: Final = {
    errno.ECONNREFUSED: _REFUSED,
    errno.ENOENT: _REFUSED,  # a unix socket that is not there
    errno.EHOSTUNREACH: _UNROUTABLE,
    errno.ENETUNREACH: _UNROUTABLE,
}

# The first row that fits decides, so a subclass stands before its base.
_TABLE: Final[tuple[tuple[type[Exception], Fault], ...]] = (
    (
        aiohttp.ClientConnectorCertificateError,
        Fault(UPSTREAM_UNAVAILABLE, "tls_certificate_error", Executed.NO, "its TLS certificate is not trusted"),
    ),
    (aiohttp.ClientSSLError, Fault(UPSTREAM_UNAVAILABLE, "tls_protocol_error", Executed.NO, "TLS failed")),
    (aiohttp.ClientConnectorDNSError, Fault(UPSTREAM_UNAVAILABLE, "dns_error", Executed.NO, "its name is unknown")),
    (aiohttp.ClientConnectorError, _UNAVAILABLE),
    (
        aiohttp.ConnectionTimeoutError,
        Fault(UPSTREAM_TIMEOUT, "connection_timeout", Executed.NO, "no connection was made in time"),
    ),
    (TimeoutError, RESPONSE_TIMEOUT),
    (
        aiohttp.ServerDisconnectedError,
        Fault(UPSTREAM_BAD_ANSWER, "connection_terminated", Executed.UNKNOWN, "it closed the connection unanswered"),
    ),
    (
        aiohttp.ClientPayloadError,
        Fault(UPSTREAM_BAD_ANSWER, "http_response_incomplete", Executed.UNKNOWN, "its answer broke off"),
    ),
    (
        aiohttp.ClientResponseError,
        Fault(UPSTREAM_BAD_ANSWER, "http_protocol_error", Executed.UNKNOWN, "its answer is not valid HTTP"),
    ),
    (
        aiohttp.InvalidURL,
        Fault(UPSTREAM_UNAVAILABLE, "proxy_configuration_error", Executed.NO, "its URL is not valid"),
    ),
    (
        OSError,
        Fault(UPSTREAM_BAD_ANSWER, "connection_terminated", Executed.UNKNOWN, "the connection broke"),
    ),
    (
        aiohttp.ClientError,
        Fault(UPSTREAM_BAD_ANSWER, "proxy_internal_error", Executed.UNKNOWN, "the request failed"),
    ),
)  # fmt: skip

# What `fault_of` understands; anything else is a defect of ours and is not caught.
CLIENT_ERRORS: Final = (aiohttp.ClientError, OSError)


def fault_of(error: Exception, upstream: str) -> UpstreamFault:
    """The fault that an exception of aiohttp's client stands for (TimeoutError is an OSError since Python 3.10)."""
    row = next(fault for kind, fault in _TABLE if isinstance(error, kind))
    if row is _UNAVAILABLE and isinstance(error, OSError):
        row = _BY_ERRNO.get(error.errno or 0, row)
    return row.of(upstream)
