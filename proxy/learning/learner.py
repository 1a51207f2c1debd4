"""The lists of tools this process knows, for each upstream and credential, and the sessions upstreams have accepted.

    known      the list, while it may be used
    learn      asks for it, or waits for whoever is asking already
    keep       a whole list that flowed by on its way to a client
    outdated   somebody says that the list has changed

A list is asked for when it is missing or too old, never per call. Many servers vouch for their lists not at all
(`ttlMs: 0`, or nothing in old revisions); they are believed where it matters: nothing is refused on the word of a list
that is neither vouched for nor new (`is_fresh`), while clean calls go by it until `ttl`. Equal lists are kept once,
whoever asked for them.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Final
from weakref import WeakValueDictionary

from proxy.adapters.mcplist import MAX_LIST, MAX_PAGES, Page, answered, listing_of, read_page
from proxy.core.contentcoding import Undecodable, decode, is_coded
from proxy.core.learned import Listing
from proxy.core.model import JsonValue, UpstreamFault, UpstreamReply
from proxy.interfaces import Clock, GuardedUpstream
from proxy.upstream.stream import ReplyBroken, close_body

# Credentials whose lists are remembered, and bytes of lists in all; the least recently used go first.
MAX_KEYS: Final = 2_000
MAX_BYTES: Final = 64 * 1024 * 1024
MAX_SESSIONS: Final = 20_000
# A wrong name must not make an upstream work for every call: so long a list counts as new, in seconds.
NEW: Final = 10.0

# What ends an event (WHATWG HTML, "Parsing an event stream"): a line without anything, however its lines end.
_BLANK: Final = (b"\n\n", b"\r\r", b"\n\r")
# JSON-RPC 2.0 section 5.1, and the statuses that say nothing about who asked.
_METHOD_NOT_FOUND: Final = -32601
_ABOUT_LISTS: Final = frozenset({405, 429})

Asked = UpstreamReply | UpstreamFault
# Puts the question: the cursor of the page (None: the first) and the id to ask under.
Ask = Callable[[str | None, str], Awaitable[Asked]]


@dataclass(frozen=True, slots=True)
class Key:
    """Whose list it is: the upstream, the path asked there, and a hash of the credentials shown."""

    upstream: GuardedUpstream = field(repr=False)
    target: str
    credentials: str


@dataclass(frozen=True, slots=True)
class Known:
    """A list, when it was learned, and until when its server vouches for it. Seconds on the monotonic clock."""

    listing: Listing
    at: float
    fresh_until: float


@dataclass(frozen=True, slots=True)
class Refused:
    """The upstream does not answer this client: its own words (401, 403, a session it does not know), read whole."""

    reply: UpstreamReply
    request_id: str


@dataclass(frozen=True, slots=True)
class Unlearned:
    """There is no list to be had; `reason` in words."""

    reason: str


Learned = Known | Refused | Unlearned


class Learner:
    """Remembers lists and sessions. `fresh_id` names a question so that no client's request has the same id."""

    def __init__(self, clock: Clock, fresh_id: Callable[[], str]) -> None:
        self._clock = clock
        self._fresh_id = fresh_id
        self._known: OrderedDict[Key, Known] = OrderedDict()
        self._alike: WeakValueDictionary[str, Listing] = WeakValueDictionary()
        self._asking: dict[Key, asyncio.Task[Learned]] = {}
        self._sessions: OrderedDict[tuple[Key, str], None] = OrderedDict()

    async def close(self) -> None:
        """Ends the questions under way."""
        asking = tuple(self._asking.values())
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    # --- lists --------------------------------------------------------------------------------------------------------
    def known(self, key: Key, ttl: float) -> Known | None:
        """The list, unless it is older than `ttl` seconds and than its server says; None where there is none."""
        found = self._known.get(key)
        if found is None:
            return None
        self._known.move_to_end(key)
        return found if self._clock.now() < max(found.fresh_until, found.at + ttl) else None

    def last(self, key: Key) -> Known | None:
        """The list however old it is: better than none where the upstream does not answer."""
        return self._known.get(key)

    def is_fresh(self, known: Known) -> bool:
        """Whether a list is good enough to refuse a call by: its server calls it fresh, or it was learned just now."""
        return self._clock.now() < max(known.fresh_until, known.at + NEW)

    def is_new(self, known: Known) -> bool:
        """Whether asking again would only be a burden."""
        return self._clock.now() < known.at + NEW

    def outdated(self, key: Key, *, surely: bool = True) -> None:
        """The server says that its list has changed: the next call asks for it. `surely` False: it only seems so, which
        a new list does not bear out."""
        found = self._known.get(key)
        if found is not None and (surely or not self.is_new(found)):
            self._known[key] = replace(found, at=float("-inf"), fresh_until=float("-inf"))

    def keep(self, key: Key, pages: list[Page], size: int) -> Known:
        """Remembers a whole list of `size` bytes."""
        made = listing_of(pages, size)
        listing = self._alike.setdefault(made.digest, made)
        now = self._clock.now()  # a server of an old revision vouches for nothing
        known = self._known[key] = Known(listing, now, now + min(page.ttl or 0.0 for page in pages))
        self._known.move_to_end(key)
        self._shrink()
        return known

    def _shrink(self) -> None:
        size = sum({id(one.listing): one.listing.size for one in self._known.values()}.values())
        while len(self._known) > MAX_KEYS or (size > MAX_BYTES and len(self._known) > 1):
            _, gone = self._known.popitem(last=False)
            if not any(one.listing is gone.listing for one in self._known.values()):
                size -= gone.listing.size

    async def learn(self, key: Key, ask: Ask, wait: float) -> Learned:
        """Asks for the list, for at most `wait` seconds. Of several that want the same one, the first asks."""
        asking = self._asking.get(key)
        joined = asking is not None
        if asking is None:
            asking = self._asking[key] = asyncio.create_task(self.ask(key, ask, wait))
            asking.add_done_callback(lambda _: self._asking.pop(key, None))
        learned = await asyncio.shield(asking)
        # What was refused may have been another client's session: that says nothing of ours.
        return await self.ask(key, ask, wait) if joined and isinstance(learned, Refused) else learned

    async def ask(self, key: Key, ask: Ask, wait: float) -> Learned:
        """Asks for the list, whoever else does."""
        try:
            async with asyncio.timeout(wait):
                return await self._pages(key, ask)
        except TimeoutError:
            return Unlearned(f"the upstream did not list its tools within {wait:g} s")

    async def _pages(self, key: Key, ask: Ask) -> Learned:
        pages: list[Page] = []
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
            answer = answered(header(reply, "content-type"), body, request_id)
            page = read_page(answer) if answer is not None else None
            if page is None:
                return _without_list(reply, body, answer, request_id)
            pages.append(page)
            if page.cursor is None:
                return self.keep(key, pages, size)
            cursor = page.cursor
        return Unlearned("the upstream's list of tools does not end")

    # --- sessions -----------------------------------------------------------------------------------------------------
    def accept(self, key: Key, session: str) -> None:
        """The upstream answers requests in this session ('': without one)."""
        self._sessions[key, session] = None
        self._sessions.move_to_end((key, session))
        if len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)

    def accepts(self, key: Key, session: str) -> bool:
        """Whether the upstream is known to answer in this session."""
        return (key, session) in self._sessions

    def forget(self, key: Key, session: str) -> None:
        """The session is over."""
        self._sessions.pop((key, session), None)


def _without_list(
    reply: UpstreamReply, body: bytes, answer: dict[str, JsonValue] | None, request_id: str
) -> Refused | Unlearned:
    """What an answer without a list means: that the client is not welcome, or that there are no lists here."""
    error = answer.get("error") if answer is not None else None
    listless = isinstance(error, dict) and error.get("code") == _METHOD_NOT_FOUND
    if 400 <= reply.status < 500 and not listless and reply.status not in _ABOUT_LISTS:
        return Refused(replace(reply, body=body), request_id)
    return Unlearned(f"the upstream does not list its tools (status {reply.status})")


async def read_answer(reply: UpstreamReply, request_id: str) -> bytes | None:
    """The body of an answer, decoded; of a stream as much as holds the answer to `request_id`. None where it is too
    large, broken off or coded in a way nobody knows."""
    if isinstance(reply.body, bytes):
        return plain(reply, reply.body)
    streamed, body, looked_at = header(reply, "content-type").startswith("text/event-stream"), bytearray(), 0
    try:
        async for chunk in reply.body:
            body += chunk
            if len(body) > MAX_LIST:
                return None
            if streamed and (end := _end_of_events(body, len(body) - len(chunk))) > looked_at:
                new, looked_at = bytes(body[looked_at:end]), end  # each event once, however many there are
                if request_id.encode() in new and answered("text/event-stream", new, request_id) is not None:
                    break
    except ReplyBroken:
        return None
    finally:
        await close_body(reply)
    return plain(reply, bytes(body))


def _end_of_events(body: bytearray, new: int) -> int:
    """Where the last whole event of a stream ends, 0 where none does in what came behind the first `new` bytes."""
    return max((found + 2 for mark in _BLANK if (found := body.rfind(mark, max(new - 1, 0))) >= 0), default=0)


def plain(reply: UpstreamReply, body: bytes) -> bytes | None:
    """A body without its content coding."""
    coding = header(reply, "content-encoding")
    if not is_coded(coding):
        return body
    decoded = decode(body, coding, MAX_LIST)
    return None if isinstance(decoded, Undecodable) else decoded


def header(reply: UpstreamReply, name: str) -> str:
    """The first value of a header (lower case), or ''."""
    return next((value for key, value in reply.headers if key.lower() == name), "")
