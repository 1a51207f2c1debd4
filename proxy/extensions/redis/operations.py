"""The store's operations as values, and the queue that sends them in batches.

An `Operation` is a script, a key, arguments, and a reader of the reply. A key is
`<prefix>:<kind>:{<conversation>}<rest>`; the braces make a cluster keep a whole conversation in one slot (Redis cluster
specification, "Hash tags").

`OperationQueue` fills the next batch while one is under way, and keeps the order of submission. So a busy process needs
few round trips and one connection, and an idle one sends at once. When a batch gets no answer, everything in the queue
fails at once: no call waits for a store that is away.
"""

from __future__ import annotations

import asyncio
import json
import math
from asyncio import Future
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from proxy.core.contract.attempts import KEPT_ATTEMPTS, KEPT_DIGESTS
from proxy.core.model.value_class import value_class
from proxy.extensions.redis import scripts
from proxy.extensions.redis.remote import MissedChanges, SeenEpisode, SlotCount, Unreachable
from proxy.extensions.redis.scripts import Script
from proxy.interfaces import Episode, FailedAttempt, FailureRecorded, Rate, RateExceeded

R = TypeVar("R")

_KEPT: Final = (KEPT_ATTEMPTS, KEPT_DIGESTS)
# The call of a failed attempt that has no id.
_NO_CALL: Final = "-"
# The time to live of a probe's key, in milliseconds.
_PROBE_TTL: Final = 1000


@value_class
class Operation(Generic[R]):
    """One script call. `read` turns the server's reply into the result. `other_keys` lie in the slot of `key`."""

    script: Script
    key: bytes
    arguments: tuple[str | int, ...]
    read: Callable[[Any], R]
    other_keys: tuple[bytes, ...] = ()


@value_class
class Keys:
    """The key names under one prefix."""

    prefix: str

    def episode(self, key: str) -> bytes:
        """The name of an attempt key."""
        return self._name("a", key)

    def count(self, key: str) -> bytes:
        """The name of a call count."""
        return self._name("c", key)

    def rate(self, key: str) -> bytes:
        """The name of a rate."""
        return self._name("r", key)

    def probe(self, key: str) -> bytes:
        """The name of a probe: in the slot of `key`, and used for nothing else."""
        return self._name("p", key.partition("/")[0])

    @property
    def episodes(self) -> bytes:
        """The pattern of all episodes (SCAN); a prefix contains no pattern characters."""
        return f"{self.prefix}:a:*".encode()

    def key_of(self, name: bytes) -> str:
        """The attempt key behind a name."""
        tagged = name.decode("utf-8", "surrogatepass").removeprefix(f"{self.prefix}:a:{{")
        tag, _, rest = tagged.partition("}")
        return tag + rest

    def _name(self, kind: str, key: str) -> bytes:
        tag, slash, rest = key.partition("/")
        return f"{self.prefix}:{kind}:{{{tag}}}{slash}{rest}".encode("utf-8", "surrogatepass")


# --- operations -------------------------------------------------------------------------------------------------------
def look(key: bytes) -> Operation[SeenEpisode | None]:
    """The running episode, with the time it has left."""

    def read(reply: Any) -> SeenEpisode | None:
        return None if reply is None else SeenEpisode(read_episode(reply[0]), reply[1] / 1000)

    return Operation(scripts.LOOK, key, (), read)


def fail(key: bytes, attempt: FailedAttempt, ttl: float) -> Operation[FailureRecorded]:
    """Adds a failed call."""

    def read(reply: Any) -> FailureRecorded:
        episode = read_episode(reply[2])
        if episode.failed < 1 or episode.count < 0 or reply[0] < 0:
            raise ValueError("the store counted no failure")
        return FailureRecorded(episode, repeated=reply[1] == 1, number=reply[0], resent=reply[3] == 1)

    return Operation(scripts.FAIL, key, (_to_milliseconds(ttl), *_KEPT, *_flatten(attempt)), read)


def clear(key: bytes, forget: bool = False) -> Operation[Episode | None]:
    """Ends an episode."""
    read: Callable[[Any], Episode | None] = lambda reply: None if reply is None else read_episode(reply)  # noqa: E731
    return Operation(scripts.CLEAR, key, (int(forget),), read)


def merge(key: bytes, missed: MissedChanges) -> Operation[None]:
    """Adds the counts of memory from the time when the store was away."""
    flat = [item for attempt in missed.attempts for item in _flatten(attempt)]
    return Operation(
        scripts.MERGE, key, (int(missed.cleared), _to_milliseconds(missed.ttl), *_KEPT, *flat), _ignore_reply
    )


def _flatten(attempt: FailedAttempt) -> tuple[str | int, ...]:
    """A failed call as the scripts take it: digest, call, how many attempts its model had seen (-1: all), lines."""
    lines = json.dumps(attempt.lines, separators=(",", ":"))
    return attempt.digest, attempt.call or _NO_CALL, -1 if attempt.seen is None else attempt.seen, lines


def reserve(key: bytes, limit: int, ttl: float) -> Operation[int | None]:
    """Takes a slot of a call cap."""
    return Operation(
        scripts.RESERVE, key, (limit, _to_milliseconds(ttl)), lambda reply: None if reply is None else int(reply)
    )


def release(key: bytes) -> Operation[int]:
    """Returns a slot back."""
    return Operation(scripts.RELEASE, key, (), int)


def merge_used(key: bytes, change: int, ttl: float) -> Operation[None]:
    """Adds a difference to a call count."""
    return Operation(scripts.MERGE_USED, key, (change, _to_milliseconds(ttl) if ttl else 0), _ignore_reply)


def count_taken(key: bytes) -> Operation[SlotCount]:
    """Returns how many slots of a call cap are used, with the time the count has left."""
    return Operation(scripts.TAKEN, key, (), lambda reply: SlotCount(int(reply[0]), max(0.0, reply[1] / 1000)))


def take_rates(keys: Sequence[bytes], rates: Sequence[Rate]) -> Operation[RateExceeded | None]:
    """Counts one call under each key, or under none."""

    def read(reply: Any) -> RateExceeded | None:
        return None if reply is None else RateExceeded(int(reply[0]) - 1, int(reply[1]))

    numbers = tuple(number for rate in rates for number in (rate.interval, rate.burst))
    return Operation(scripts.TAKE_RATES, keys[0], numbers, read, tuple(keys[1:]))


def probe(key: bytes) -> Operation[None]:
    """Writes a key that nothing else uses."""
    return Operation(scripts.PROBE, key, (_PROBE_TTL,), _ignore_reply)


# --- values -----------------------------------------------------------------------------------------------------------
def read_episode(flat: Sequence[bytes]) -> Episode:
    """The episode of a hash as HGETALL gives it."""
    fields = {bytes(name): bytes(value) for name, value in zip(flat[::2], flat[1::2], strict=True)}
    count, failed = int(fields.get(b"n", 0)), int(fields.get(b"f", 0))
    names = (b"a%d" % number for number in range(max(1, failed - KEPT_ATTEMPTS + 1), failed + 1))
    digests = (one.rpartition(":") for one in fields.get(b"d", b"").decode().split())
    return Episode(
        count,
        tuple(_unpack_attempt(fields[name]) for name in names if name in fields),
        tuple((digest, int(times)) for digest, _, times in digests),
        failed,
    )


def _unpack_attempt(value: bytes) -> FailedAttempt:
    number, digest, call, lines = value.decode().split(" ", 3)
    return FailedAttempt(digest, tuple(json.loads(lines)), "" if call == _NO_CALL else call, None, int(number))


def _to_milliseconds(seconds: float) -> int:
    """Converts seconds; at least 1, because a key without a time to live would stay for ever, and 0 is an error."""
    return max(1, math.ceil(seconds * 1000))


def _ignore_reply(_reply: Any) -> None:
    return None


# --- the queue --------------------------------------------------------------------------------------------------------
# Operations per batch: about 5 ms of work for client and server, so that no batch delays the others.
_MOST_AT_ONCE: Final = 256

Run = Callable[[Sequence[Operation[Any]]], Awaitable[list[Any]]]


class OperationQueue:
    """Sends operations through `run`. Beyond `most_waiting` queued operations, one more is refused at once."""

    def __init__(self, run: Run, most_waiting: int) -> None:
        self._run = run
        self._most_waiting = most_waiting
        self._waiting: deque[tuple[Operation[Any], Future[Any]]] = deque()
        self._task: asyncio.Task[None] | None = None

    def submit(self, operation: Operation[R]) -> Future[R]:
        """Queues an operation. It runs even if its caller goes away."""
        loop = asyncio.get_running_loop()
        future: Future[R] = loop.create_future()
        if len(self._waiting) >= self._most_waiting:
            future.set_exception(Unreachable("too many operations are waiting", sent=False))
            return future
        self._waiting.append((operation, future))
        if self._task is None:
            self._task = loop.create_task(self._work())
        return future

    async def idle(self) -> None:
        """Waits until nothing is queued or under way."""
        while self._task is not None:
            await asyncio.wait({self._task})

    async def _work(self) -> None:
        try:
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), _MOST_AT_ONCE))]
                try:
                    replies = await self._run([operation for operation, _ in batch])
                except Unreachable as why:
                    _refuse(batch, why)
                    self._refuse_all(why)
                else:
                    for (operation, future), reply in zip(batch, replies, strict=True):
                        _settle(operation, future, reply)
        finally:
            self._task = None

    def _refuse_all(self, why: Unreachable) -> None:
        waiting, self._waiting = self._waiting, deque()
        _refuse(waiting, Unreachable(why.reason, sent=False))


def _refuse(batch: Sequence[tuple[Operation[Any], Future[Any]]], why: Unreachable) -> None:
    for _, future in batch:
        if not future.done():
            future.set_exception(Unreachable(why.reason, why.sent))


def _settle(operation: Operation[R], future: Future[R], reply: Any) -> None:
    if future.done():  # the caller is gone
        return
    if isinstance(reply, Unreachable):
        future.set_exception(reply)
        return
    try:
        future.set_result(operation.read(reply))
    except (ValueError, KeyError, TypeError, IndexError):
        future.set_exception(Unreachable("a reply could not be read: is the prefix used by something else?", sent=True))
