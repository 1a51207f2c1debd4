"""Connects an MCP client on standard input and output to a listener of this process.

Each line of the client becomes an HTTP request, and each message in an answer becomes a line.

    Bridge.run   reads lines until the client closes its end, then waits briefly for the answers under way
    _post        sends one message with the headers of its revision; the answer is JSON or server-sent events
    _listen      reads the GET stream of a session, opened after `initialize` and again whenever it breaks off

Only messages are written. An HTTP answer without a message, such as a 503, becomes a JSON-RPC error with the request's
own id, so that every request gets an answer (specification, "Transports", "stdio").
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp

from proxy.core.json.jsontext import TextLimits, dumps, parse
from proxy.core.model.values import ABSENT, JsonProblem, JsonValue, RawRequest
from proxy.extensions.mcp.adapters.mcplist import read_page
from proxy.extensions.mcp.adapters.mcpmessage import (
    LIST,
    SESSION_HEADER,
    VERSION_HEADER,
    Message,
    Mirror,
    find_mirrors,
    make_headers,
    read_message,
)

INITIALIZE: Final = "initialize"
_LIMITS: Final = TextLimits(depth=128, nodes=2_000_000)
_PARSE_ERROR: Final = -32700
_INVALID_REQUEST: Final = -32600
_TRANSPORT_ERROR: Final = -32000
_ACCEPT: Final = "application/json, text/event-stream"
# How long to wait before a GET stream that broke off is opened again, in seconds.
_AGAIN: Final = 1.0
# The most lines that wait for an earlier one; then the client has to wait before it can write more.
_MOST_WAITING: Final = 1_000
# The seconds that answers may still take after the client has closed its end: clients kill a process after 2 s.
_LAST_ANSWERS: Final = 1.5
# The longest event in bytes, equal to the longest message of a server.
_EVENT: Final = 64 * 1024 * 1024


_INITIALIZED: Final = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'


@dataclass(frozen=True, slots=True)
class _Problem:
    """Why a message got no answer: the code and text of the JSON-RPC error, and whether the session is over."""

    code: int
    reason: str
    session_is_over: bool = False


async def carry(
    lines: AsyncIterator[bytes],
    write: Callable[[bytes], Awaitable[None]],
    socket: Path,
    path: str,
    headers: Mapping[str, str],
) -> None:
    """Serves one client through the listener at a unix socket. Each line is sent to `path` with `headers`."""
    connector, timeout = aiohttp.UnixConnector(str(socket), limit=0), aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        await Bridge(session, f"http://localhost{path}", write, headers).run(lines)


async def _read_each(lines: AsyncIterator[bytes], waiting: asyncio.Queue[bytes]) -> None:
    """Puts the client's lines into the queue, and an empty line after the last one."""
    async for line in lines:
        if line.strip():
            await waiting.put(line.strip())
    await waiting.put(b"")


class Bridge:
    """Serves one client. `write` writes one message without line breaks; `headers` are sent with every request."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        write: Callable[[bytes], Awaitable[None]],
        headers: Mapping[str, str],
    ) -> None:
        self._http = session
        self._url = url
        self._write = write
        self._headers = dict(headers)
        self._session_id = ""
        self._revision = ""
        self._mirrors: dict[str, tuple[Mirror, ...]] = {}
        self._initialize = b""
        self._renewing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening: asyncio.Task[None] | None = None

    async def run(self, lines: AsyncIterator[bytes]) -> None:
        """Serves the client until its lines end."""
        waiting: asyncio.Queue[bytes] = asyncio.Queue(_MOST_WAITING)
        taking = asyncio.create_task(self._take_each(waiting))
        reading = asyncio.create_task(_read_each(lines, waiting))
        try:
            await asyncio.wait({reading, taking}, return_when=asyncio.FIRST_COMPLETED)
            if not taking.done():  # the client has closed its end, and some answers are still missing
                await asyncio.wait({taking}, timeout=_LAST_ANSWERS)
            for task in (reading, taking):
                if task.done():
                    task.result()
        finally:
            reading.cancel()
            taking.cancel()
            if self._listening is not None:
                self._listening.cancel()
            for task in self._tasks:
                task.cancel()
            await self._end_session()

    async def _take_each(self, waiting: asyncio.Queue[bytes]) -> None:
        """Sends the client's lines in order until the empty line, then waits for the answers under way."""
        while line := await waiting.get():
            await self._take(line)
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _take(self, line: bytes) -> None:
        message = read_message(RawRequest("POST", "", "", (), line, {}, ""), _LIMITS)
        if isinstance(message, JsonProblem):
            await self._write(_error(None, _PARSE_ERROR, f"Parse error: {message.reason}"))
        elif not isinstance(message, Message):
            await self._write(_error(None, _INVALID_REQUEST, "Invalid Request: batches are not spoken over stdio"))
        elif message.method == INITIALIZE or message.id is ABSENT or not message.method:
            await self._post(message, line)  # later messages build on it
        else:
            task = asyncio.create_task(self._post(message, line))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _post(self, message: Message, line: bytes) -> None:
        """Sends one message and writes its answer. If the session has ended, begins a new one and sends the message
        again: a stdio client cannot be told of it, and a 404 means that nothing ran."""
        session_id = self._session_id
        problem = await self._exchange(message, line)
        is_over = problem is not None and problem.session_is_over and message.method != INITIALIZE
        if is_over and await self._renew(session_id):
            problem = await self._exchange(message, line)
        if problem is not None and message.id is not ABSENT and message.method:
            await self._write(_error(message.id, problem.code, problem.reason))

    async def _exchange(self, message: Message, line: bytes) -> _Problem | None:
        """Sends one message and writes its answer. Returns what went wrong where no answer came."""
        answered = False
        told = b""
        try:
            async with self._http.post(self._url, data=line, headers=self._headers_of(message)) as response:
                async for text in _messages(response):
                    is_answer = _answers(text, message.id)
                    answered = answered or is_answer
                    if response.status < 400 or is_answer:
                        await self._write(text)
                    else:
                        told = text
                    if message.method == LIST:
                        self._learn(text)
                    if message.method == INITIALIZE and response.status == 200:
                        self._initialize = line
                        self._begin_session(response, text)
                return None if answered else _problem(response.status, told)
        except (aiohttp.ClientError, TimeoutError) as error:
            return _Problem(_TRANSPORT_ERROR, f"the server's answer broke off: {type(error).__name__}")

    async def _renew(self, session_id: str) -> bool:
        """Begins a new session in place of one that refused a message. Returns whether there is a new one now."""
        async with self._renewing:
            if self._session_id != session_id:
                return True  # another message has begun it already
            if not session_id or not self._initialize:
                return False
            headers = {**self._headers, "accept": _ACCEPT, "content-type": "application/json"}
            try:
                async with self._http.post(self._url, data=self._initialize, headers=headers) as response:
                    texts = [text async for text in _messages(response)]
                    if response.status != 200 or not texts:
                        return False
                    self._begin_session(response, texts[-1])
                headers |= {SESSION_HEADER: self._session_id, VERSION_HEADER: self._revision}
                async with self._http.post(self._url, data=_INITIALIZED, headers=headers) as response:
                    return response.status < 400
            except (aiohttp.ClientError, TimeoutError):
                return False

    def _headers_of(self, message: Message) -> dict[str, str]:
        headers = {**self._headers, "accept": _ACCEPT, "content-type": "application/json"}
        if message.modern:
            name = message.param("name")
            return headers | dict(make_headers(message, self._mirrors.get(name, ()) if isinstance(name, str) else ()))
        if self._session_id and message.method != INITIALIZE:
            headers[SESSION_HEADER] = self._session_id
        if self._revision and message.method != INITIALIZE:
            headers[VERSION_HEADER] = self._revision
        return headers

    def _learn(self, text: bytes) -> None:
        """Learns which parameters of the listed tools have to be repeated in headers."""
        answer = parse(text, _LIMITS)
        page = read_page(answer) if isinstance(answer, dict) else None
        for tool in page.tools if page is not None else ():
            self._mirrors[tool.name] = find_mirrors(tool.schema)

    def _begin_session(self, response: aiohttp.ClientResponse, text: bytes) -> None:
        """Notes the id and the revision of a session that has begun, and opens its GET stream."""
        answer = parse(text, _LIMITS)
        result = answer.get("result") if isinstance(answer, dict) else None
        revision = result.get("protocolVersion") if isinstance(result, dict) else None
        self._revision = revision if isinstance(revision, str) else ""
        self._session_id = response.headers.get(SESSION_HEADER, "")
        if self._listening is not None:
            self._listening.cancel()
        self._listening = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        headers = {**self._headers, "accept": "text/event-stream"}
        headers |= {SESSION_HEADER: self._session_id} if self._session_id else {}
        headers |= {VERSION_HEADER: self._revision} if self._revision else {}
        while True:
            try:
                async with self._http.get(self._url, headers=headers) as response:
                    if response.status != 200:
                        return  # 405: the server has no such stream
                    async for text in _messages(response):
                        await self._write(text)
            except (aiohttp.ClientError, TimeoutError):
                pass  # the stream is opened again below, as a client of Streamable HTTP would do
            await asyncio.sleep(_AGAIN)

    async def _end_session(self) -> None:
        if not self._session_id:
            return
        headers = {**self._headers, SESSION_HEADER: self._session_id, VERSION_HEADER: self._revision}
        try:
            async with self._http.delete(self._url, headers=headers):
                self._session_id = ""
        except (aiohttp.ClientError, TimeoutError):
            return  # the server cannot be reached, so the session is over


async def _messages(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yields the messages of an answer, each as one line: the body, or the data of each event."""
    if response.content_type != "text/event-stream":
        body = await response.read()
        if body.strip():
            yield _one_line(body)
        return
    data: list[bytes] = []
    async for line in _lines(response.content):
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif not line and data:
            text = b"\n".join(data)
            data = []
            if text.strip():
                yield _one_line(text)


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yields lines of any length up to the longest event."""
    rest = b""
    async for piece in content.iter_any():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r")
        if len(rest) > _EVENT:
            raise aiohttp.ClientPayloadError("an event is too long")


def _one_line(text: bytes) -> bytes:
    # JSON has line breaks between tokens only; inside a string they are escaped (RFC 8259 section 7).
    return text.replace(b"\n", b" ").replace(b"\r", b" ").strip()


def _answers(text: bytes, request_id: JsonValue) -> bool:
    """Whether a message is the answer to the request `request_id`."""
    value = parse(text, _LIMITS)
    return isinstance(value, dict) and "method" not in value and value.get("id", ABSENT) == request_id


def _problem(status: int, text: bytes) -> _Problem:
    """The error in an answer without a result, or one made from its status."""
    value = parse(text, _LIMITS) if text else None
    error = value.get("error") if isinstance(value, dict) else None
    code, reason = (error.get("code"), error.get("message")) if isinstance(error, dict) else (None, None)
    if isinstance(code, int) and isinstance(reason, str):
        return _Problem(code, reason, status == 404)
    return _Problem(_TRANSPORT_ERROR, f"the server answered HTTP {status} and no message", status == 404)


def _error(request_id: JsonValue, code: int, message: str) -> bytes:
    return dumps({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}})
