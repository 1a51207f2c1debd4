"""Answers in tiny chunks: a turn of the loop parses a bounded part of their framing, and nothing of them is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from proxy.core.model.values import UpstreamReply
from proxy.upstream import ReplyBroken
from proxy.upstream.http1.connection import FRAMING_PER_TURN
from tests.serving.wire import answer
from tests.upstream.test_http1_relay import Serve, before_raw, request, streamed

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
TINY = b"1\r\nx\r\n"
LAST = b"0\r\n\r\n"


def serving(body: bytes, *, more: bool = True) -> Serve:
    """A server that sends one answer in a single write; then other ones, or the end of the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(CHUNKED + body)
        if not more:
            writer.close()
            return
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer("200 OK", b"next"))

    return serve


async def read_all(pieces: AsyncIterator[bytes]) -> list[bytes]:
    return [piece async for piece in pieces]


async def test_parses_a_bounded_number_of_chunks_in_each_turn_of_the_loop() -> None:
    async with before_raw(serving(TINY * 40_000 + LAST)) as upstream:
        reply = await upstream.relay(request("GET"), None)
        pieces = [len(piece) async for piece in streamed(reply)]
        following = await upstream.relay(request("GET"), None)

    assert isinstance(following, UpstreamReply)
    assert (40_000, b"next") == (sum(pieces), following.body)
    assert 2 * FRAMING_PER_TURN // 5 >= max(pieces)  # the reader may be a turn behind


async def test_reads_the_whole_answer_if_the_server_closes_behind_it() -> None:
    async with before_raw(serving(TINY * 40_000 + LAST, more=False)) as upstream:
        reply = await upstream.relay(request("GET"), None)
        assert 40_000 == sum([len(piece) async for piece in streamed(reply)])


async def test_reports_an_answer_that_breaks_off_after_its_bytes() -> None:
    async with before_raw(serving(TINY * 40_000, more=False)) as upstream:
        pieces = streamed(await upstream.relay(request("GET"), None))
        seen = 0
        while seen < 40_000:
            seen += len(await anext(pieces))
        with pytest.raises(ReplyBroken):
            await anext(pieces)


@pytest.mark.parametrize("size", [60_000, 5_000, 100])
async def test_reads_chunks_of_usual_sizes(size: int) -> None:
    count = 3_000_000 // size
    async with before_raw(serving(b"%x\r\n%b\r\n" % (size, b"y" * size) * count + LAST)) as upstream:
        reply = await upstream.relay(request("GET"), None)
        assert size * count == sum([len(piece) async for piece in streamed(reply)])


async def test_holds_a_bounded_part_for_a_reader_that_is_slow() -> None:
    async with before_raw(serving(TINY * 200_000 + LAST)) as upstream:
        reply = await upstream.relay(request("GET"), None)
        body = streamed(reply)
        first = await anext(body)
        await asyncio.sleep(0.2)
        second = await anext(body)
        assert len(second) < 128 * 1024
        assert 200_000 == len(first) + len(second) + sum([len(piece) async for piece in body])


async def test_refuses_bytes_behind_the_last_chunk() -> None:
    async with before_raw(serving(TINY * 40_000 + LAST + b"HTTP/1.1 200 OK\r\n\r\n", more=False)) as upstream:
        reply = await upstream.relay(request("GET"), None)
        assert isinstance(reply, UpstreamReply)
        with pytest.raises(ReplyBroken):
            await read_all(streamed(reply))
