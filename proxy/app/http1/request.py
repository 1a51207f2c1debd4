"""One request as everybody after the gate sees it, and the body of one that has not arrived yet."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from proxy.app.heads import CHUNKED, Head
from proxy.core.model import Headers

if TYPE_CHECKING:
    from proxy.app.http1.connection import Connection
    from proxy.app.http1.stream import Stream

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
# An absolute-form target (RFC 9112 section 3.2.2): the path begins after the authority.
_ABSOLUTE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")


class UploadBrokenError(Exception):
    """A body broke off, or is not framed as HTTP wants it."""


class Upload:
    """A body that was not all there when its request was. What waits here holds the client up (`Connection.held`)."""

    __slots__ = ("_broken", "_connection", "_ended", "_pieces", "_waiter", "held")

    def __init__(self, connection: Connection) -> None:
        self.held = 0
        self._connection = connection
        self._pieces: list[bytes] = []
        self._ended = False
        self._broken = False
        self._waiter: asyncio.Future[None] | None = None

    async def read(self) -> bytes:
        """Everything that waits here; waits for something. b'' at the end. Raises UploadBrokenError."""
        if not self._pieces and not (self._ended or self._broken):
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self._broken:
            raise UploadBrokenError
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self.held = 0
        self._connection.throttle()
        return data

    def feed(self, data: bytes) -> None:
        """What arrived."""
        if data:
            self._pieces.append(data)
            self.held += len(data)
            self._wake()

    def end(self) -> None:
        """That was all of it."""
        self._ended = True
        self._wake()

    def fail(self) -> None:
        """There will be no end to it."""
        self._broken = not self._ended
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def path_and_query(target: str) -> tuple[str, str]:
    """The two parts of a target. A URL inside of it, such as in the query, is no authority of ours."""
    if not target.startswith("/"):
        target = _ABSOLUTE.sub("", target, count=1)
    path, _, query = target.partition("?")
    return path, query


class Request:
    """A request on its connection.

    `version` is the minor one; `length` what the head says of the body: bytes, 0 for none, `CHUNKED`. `whole` is the
    body where all of it has come with the head, else `upload` is. `cors` are the CORS fields of the answer. `begun`:
    bytes of the answer are out, so that nothing else can be answered any more.
    """

    __slots__ = (
        "begun", "connection", "cors", "headers", "keep_alive", "length", "method", "target", "upload",
        "version", "whole",
    )  # fmt: skip

    def __init__(self, head: Head, connection: Connection) -> None:
        self.method = head.method
        self.target = head.target
        self.version = head.minor
        self.headers = head.fields
        self.length = head.length
        self.keep_alive = head.keep_alive
        self.connection = connection
        self.whole: bytes | None = b""
        self.upload: Upload | None = None
        self.cors: Headers = ()
        self.begun = False

    @property
    def announced(self) -> int:
        """How long the body is by its own account, in bytes; 0 where it does not say."""
        return 0 if self.length == CHUNKED else self.length

    def say_continue(self) -> None:
        """Tells a client that waits to send its body (RFC 9110 section 10.1.1). An interim answer begins nothing."""
        if self.version and self.headers.get("expect") is not None:
            with suppress(ConnectionResetError):  # the client has gone, and its cancellation is on the way
                self.connection.write(_CONTINUE)

    def begin(
        self, status: int, headers: Sequence[tuple[str, str]], length: int | None = None, *, closes: bool = False
    ) -> Stream:
        """Sends the head of an answer; its body goes into the stream. Raises ConnectionResetError."""
        return self.connection.begin(self, status, headers, length, closes=closes)

    def abort(self) -> None:
        """Ends the connection at once, so that nobody takes what was sent for a whole answer."""
        self.connection.abort()
