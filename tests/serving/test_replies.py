"""Answers that cannot be written to their end, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from proxy.app.http1.answer import Answer
from proxy.app.http1.request import Request
from proxy.app.listener import Listener
from proxy.app.replies import deliver
from proxy.core.codes import ErrorCode
from proxy.core.model import Delivered, UpstreamReply
from proxy.interfaces import CallRecord


class Body(AsyncIterator[bytes]):
    """An upstream's answer; `closed` once nobody wants more of it."""

    closed = False

    async def __anext__(self) -> bytes:
        return b"x"

    async def aclose(self) -> None:
        self.closed = True


def malformed(code: ErrorCode, message: str, status: int | None = None) -> Answer:
    """Nothing here is."""
    return Answer(status or code.status, [], message.encode())


async def test_a_client_that_is_gone_when_its_answer_is_written_counts_as_gone_and_not_as_a_defect() -> None:
    body, outcomes = Body(), list[str]()
    done = asyncio.Event()

    async def late(request: Request) -> Answer | None:
        """Answers although it was told that the client has gone, as what cannot be cancelled does."""
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(10)
        try:
            return await deliver(Delivered(UpstreamReply(200, (), body)), request, CallRecord("r", "/a"), False)
        except asyncio.CancelledError:
            outcomes.append("gone")
            raise
        finally:
            done.set()

    listener = Listener(late, malformed)
    server = await asyncio.get_running_loop().create_server(listener, "127.0.0.1", 0)
    _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    await asyncio.sleep(0.02)
    writer.close()
    async with asyncio.timeout(2):
        await done.wait()
    server.close()

    assert (["gone"], True) == (outcomes, body.closed)
