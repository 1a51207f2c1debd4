"""A shared store that falls back to this process's memory, so that calls go on while the store is away.

**Up**: every operation goes to the remote store, and its answers about attempts and call counts are copied to memory.
The copy says for which keys this process knows a failure, and counting continues from it when the store goes away.
**Away**: operations are answered from memory and written into a `Journal`. A task tries the store, at once and then
with growing pauses. When the store answers, the journal is merged into it, and the store is up again. The merge and the
operations after it share one queue, so nothing overtakes the merge.

An operation that gets no answer is repeated in memory, although the remote store may have done it. A failed attempt is
merged later; its digest keeps it from counting twice. A call-cap slot is assumed to be taken.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, TypeVar

from proxy.call_record import Ending
from proxy.driver import IN_TASK
from proxy.extensions.redis.remote import Journal, JournalBatch, Remote, SeenEpisode, Unreachable
from proxy.interfaces import Clock, Episode, FailedAttempt, FailureRecorded, Rate, RateExceeded
from proxy.plugin import Changed, MemoryStore, StoreChange

R = TypeVar("R")

_AWAY: Final = Unreachable("away", sent=False)

# Seconds between two tries of an idle store, so that this and not a call finds a dead connection.
_WATCH: Final = 1.0
# The store that went away is tried at once, then after this pause, which doubles up to `_LONGEST_PAUSE`.
_FIRST_PAUSE: Final = 0.25
_LONGEST_PAUSE: Final = 5.0
# A store that was up for less than this many seconds before it was lost again is not tried at once.
_STEADY: Final = 10.0
# Entries merged at a time; when no more than these are left, they are queued first and the store is up.
_MERGED_AT_ONCE: Final = 128


class StoreCopy(MemoryStore):
    """This process's copy of a shared store, for when that goes away."""

    def learn_episode(self, key: str, episode: Episode | None, ttl: float) -> None:
        """Sets an episode to its state elsewhere. `ttl` is in seconds, and unused without an episode."""
        with self._lock:
            if episode is None:
                self._episodes.pop(key)
            else:
                self._episodes.put(key, episode, ttl)

    def learn_used(self, key: str, used: int, ttl: float) -> None:
        """Sets a call count to its state elsewhere. `ttl` is in seconds; 0 keeps the time of a present count."""
        with self._lock:
            if used <= 0:
                self._used.pop(key)
            elif ttl > 0:
                self._used.put(key, used, ttl)
            elif self._used.get(key) is not None:
                self._used.swap(key, used)


class FallbackStore:
    """Implements `StateStore` over a `Remote`. `changed` receives each transition; `pause` sleeps."""

    def __init__(
        self,
        remote: Remote,
        clock: Clock,
        max_keys: int,
        changed: Changed,
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._remote = remote
        self._clock = clock
        self._changed = changed
        self._pause = pause
        self._max_keys = max_keys
        self._local = StoreCopy(clock, max_keys)
        self._journal = Journal(clock, max_keys)
        # The latest look-ups that run without a waiting call, by key.
        self._ahead: OrderedDict[str, Future[SeenEpisode | None]] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._lost = asyncio.Event()
        self._up = True
        self._since = clock.now()
        self._wait = 0.0
        self._key = ""  # the key that probes use: in a cluster, the one that gave no answer

    @property
    def up(self) -> bool:
        """Returns whether the remote store is in use."""
        return self._up

    async def open(self) -> None:
        """Tries the store once and starts watching it."""
        self._start(self._watch())
        try:
            await self._remote.probe(self._key)
        except Unreachable as why:
            self._lose(why)

    async def close(self) -> None:
        """Stops watching, lets the queued operations run, and closes the connections."""
        watching, self._tasks = self._tasks, set()
        for task in watching:
            task.cancel()
        if watching:
            await asyncio.wait(watching)
        await self._remote.close()

    # --- episodes -----------------------------------------------------------------------------------------------------
    def is_known(self, key: str) -> bool:  # noqa: ARG002 - of every key
        """True: other processes may have recorded failures, and `look` begins to ask for them."""
        return True

    async def look(self, key: str, if_known: bool = False) -> Episode | None:
        if if_known and await self._local.look(key, if_known=True) is None:
            self._look_ahead(key)
            return None
        seen = await self._ask(key, lambda: self._remote.look(key))
        if isinstance(seen, Unreachable):
            return await self._local.look(key)
        episode, ttl = (None, 0.0) if seen is None else (seen.episode, seen.ttl)
        self._local.learn_episode(key, episode, ttl)
        return episode

    async def fail(self, key: str, attempt: FailedAttempt, ttl: float) -> FailureRecorded:
        recorded = await self._ask(key, lambda: self._fail(key, attempt, ttl))
        self._ahead.pop(key, None)  # the key is known from now on
        if isinstance(recorded, Unreachable):
            before = await self._local.look(key)
            recorded = await self._local.fail(key, attempt, ttl)
            joins = before is not None and 0 < before.count == recorded.episode.count
            self._journal.note_failure(key, replace(attempt, seen=0 if joins else None), ttl)
        else:
            self._local.learn_episode(key, recorded.episode, ttl)
        return recorded

    async def _fail(self, key: str, attempt: FailedAttempt, ttl: float) -> FailureRecorded:
        """Records a failure at the remote store. Other processes may have counted attempts that this process did not
        know when the call arrived (`seen` 0); the look-up that began then has their number."""
        ahead = self._ahead.get(key)
        if attempt.seen == 0 and (ahead is not None or not _is_running(await self._local.look(key))):
            found = await asyncio.shield(self._remote.look(key) if ahead is None else ahead)
            attempt = attempt if found is None else replace(attempt, seen=found.episode.count)
        return await self._remote.fail(key, attempt, ttl)

    async def clear(self, key: str, forget: bool = False) -> Episode | Ending | None:
        known, ahead = await self._local.clear(key, forget), self._ahead.pop(key, None)
        if not (forget or _is_running(known)):
            if ahead is None or not ahead.done() or ahead.exception() is not None:
                return self._clear_later(key, ahead)
            if not _is_running(None if (seen := ahead.result()) is None else seen.episode):
                return None
        was = await self._ask(key, lambda: self._remote.clear(key, forget))
        if isinstance(was, Unreachable):
            self._journal.note_ending(key)
            return known
        await self._local.clear(key, forget)  # a look-up under way may have restored it in the meantime
        return was

    # --- episodes that other processes may have begun -----------------------------------------------------------------
    def _look_ahead(self, key: str) -> None:
        """Begins a look-up without waiting for it, because most tools take longer to answer than the store. Its result
        is then known in this process, so that `clear` ends the episode before the answer goes out."""
        if not self._up:
            return
        lookup = self._remote.look(key)
        self._ahead[key] = lookup
        self._ahead.move_to_end(key)
        if len(self._ahead) > self._max_keys:
            self._ahead.popitem(last=False)

        def learn(done: Future[SeenEpisode | None]) -> None:
            why = done.exception()
            if isinstance(why, Unreachable):
                self._lose(why, key)
            elif self._ahead.get(key) is done and (seen := done.result()) is not None:
                self._local.learn_episode(key, seen.episode, seen.ttl)

        lookup.add_done_callback(learn)

    def _clear_later(self, key: str, ahead: Future[SeenEpisode | None] | None) -> Ending | None:
        """Ends an episode without delaying the answer. None while the store is away, where the episode ends at the
        merge."""
        if not self._up:
            self._journal.note_ending(key)
            return None
        ending: Ending = asyncio.get_running_loop().create_future()

        def settle(cleared: Future[Episode | None]) -> None:
            why = cleared.exception()
            if isinstance(why, Unreachable):
                self._lose(why, key)
                self._journal.note_ending(key)
            if not ending.done():  # the waiting caller may be gone
                ending.set_result(None if why is not None else cleared.result())

        def settle_look(found: Future[SeenEpisode | None]) -> None:
            if found.exception() is None and ((seen := found.result()) is None or not _is_running(seen.episode)):
                ending.set_result(None)
            else:
                self._remote.clear(key, False).add_done_callback(settle)

        if ahead is None or ahead.done():
            self._remote.clear(key, False).add_done_callback(settle)
        else:
            ahead.add_done_callback(settle_look)
        return ending

    async def list_episodes(self) -> Sequence[tuple[str, Episode]]:
        """The episodes of all processes; while the store is away, those that this process knows."""
        if self._up:
            with suppress(Unreachable):  # the watch task decides whether the store is away
                return await self._remote.list_episodes(self._max_keys)
        return await self._local.list_episodes()

    # --- counts -------------------------------------------------------------------------------------------------------
    async def reserve(self, key: str, limit: int, ttl: float) -> int | None:
        used = await self._ask(key, lambda: self._reserve(key, limit, ttl))
        if isinstance(used, Unreachable):
            slot = await self._local.reserve(key, limit, ttl)
            if slot is not None and not used.sent:
                self._journal.note_reservation(key, ttl)
            return slot
        self._local.learn_used(key, limit if used is None else used, ttl)
        return used

    async def _reserve(self, key: str, limit: int, ttl: float) -> int | None:
        """Takes a slot. A call that is canceled in between gives its slot back."""
        reserved = self._remote.reserve(key, limit, ttl)
        try:
            return await asyncio.shield(reserved)
        except asyncio.CancelledError:
            reserved.add_done_callback(lambda done: self._give_back(key, done))
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
                self._journal.note_release(key)
        else:
            self._local.learn_used(key, left, 0)

    async def count_taken(self, key: str, enough: int | None = None) -> int:
        known = await self._local.count_taken(key)
        if enough is not None and known >= enough:
            return known
        count = await self._ask(key, lambda: self._remote.count_taken(key))
        if isinstance(count, Unreachable):
            return known
        self._local.learn_used(key, count.used, count.ttl)
        return count.used

    # --- rates --------------------------------------------------------------------------------------------------------
    async def take_rates(self, rates: Sequence[Rate]) -> RateExceeded | None:
        """Memory also counts the calls of this process, and decides while the store is away."""
        here = await self._local.take_rates(rates)
        found = await self._ask(rates[0].key, lambda: self._remote.take_rates(rates))
        return here if isinstance(found, Unreachable) else found

    # --- up and away --------------------------------------------------------------------------------------------------
    async def _ask(self, key: str, ask: Callable[[], Awaitable[R]]) -> R | Unreachable:
        """Returns the remote store's answer, or Unreachable; at once if the store is known to be away."""
        if not self._up:
            return _AWAY
        await IN_TASK
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
        """Tries the store; when it answers, merges the journal into it and uses it again."""
        merged = 0
        try:
            await self._remote.probe(self._key)
            while len(self._journal) > _MERGED_AT_ONCE:
                merged += await self._count_merged(*self._merge())
            rest, merges = self._merge()  # queued before any operation that follows
        except Unreachable:
            self._wait = min(max(_FIRST_PAUSE, self._wait * 2), _LONGEST_PAUSE)
            return
        now = self._clock.now()
        self._up, away, self._since = True, now - self._since, now
        self._changed(StoreChange(True, "", away, merged + len(rest)))
        try:
            await self._count_merged(rest, merges)
        except Unreachable as why:
            self._lose(why, self._key)

    def _merge(self) -> tuple[JournalBatch, list[Future[None]]]:
        """Queues the merge of the oldest part of the journal."""
        batch, remote = self._journal.take(_MERGED_AT_ONCE), self._remote
        merges = [remote.merge(key, missed) for key, missed in batch.episodes]
        merges += [remote.merge_used(key, change, ttl) for key, change, ttl in batch.counts]
        return batch, merges

    async def _count_merged(self, batch: JournalBatch, merges: list[Future[None]]) -> int:
        """The number of merged entries. Raises Unreachable, after putting the batch back into the journal."""
        for answer in await asyncio.gather(*merges, return_exceptions=True):
            if isinstance(answer, Unreachable):
                self._journal.put_back(batch, answer.sent)
                raise answer
        return len(batch)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _is_running(episode: Episode | None) -> bool:
    """Returns whether the episode has an attempt; an ended episode keeps only the counts of refused arguments."""
    return episode is not None and episode.count > 0
