"""Streamed answers: the error for one that breaks off, and how to give one up."""

from __future__ import annotations

from proxy.core.model.values import UpstreamFault, UpstreamReply


class ReplyBroken(Exception):  # noqa: N818 - it names an event
    """A streamed answer broke off after its head was passed on. `fault` says why."""

    def __init__(self, fault: UpstreamFault) -> None:
        super().__init__(fault.message)
        self.fault = fault


async def close_body(reply: UpstreamReply) -> None:
    """Closes an answer whose body will not be read to its end."""
    close = getattr(reply.body, "aclose", None)
    if close is not None:
        await close()
