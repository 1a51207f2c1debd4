"""The body of an answer on its way, piece by piece, at the client's pace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.app.http1.answer import LAST_CHUNK, chunk

if TYPE_CHECKING:
    from proxy.app.http1.connection import Connection


class Stream:
    """Writes a body. `left`: how many bytes it was announced to have, None where it was not; more than those never go
    out, since the client would read them as another answer."""

    __slots__ = ("_bodiless", "_chunked", "_connection", "_left")

    def __init__(self, connection: Connection, left: int | None, *, chunked: bool, bodiless: bool) -> None:
        self._connection = connection
        self._left = left
        self._chunked = chunked
        self._bodiless = bodiless

    async def write(self, data: bytes) -> None:
        """Sends a piece, and waits while the client does not read. Raises ConnectionResetError when it has gone."""
        if self._left is not None:
            data = data[: self._left]
            self._left -= len(data)
        if data and not self._bodiless:
            self._connection.write(chunk(data) if self._chunked else data)
            await self._connection.drained()

    async def end(self) -> None:
        """That was all of it. Raises as `write`."""
        if self._chunked:
            self._connection.write(LAST_CHUNK)
        await self._connection.drained()
