"""Reads `limits.rate` and `limits.concurrent` of a policy, with the checks that the published schema cannot express."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from proxy.config.context import Context
from proxy.config.files.secrets import reveal
from proxy.config.model import RouteEntry, ToolConfig
from proxy.config.sections.units import read_seconds
from proxy.core.contract.policy import Mode
from proxy.core.model.values import JsonValue, Pointer
from proxy.extensions.access.rates.limiter import ConcurrentLimit, CountedBy, RateLimit

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
        calls, per, by = int(each["calls"]), read_seconds(each.get("per", _PER)), _read_by(each)
        name = "-".join(by)
        again = sum(one.by == by for one in found)
        burst = int(each.get("burst", calls))
        found.append(RateLimit(calls, per, burst, by, each["scope"], f"{name}-{again + 1}" if again else name))
    return tuple(found)


def read_concurrent(value: JsonValue) -> tuple[ConcurrentLimit, ...]:
    """The limits on calls at once of a merged policy."""
    return tuple(ConcurrentLimit(int(each["calls"]), _read_by(each), each["scope"]) for each in _list_limits(value))


def _list_limits(value: JsonValue) -> Iterator[Mapping[str, JsonValue]]:
    """The limits of a key; empty for `off`."""
    if isinstance(value, list):
        yield from value
    elif isinstance(value, dict):
        yield value


def _read_by(limit: Mapping[str, JsonValue]) -> tuple[CountedBy, ...]:
    written = limit.get("by", CountedBy.CALLER.value)
    named = written if isinstance(written, list) else [written]
    return tuple(dict.fromkeys(CountedBy(reveal(name)) for name in named))


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
