"""What can go wrong on the way to an upstream, as rows: code, error type, whether the tool may have run.

The error types are those of RFC 9209 section 2.3 (shown in `Proxy-Status`, used as metric label). `executed` is `no`
only where the request was provably never sent (contract section 7): a connection that breaks while an answer is
awaited proves nothing, and neither does a timeout. The rows of our own connection are in `http1/faults.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from proxy.core.codes import OVERLOADED, UPSTREAM_BAD_ANSWER, UPSTREAM_TIMEOUT, ErrorCode
from proxy.core.model import Executed, UpstreamFault


@dataclass(frozen=True, slots=True)
class Fault:
    """One row: what happened means this."""

    code: ErrorCode
    token: str
    executed: Executed
    message: str

    def of(self, upstream: str) -> UpstreamFault:
        """The fault of one named upstream. An exception's own words stay out: they may name addresses."""
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
