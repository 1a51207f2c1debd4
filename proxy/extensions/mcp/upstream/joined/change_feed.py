"""The messages that a group's servers send on their own: GET streams, or `subscriptions/listen`, while a client reads.

A server that is out of reach is tried again; once it answers, its lists have changed for the client.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from proxy.core.json.jsontext import dumps
from proxy.core.model.values import Executed, UpstreamFault
from proxy.extensions.mcp.upstream.joined.event_rewriting import ServerEvent, is_stream, name_event, read_events
from proxy.extensions.mcp.upstream.joined.introduction import OutOfReach
from proxy.extensions.mcp.upstream.joined.server_link import ServerLink
from proxy.interfaces import UpstreamRequest
from proxy.upstream.faults import ReplyBroken, close_body

# Events kept for a client that does not read; beyond this the oldest are dropped.
MOST_WAITING: Final = 1024
# Seconds until an ended stream of a server is opened again.
_SOON: Final = 1.0
_ACKNOWLEDGED: Final = re.compile(rb"notifications\\?/subscriptions\\?/acknowledged")
_CHANGES: Final = ("tools", "prompts", "resources")

Written = Callable[[ServerEvent, str], bytes]


def write_named(event: ServerEvent, server: str) -> bytes:
    """An event as a client with a session reads it."""
    return name_event(event, server, event.data)


class FeedReader:
    """One stream of the group's events. `write` says how its client reads an event (b'': not at all)."""

    def __init__(self, feed: ChangeFeed, write: Written, first: Iterable[bytes] = ()) -> None:
        self._feed = feed
        self._write = write
        self._waiting: deque[bytes] = deque(first, maxlen=MOST_WAITING)
        self._arrived = asyncio.Event()
        self._closed = False

    def put(self, event: ServerEvent, server: str) -> None:
        """Adds an event."""
        if written := self._write(event, server):
            self._waiting.append(written)
            self._arrived.set()

    def end(self) -> None:
        """Ends the stream."""
        self._closed = True
        self._arrived.set()

    def __aiter__(self) -> FeedReader:
        return self

    async def __anext__(self) -> bytes:
        while not self._waiting:
            if self._closed:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        return self._waiting.popleft()

    async def aclose(self) -> None:
        """Ends it; without any reader nothing is followed."""
        self.end()
        self._feed.forget(self)


class ChangeFeed:
    """The events of all `links`, for all readers."""

    def __init__(self, links: Iterable[ServerLink], again: float) -> None:
        self._links = tuple(links)
        self._again = again
        self._readers: list[FeedReader] = []
        self._tasks: dict[ServerLink, asyncio.Task[None]] = {}
        self._request: UpstreamRequest | None = None

    @property
    def is_read(self) -> bool:
        """Returns whether a stream is open."""
        return bool(self._readers)

    def read(self, request: UpstreamRequest, write: Written, first: Iterable[bytes] = (), *, alone: bool) -> FeedReader:
        """Opens a stream; `alone` ends the others."""
        if alone:
            for other in tuple(self._readers):
                other.end()
                self.forget(other)
        reader = FeedReader(self, write, first)
        self._readers.append(reader)
        if not self._tasks:
            self._request = request
            self._tasks = {link: asyncio.create_task(self._follow(link, request)) for link in self._links}
        return reader

    def change_links(self, links: Iterable[ServerLink]) -> None:
        """Follows other links from now on. Readers are notified that the lists of former ones have changed, and of the
        lists of new ones when these answer."""
        before, self._links = self._links, tuple(links)
        for link in before:
            if link not in self._links:
                self.tell_of_changes(link)
                if (task := self._tasks.pop(link, None)) is not None:
                    task.cancel()
        for link in self._links:
            if self._readers and self._request is not None and link not in self._tasks:
                self._tasks[link] = asyncio.create_task(self._follow(link, self._request))

    def forget(self, reader: FeedReader) -> None:
        """Forgets a stream that is over."""
        if reader in self._readers:
            self._readers.remove(reader)
        if not self._readers:
            self.close()

    def close(self) -> None:
        """Stops following all servers."""
        for task in self._tasks.values():
            task.cancel()
        self._tasks = {}
        for reader in self._readers:
            reader.end()

    def tell_of_changes(self, link: ServerLink) -> None:
        """Notifies readers that the lists of a server have changed."""
        capabilities = link.capabilities
        for kind in (kind for kind in _CHANGES if kind in capabilities):
            text = dumps({"jsonrpc": "2.0", "method": f"notifications/{kind}/list_changed"})
            self._put(ServerEvent(None, (b"event: message",), text), link.server.name)

    def _put(self, event: ServerEvent, server: str) -> None:
        for reader in self._readers:
            reader.put(event, server)

    async def _follow(self, link: ServerLink, request: UpstreamRequest) -> None:
        while True:
            if not link.is_open:
                if not await self._open_link(link, request):
                    continue
                self.tell_of_changes(link)
            reply = await link.listen(request)
            if isinstance(reply, UpstreamFault):
                if reply.executed is Executed.NO:
                    link.give_up(reply.message)
                await asyncio.sleep(self._again)
                continue
            if reply.status != 200 or not is_stream(reply):
                await close_body(reply)
                if reply.status != 404:
                    return  # the server has no such stream
                link.is_open = False
            else:
                try:
                    with suppress(ReplyBroken, ValueError):
                        async for event in read_events(reply):
                            if not (_ACKNOWLEDGED.search(event.data) or link.refuse_question(event.data, request)):
                                self._put(event, link.server.name)
                finally:
                    await close_body(reply)
            await asyncio.sleep(_SOON)

    async def _open_link(self, link: ServerLink, request: UpstreamRequest) -> bool:
        try:
            await link.open(request)
        except OutOfReach:
            await asyncio.sleep(self._again)
            return False
        return True
