"""A server that says it is Redis and answers wrongly: no call fails or waits because of it, and counting continues
here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from proxy.core.model.values import FailedAttempt
from proxy.extensions.redis.redis_section import RedisSettings
from proxy.interfaces import ConnectedStore
from proxy.server.setup.services import SystemClock
from proxy.state import StoreChange, make_store

# The reply to a script; the server's other replies are in order. b"" sends nothing, and CUT breaks off.
CUT = b"$100\r\nhalf"
ANSWERS = {
    "another type": b":5\r\n",
    "text": b"$5\r\nhello\r\n",
    "nothing": b"$-1\r\n",
    "no array": b"*-1\r\n",
    "an empty array": b"*0\r\n",
    "too few": b"*1\r\n:1\r\n",
    "other kinds": b"*3\r\n$1\r\nx\r\n*1\r\n:1\r\n$-1\r\n",
    "a count below zero": b"*3\r\n:-7\r\n:0\r\n*0\r\n",
    "a length without end": b"$99999999999999\r\nx",
    "an array without end": b"*2147483647\r\n:1\r\n",
    "nested without end": b"*1\r\n" * 20_000,
    "another protocol": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "bytes": b"\x00\xff\x00\xff\r\n",
    "a number that is none": b":x\r\n",
    "an error": b"-LOADING Redis is loading\r\n",
    "an error without words": b"-\r\n",
    "half an answer": CUT,
    "silence": b"",
    "two answers": b":1\r\n:2\r\n",
}


@asynccontextmanager
async def lying(answer: bytes) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server that takes every greeting and answers each script with these bytes; gives its port and its requests."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError, ValueError):
            while True:
                words = []
                for _ in range(int((await reader.readuntil(b"\r\n"))[1:])):
                    size = int((await reader.readuntil(b"\r\n"))[1:])
                    words.append((await reader.readexactly(size + 2))[:-2])
                asked.append(words[0].upper())
                writer.write(answer if words[0].upper() in (b"EVALSHA", b"EVAL") else b"+OK\r\n")
                await writer.drain()
                if answer is CUT and words[0].upper() == b"EVALSHA":
                    break
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], asked
    finally:
        server.close()


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
async def test_counts_failures_without_waiting_for_any_answer_of_the_server(answer: bytes) -> None:
    told: list[StoreChange] = []
    async with lying(answer) as (port, asked):
        settings = RedisSettings(hosts=(("127.0.0.1", port),), connect_timeout=0.3, operation_timeout=0.3)
        store = make_store("redis", SystemClock(), 1000, settings, told.append)
        assert isinstance(store, ConnectedStore)
        await store.open()
        started = asyncio.get_running_loop().time()
        first = await store.fail("one/tool", FailedAttempt("a", ("line a",)), 60)
        second = await store.fail("one/tool", FailedAttempt("b", ("line b",)), 60)
        known = await store.look("one/tool")
        seconds = asyncio.get_running_loop().time() - started
        await store.close()

    assert (1, 2) == (first.episode.count, second.episode.count)
    assert known == second.episode
    assert b"EVALSHA" in asked
    assert told[0].reason
    assert seconds < 3
