"""The servers of a joined upstream as one client sees them: a session of the old revisions, or all clients without one.

`open` introduces the client to every server, as many as answer in time.
`lists` asks every server for all pages of a list; a server that is out of reach is left out.
`carry` sends a request to the one server that it is for.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterable
from contextlib import suppress
from dataclasses import replace
from operator import itemgetter
from typing import Final

from proxy.core.json.jsontext import dumps, parse
from proxy.core.model.values import CheckedCall, JsonValue, UpstreamFault, UpstreamReply
from proxy.extensions.mcp.adapters.mcpmessage import Message, find_mirrors
from proxy.extensions.mcp.upstream.joined.change_feed import ChangeFeed
from proxy.extensions.mcp.upstream.joined.event_rewriting import LIMITS
from proxy.extensions.mcp.upstream.joined.introduction import Introduction, OutOfReach, Refusal
from proxy.extensions.mcp.upstream.joined.merged_lists import (
    OF_LISTS,
    ListedPage,
    Pages,
    ResourceOwners,
    read_listed_page,
)
from proxy.extensions.mcp.upstream.joined.server_link import ServerLink
from proxy.interfaces import UpstreamRequest
from proxy.upstream.faults import EndingStream

# The most pages of one server's list, because it could always name a next one.
_MOST_PAGES: Final = 200


class ServerGroup:
    """`links` in the order of the config, and how the client is introduced to each. `shared`: several clients use them.
    Times in seconds."""

    def __init__(
        self, links: Iterable[ServerLink], who: Introduction, pages: Pages, *, shared: bool, wait: float, again: float
    ) -> None:
        self.links = {link.server.name: link for link in links}
        self.listed: set[str] = set()
        """The methods whose lists all servers have answered to this group."""
        self.who = who
        self.resources = ResourceOwners()
        self.feed = ChangeFeed(self.links.values(), again)
        self.used = 0.0
        self._pages = pages
        self._shared = shared
        self._wait = wait
        self._open: dict[str, ServerLink] = {}
        self.level: dict[str, JsonValue] = {}
        """The parameters of the client's last `logging/setLevel`."""
        self._late: dict[tuple[ServerLink, str], tuple[ListedPage, ...]] = {}
        """The last list of each server, by link and method, that came after the wait for it."""
        self._listing: Counter[ServerLink] = Counter()
        self._under_way: Counter[ServerLink] = Counter()
        self._ended = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_busy(self) -> bool:
        """Returns whether a request or a stream is open."""
        return bool(self._open) or self.feed.is_read

    def is_starting(self, server: str) -> bool:
        """Returns whether a server has not listed anything yet, because it is only starting."""
        link = self.links.get(server)
        return link is not None and (link.is_opening or (self._listing[link] > 0 and not self._has_listed(link)))

    def _has_listed(self, link: ServerLink) -> bool:
        return any(known is link for known, _ in self._late)

    # --- beginning and ending -----------------------------------------------------------------------------------------
    async def open(self, request: UpstreamRequest, wait: float) -> None:
        """Introduces the client to every server. One that takes longer than `wait` joins later."""
        tasks = [self._begin(self._open_link(link, request)) for link in self.links.values() if not link.is_open]
        if tasks:
            await asyncio.wait(tasks, timeout=wait)

    async def _open_link(self, link: ServerLink, request: UpstreamRequest) -> None:
        with suppress(OutOfReach):
            await link.open(request)

    def change_links(self, links: Iterable[ServerLink], request: UpstreamRequest) -> list[asyncio.Task[None]]:
        """Takes other links. Gives the tasks that end the sessions of the former ones, each once its requests under way
        are answered."""
        before, self.links = self.links, {link.server.name: link for link in links}
        self.listed.clear()
        self.feed.change_links(self.links.values())
        leaving = [link for name, link in before.items() if self.links.get(name) is not link]
        self._late = {at: pages for at, pages in self._late.items() if at[0] not in leaving}
        return [self._begin(self._leave(link, request)) for link in leaving]

    async def _leave(self, link: ServerLink, request: UpstreamRequest) -> None:
        while self._under_way[link]:
            self._ended.clear()
            await self._ended.wait()
        del self._under_way[link]
        await link.leave(request)

    async def close(self, request: UpstreamRequest) -> None:
        """Ends the sessions of all servers."""
        self.feed.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*(link.close(request) for link in self.links.values()), return_exceptions=True)

    # --- lists --------------------------------------------------------------------------------------------------------
    async def lists(self, method: str, request: UpstreamRequest) -> tuple[dict[str, tuple[ListedPage, ...]], bool]:
        """The pages of every server that has such a list, and whether none was left out."""
        links = list(self.links.values())
        found = await asyncio.gather(*(self._list_in_time(link, method, request) for link in links))
        listed = {link.server.name: pages for link, pages in zip(links, found, strict=True) if pages is not None}
        if method.startswith("resources/"):
            self.resources.note(method, listed)
        is_whole = all(pages is not None for pages in found)
        if is_whole:
            self.listed.add(method)
        return listed, is_whole

    async def _list_in_time(
        self, link: ServerLink, method: str, request: UpstreamRequest
    ) -> tuple[ListedPage, ...] | None:
        """Returns a server's pages, or its last ones if it is late; None without any."""
        task = asyncio.create_task(self._list(link, method, request))
        self._begin(_wait_ended(task))
        done, _ = await asyncio.wait({task}, timeout=self._wait)
        if not done:  # the request continues, because the server may just be starting
            self._listing[link] += 1
            task.add_done_callback(lambda _: self._listing.subtract([link]))
            self._begin(self._keep_late(link, method, task))
            return self._late.get((link, method))
        try:
            return task.result()
        except OutOfReach as why:
            link.give_up(str(why))
            return None
        except Refusal:
            return ()

    async def _keep_late(self, link: ServerLink, method: str, task: asyncio.Task[tuple[ListedPage, ...]]) -> None:
        """Keeps a late list for the next time, and notifies the client if it differs."""
        with suppress(OutOfReach, Refusal):
            pages, at = await task, (link, method)
            if self._late.get(at) != pages:
                self._late[at] = pages
                self.feed.tell_of_changes(link)

    async def _list(self, link: ServerLink, method: str, request: UpstreamRequest) -> tuple[ListedPage, ...]:
        was_open = link.is_open
        await link.open(request)
        if not was_open:
            self.feed.tell_of_changes(link)
        if OF_LISTS[method] not in link.capabilities:
            return ()
        pages: list[ListedPage] = []
        cursor: str | None = None
        while len(pages) < _MOST_PAGES:
            page = await self._page(link, method, cursor, request)
            pages.append(page)
            if page.cursor is None:
                break
            cursor = page.cursor
        if link.modern and method == "tools/list":
            _note_mirrors(link, pages)
        return tuple(pages)

    async def _page(self, link: ServerLink, method: str, cursor: str | None, request: UpstreamRequest) -> ListedPage:
        params: dict[str, JsonValue] = {} if cursor is None else {"cursor": cursor}
        request_id, text, answer = await link.ask_for_text(method, params, request)
        digest = self._pages.digest(text, request_id)
        known = self._pages.find(digest)
        return known or self._pages.keep(read_listed_page(answer, method, digest), len(text))

    # --- requests of the client ---------------------------------------------------------------------------------------
    async def carry(
        self, link: ServerLink, message: Message, body: bytes, request: UpstreamRequest, checked: CheckedCall | None
    ) -> UpstreamReply | UpstreamFault:
        """Sends a request to one server. Until it is answered, a cancellation goes there, too."""
        own = dumps(message.id).decode()
        self._open[own] = link
        self._under_way[link] += 1
        try:
            reply = await link.carry(message, body, request, checked, shared=self._shared)
        except BaseException:
            self._end(own, link)
            raise
        if isinstance(reply, UpstreamFault) or isinstance(reply.body, bytes):
            self._end(own, link)
            return reply
        return replace(reply, body=EndingStream(reply.body, lambda: self._end(own, link)))

    def _end(self, own: str, link: ServerLink) -> None:
        self._open.pop(own, None)
        self._under_way[link] -= 1
        self._ended.set()

    async def carry_to_any(
        self, links: Iterable[ServerLink], message: Message, body: bytes, request: UpstreamRequest
    ) -> UpstreamReply | UpstreamFault | None:
        """Sends a request to one server after the other, until one does not answer with an error. Of errors the first
        one with `data` counts, since it says more."""
        errors: list[tuple[int, UpstreamReply | UpstreamFault]] = []
        for link in links:
            reply = await self.carry(link, message, body, request, None)
            error = _read_error(reply)
            if error is None:
                return reply
            errors.append((len(error) and 1 + ("data" in error), reply))
        return max(errors, key=itemgetter(0))[1] if errors else None

    def find_asking(self, server: str) -> ServerLink | None:
        """The link to a server that has sent the client a request; it may be leaving, with requests under way."""
        leaving = (link for link, count in self._under_way.items() if count and link.server.name == server)
        return self.links.get(server) or next(leaving, None)

    async def cancel(self, message: Message, body: bytes, request: UpstreamRequest) -> None:
        """Passes a cancellation to the server that has the request."""
        request_id = message.param("requestId")
        link = self._open.get(dumps(request_id).decode()) if isinstance(request_id, str | int) else None
        if link is not None:
            await link.tell(body, request, message)

    async def tell_all(self, message: Message, body: bytes, request: UpstreamRequest) -> None:
        """Passes a notification to every server."""
        await asyncio.gather(*(link.tell(body, request, message) for link in self.links.values()))

    async def set_level(self, params: dict[str, JsonValue], request: UpstreamRequest) -> None:
        """Sets the level of every server's log messages, a late one's once it answers."""

        async def ask(link: ServerLink) -> None:
            with suppress(OutOfReach, Refusal):
                await link.ask("logging/setLevel", params, request)

        self.level = params
        for link in self.links.values():
            link.level = params
        await asyncio.gather(
            *(ask(link) for link in self.links.values() if link.is_open and "logging" in link.capabilities)
        )

    def _begin(self, work: Awaitable[None]) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _wait_ended(task: asyncio.Task[tuple[ListedPage, ...]]) -> None:
    """Waits until the task ends. Its list is read by the callers that still wait; its error is theirs too."""
    with suppress(OutOfReach, Refusal):
        await task


def _note_mirrors(link: ServerLink, pages: Iterable[ListedPage]) -> None:
    for entry in (entry for page in pages for entry in page.entries):
        if isinstance(name := entry.get("name"), str) and (found := find_mirrors(entry.get("inputSchema"))):
            link.mirrors[name] = found


def _read_error(reply: UpstreamReply | UpstreamFault) -> dict[str, JsonValue] | None:
    """The error in an answer, an empty one for a failure without a message; None for every other answer."""
    if isinstance(reply, UpstreamFault):
        return {}
    if not isinstance(reply.body, bytes):
        return None
    value = parse(reply.body, LIMITS)
    error = value.get("error") if isinstance(value, dict) else None
    if isinstance(error, dict):
        return error
    return {} if reply.status >= 400 else None
