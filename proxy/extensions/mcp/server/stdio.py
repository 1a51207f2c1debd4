"""Connects an MCP client on standard input and output to a listener of this process: the pump of its lines.

A line that is a request or a notification waits until the server has the one before it, so the server reads them in the
order in which they came. Nothing else waits behind a request:

    responses, pings   go at once, because a request that is under way may depend on them
    cancellations      follow the request that they name; one that is not sent yet is dropped instead

Answers and other messages of the server go to the client as they come (`stdio_session.py`). A line that is not strict
JSON is sent unchanged, too: the listener answers it as over HTTP, under the id that it can read in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import aiohttp

from proxy.core.model.values import ABSENT, Fields, JsonProblem, JsonValue, RawRequest
from proxy.extensions.mcp.adapters.mcpmessage import Message, MessageBatch, guess_message, read_message, write_id
from proxy.extensions.mcp.server.stdio_session import INITIALIZE, LIMITS, Line, StdioSession, Write, write_error

if TYPE_CHECKING:
    from proxy.plugin import Serving

_INVALID_REQUEST: Final = -32600
_PING: Final = "ping"
_CANCELLED: Final = "notifications/cancelled"
# The most lines that wait for an earlier one; beyond it the client has to wait.
_MOST_WAITING: Final = 1_000
# The seconds that a message may still take after the client has closed its end, and the first one, for which the server
# may have to start. Clients that do not want them kill the process, most of them after 2 s.
_NEXT_ANSWER: Final = 10.0
_FIRST_ANSWER: Final = 60.0
# How often to look whether the client still reads, in seconds.
_LOOK: Final = 1.5
_ENDLESS: Final = "subscriptions/listen"


async def carry(
    lines: AsyncIterator[bytes],
    write: Write,
    is_read: Callable[[], bool],
    socket: Path,
    path: str,
    headers: Mapping[str, str],
    *,
    serving: Serving,
    server: str = "",
) -> int:
    """Serves one client through the listener at a unix socket, and gives the number of requests without an answer. Each
    line is sent to `path` with `headers`; `serving` tells of each request that the server has. `server` is the URL
    behind the listener, if it is one."""
    connector, timeout = aiohttp.UnixConnector(str(socket), limit=0), aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:

        async def write_and_note(message: bytes) -> None:
            await write(message)
            pump.note_written()

        session = StdioSession(http, f"http://localhost{path}", write_and_note, headers, server)
        pump = LinePump(session, write, is_read)
        serving.listed.passed_on = pump.note_passed
        return await pump.run(lines)


class LinePump:
    """Serves one client. `write` writes one message without line breaks; `is_read` says whether the client still reads
    messages."""

    def __init__(self, session: StdioSession, write: Write, is_read: Callable[[], bool]) -> None:
        self._session = session
        self._is_read = is_read
        self._write = write
        self._written: float | None = None
        self._ordered: asyncio.Queue[Line | None] = asyncio.Queue(_MOST_WAITING)
        self._requests: dict[bytes, Line] = {}
        self._at_once: set[Line] = set()
        self._tasks: set[asyncio.Future[None]] = set()
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, lines: AsyncIterator[bytes]) -> int:
        """Serves the client until its lines end and their requests are answered. Gives the number of requests that were
        not answered in time."""
        reading = asyncio.create_task(self._read_each(lines))
        sending = asyncio.create_task(self._send_each())
        try:
            await asyncio.wait({reading, sending, self._failure}, return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                await self._await_answers({sending, self._failure})
            for task in (reading, sending, self._failure):
                if task.done():
                    task.result()
            return len(self._find_awaited()) if reading.done() and not sending.done() else 0
        finally:
            for task in (reading, sending, self._failure, *self._tasks):
                task.cancel()
            await self._session.end()

    async def _await_answers(self, ends: set[asyncio.Future[None]]) -> None:
        """Waits for missing answers after the client has closed its end, as long as they come and it reads them."""
        now = asyncio.get_running_loop().time
        since = now()
        while not any(end.done() for end in ends) and self._is_read():
            await asyncio.wait(ends, timeout=_LOOK, return_when=asyncio.FIRST_COMPLETED)
            limit = _FIRST_ANSWER if self._written is None else _NEXT_ANSWER
            if now() > max(since, self._written or 0.0) + limit:
                break

    def note_written(self) -> None:
        """Notes that the client got a message."""
        self._written = asyncio.get_running_loop().time()

    def note_passed(self, request_id: JsonValue) -> None:
        """Notes that the server has the request `request_id`. `initialize` counts once it is answered, because later
        lines are sent in the session that it begins."""
        line = self._requests.get(write_id(request_id))
        if line is not None and line.message.method != INITIALIZE:
            line.was_sent = True
            line.passed.set()

    async def _read_each(self, lines: AsyncIterator[bytes]) -> None:
        async for text in lines:
            if text := text.strip():
                await self._take(text)
        await self._ordered.put(None)

    async def _take(self, text: bytes) -> None:
        message = read_line(text)
        if isinstance(message, MessageBatch):
            await self._write(write_error(None, _INVALID_REQUEST, "Invalid Request: batches are not spoken over stdio"))
            return
        line = Line(text, message, tuple(self._at_once))
        if line.is_request:
            self._requests[write_id(message.id)] = line
        is_cancellation = message.method == _CANCELLED and message.id is ABSENT
        target = self._requests.get(write_id(message.param("requestId"))) if is_cancellation else None
        if target is not None:
            self._start(line, self._cancel(line, target), at_once=True)
        elif message.method == _PING or (not message.method and message.id is not ABSENT):
            self._start(line, self._session.carry(line), at_once=True)
        else:
            await self._ordered.put(line)

    async def _send_each(self) -> None:
        """Sends the lines that have an order, then waits for the answers under way."""
        while (line := await self._ordered.get()) is not None:
            for earlier in line.after:
                await earlier.passed.wait()
            if line.is_cancelled:
                self._forget(line)
                continue
            self._start(line, self._session.carry(line), at_once=False)
            await line.passed.wait()
        awaited = {line.task for line in (*self._find_awaited(), *self._at_once) if line.task is not None}
        if awaited:
            await asyncio.wait(awaited)

    def _find_awaited(self) -> list[Line]:
        """The requests whose answers the client waits for."""
        return [one for one in self._requests.values() if not one.is_cancelled and one.message.method != _ENDLESS]

    async def _cancel(self, line: Line, target: Line) -> None:
        """Sends a cancellation once the server has the request `target`. A request of the revisions without sessions
        is cancelled at a URL by the end of its exchange (specification, "Cancellation")."""
        target.is_cancelled = True
        if target.task is None:
            return
        await target.passed.wait()
        if not target.was_sent:
            return  # it was answered here
        await self._session.carry(line)
        if target.message.modern:
            target.task.cancel()

    def _start(self, line: Line, work: Awaitable[None], *, at_once: bool) -> None:
        """Sends a line in a separate task; `at_once` before lines that came earlier."""
        if at_once:
            self._at_once.add(line)
        line.task = task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(lambda _: self._end(line))

    def _end(self, line: Line) -> None:
        """Forgets a line whose task is over. An unexpected error in it ends the pump."""
        self._forget(line)
        task = line.task
        if task is not None and not task.cancelled() and task.exception() is not None and not self._failure.done():
            self._failure.set_exception(task.exception() or RuntimeError())

    def _forget(self, line: Line) -> None:
        line.passed.set()
        self._at_once.discard(line)
        if line.task is not None:
            self._tasks.discard(line.task)
        if line.is_request and self._requests.get(own := write_id(line.message.id)) is line:
            del self._requests[own]


def read_line(text: bytes) -> Message | MessageBatch:
    """The message in a line. One that is not strict JSON is read as far as possible, and may lack id and method."""
    raw = RawRequest("POST", "", "", Fields(), text, {}, "")
    found = read_message(raw, LIMITS)
    return guess_message(raw) or Message(ABSENT, "") if isinstance(found, JsonProblem) else found
