"""Reads `callout:`, a list of services to ask. Each is an upstream of the config, which has its address, TLS files and
headers. A client certificate and a token come from there, and follow their files at a reload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, Final

from proxy.config.context import Context
from proxy.config.files.secrets import reveal
from proxy.config.mistakes import join_words, suggest_word
from proxy.config.model import Config, RouteEntry, UpstreamConfig
from proxy.config.sections.network import is_unencrypted
from proxy.config.sections.units import read_seconds, read_size
from proxy.core.model.value_class import value_class
from proxy.core.model.values import Headers, JsonValue

SECTION: Final = "callout"
# The most bytes of a service's answer: reading more of them would keep other calls waiting.
MOST_ANSWER: Final = 1024 * 1024


class CalloutPoint(StrEnum):
    """The points at which a service gets questions."""

    BEFORE = "before_call"
    AFTER = "after_answer"


@value_class
class CalloutSettings:
    """One service and the calls that it decides about. `routes` and `tools` are empty for all of them; `tools` are
    patterns of names. `sent` are the headers of each question, `headers` the names of the client's headers in it.
    `max_answer` bounds the service's answer, `max_shown` the tool's, both in bytes."""

    name: str
    upstream: str
    path: str = "/"
    at: tuple[CalloutPoint, ...] = (CalloutPoint.BEFORE,)
    routes: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    timeout: float = 1.0
    on_failure: str = "closed"
    concurrency: int = 64
    max_answer: int = 64 * 1024
    max_shown: int = 1024 * 1024
    sent: Headers = field(default=(), repr=False)

    @property
    def fails_open(self) -> bool:
        """Returns True if calls are forwarded when the service fails."""
        return self.on_failure == "open"

    def covers(self, point: CalloutPoint, tool: str) -> bool:
        """Returns True if the service gets questions at a point about calls of a tool."""
        return point in self.at and (not self.tools or any(fnmatchcase(tool, pattern) for pattern in self.tools))


def read_callouts(context: Context, upstreams: Mapping[str, UpstreamConfig]) -> tuple[CalloutSettings, ...]:
    """Reads the services, in order."""
    entries, known = context.structure.entry(SECTION), context.names("upstreams")
    found: dict[str, CalloutSettings] = {}
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        if not isinstance(entry, dict) or not {"name", "upstream"} <= entry.keys():
            continue
        made, at = _read_callout(entry), (SECTION, index)
        if made.name in found:
            context.mistake((*at, "name"), f"two call-outs have the name {made.name!r}", "give each another name")
        if made.max_answer > MOST_ANSWER:
            context.mistake((*at, "max_answer"), "more than 1MiB", "write 1MiB or less: a decision is short")
        if made.upstream not in known:
            hint = suggest_word(made.upstream, known) or f"add it under `upstreams` (known: {join_words(known)})"
            context.mistake((*at, "upstream"), f"unknown upstream {made.upstream!r}", hint)
        if (upstream := upstreams.get(made.upstream)) is None:
            continue
        if not upstream.url:
            context.mistake((*at, "upstream"), f"upstream {made.upstream!r} has no `url`", "name one that speaks HTTP")
        if is_unencrypted(upstream):
            context.notes.append(
                f"callout {made.name!r}: arguments go to upstream {made.upstream!r} without encryption"
            )
        context.used_upstreams.add(made.upstream)
        own = tuple((name.lower(), reveal(value)) for name, value in upstream.headers.set)
        found[made.name] = replace(made, sent=own)
    return tuple(found.values())


def _read_callout(written: Mapping[str, JsonValue]) -> CalloutSettings:
    readers = {
        **dict.fromkeys(("name", "upstream", "path", "on_failure"), reveal),
        **dict.fromkeys(("routes", "tools"), lambda value: tuple(map(reveal, value))),
        "headers": lambda value: tuple(reveal(name).lower() for name in value),
        "at": lambda value: tuple(map(CalloutPoint, value)),
        "timeout": read_seconds,
        "max_answer": read_size,
        "max_shown": read_size,
    }
    made: dict[str, Any] = {key: readers[key](value) if key in readers else value for key, value in written.items()}
    return CalloutSettings(**made)


def check_callouts(context: Context, routes: tuple[RouteEntry, ...]) -> None:
    """Reports routes and tools that do not exist, and routes on which no call is checked."""
    entries = context.structure.entry(SECTION)
    calling = {entry.name: entry for entry in routes if entry.kind != "passthrough"}
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        if not isinstance(entry, dict):
            continue
        names = [reveal(name) for name in entry.get("routes", ())]
        for number, name in enumerate(names):
            if name in calling:
                continue
            is_relayed = any(route.name == name for route in routes)
            problem = f"no call is checked on route {name!r}" if is_relayed else f"unknown route {name!r}"
            hint = suggest_word(name, calling) or f"routes with calls: {join_words(calling)}"
            context.mistake((SECTION, index, "routes", number), problem, hint)
        covered = [route for name, route in calling.items() if not names or name in names]
        tools = {tool for route in covered for tool in route.tools}
        if any(route.listed is not None for route in covered):
            continue  # its server names further tools later
        for number, pattern in enumerate(map(reveal, entry.get("tools", ()))):
            if covered and not any(fnmatchcase(tool, pattern) for tool in tools):
                hint = suggest_word(pattern, tools) or f"known: {join_words(sorted(tools))}"
                context.mistake((SECTION, index, "tools", number), f"no tool is called {pattern!r}", hint)


def find_callouts(config: Config) -> Sequence[CalloutSettings]:
    """The services of a config."""
    found: Sequence[CalloutSettings] = config.sections.get(SECTION, ())
    return found


def group_by_route(config: Config) -> dict[str, tuple[CalloutSettings, ...]]:
    """Returns the services for the calls of each route, by route, for routes with such services."""
    settings = find_callouts(config)
    names = dict.fromkeys(route.name for route in config.routes if route.kind != "passthrough")
    found = {name: tuple(each for each in settings if not each.routes or name in each.routes) for name in names}
    return {name: chosen for name, chosen in found.items() if chosen}


def write_summary(config: Config) -> list[str]:
    """Returns one line for each service: when it decides, about what, and what holds if it fails."""
    return [
        f"call-out {each.name}: upstream {each.upstream}, {' and '.join(each.at)}, "
        f"{', '.join(each.tools) or 'all tools'} on {', '.join(each.routes) or 'all routes'}; "
        f"{each.on_failure} if it fails"
        for each in find_callouts(config)
    ]
