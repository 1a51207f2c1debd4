"""Refuses calls that come too often, or too many at once.

Rates are counted in the state store: one request for all rates of a call, which counts under none of them where one
refuses. Only this process knows its number of calls under way. That limit comes first, because a place is given back
when a rate refuses.

Keys are hashed: they hold no name, address or id, and always have the same length.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import lru_cache, partial
from hashlib import blake2b
from ipaddress import IPv6Address, ip_address
from typing import Any, Final

from proxy.config.keys.kinds import (
    DURATION,
    ConfigKey,
    Kind,
    choice,
    either,
    list_of,
    mapping,
    member,
    name_kind,
    number,
)
from proxy.config.model import RouteEntry, ToolConfig
from proxy.core.contract.attempts import hash_conversation
from proxy.core.contract.policy import Mode
from proxy.core.model import codes
from proxy.core.model.values import CheckedCall, Failure, Headers, JsonValue, Pointer, value_class
from proxy.interfaces import CallRoute, Rate, RateExceeded, Services, StateStore
from proxy.plugin import Context, read_seconds, reveal

_MICROSECONDS: Final = 1_000_000
# The bits of an IPv6 address that one client has at least (RFC 6177).
_NETWORK: Final = 64


class CountedBy(StrEnum):
    """The key by which a limit counts calls together: the caller (without required authentication: the address), the
    tool, the conversation, or the client's address."""

    CALLER = "caller"
    TOOL = "tool"
    CONVERSATION = "conversation"
    ADDRESS = "address"


@value_class
class RateLimit:
    """A limit of `calls` in `per` seconds, evenly, with `burst` of them at once (GCRA: in any `per` seconds at most
    `calls` + `burst`). `by`: what the calls have in common that are counted together, of those that `scope` names (the
    place of the config that sets the limit). `name` tells it from other limits of its tool."""

    calls: int = 0
    per: float = 60.0
    burst: int = 0
    by: tuple[CountedBy, ...] = (CountedBy.CALLER,)
    scope: str = ""
    name: str = ""


@value_class
class ConcurrentLimit:
    """The maximum number of concurrent calls; `by` and `scope` as for `RateLimit`."""

    calls: int = 0
    by: tuple[CountedBy, ...] = (CountedBy.CALLER,)
    scope: str = ""


class CallRates:
    """Implements `CallLimiter`. `store` counts rates."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._under_way: Counter[bytes] = Counter()

    async def admit(
        self, checked: CheckedCall, limits: Mapping[str, Any], call_route: CallRoute
    ) -> Failure | Callable[[], None] | None:
        """Counts a call, or gives the failure of a refused one."""
        values = find_values(checked, call_route)
        rates: tuple[RateLimit, ...] = limits.get("rate", ())
        at_once: tuple[ConcurrentLimit, ...] = limits.get("concurrent", ())
        places = [_hash_key(limit, str(index), values) for index, limit in enumerate(at_once)]
        for limit, place in zip(at_once, places, strict=True):
            if self._under_way[place] >= limit.calls:
                return make_concurrency_failure(checked.call.tool, limit)
        self._under_way.update(places)
        admitted = False
        try:
            exceeded = await self._take_rates(rates, values) if rates else None
            admitted = exceeded is None
        finally:
            if not admitted:
                self._leave(places)
        if exceeded is not None:
            return make_rate_failure(checked.call.tool, rates[exceeded.index], exceeded.wait)
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


# --- reads `limits.rate` and `limits.concurrent` of a policy ----------------------------------------------------------
_KEYS: Final = ("rate", "concurrent")
_PER: Final = "1m"
_SHORTEST: Final = 1.0
_LONGEST: Final = 31 * 86_400.0
# A faster rate limits nothing that one process can do, and its intervals would be too short for whole microseconds.
_FASTEST: Final = 10_000


def read_rates(value: JsonValue) -> tuple[RateLimit, ...]:
    """The rates of a merged policy."""
    found: list[RateLimit] = []
    for each in _list_limits(value):
        made: RateLimit = _RATE_LIMIT.read(each)
        name = "-".join(made.by)
        again = sum(one.by == made.by for one in found)
        name = f"{name}-{again + 1}" if again else name
        found.append(replace(made, burst=made.burst or made.calls, scope=each["scope"], name=name))
    return tuple(found)


def read_concurrent(value: JsonValue) -> tuple[ConcurrentLimit, ...]:
    """The limits on calls at once of a merged policy."""
    return tuple(replace(_CONCURRENT_LIMIT.read(each), scope=each["scope"]) for each in _list_limits(value))


def _list_limits(value: JsonValue) -> Iterator[Mapping[str, JsonValue]]:
    """The limits of a key; empty for `off`."""
    if isinstance(value, list):
        yield from value
    elif isinstance(value, dict):
        yield value


def _read_by(written: JsonValue) -> tuple[CountedBy, ...]:
    named = written if isinstance(written, list) else [written]
    return tuple(dict.fromkeys(CountedBy(reveal(name)) for name in named))


_BY: Final = name_kind(
    "counted_by",
    "CountedBy",
    either(
        member(CountedBy),
        list_of(member(CountedBy), minItems=1, maxItems=4),
        read=_read_by,
        x_expects="caller, tool, conversation, address, or a list of them",
    ),
    "The key by which calls are counted together: `caller` (the token, or the address), `tool`, `conversation`, "
    "`address`, or several of them.",
)
_MOST: Final = 1_000_000
_CALLS: Final = number(
    minimum=1, maximum=_MOST, x_expects="a whole number from 1 to 1000000 (to let no call through, leave the tool out)"
)
_RATE_LIMIT: Final = name_kind(
    "rate_limit",
    "RateLimit",
    mapping(
        RateLimit,
        ConfigKey(
            "calls",
            _CALLS,
            "How many calls are let through in each `per`, evenly; with those of `burst`, at most `calls` + `burst` in "
            "any one. Only calls that pass the check count.",
            default=None,
        ),
        ConfigKey("per", DURATION, "The time, from 1s to 744h."),
        ConfigKey(
            "burst",
            number(minimum=1, maximum=_MOST, x_expects="a whole number from 1 to 1000000 (1: no call before its time)"),
            "How many of them may come at once. Default: `calls`.",
            default=None,
        ),
        ConfigKey("by", _BY, default="caller"),
        required=["calls"],
    ),
    "One rate: so many calls in a time.",
)
_CONCURRENT_LIMIT: Final = name_kind(
    "concurrent_limit",
    "ConcurrentLimit",
    mapping(
        ConcurrentLimit,
        ConfigKey("calls", _CALLS, "How many calls at once; one more is refused, it does not wait.", default=None),
        ConfigKey("by", _BY, default="caller"),
        required=["calls"],
    ),
    "One bound of calls under way.",
)


def _declare(name: str, limit: Kind, shown: str, read: Callable[[JsonValue], Any]) -> Kind:
    expects = f"`{shown}`, a list of such limits, or `off`"
    listed = list_of(limit, minItems=1, maxItems=8)
    return name_kind(name, name.title(), either(limit, listed, choice("off", False), read=read, x_expects=expects))


_RATE: Final = _declare("rate", _RATE_LIMIT, "{calls: 60, per: 1m}", read_rates)
_CONCURRENT: Final = _declare("concurrent", _CONCURRENT_LIMIT, "{calls: 4}", read_concurrent)
LIMITS: Final = mapping(
    None,
    ConfigKey(
        "rate",
        _RATE,
        "How often calls may be made (docs/access.md), or `off`. Several limits all hold. Default: any number.",
    ),
    ConfigKey(
        "concurrent",
        _CONCURRENT,
        "How many calls may be under way at once, in each process, or `off`. Default: any number.",
    ),
)
_OF_TOOL: Final = "As in `limits` of a route; the calls of this tool are counted apart."
TOOL_LIMITS: Final = mapping(None, ConfigKey("rate", _RATE, _OF_TOOL), ConfigKey("concurrent", _CONCURRENT, _OF_TOOL))


# --- checks beyond the schema -----------------------------------------------------------------------------------------
def check_limits(context: Context, routes: tuple[RouteEntry, ...]) -> None:
    """Reports limits that cannot be kept or have no effect."""
    for at, written in _list_places(context):
        limits = written.get("limits")
        if not isinstance(limits, dict):
            continue
        for key in _KEYS:
            if key in limits and (written.get("passthrough") or written.get("relay")):
                message = f"`limits.{key}` has no effect on a passthrough route, whose requests are no calls"
                context.mistake((*at, "limits", key), message, "drop it", key=True)
        value = limits.get("rate")
        places = [(*at, "limits", "rate", index) for index in range(len(value))] if isinstance(value, list) else []
        for place, limit in zip(places or [(*at, "limits", "rate")], _list_limits(value), strict=False):
            _check_rate(context, place, limit)
    for route in routes:
        limited = any(tool.policy.limits is not None for tool in _list_tools(route)) or route.policy.limits is not None
        if limited and route.policy.mode is Mode.REPORT:
            context.notes.append(f"route {route.name!r}: report only, `limits.rate` and `concurrent` refuse nothing")


def _list_tools(route: RouteEntry) -> Iterator[ToolConfig]:
    yield from route.tools.values()
    if route.listed is not None:
        yield from route.listed.tools.values()


def _check_rate(context: Context, at: Pointer, limit: Mapping[str, JsonValue]) -> None:
    calls, per = limit.get("calls"), read_seconds(limit.get("per", _PER))
    burst = limit.get("burst", calls)
    if not isinstance(calls, int) or not isinstance(burst, int):  # reported already
        return
    if not _SHORTEST <= per <= _LONGEST:
        context.mistake((*at, "per"), "`per` is a time from 1s to 744h (31 days)", "say `caps` for a number in all")
    elif calls > _FASTEST * per:
        hint = "a faster rate limits nothing here: drop it, or lower `calls`"
        context.mistake((*at, "calls"), f"`calls` is at most {_FASTEST:,} a second", hint)
    elif burst * per > _LONGEST * calls:
        message = f"a `burst` of {burst:,} takes more than 31 days to come back at {calls:,} calls in each `per`"
        context.mistake((*at, "burst"), message, "lower `burst`")


def _list_places(context: Context) -> Iterator[tuple[Pointer, Mapping[str, JsonValue]]]:
    """Every entry that can hold `limits`."""
    yield ("defaults",), context.mapping("defaults")
    for name, tool in context.entries("tools"):
        yield ("tools", name), tool
    routes = context.structure.value.get("routes")
    steps = routes if isinstance(routes, dict) else range(len(routes)) if isinstance(routes, list) else ()
    for step in steps:
        yield ("routes", step), context.mapping("routes", step)
        for name, tool in context.entries("routes", step, "mcp", "tools"):
            yield ("routes", step, "mcp", "tools", name), tool
