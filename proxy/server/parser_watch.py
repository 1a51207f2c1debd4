"""Stands between aiohttp's `RequestHandler` and its parser, so that a connection knows what arrives on it.

`RequestHandler` creates its parser itself and hands it to `BaseProtocol`. `WatchedProtocol` takes the place of
`BaseProtocol` in the chain of base classes and wraps the parser in a `ParserWatch`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, cast

from aiohttp.base_protocol import BaseProtocol

# What `feed_data` returns: the requests that began in the bytes, each with its body; whether the last one asks for a
# WebSocket; and the bytes behind it.
Parsed = tuple[Any, bool, bytes]
NOTHING_PARSED: Parsed = ((), False, b"")


class Watcher(Protocol):
    """Parses in the place of `RequestHandler`. It calls `note_consumed` for each request that it answers itself."""

    note_consumed: Callable[[], None]

    def feed_parser(self, data: bytes, parse: Callable[[bytes], Parsed]) -> Parsed:
        """What `parse` makes of the bytes that arrived. Raises HttpProcessingError where they are refused."""


class ParserWatch:
    """Wraps a parser; it has the methods that `RequestHandler` calls. The watcher gets what `feed_data` gets."""

    __slots__ = ("feed_data", "feed_eof", "message_consumed", "pause_reading", "set_upgraded")

    def __init__(self, watcher: Watcher, parser: Any) -> None:
        self.feed_data: Callable[[bytes], Parsed] = partial(watcher.feed_parser, parse=parser.feed_data)
        self.feed_eof = parser.feed_eof
        self.message_consumed = parser.message_consumed
        self.pause_reading = parser.pause_reading
        self.set_upgraded = parser.set_upgraded


class WatchedProtocol(BaseProtocol):
    """The base class behind `RequestHandler` of a protocol that is a `Watcher`."""

    __slots__ = ()

    def __init__(self, loop: asyncio.AbstractEventLoop, parser: Any = None) -> None:
        watch = ParserWatch(cast(Watcher, self), parser)
        cast(Watcher, self).note_consumed = watch.message_consumed
        super().__init__(loop, cast(Any, watch))
