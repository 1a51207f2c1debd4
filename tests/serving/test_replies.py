"""Answers that cannot be written to their end, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from aiohttp import web

from proxy.call_record import CallRecord
from proxy.core.model.values import Delivered, UpstreamReply
from proxy.server.http.framing import Response
from proxy.server.http.request_head import BadRequest
from proxy.server.http.responses import deliver
from proxy.server.listener import Listener


class Body(AsyncIterator[bytes]):
    """An upstream's answer; `closed` once nobody wants more of it."""

    closed = False

    async def __anext__(self) -> bytes:
        return b"x"

    async def aclose(self) -> None:
        self.closed = True


def malformed(why: BadRequest) -> Response:
    """Nothing here is."""
    return Response(why.code.status, [], why.message.encode())


async def test_a_client_that_is_gone_when_its_answer_is_written_counts_as_gone_and_not_as_a_defect() -> None:
    body, outcomes = Body(), list[str]()
    begun, done = asyncio.Event(), asyncio.Event()

    async def late(request: web.BaseRequest) -> web.StreamResponse:
        """Answers although it was cancelled because the client has gone, like code that cannot be cancelled."""
        begun.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(10)
        try:
            return await deliver(
                Delivered(UpstreamReply(200, (), body)), lambda: request, (), CallRecord("r", "/a"), closing=False
            )
        except asyncio.CancelledError:
            outcomes.append("gone")
            raise
        finally:
            done.set()

    listener = Listener(late, malformed)
    server = await asyncio.get_running_loop().create_server(listener, "127.0.0.1", 0)
    _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    await begun.wait()
    writer.close()
    async with asyncio.timeout(300):
        await done.wait()
    server.close()

    assert (["gone"], True) == (outcomes, body.closed)
