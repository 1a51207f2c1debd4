"""Remembers the lists of tools for each upstream and credential, and the sessions that upstreams have accepted.

    find_known      returns the list while it may be used
    learn           requests the list, or waits for a request already under way
    keep            remembers a whole list
    look            remembers a list that passes on its way to a client
    mark_outdated   notes that the list has changed

A list is requested when it is missing or too old, not for every call. Many servers do not say how long their lists are
valid (`ttlMs: 0`, or nothing in old revisions). Such a list is used for valid calls until `ttl`, but a call is refused
because of it only while the list is new (`is_fresh`). Equal lists are kept once for all credentials.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from proxy.core.json.contentcoding import Undecodable, decode, is_coded, list_data
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue, UpstreamFault, UpstreamReply
from proxy.driver import IN_TASK
from proxy.extensions.mcp.adapters.mcplist import MAX_LIST, MAX_PAGES, ToolsPage, find_answer, make_listing
from proxy.extensions.mcp.core.listed_tools import Listing
from proxy.extensions.mcp.server.lists.reading import SMALL, ListReader, Read
from proxy.interfaces import Clock, GuardedUpstream
from proxy.offload.pool import OffloadPool
from proxy.upstream.faults import ReplyBroken, close_body

# The most credentials whose lists are remembered, and the most bytes of all lists. The least recently used go first.
MAX_KEYS: Final = 2_000
MAX_BYTES: Final = 64 * 1024 * 1024
MAX_SESSIONS: Final = 20_000
# The seconds for which a list counts as new, so that wrong names do not make an upstream list its tools for every call.
NEW: Final = 10.0
# The same for a name that is not in the list: the tool may have been added since, and the request costs little.
JUST_REQUESTED: Final = 1.0

# An empty line ends an event, however lines end (WHATWG HTML, "Parsing an event stream").
_BLANK: Final = (b"\n\n", b"\r\r", b"\n\r")
# The error code of a server without lists (JSON-RPC 2.0 section 5.1), and client-error statuses that do not refuse the
# client itself.
_METHOD_NOT_FOUND: Final = -32601
_ABOUT_LISTS: Final = frozenset({405, 429})

ListReply = UpstreamReply | UpstreamFault
# Requests a page of the list. Takes its cursor (None: the first page) and the id of the request.
Ask = Callable[[str | None, str], Awaitable[ListReply]]


class Key(NamedTuple):
    """Identifies a list: the upstream, the path and query requested there, and a hash of the credentials sent."""

    upstream: GuardedUpstream
    target: str
    credentials: str


@value_class
class Known:
    """A list, when it was learned, and until when its server calls it fresh. Seconds on the monotonic clock."""

    listing: Listing
    at: float
    fresh_until: float


@value_class
class ListRefused:
    """The upstream refuses this client. `reply` is its answer (401, 403, an unknown session) with its whole body."""

    reply: UpstreamReply
    request_id: str


@value_class
class Unlearned:
    """No list could be learned; `reason` says why."""

    reason: str


Learned = Known | ListRefused | Unlearned


class Learner:
    """Remembers lists and sessions. `fresh_id` makes ids for requests that no request of a client has."""

    def __init__(self, clock: Clock, fresh_id: Callable[[], str], reader: ListReader | None = None) -> None:
        self._clock = clock
        self._reader = ListReader(OffloadPool(size=1)) if reader is None else reader
        self._reading: set[asyncio.Task[None]] = set()
        self._by_pages: WeakValueDictionary[tuple[bytes, ...], Listing] = WeakValueDictionary()
        self._fresh_id = fresh_id
        self._known: OrderedDict[Key, Known] = OrderedDict()
        self._alike: WeakValueDictionary[str, Listing] = WeakValueDictionary()
        self._asking: dict[Key, asyncio.Task[Learned]] = {}
        self._sessions: OrderedDict[tuple[Key, str], None] = OrderedDict()

    async def close(self) -> None:
        """Cancels the requests under way."""
        asking = (*self._asking.values(), *self._reading)
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        await self._reader.close()

    # --- lists --------------------------------------------------------------------------------------------------------
    def find_known(self, key: Key, ttl: float, *, believes: bool = True) -> Known | None:
        """Returns the list while it is younger than `ttl` seconds, or while a server that is believed declares it
        valid; otherwise None."""
        found = self._known.get(key)
        if found is None:
            return None
        self._known.move_to_end(key)
        until = found.at + ttl
        return found if self._clock.now() < (max(found.fresh_until, until) if believes else until) else None

    def last(self, key: Key) -> Known | None:
        """Returns the list however old it is. It is used where the upstream does not answer."""
        return self._known.get(key)

    def is_fresh(self, known: Known) -> bool:
        """Returns whether a call may be refused because of this list: its server declares it valid, or it is new."""
        return self._clock.now() < max(known.fresh_until, known.at + NEW)

    def is_new(self, known: Known) -> bool:
        """Returns whether the list was learned within the last `NEW` seconds, too recently to be requested again."""
        return self._clock.now() < known.at + NEW

    def is_just_requested(self, known: Known) -> bool:
        """Returns whether the list is too new to be requested again even for a name that is not in it."""
        return self._clock.now() < known.at + JUST_REQUESTED

    def mark_outdated(self, key: Key, *, surely: bool = True) -> None:
        """Marks the list as too old, so that the next call requests it again. With `surely` False the change is only a
        guess, and a list that is still new stays in use."""
        found = self._known.get(key)
        if found is not None and (surely or not self.is_new(found)):
            self._known[key] = replace(found, at=float("-inf"), fresh_until=float("-inf"))

    def keep(self, key: Key, pages: list[ToolsPage], size: int) -> Known:
        """Remembers a whole list. `size` is the length of its answers in bytes."""
        listing, before = self._listing(pages, size), self._known.get(key)
        if before is not None and before.listing is not listing:
            self._doubt_alike(key, before.listing)
        now = self._clock.now()  # a server of an old revision gives no lifetime
        known = self._known[key] = Known(listing, now, now + min(page.ttl or 0.0 for page in pages))
        self._known.move_to_end(key)
        self._shrink()
        return known

    def _doubt_alike(self, key: Key, old: Listing) -> None:
        """Outdates the same old list of other credentials at the same address, because it has changed for one of
        them."""
        for other, known in self._known.items():
            if known.listing is old and other.upstream is key.upstream and other.target == key.target and other != key:
                self._known[other] = replace(known, at=float("-inf"), fresh_until=float("-inf"))

    def _listing(self, pages: list[ToolsPage], size: int) -> Listing:
        """Joins all pages into a list. Returns the same object for equal lists."""
        digests = tuple(page.digest for page in pages)
        known = self._by_pages.get(digests) if all(digests) else None
        if known is not None:
            return known
        made = make_listing(pages, size)
        listing = self._alike.setdefault(made.digest, made)
        if all(digests):
            self._by_pages[digests] = listing
        return listing

    def look(self, key: Key, content_type: str, body: bytes, request_id: JsonValue) -> None:
        """Remembers the list in an answer that passed, if it is complete."""
        if len(body) > SMALL:
            reading = asyncio.create_task(self._look(key, content_type, body, request_id))
            self._reading.add(reading)
            reading.add_done_callback(self._reading.discard)
            return
        self._take(key, self._reader.read_small(content_type, body, request_id), len(body))

    async def _look(self, key: Key, content_type: str, body: bytes, request_id: JsonValue) -> None:
        self._take(key, await self._reader.read(content_type, body, request_id), len(body))

    def _take(self, key: Key, page: Read, size: int) -> None:
        """Remembers a page that is the whole list. A page of several outdates the known list if it contradicts it."""
        if not isinstance(page, ToolsPage):
            return
        if page.cursor is None:
            self.keep(key, [page], size)
            return
        known = self._known.get(key)
        made = make_listing([page], size).tools
        if known is not None and any(
            name not in known.listing.tools or known.listing.tools[name].digest != tool.digest
            for name, tool in made.items()
        ):
            self.mark_outdated(key)

    def _shrink(self) -> None:
        size = sum({id(one.listing): one.listing.size for one in self._known.values()}.values())
        while len(self._known) > MAX_KEYS or (size > MAX_BYTES and len(self._known) > 1):
            _, dropped = self._known.popitem(last=False)
            if not any(one.listing is dropped.listing for one in self._known.values()):
                size -= dropped.listing.size

    async def learn(self, key: Key, ask: Ask, wait: float) -> Learned:
        """Requests the list, for at most `wait` seconds. Callers that want the same list share one request."""
        await IN_TASK
        asking = self._asking.get(key)
        joined = asking is not None
        if asking is None:
            asking = self._asking[key] = asyncio.create_task(self.ask(key, ask, wait))
            asking.add_done_callback(lambda _: self._asking.pop(key, None))
        learned = await asyncio.shield(asking)
        # The shared request was sent in the session of its first caller; its refusal need not apply to this caller.
        return await self.ask(key, ask, wait) if joined and isinstance(learned, ListRefused) else learned

    async def ask(self, key: Key, ask: Ask, wait: float) -> Learned:
        """Requests the list, even while another request for it is under way."""
        await IN_TASK
        try:
            async with asyncio.timeout(wait):
                return await self._pages(key, ask)
        except TimeoutError:
            return Unlearned(f"the upstream did not list its tools within {wait:g} s")

    async def _pages(self, key: Key, ask: Ask) -> Learned:
        pages: list[ToolsPage] = []
        cursor, size = None, 0
        while len(pages) < MAX_PAGES and size <= MAX_LIST:
            request_id = self._fresh_id()
            reply = await ask(cursor, request_id)
            if isinstance(reply, UpstreamFault):
                return Unlearned(f"the upstream did not list its tools: {reply.message}")
            body = await read_answer(reply, request_id)
            if body is None:
                return Unlearned("the upstream's list of tools is too large, or broke off")
            size += len(body)
            page = await self._reader.read(reply.header("content-type"), body, request_id)
            if not isinstance(page, ToolsPage):
                return _without_list(reply, body, page, request_id)
            pages.append(page)
            if page.cursor is None:
                return self.keep(key, pages, size)
            cursor = page.cursor
        return Unlearned("the upstream's list of tools does not end")

    # --- sessions -----------------------------------------------------------------------------------------------------
    def accept(self, key: Key, session: str) -> None:
        """Notes that the upstream answers requests in this session ('': without a session)."""
        self._sessions[key, session] = None
        self._sessions.move_to_end((key, session))
        if len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)

    def accepts(self, key: Key, session: str) -> bool:
        """Returns whether the upstream is known to answer in this session."""
        return (key, session) in self._sessions

    def note_lost(self, key: Key, session: str) -> None:
        """Notes that the upstream has lost the session. The list becomes too old, because the upstream was probably
        restarted and may list other tools."""
        self.forget(key, session)
        self.mark_outdated(key)

    def forget(self, key: Key, session: str) -> None:
        """Forgets a session."""
        self._sessions.pop((key, session), None)


def _without_list(
    reply: UpstreamReply, body: bytes, answer: dict[str, JsonValue] | None, request_id: str
) -> ListRefused | Unlearned:
    """Returns what an answer without a list means: the client is refused, or the server does not list its tools."""
    error = answer.get("error") if answer is not None else None
    listless = isinstance(error, dict) and error.get("code") == _METHOD_NOT_FOUND
    if 400 <= reply.status < 500 and not listless and reply.status not in _ABOUT_LISTS:
        return ListRefused(replace(reply, body=body), request_id)
    return Unlearned(f"the upstream does not list its tools (status {reply.status})")


async def read_answer(reply: UpstreamReply, request_id: str) -> bytes | None:
    """Returns the decoded body of an answer. A stream of events is read until it holds the answer to `request_id`.
    Returns None if the body is too large, breaks off or has an unknown content coding."""
    if isinstance(reply.body, bytes):
        return decode_body(reply, reply.body)
    streamed, body, looked_at = reply.header("content-type").startswith("text/event-stream"), bytearray(), 0
    try:
        async for chunk in reply.body:
            body += chunk
            if len(body) > MAX_LIST:
                return None
            if streamed and (end := _end_of_events(body, len(body) - len(chunk))) > looked_at:
                new, looked_at = bytes(body[looked_at:end]), end  # each event is searched once
                if request_id.encode() in new and _may_answer(new, request_id):
                    break
    except ReplyBroken:
        return None
    finally:
        await close_body(reply)
    return decode_body(reply, bytes(body))


def _may_answer(stream: bytes, request_id: str) -> bool:
    """Returns whether whole events hold the answer to `request_id`. A large event that names this id is taken for the
    answer, since no client knows the id."""
    mark = request_id.encode()
    named = [data for data in list_data(stream) if mark in data]
    return any(len(data) > SMALL or find_answer("application/json", data, request_id) is not None for data in named)


def _end_of_events(body: bytearray, new: int) -> int:
    """The end of the last whole event of a stream; 0 where no event ends after the first `new` bytes."""
    return max((found + 2 for mark in _BLANK if (found := body.rfind(mark, max(new - 1, 0))) >= 0), default=0)


def decode_body(reply: UpstreamReply, body: bytes) -> bytes | None:
    """Returns a body without its content coding, or None where it cannot be decoded."""
    coding = reply.header("content-encoding")
    if not is_coded(coding):
        return body
    decoded = decode(body, coding, MAX_LIST)
    return None if isinstance(decoded, Undecodable) else decoded
