"""Answers whose body is not kept in memory: how one breaks off, and how one is given up."""

from __future__ import annotations

from proxy.core.model import UpstreamFault, UpstreamReply


class ReplyBroken(Exception):  # noqa: N818 - it names an event, not a mistake of ours
    """A streamed answer broke off after its head was handed on. `fault` says how."""

    def __init__(self, fault: UpstreamFault) -> None:
        super().__init__(fault.message)
        self.fault = fault


async def close_body(reply: UpstreamReply) -> None:
    """Gives up an answer whose body nobody will read to its end."""
    close = getattr(reply.body, "aclose", None)
    if close is not None:
        await close()
