"""Stands between aiohttp's `RequestHandler` and its parser, so that a connection knows what arrives on it.

`RequestHandler` creates its parser itself and hands it to `BaseProtocol`. `WatchedProtocol` takes the place of
`BaseProtocol` in the chain of base classes and wraps the parser in a `ParserWatch`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, cast

from aiohttp.base_protocol import BaseProtocol

# What `feed_data` returns: the requests that began in the bytes, each with its body; whether the last one asks for a
# WebSocket; and the bytes behind it.
Parsed = tuple[Any, bool, bytes]
NOTHING_PARSED: Parsed = ((), False, b"")


class Watcher(Protocol):
    """Parses in the place of `RequestHandler`."""

    def feed_parser(self, data: bytes, parse: Callable[[bytes], Parsed]) -> Parsed:
        """What `parse` makes of the bytes that arrived. Raises HttpProcessingError where they are refused."""


class ParserWatch:
    """Wraps a parser; it has the methods that `RequestHandler` calls."""

    __slots__ = ("feed_eof", "message_consumed", "parse", "pause_reading", "set_upgraded", "watcher")

    def __init__(self, watcher: Watcher, parser: Any) -> None:
        self.watcher = watcher
        self.parse: Callable[[bytes], Parsed] = parser.feed_data
        self.feed_eof = parser.feed_eof
        self.message_consumed = parser.message_consumed
        self.pause_reading = parser.pause_reading
        self.set_upgraded = parser.set_upgraded

    def feed_data(self, data: bytes) -> Parsed:
        """Parses bytes as the connection wants it. Raises HttpProcessingError where they are refused."""
        return self.watcher.feed_parser(data, self.parse)


class WatchedProtocol(BaseProtocol):
    """The base class behind `RequestHandler` of a protocol that is a `Watcher`."""

    __slots__ = ()

    def __init__(self, loop: asyncio.AbstractEventLoop, parser: Any = None) -> None:
        super().__init__(loop, cast(Any, ParserWatch(cast(Watcher, self), parser)))
