"""The session of a client of standard input and output: each of its lines is one HTTP request to a listener.

    carry    sends a line and writes its answer; a session that has been lost is begun again
    resume   reads on where a stream with event ids broke off (specification 2025-11-25, "Resumability and Redelivery")
    listen   reads the GET stream of a session, opened after `initialize` and again whenever it breaks off

Only messages are written. An answer without a message, such as a 503, becomes an error with the request's own id, so
that every request gets an answer. A call gets a result that models read, any other request a JSON-RPC error.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import urlsplit

import aiohttp

from proxy.core.json.jsontext import TextLimits, dumps, parse
from proxy.core.model.value_class import value_class
from proxy.core.model.values import ABSENT, JsonValue
from proxy.extensions.mcp.adapters.mcp import make_result_message
from proxy.extensions.mcp.adapters.mcplist import read_page
from proxy.extensions.mcp.adapters.mcpmessage import (
    LIST,
    SESSION_HEADER,
    VERSION_HEADER,
    Message,
    Mirror,
    find_mirrors,
    make_headers,
    read_head,
    read_lenient,
    write_id,
)

INITIALIZE: Final = "initialize"
LIMITS: Final = TextLimits(depth=128, nodes=2_000_000)
# Writes one message to the client.
Write = Callable[[bytes], Awaitable[None]]

_PARSE_ERROR: Final = -32700
_TRANSPORT_ERROR: Final = -32000
_ACCEPT: Final = "application/json, text/event-stream"
_LAST_EVENT: Final = "last-event-id"
# How long to wait before a stream that broke off is opened again, in seconds, unless the server says it.
_AGAIN: Final = 1.0
# The shortest and the longest such time that a server may ask for, in seconds.
_SHORTEST_RETRY: Final = 0.05
_LONGEST_RETRY: Final = 60.0
# A stream ends after so many failed attempts in a row to resume it.
_MOST_FAILURES: Final = 3
# The longest event in bytes, equal to the longest message of a server.
_EVENT: Final = 64 * 1024 * 1024
_INITIALIZED: Final = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
# The parameter by which a challenge names the server's OAuth metadata (RFC 9728 section 5.1).
_METADATA: Final = re.compile(r'resource_metadata\s*=\s*"([^"\s]{1,2000})"', re.IGNORECASE)
_WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
_UNSURE: Final = "It is not known whether the tool ran: make sure before you repeat what must not happen twice."


@dataclass(slots=True, eq=False)
class Line:
    """One line of the client. `passed` is set once its server has it, or it need not be sent any more."""

    text: bytes
    message: Message
    after: tuple[Line, ...] = ()
    """Lines that are sent at once and came before this one."""
    passed: asyncio.Event = field(default_factory=asyncio.Event)
    was_sent: bool = False
    is_cancelled: bool = False
    task: asyncio.Future[None] | None = None

    @property
    def is_request(self) -> bool:
        """Returns whether the client waits for an answer."""
        return bool(self.message.method) and self.message.id is not ABSENT


@value_class
class _Problem:
    """The reason why a message got no answer: the code and text of the JSON-RPC error, whether the session is over, and
    whether the server may have run the request."""

    code: int
    reason: str
    session_is_over: bool = False
    may_have_run: bool = False


@dataclass(slots=True)
class _Position:
    """The position in a stream of events: the id of its last event ('' without one), and the seconds to wait before the
    stream is opened again."""

    last_id: str = ""
    retry: float = _AGAIN


class StdioSession:
    """The session of one client. `write` writes one message without line breaks; `headers` are sent with every request;
    `server` is the URL for texts, '' if there is none."""

    def __init__(
        self, http: aiohttp.ClientSession, url: str, write: Write, headers: Mapping[str, str], server: str = ""
    ) -> None:
        self._http = http
        self._url = url
        self._write = write
        self._headers = dict(headers)
        self._server = server
        self._session_id = ""
        self._revision = ""
        self._stateless = ""
        """The revision without sessions of the client's last message."""
        self._mirrors: dict[str, tuple[Mirror, ...]] = {}
        self._initialize = b""
        self._renewing = asyncio.Lock()
        self._listening: asyncio.Task[None] | None = None
        self._has_id = asyncio.Event()
        self._has_id.set()

    async def carry(self, line: Line) -> None:
        """Sends one line and writes its answer. If the session has ended, begins a new one and sends the line again:
        stdio has no word for an ended session, and a 404 means that nothing ran."""
        if line.message.method == INITIALIZE:
            self._has_id.clear()  # lines that are sent at once in the meantime need the session's id
        elif not line.message.modern:
            await self._has_id.wait()
        session_id = self._session_id
        try:
            problem = await self._exchange(line)
            is_over = problem is not None and problem.session_is_over and line.message.method != INITIALIZE
            if is_over and await self._renew(session_id):
                problem = await self._exchange(line)
        finally:
            self._has_id.set()
        if problem is not None:
            await self._tell_problem(line, problem)

    async def end(self) -> None:
        """Ends the session."""
        if self._listening is not None:
            self._listening.cancel()
        if not self._session_id:
            return
        try:
            async with self._http.delete(self._url, headers=self._in_session({})):
                self._session_id = ""
        except (aiohttp.ClientError, TimeoutError):
            return  # the server cannot be reached, so the session is over

    # --- one line -----------------------------------------------------------------------------------------------------
    async def _exchange(self, line: Line) -> _Problem | None:
        """Sends one line and writes its answers. Returns the problem where no answer came."""
        message, position = line.message, _Position()
        answered, error_text = False, b""
        try:
            async with self._http.post(self._url, data=line.text, headers=self._headers_of(message)) as response:
                if message.method == INITIALIZE and response.status == 200:
                    self._session_id = response.headers.get(SESSION_HEADER, "")
                    self._has_id.set()
                async for text in _read_messages(response, position):
                    is_answer = line.is_request and _answers(text, message.id)
                    answered = answered or is_answer
                    if response.status < 400 or is_answer:
                        await self._hand_on(text, line)
                    else:
                        error_text = text
                problem = self._find_problem(response, error_text)
        except (aiohttp.ClientError, TimeoutError) as error:
            reason = f"the server's answer broke off: {type(error).__name__}"
            problem = _Problem(_TRANSPORT_ERROR, reason, may_have_run=True)
        if answered or (not line.is_request and not problem.code):
            return None
        if position.last_id and line.is_request and not message.modern:
            return await self._resume(line, position)
        return problem

    async def _resume(self, line: Line, position: _Position) -> _Problem | None:
        """Resumes a stream that ended before the answer, as long as its server allows it."""
        failures = 0
        while failures < _MOST_FAILURES and not line.is_cancelled:
            await asyncio.sleep(position.retry)
            headers = self._in_session({"accept": "text/event-stream", _LAST_EVENT: position.last_id})
            failures += 1
            try:
                async with self._http.get(self._url, headers=headers) as response:
                    if response.status == 200:
                        async for text in _read_messages(response, position):
                            await self._hand_on(text, line)
                            if _answers(text, line.message.id):
                                return None
                        failures = 0
                    elif response.status < 500:
                        reason = f"its stream ended early and cannot be resumed (HTTP {response.status})"
                        return _Problem(_TRANSPORT_ERROR, f"the server gave no answer: {reason}", may_have_run=True)
            except (aiohttp.ClientError, TimeoutError):
                continue
        reason = f"the server gave no answer: its stream ended early, and {_MOST_FAILURES} attempts to resume it failed"
        return _Problem(_TRANSPORT_ERROR, reason, may_have_run=True)

    async def _hand_on(self, text: bytes, line: Line) -> None:
        """Learns from a message about a line, then writes it."""
        begins = line.message.method == INITIALIZE and _answers(text, line.message.id)
        if line.message.method == LIST and line.message.modern:
            self._learn(text)
        if begins:
            self._initialize = line.text
            self._note_revision(text)
        await self._write(text)
        if begins:
            self._open_stream()

    async def _tell_problem(self, line: Line, problem: _Problem) -> None:
        """Writes an error in place of an answer. The server gets one, too, where the line was the client's unreadable
        answer to its question."""
        message, reason = line.message, problem.reason.rstrip(".")
        if line.is_request and not line.is_cancelled:
            if message.is_call and (message.modern or message.param("task") is ABSENT):
                unsure = f"\n\n{_UNSURE}" if problem.may_have_run else ""
                content: JsonValue = [{"type": "text", "text": f"The call was not answered: {reason}.{unsure}"}]
                await self._write(dumps(make_result_message(message, {"isError": True, "content": content})))
            else:
                unsure = f". {_UNSURE}" if problem.may_have_run and message.is_call else ""
                await self._write(write_error(message.id, problem.code, reason + unsure))
        elif not message.method and message.id is ABSENT:
            await self._write(write_error(None, problem.code, reason))
        elif not message.method:
            refused = write_error(message.id, _PARSE_ERROR, f"the client's answer was refused: {reason}")
            with suppress(aiohttp.ClientError, TimeoutError):
                async with self._http.post(self._url, data=refused, headers=self._headers_of(message)):
                    pass

    def _find_problem(self, response: aiohttp.ClientResponse, text: bytes) -> _Problem:
        """The error in an answer without a result, or one made from its status. Code 0: no error."""
        status = response.status
        if status == 401:
            return _Problem(_TRANSPORT_ERROR, self._describe_challenge(response))
        error = read_lenient(text).get("error") if text else None
        code, reason = (error.get("code"), error.get("message")) if isinstance(error, dict) else (None, None)
        if isinstance(code, int) and isinstance(reason, str):
            return _Problem(code, reason, status == 404)
        if status < 300:
            return _Problem(
                0 if status == 202 else _TRANSPORT_ERROR, "the server's answer holds no message", may_have_run=True
            )
        return _Problem(_TRANSPORT_ERROR, f"the server answered HTTP {status} and no message", status == 404)

    def _describe_challenge(self, response: aiohttp.ClientResponse) -> str:
        """The meaning of a 401, and the next step."""
        found = _METADATA.search(response.headers.get("www-authenticate", ""))
        parts = urlsplit(self._server)
        usual = f"{parts.scheme}://{parts.netloc}{_WELL_KNOWN}{parts.path.removesuffix('/')}" if self._server else ""
        metadata = found[1] if found else usual
        where = f" It says how to get one at {metadata}." if metadata else ""
        return (
            f"the server asks for a token (HTTP 401).{where} Start `toolcall-proxy stdio` with "
            '--header "Authorization: Bearer TOKEN", or let a client that signs in itself use the URL of '
            "`toolcall-proxy serve --mcp`"
        )

    # --- the session --------------------------------------------------------------------------------------------------
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
                    texts = [text async for text in _read_messages(response, _Position())]
                    if response.status != 200 or not texts:
                        return False
                    self._session_id = response.headers.get(SESSION_HEADER, "")
                    self._note_revision(texts[-1])
                    self._open_stream()
                async with self._http.post(self._url, data=_INITIALIZED, headers=self._in_session(headers)) as response:
                    return response.status < 400
            except (aiohttp.ClientError, TimeoutError):
                return False

    def _note_revision(self, text: bytes) -> None:
        """Notes the revision of a session that has begun."""
        result = read_lenient(text).get("result")
        revision = result.get("protocolVersion") if isinstance(result, dict) else None
        self._revision = revision if isinstance(revision, str) else ""

    def _open_stream(self) -> None:
        """Opens the session's GET stream."""
        if self._listening is not None:
            self._listening.cancel()
        self._listening = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        position = _Position()
        while True:
            headers = self._in_session({"accept": "text/event-stream"})
            headers |= {_LAST_EVENT: position.last_id} if position.last_id else {}
            try:
                async with self._http.get(self._url, headers=headers) as response:
                    if response.status != 200:
                        return  # 405: the server has no such stream
                    async for text in _read_messages(response, position):
                        await self._write(text)
            except (aiohttp.ClientError, TimeoutError):
                pass  # the stream is opened again below, as a client of Streamable HTTP would do
            await asyncio.sleep(position.retry)

    def _headers_of(self, message: Message) -> dict[str, str]:
        headers = {**self._headers, "accept": _ACCEPT, "content-type": "application/json"}
        if message.modern or message.method == INITIALIZE:
            self._stateless = message.revision
        elif self._stateless and not self._session_id:
            message = replace(message, revision=self._stateless)  # notifications do not say it
        if message.modern:
            name = message.param("name")
            return headers | dict(make_headers(message, self._mirrors.get(name, ()) if isinstance(name, str) else ()))
        return headers if message.method == INITIALIZE else self._in_session(headers)

    def _in_session(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Headers of a request in the session."""
        return {
            **self._headers,
            **headers,
            **({SESSION_HEADER: self._session_id} if self._session_id else {}),
            **({VERSION_HEADER: self._revision} if self._revision else {}),
        }

    def _learn(self, text: bytes) -> None:
        """Learns which parameters of the listed tools have to be repeated in headers."""
        answer = parse(text, LIMITS)
        page = read_page(answer) if isinstance(answer, dict) else None
        for tool in page.tools if page is not None else ():
            self._mirrors[tool.name] = find_mirrors(tool.schema)


async def _read_messages(response: aiohttp.ClientResponse, position: _Position) -> AsyncIterator[bytes]:
    """Yields the messages of an answer, each as one line: the body, or the data of each event. `position` follows the
    events (WHATWG HTML, "Interpreting an event stream")."""
    if response.content_type != "text/event-stream":
        body = await response.read()
        if body.strip():
            yield _write_line(body)
        return
    data: list[bytes] = []
    async for line in _read_lines(response.content):
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            data.append(value)
        elif name == b"id" and not {0, 13} & set(value):  # no NUL, and no carriage return in a header
            position.last_id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit():
            position.retry = min(max(int(value[:9]) / 1000, _SHORTEST_RETRY), _LONGEST_RETRY)
        elif not line and data:
            text = b"\n".join(data)
            data = []
            if text.strip():
                yield _write_line(text)


async def _read_lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yields lines of any length up to the longest event."""
    parts, size = list[bytes](), 0
    async for piece in content.iter_any():
        *ends, rest = piece.split(b"\n")
        for end in ends:
            yield b"".join((*parts, end)).removesuffix(b"\r")
            parts, size = [], 0
        parts.append(rest)
        size += len(rest)
        if size > _EVENT:
            raise aiohttp.ClientPayloadError("an event is too long")


def _write_line(text: bytes) -> bytes:
    # JSON has line breaks between tokens only; inside a string they are escaped (RFC 8259 section 7).
    return text.replace(b"\n", b" ").replace(b"\r", b" ").strip()


def _answers(text: bytes, request_id: JsonValue) -> bool:
    """Returns whether a message is the answer to the request `request_id`."""
    value = read_head(text)
    return "method" not in value and b"" != write_id(value.get("id")) == write_id(request_id)


def write_error(request_id: JsonValue, code: int, message: str) -> bytes:
    """A JSON-RPC error."""
    return dumps({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}})
