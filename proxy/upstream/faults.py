"""The ways an upstream can fail, as rows: error code, error type, and whether the tool may have run.

Error types come from RFC 9209 section 2.3; `Proxy-Status` and a metric label show them. `executed` is `no` only where
the request was provably never sent (contract section 7): a timeout proves nothing, and neither does a connection that
breaks while an answer is awaited. `http1/faults.py` adds the rows of HTTP connections.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final

from proxy.core.model.codes import OVERLOADED, UPSTREAM_BAD_ANSWER, UPSTREAM_TIMEOUT, ErrorCode
from proxy.core.model.value_class import value_class
from proxy.core.model.values import Executed, UpstreamFault, UpstreamReply


@value_class
class FaultKind:
    """One row: what happened means this."""

    code: ErrorCode
    token: str
    executed: Executed
    message: str

    def of(self, upstream: str) -> UpstreamFault:
        """The fault of one named upstream. It never quotes the exception, which may name addresses."""
        return UpstreamFault(self.code, self.token, self.executed, f"upstream '{upstream}': {self.message}")


CONNECTION_LIMIT: Final = FaultKind(
    OVERLOADED, "connection_limit_reached", Executed.NO, "every connection to it is busy"
)  # fmt: skip
RESPONSE_TIMEOUT: Final = FaultKind(
    UPSTREAM_TIMEOUT, "http_response_timeout", Executed.UNKNOWN, "no complete answer in time"
)  # fmt: skip
UNASKED_UPGRADE: Final = FaultKind(
    UPSTREAM_BAD_ANSWER, "http_protocol_error", Executed.UNKNOWN, "switched protocols without being asked"
)  # fmt: skip


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
            self._tell()
            raise

    async def aclose(self) -> None:
        """Closes the stream early."""
        self._tell()
        await close_stream(self._body)

    def __del__(self) -> None:
        # A reader that forgets `aclose` must not keep a place for ever.
        self._tell()

    def _tell(self) -> None:
        end, self._end = self._end, None
        if end is not None:
            end()
