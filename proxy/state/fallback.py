"""A store that several processes share, with this process's memory behind it: no call fails or waits for it.

**Up**: every operation is the remote store's; what it answered about attempts and call counts is kept in memory too.
That copy says which keys have an episode (`knows`), and is what counting goes on with when the store goes away.
**Away**: operations are answered from memory and written into a `Journal`. A task tries the store, at once and then
ever more rarely; when it answers, the journal is added to it (`merge`), and then it is up again. The merge and what is
asked after it stand in one line, so nothing overtakes it.

An operation that got no answer is done again in memory. Whether the remote store did it cannot be known: a failed
attempt is merged later (its digest makes that harmless), a slot of a call cap is taken to be taken.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from proxy.interfaces import Ahead, Clock, Episode, FailedAttempt, FailureRecorded
from proxy.state.memory import MemoryStore
from proxy.state.missed import Batch, Journal
from proxy.state.remote import Remote, Seen, Unreachable

R = TypeVar("R")

_AWAY: Final = Unreachable("away", sent=False)

# How often an idle store is tried: a connection that died unnoticed is found by this and not by a call.
_WATCH: Final = 1.0
# The pause before a store that is away is tried again: at once, then this, doubled each time up to the longest.
_FIRST_PAUSE: Final = 0.25
_LONGEST_PAUSE: Final = 5.0
# A store that was up for less than this before it was lost again is not tried at once.
_STEADY: Final = 10.0
# Entries merged in one go; when no more than these are left, they go first in line and the store is up.
_MERGED_AT_ONCE: Final = 128


@dataclass(frozen=True, slots=True)
class StoreChange:
    """The store went away (`reason` says why, without secrets) or came back (after `seconds`, `merged` entries)."""

    up: bool
    reason: str = ""
    seconds: float = 0.0
    merged: int = 0


class FallbackStore:
    """Implements `StateStore` over a `Remote`. `changed` is told of each transition; `pause` sleeps."""

    shared: Final = True

    def __init__(
        self,
        remote: Remote,
        clock: Clock,
        max_keys: int,
        changed: Callable[[StoreChange], None],
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._remote = remote
        self._clock = clock
        self._changed = changed
        self._pause = pause
        self._max_keys = max_keys
        self._local = MemoryStore(clock, max_keys)
        self._journal = Journal(clock, max_keys)
        self._tasks: set[asyncio.Task[None]] = set()
        self._lost = asyncio.Event()
        self._up = True
        self._since = clock.now()
        self._wait = 0.0
        self._key = ""  # whose place is tried: in a cluster, the one that gave no answer

    @property
    def up(self) -> bool:
        """Whether the remote store is in use."""
        return self._up

    async def open(self) -> None:
        """Tries the store once and begins to watch it."""
        self._start(self._watch())
        try:
            await self._remote.probe(self._key)
        except Unreachable as why:
            self._lose(why)

    async def close(self) -> None:
        """Stops watching, tries what is still in line, and closes the connections."""
        watching, self._tasks = self._tasks, set()
        for task in watching:
            task.cancel()
        if watching:
            await asyncio.wait(watching)
        await self._remote.close()

    # --- episodes -----------------------------------------------------------------------------------------------------
    def is_idle(self) -> bool:
        return False

    def knows(self, key: str) -> bool:
        return self._local.knows(key)

    async def look(self, key: str) -> Episode | None:
        seen = await self._ask(key, lambda: self._remote.look(key))
        if isinstance(seen, Unreachable):
            return await self._local.look(key)
        episode, ttl = (None, 0.0) if seen is None else (seen.episode, seen.ttl)
        self._local.learn_episode(key, episode, ttl)
        return episode

    async def fail(self, key: str, attempt: FailedAttempt, ttl: float) -> FailureRecorded:
        recorded = await self._ask(key, lambda: self._remote.fail(key, attempt, ttl))
        if isinstance(recorded, Unreachable):
            recorded = await self._local.fail(key, attempt, ttl)
            self._journal.failed(key, attempt, recorded.repeated, ttl)
        else:
            self._local.learn_episode(key, recorded.episode, ttl)
        return recorded

    async def clear(self, key: str) -> Episode | None:
        known = await self._local.clear(key)
        was = await self._ask(key, lambda: self._remote.clear(key))
        if isinstance(was, Unreachable):
            self._journal.cleared(key)
            return known
        self._local.learn_episode(key, None, 0)  # a look that was under way may have told of it meanwhile
        return was

    def look_ahead(self, key: str) -> Ahead | None:
        """A look that nobody waits for: its answer is there before most tools have answered."""
        if not self._up or self._local.knows(key):
            return None

        def learn(seen: Seen | None) -> Episode | None:
            if seen is not None:
                self._local.learn_episode(key, seen.episode, seen.ttl)
            return seen.episode if seen is not None else None

        return self._beside(key, self._remote.look(key), learn, lambda: None)

    def clear_soon(self, key: str, ahead: Ahead | None = None) -> Ahead | None:
        if not self._up:
            self._journal.cleared(key)
            return None
        if ahead is None:
            return self._beside(key, self._remote.clear(key), lambda was: was, lambda: self._journal.cleared(key))
        if ahead.done():  # it found nothing, else `knows` would have told
            return None
        told: Ahead = asyncio.get_running_loop().create_future()
        ahead.add_done_callback(lambda found: self._clear_found(key, found.result(), told))
        return told

    def _clear_found(self, key: str, episode: Episode | None, told: Ahead) -> None:
        """The look took longer than the tool: what it found is ended now, unless the store was lost over it."""
        self._local.learn_episode(key, None, 0)
        if self._up and episode is None:
            _tell(told, None)
        elif (cleared := self.clear_soon(key)) is None:
            _tell(told, episode)
        else:
            cleared.add_done_callback(lambda was: _tell(told, was.result()))

    def _beside(
        self, key: str, asked: Future[R], read: Callable[[R], Episode | None], lost: Callable[[], None]
    ) -> Ahead:
        """What an operation that nobody waits for will have given; None where the store is lost over it."""
        told: Ahead = asyncio.get_running_loop().create_future()

        def settle(done: Future[R]) -> None:
            why = done.exception()
            if isinstance(why, Unreachable):
                self._lose(why, key)
                lost()
            _tell(told, None if why is not None else read(done.result()))

        asked.add_done_callback(settle)
        return told

    async def episodes(self) -> Sequence[tuple[str, Episode]]:
        """Of all processes; while the store is away, those this process knows of."""
        if self._up:
            with suppress(Unreachable):  # the watch finds out whether it is away, or this was merely too much
                return await self._remote.episodes(self._max_keys)
        return await self._local.episodes()

    # --- call caps ----------------------------------------------------------------------------------------------------
    async def reserve(self, key: str, limit: int, ttl: float) -> int | None:
        used = await self._ask(key, lambda: self._reserve(key, limit, ttl))
        if isinstance(used, Unreachable):
            slot = await self._local.reserve(key, limit, ttl)
            if slot is not None and not used.sent:
                self._journal.reserved(key, ttl)
            return slot
        self._local.learn_used(key, limit if used is None else used, ttl)
        return used

    async def _reserve(self, key: str, limit: int, ttl: float) -> int | None:
        """A call that is cancelled while it waits must not keep the slot it gets."""
        asked = self._remote.reserve(key, limit, ttl)
        try:
            return await asyncio.shield(asked)
        except asyncio.CancelledError:
            asked.add_done_callback(lambda done: self._give_back(key, done))
            raise

    def _give_back(self, key: str, taken: Future[int | None]) -> None:
        if taken.cancelled() or taken.exception() is not None or taken.result() is None:
            return
        self._start(self.release(key))

    async def release(self, key: str) -> None:
        left = await self._ask(key, lambda: self._remote.release(key))
        if isinstance(left, Unreachable):
            await self._local.release(key)
            if not left.sent:
                self._journal.released(key)
        else:
            self._local.learn_used(key, left, 0)

    # --- marks --------------------------------------------------------------------------------------------------------
    async def mark(self, key: str, ttl: float) -> None:
        await self._local.mark(key, ttl)
        if isinstance(await self._ask(key, lambda: self._remote.mark(key, ttl)), Unreachable):
            self._journal.marked(key, ttl)

    async def taken(self, key: str) -> int:
        used = await self._ask(key, lambda: self._remote.taken(key))
        return await self._local.taken(key) if isinstance(used, Unreachable) else used

    async def marked(self, key: str) -> bool:
        """A mark is never taken away, so one that this process knows of needs no asking."""
        if await self._local.marked(key):
            return True
        left = await self._ask(key, lambda: self._remote.marked(key))
        if isinstance(left, Unreachable) or left <= 0:
            return False
        await self._local.mark(key, left)
        return True

    # --- up and away --------------------------------------------------------------------------------------------------
    async def _ask(self, key: str, ask: Callable[[], Awaitable[R]]) -> R | Unreachable:
        """The remote store's answer; Unreachable where it is away, at once if that is known."""
        if not self._up:
            return _AWAY
        try:
            return await ask()
        except Unreachable as why:
            self._lose(why, key)
            return why

    def _lose(self, why: Unreachable, key: str = "") -> None:
        if not self._up:
            return
        now = self._clock.now()
        steady = now - self._since >= _STEADY
        self._wait = 0.0 if steady else min(max(_FIRST_PAUSE, self._wait * 2), _LONGEST_PAUSE)
        self._up, self._since, self._key = False, now, key
        self._lost.set()
        self._changed(StoreChange(False, why.reason))

    async def _watch(self) -> None:
        while True:
            if self._up:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_WATCH):
                        await self._lost.wait()
            self._lost.clear()
            if self._up:
                await self._ask(self._key, lambda: self._remote.probe(self._key))
            else:
                await self._pause(self._wait)
                await self._heal()

    async def _heal(self) -> None:
        """Tries the store; when it answers, merges what it missed and uses it again."""
        merged = 0
        try:
            await self._remote.probe(self._key)
            while len(self._journal) > _MERGED_AT_ONCE:
                merged += await self._merged(*self._merge())
            rest, asked = self._merge()  # in line, ahead of whoever asks from now on
        except Unreachable:
            self._wait = min(max(_FIRST_PAUSE, self._wait * 2), _LONGEST_PAUSE)
            return
        now = self._clock.now()
        self._up, away, self._since = True, now - self._since, now
        self._changed(StoreChange(True, "", away, merged + len(rest)))
        try:
            await self._merged(rest, asked)
        except Unreachable as why:
            self._lose(why, self._key)

    def _merge(self) -> tuple[Batch, list[Future[None]]]:
        """Puts the oldest part of the journal into line."""
        batch, remote = self._journal.take(_MERGED_AT_ONCE), self._remote
        asked = [remote.merge(key, missed) for key, missed in batch.episodes]
        asked += [remote.merge_used(key, change, ttl) for key, change, ttl in batch.counts]
        asked += [remote.mark(key, ttl) for key, ttl in batch.marks]
        return batch, asked

    async def _merged(self, batch: Batch, asked: list[Future[None]]) -> int:
        """How many entries were merged. Raises Unreachable, with the batch back in the journal."""
        for answer in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(answer, Unreachable):
                self._journal.put_back(batch, answer.sent)
                raise answer
        return len(batch)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _tell(told: Ahead, episode: Episode | None) -> None:
    if not told.done():  # whoever waited may have gone
        told.set_result(episode)
