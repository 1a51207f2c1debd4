"""Each operation of the store as a value: which script, on which key, with which arguments, and how to read the reply.

A key is `<prefix>:<kind>:{<conversation>}<rest>`: the braces make a cluster keep all of a conversation in one slot
(Redis cluster specification, "Hash tags").
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from proxy.core.contract import KEPT_ATTEMPTS, KEPT_DIGESTS
from proxy.interfaces import Episode, FailedAttempt, FailureRecorded
from proxy.state.redis import scripts
from proxy.state.redis.scripts import Script
from proxy.state.remote import Missed, Seen

R = TypeVar("R")

_KEPT: Final = (KEPT_ATTEMPTS, KEPT_DIGESTS)
# How long the trace of a probe stays, in milliseconds.
_PROBE_TTL: Final = 1000


@dataclass(frozen=True, slots=True)
class Operation(Generic[R]):
    """One script call. `read` makes the result of the server's reply."""

    script: Script
    key: bytes
    arguments: tuple[str | int, ...]
    read: Callable[[Any], R]


@dataclass(frozen=True, slots=True)
class Keys:
    """The names of keys under one prefix."""

    prefix: str

    def episode(self, key: str) -> bytes:
        """Of an attempt key."""
        return self._name("e", key)

    def count(self, key: str) -> bytes:
        """Of a call count."""
        return self._name("c", key)

    def mark(self, key: str) -> bytes:
        """Of a fact."""
        return self._name("m", key)

    def probe(self, key: str) -> bytes:
        """Of what a probe writes: in the slot of `key`, under a name that nothing else has."""
        return self._name("p", key.partition("/")[0])

    @property
    def episodes(self) -> bytes:
        """The pattern of all episodes (SCAN); a prefix holds nothing that would mean something in a pattern."""
        return f"{self.prefix}:e:*".encode()

    def key_of(self, name: bytes) -> str:
        """The attempt key whose name this is."""
        tagged = name.decode("utf-8", "surrogatepass").removeprefix(f"{self.prefix}:e:{{")
        tag, _, rest = tagged.partition("}")
        return tag + rest

    def _name(self, kind: str, key: str) -> bytes:
        tag, slash, rest = key.partition("/")
        return f"{self.prefix}:{kind}:{{{tag}}}{slash}{rest}".encode("utf-8", "surrogatepass")


# --- operations -------------------------------------------------------------------------------------------------------
def look(key: bytes) -> Operation[Seen | None]:
    """The running episode, with the time it has left."""

    def read(reply: Any) -> Seen | None:
        return None if reply is None else Seen(episode_of(reply[0]), reply[1] / 1000)

    return Operation(scripts.LOOK, key, (), read)


def fail(key: bytes, attempt: FailedAttempt, ttl: float) -> Operation[FailureRecorded]:
    """Adds a failed attempt, or counts its repetition."""

    def read(reply: Any) -> FailureRecorded:
        return FailureRecorded(episode_of(reply[1]), repeated=reply[0] == 1)

    return Operation(scripts.FAIL, key, (attempt.digest, packed(attempt), _milliseconds(ttl), *_KEPT), read)


def clear(key: bytes) -> Operation[Episode | None]:
    """Ends an episode."""
    return Operation(scripts.CLEAR, key, (), lambda reply: None if reply is None else episode_of(reply))


def merge(key: bytes, missed: Missed) -> Operation[None]:
    """Adds what was counted elsewhere meanwhile."""
    flat = [item for attempt in missed.attempts for item in (attempt.digest, packed(attempt))]
    head = (int(missed.cleared), missed.repeats, _milliseconds(missed.ttl), *_KEPT)
    return Operation(scripts.MERGE, key, (*head, *flat), _nothing)


def reserve(key: bytes, limit: int, ttl: float) -> Operation[int | None]:
    """Takes a slot of a call cap."""
    return Operation(scripts.RESERVE, key, (limit, _milliseconds(ttl)), _number_or_none)


def release(key: bytes) -> Operation[int]:
    """Gives a slot back."""
    return Operation(scripts.RELEASE, key, (), int)


def merge_used(key: bytes, change: int, ttl: float) -> Operation[None]:
    """Adds to a call count."""
    return Operation(scripts.MERGE_USED, key, (change, _milliseconds(ttl) if ttl else 0), _nothing)


def taken(key: bytes) -> Operation[int]:
    """How many slots of a call cap are used."""
    return Operation(scripts.TAKEN, key, (), int)


def mark(key: bytes, ttl: float) -> Operation[None]:
    """Remembers a fact."""
    return Operation(scripts.MARK, key, (_milliseconds(ttl),), _nothing)


def marked(key: bytes) -> Operation[float]:
    """How many seconds a fact will still be remembered."""
    return Operation(scripts.MARKED, key, (), lambda reply: max(0.0, reply / 1000))


def probe(key: bytes) -> Operation[None]:
    """Writes something that matters to nobody."""
    return Operation(scripts.MARK, key, (_PROBE_TTL,), _nothing)


# --- values -----------------------------------------------------------------------------------------------------------
def packed(attempt: FailedAttempt) -> str:
    """An attempt as the store keeps it: JSON in ASCII, so that no script and no client has to understand it."""
    return json.dumps([attempt.digest, *attempt.lines], separators=(",", ":"))


def episode_of(flat: Sequence[bytes]) -> Episode:
    """The episode of a hash as HGETALL gives it."""
    fields = {bytes(name): bytes(value) for name, value in zip(flat[::2], flat[1::2], strict=True)}
    count = int(fields[b"n"])
    attempts, digests = _last(fields, b"a", count, KEPT_ATTEMPTS), _last(fields, b"d", count, KEPT_DIGESTS)
    return Episode(
        count,
        tuple(_unpacked(value) for value in attempts),
        tuple(value.decode() for value in digests),
        int(fields.get(b"r", 0)),
    )


def _last(fields: dict[bytes, bytes], kind: bytes, count: int, kept: int) -> list[bytes]:
    names = (kind + b"%d" % number for number in range(max(1, count - kept + 1), count + 1))
    return [fields[name] for name in names if name in fields]


def _unpacked(value: bytes) -> FailedAttempt:
    digest, *lines = json.loads(value)
    return FailedAttempt(digest, tuple(lines))


def _milliseconds(seconds: float) -> int:
    """At least one: a key without a time to live would stay for ever, and 0 is an error."""
    return max(1, math.ceil(seconds * 1000))


def _number_or_none(reply: Any) -> int | None:
    return None if reply is None else int(reply)


def _nothing(_reply: Any) -> None:
    return None
