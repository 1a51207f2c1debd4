"""Refuses calls that come too often, or too many at once.

Rates are counted in the state store: one request for all rates of a call, which counts under none of them where one
refuses. Only this process knows its number of calls under way. That limit comes first, because a place is given back
when a rate refuses.

Keys are hashed: they hold no name, address or id, and always have the same length.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache, partial
from hashlib import blake2b
from ipaddress import IPv6Address, ip_address
from typing import Final

from proxy.core.contract.attempts import hash_conversation
from proxy.core.contract.policy import CallLimits
from proxy.core.model import codes
from proxy.core.model.values import CheckedCall, Failure, Headers, value_class
from proxy.interfaces import CallRoute, Rate, RateExceeded, Services, StateStore

_MICROSECONDS: Final = 1_000_000
# The bits of an IPv6 address that one client has at least (RFC 6177).
_NETWORK: Final = 64


class CountedBy(StrEnum):
    """What the calls have in common that one limit counts together: who makes them (where nobody has to say who they
    are: from where), the tool, the conversation, or the client's address."""

    CALLER = "caller"
    TOOL = "tool"
    CONVERSATION = "conversation"
    ADDRESS = "address"


@value_class
class RateLimit:
    """How many calls may be made in a time: `calls` in `per` seconds, evenly, and `burst` of them at once (GCRA: in any
    `per` seconds at most `calls` + `burst`). `by`: what the calls have in common that are counted together, of those
    that `scope` names (the place of the config that sets the limit). `name` tells it from other limits of its tool."""

    calls: int
    per: float
    burst: int
    by: tuple[CountedBy, ...]
    scope: str
    name: str


@value_class
class ConcurrentLimit:
    """How many calls may be under way at once; `by` and `scope` as for `RateLimit`."""

    calls: int
    by: tuple[CountedBy, ...]
    scope: str


class CallRates:
    """Implements `CallLimiter`. `store` counts rates."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._under_way: Counter[bytes] = Counter()

    async def admit(
        self, checked: CheckedCall, limits: CallLimits, call_route: CallRoute
    ) -> Failure | Callable[[], None] | None:
        """Counts a call, or gives the failure of a refused one."""
        values = find_values(checked, call_route)
        places = [_hash_key(limit, str(index), values) for index, limit in enumerate(limits.concurrent)]
        for limit, place in zip(limits.concurrent, places, strict=True):
            if self._under_way[place] >= limit.calls:
                return make_concurrency_failure(checked.call.tool, limit)
        self._under_way.update(places)
        admitted = False
        try:
            exceeded = await self._take_rates(limits.rates, values) if limits.rates else None
            admitted = exceeded is None
        finally:
            if not admitted:
                self._leave(places)
        if exceeded is not None:
            return make_rate_failure(checked.call.tool, limits.rates[exceeded.index], exceeded.wait)
        return partial(self._leave, places) if places else None

    async def _take_rates(self, rates: Sequence[RateLimit], values: Mapping[CountedBy, str]) -> RateExceeded | None:
        named = [(limit, _hash_key(limit, limit.name, values).hex()) for limit in rates]
        # Several keys of one call must lie in one slot (Redis cluster), so they begin alike.
        tag = named[0][1] if len(named) == 1 else _hash_text(rates[0].scope).hex()
        return await self._store.take_rates([Rate(f"{tag}/{key}", *_pace(limit)) for limit, key in named])

    def _leave(self, places: Sequence[bytes]) -> None:
        for place in places:
            self._under_way[place] -= 1
            if self._under_way[place] <= 0:
                del self._under_way[place]


def make_limiter(services: Services) -> CallRates:
    """The limiter of all calls of this process."""
    return CallRates(services.store)


def _pace(limit: RateLimit) -> tuple[int, int]:
    """The interval between calls in whole microseconds, rounded so that no more calls pass than the limit says; and the
    burst."""
    return math.ceil(limit.per * _MICROSECONDS / limit.calls), limit.burst


# --- keys of counts ---------------------------------------------------------------------------------------------------
def find_values(checked: CheckedCall, call_route: CallRoute) -> Mapping[CountedBy, str]:
    """The values of a call by which it is counted. The caller is the one that the client's token names, or without
    proof the address."""
    address = find_network(call_route.peer)
    return {
        CountedBy.CALLER: call_route.caller or f"address {address}",
        CountedBy.TOOL: checked.call.tool,
        CountedBy.CONVERSATION: hash_conversation(checked.call.conversation),
        CountedBy.ADDRESS: address,
    }


@lru_cache(maxsize=4096)
def find_network(address: str) -> str:
    """The part of an address that one client cannot change: of IPv6 its first 64 bits, of IPv4 all of it."""
    try:
        read = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(read, IPv6Address):
        return str(read)
    return str(read.ipv4_mapped) if read.ipv4_mapped is not None else str(int(read) >> (128 - _NETWORK))


def _hash_key(limit: RateLimit | ConcurrentLimit, name: str, values: Mapping[CountedBy, str]) -> bytes:
    return _hash_text("\n".join((limit.scope, name, *(f"{by}\t{values[by]}" for by in limit.by))))


def _hash_text(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


# --- failures of refused calls ----------------------------------------------------------------------------------------
def make_rate_failure(tool: str, limit: RateLimit, wait: int) -> Failure:
    """The refusal of a call that comes `wait` microseconds too early."""
    seconds = max(1, math.ceil(wait / _MICROSECONDS))
    burst = f", {limit.burst:,} of them at once" if limit.burst < limit.calls else ""
    return Failure(
        codes.CALL_RATE_EXCEEDED,
        f"Tool '{tool}' was not called: the limit is {_describe(limit)} per {_write_time(limit.per)}{burst}.",
        details={"retry_after": str(seconds), "limit": str(limit.calls)},
        headers=make_rate_headers(limit, seconds),
    )


def make_concurrency_failure(tool: str, limit: ConcurrentLimit) -> Failure:
    """The refusal of a call beside those under way."""
    return Failure(
        codes.TOO_MANY_CALLS_AT_ONCE,
        f"Tool '{tool}' was not called: at most {_describe(limit)} can pass at once, and so many are under way.",
        details={"limit": str(limit.calls)},
    )


_WHOSE: Final = {
    CountedBy.CALLER: "from this caller",
    CountedBy.TOOL: "of this tool",
    CountedBy.CONVERSATION: "in this conversation",
    CountedBy.ADDRESS: "from this address",
}


def _describe(limit: RateLimit | ConcurrentLimit) -> str:
    calls = "1 call" if limit.calls == 1 else f"{limit.calls:,} calls"
    return " ".join((calls, *(_WHOSE[by] for by in limit.by)))


def make_rate_headers(limit: RateLimit, seconds: int) -> Headers:
    """The fields of draft-ietf-httpapi-ratelimit-headers (08 and later): the quota of a window, its rest, and the time
    until the next window."""
    return (
        ("RateLimit-Policy", f'"{limit.name}";q={limit.calls};w={math.ceil(limit.per)}'),
        ("RateLimit", f'"{limit.name}";r=0;t={seconds}'),
    )


def _write_time(seconds: float) -> str:
    for length, word in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= length and seconds % length == 0 and seconds > 120:
            number = int(seconds // length)
            return f"1 {word}" if number == 1 else f"{number} {word}s"
    return "1 second" if seconds == 1 else f"{seconds:g} seconds"
