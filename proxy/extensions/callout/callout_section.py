"""Reads `callout:`, a list of services to ask. Each is an upstream of the config, which has its address, TLS files and
headers. A client certificate and a token come from there, and follow their files at a reload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final

from proxy.config.keys.kinds import (
    DURATION,
    HEADER_NAME,
    PATH,
    SIZE,
    SOME_TEXT,
    WORD,
    ConfigKey,
    choice,
    list_of,
    mapping,
    member,
    number,
    text,
)
from proxy.config.model import Config, RouteEntry, UpstreamConfig
from proxy.core.model.value_class import value_class
from proxy.core.model.values import Headers
from proxy.plugin import Context, is_unencrypted, join_words, reveal, suggest_word

SECTION: Final = "callout"
# The most bytes of a service's answer: reading more of them would keep other calls waiting.
MOST_ANSWER: Final = 1024 * 1024


class CalloutPoint(StrEnum):
    """The points at which a service gets questions."""

    BEFORE = "before_call"
    AFTER = "after_answer"


@value_class
class CalloutSettings:
    """One service, as `KEYS` describes it. `routes` and `tools` are empty for all; `sent` are the headers of each
    question."""

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


_NAMES: Final = list_of(WORD, minItems=1)
_CALLOUT: Final = mapping(
    CalloutSettings,
    ConfigKey(
        "name",
        text(pattern="^[A-Za-z0-9_.-]{1,64}$", x_expects="letters, digits, '.', '_' and '-'"),
        "Its name in logs and metrics.",
    ),
    ConfigKey(
        "upstream", SOME_TEXT, "The service's upstream; its `headers` carry a token, its `tls` a client certificate."
    ),
    ConfigKey("path", PATH, "The path of the questions, after the upstream's url."),
    ConfigKey(
        "at",
        list_of(member(CalloutPoint), minItems=1, uniqueItems=True),
        "When it gets questions: `before_call`, `after_answer`, or both.",
    ),
    ConfigKey("routes", _NAMES, "Names of the routes whose calls it decides about. Default: all.", default=None),
    ConfigKey("tools", _NAMES, "Names of tools, or patterns such as `pay_*`. Default: all.", default=None),
    ConfigKey(
        "headers",
        list_of(HEADER_NAME, lambda names: tuple(name.lower() for name in names)),
        "Headers of the client that it sees.",
    ),
    ConfigKey("timeout", DURATION, "For one question, with the wait for a place among `concurrency`."),
    ConfigKey(
        "on_failure",
        choice("closed", "open"),
        "When it fails: `closed` refuses the call or the answer, `open` lets it through.",
    ),
    ConfigKey(
        "concurrency", number(minimum=1, maximum=10_000), "Questions at a time; further ones wait within `timeout`."
    ),
    ConfigKey("max_answer", SIZE, "The longest answer of the service; at most 1MiB."),
    ConfigKey("max_shown", SIZE, "The longest answer of a tool that it sees; a longer one counts as a failure."),
    description="One service.",
    required=["name", "upstream"],
)
_CALLOUTS: Final = ConfigKey(
    SECTION,
    list_of(_CALLOUT, x_expects="a list of call-outs, each with `name` and `upstream`"),
    "HTTP services that decide about calls and answers, in order (docs/callout.md).",
    default=[],
)
KEYS: Final = {"": mapping(None, _CALLOUTS)}


def read_callouts(context: Context, upstreams: Mapping[str, UpstreamConfig]) -> tuple[CalloutSettings, ...]:
    """Reads the services, in order."""
    entries, known = context.structure.entry(SECTION), context.names("upstreams")
    found: dict[str, CalloutSettings] = {}
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        if not isinstance(entry, dict) or not {"name", "upstream"} <= entry.keys():
            continue
        made, at = _CALLOUT.read(entry), (SECTION, index)
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


def check_callouts(context: Context, routes: tuple[RouteEntry, ...]) -> None:
    """Reports routes and tools that do not exist, and routes on which no call is checked."""
    entries = context.structure.entry(SECTION)
    calling = {entry.name: entry for entry in routes if entry.kind != "passthrough"}
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        if not isinstance(entry, dict):
            continue
        names = [reveal(name) for name in entry.get("routes", ())]
        for place, name in enumerate(names):
            if name in calling:
                continue
            is_relayed = any(route.name == name for route in routes)
            problem = f"no call is checked on route {name!r}" if is_relayed else f"unknown route {name!r}"
            hint = suggest_word(name, calling) or f"routes with calls: {join_words(calling)}"
            context.mistake((SECTION, index, "routes", place), problem, hint)
        covered = [route for name, route in calling.items() if not names or name in names]
        tools = {tool for route in covered for tool in route.tools}
        if any(route.listed is not None for route in covered):
            continue  # its server names further tools later
        for place, pattern in enumerate(map(reveal, entry.get("tools", ()))):
            if covered and not any(fnmatchcase(tool, pattern) for tool in tools):
                hint = suggest_word(pattern, tools) or f"known: {join_words(sorted(tools))}"
                context.mistake((SECTION, index, "tools", place), f"no tool is called {pattern!r}", hint)


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
