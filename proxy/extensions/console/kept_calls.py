"""The kept calls as the console reads them: filtered, sorted, as texts that all readers share, and as figures.

    select_calls   the kept calls that a `CallFilter` lets through, newest first
    write_entry    one of them as a JSON text
    read_figures   its times, without building its entry

A reader remembers the number of the last entry that it has seen, so readers cost no memory here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any, AnyStr, Final, Generic, NamedTuple
from weakref import WeakKeyDictionary

from proxy.core.json.jsontext import dumps
from proxy.core.model.value_class import value_class
from proxy.plugin import round_milliseconds
from proxy.telemetry.ring import PLACES, KeptCall, RecentCalls, make_entry, read_value

# The most texts of entries that are kept for readers: those of one answer. They take about 0.5 MB.
MOST_TEXTS: Final = 500
# Stages of a call, in the order in which they run, as `open_call` shows their times.
STAGES: Final = ("read", "decode", "hooks", "decide", "correction", "gather", "upstream", "answer", "stream", "total")


@value_class
class CallFilter:
    """The filters of entries, which the pages and `calls` read, too (`SEVERAL`, `SINGLE`). An empty field lets
    everything through. `code` is an error code or that of a violation, `path` a JSON Pointer or its beginning,
    `conversation` a hash or its beginning. A name that begins with `~` is a fragment, in either case of letters. Each
    word of `text` is part of something that the entry shows, in any case. `since` in seconds since the epoch; `after`
    and `before` are numbers: only later or earlier entries."""

    tool: frozenset[str] = frozenset()
    model: frozenset[str] = frozenset()
    route: frozenset[str] = frozenset()
    outcome: frozenset[str] = frozenset()
    code: str = ""
    path: str = ""
    rule: str = ""
    conversation: str = ""
    request_id: str = ""
    trace_id: str = ""
    text: str = ""
    since: float = 0.0
    after: int = 0
    before: int = 0

    @property
    def is_open(self) -> bool:
        """Returns whether the filter only compares numbers and times."""
        return all(not getattr(self, each.name) for each in fields(self) if each.name not in _BOUNDS)


_BOUNDS: Final = frozenset({"after", "before", "since"})
# The filters that take several values, and those that take one text.
SEVERAL: Final = tuple(each.name for each in fields(CallFilter) if each.default == frozenset())
SINGLE: Final = tuple(each.name for each in fields(CallFilter) if each.default == "")


def select_calls(recent: RecentCalls, call_filter: CallFilter, limit: int | None = None) -> Iterator[KeptCall]:
    """The kept requests that pass the filter, newest first."""
    is_open, found = call_filter.is_open, 0
    for kept in recent.newest():
        if kept.seq <= call_filter.after or kept.at < call_filter.since or found == limit:
            return
        if call_filter.before and kept.seq >= call_filter.before:
            continue
        if is_open or _fits(recent, kept, call_filter):
            found += 1
            yield kept


def write_entry(recent: RecentCalls, kept: KeptCall) -> bytes:
    """A kept request as the JSON text that every reader gets, with the id (`BOOT.NUMBER`) that finds it again."""
    return _entries.setdefault(recent, _NewestTexts()).read(
        kept, lambda: dumps({"id": f"{recent.boot}.{kept.seq}", **make_entry(kept)})
    )


class _NewestTexts(Generic[AnyStr]):
    """A text of each kept request, made when it is first read: a kept request never changes. The `MOST_TEXTS` that were
    made last are kept."""

    def __init__(self) -> None:
        self._made: dict[int, AnyStr] = {}

    def read(self, kept: KeptCall, make: Callable[[], AnyStr]) -> AnyStr:
        """The text of one kept request."""
        text = self._made.get(kept.seq)
        if text is None:
            text = self._made[kept.seq] = make()
            if len(self._made) > MOST_TEXTS:
                del self._made[next(iter(self._made))]
        return text


_entries: WeakKeyDictionary[RecentCalls, _NewestTexts[bytes]] = WeakKeyDictionary()
_words: WeakKeyDictionary[RecentCalls, _NewestTexts[str]] = WeakKeyDictionary()


class KeptFigures(NamedTuple):
    """The figures of a kept request for summaries: its durations in ms (`own`: this proxy's; None for none), and the
    source of its conversation ('' without one). `upstream` is the failure of its upstream ('' without one)."""

    route: str
    tool: str
    took: float
    own: float | None
    source: str
    upstream: str
    upstream_took: float
    failure: str = ""


def read_figures(kept: KeptCall) -> KeptFigures:
    """The figures of a kept request, read without building its entry: summaries read all kept requests."""
    content, total = kept.content, kept.stages.get("total")
    if isinstance(content, dict):
        upstream, tool = content.get("server.address", ""), content.get("gen_ai.tool.name", "")
        route, source = content["http.route"], content.get("conversation.source", "")
        took, upstream_took = content["duration_ms"], content.get("upstream.duration_ms", 0.0)
        failure = content.get("error.type", "") if content["outcome"] == "upstream_error" else ""
    else:
        failure = ""
        upstream, is_call = content[PLACES["upstream"]], content[PLACES["call_id"]]
        tool, source = (read_value(kept, "tool"), content[PLACES["conversation_rung"]]) if is_call else ("", "")
        route, took = content[PLACES["route"]], round_milliseconds(read_duration(kept))
        upstream_took = round_milliseconds(content[PLACES["upstream_seconds"]])
    own = round_milliseconds(total or 0.0) if total is not None or upstream else None
    return KeptFigures(route, tool, took, own, source, upstream, upstream_took, failure)


def read_duration(kept: KeptCall) -> float:
    """Returns how long a kept request took, in seconds."""
    content = kept.content
    if isinstance(content, dict):
        return float(content["duration_ms"]) / 1000
    return float(content[PLACES["ended"]] - content[PLACES["started"]])


def read_attempt(kept: KeptCall) -> int:
    """Which attempt of the model a kept request was; 0 where no attempt was counted."""
    content = kept.content
    return int(content.get("retry_attempt", 0) if isinstance(content, dict) else content[PLACES["attempt"]])


# --- choosing ---------------------------------------------------------------------------------------------------------
# The columns by which calls are sorted -> the compared value, and the entry's field that shows it.
SORTS: Final[Mapping[str, tuple[Callable[[KeptCall], Any], str]]] = {
    "time": (attrgetter("seq"), "timestamp"),
    "tool": (lambda kept: read_value(kept, "tool"), "gen_ai.tool.name"),
    "outcome": (lambda kept: read_value(kept, "outcome"), "outcome"),
    "attempts": (read_attempt, "retry_attempt"),
    "duration": (lambda kept: round_milliseconds(read_duration(kept)), "duration_ms"),
}


def _fits(recent: RecentCalls, kept: KeptCall, call_filter: CallFilter) -> bool:
    for name in SEVERAL:
        choices: frozenset[str] = getattr(call_filter, name)
        if choices and not any(_matches(read_value(kept, name), choice) for choice in choices):
            return False
    for name in ("request_id", "trace_id"):
        if (one := getattr(call_filter, name)) and not _matches(read_value(kept, name), one):
            return False
    if not kept.conversation.startswith(call_filter.conversation):
        return False
    if not _fits_places(kept, call_filter):
        return False
    if not call_filter.text:
        return True
    shown = _words.setdefault(recent, _NewestTexts()).read(kept, lambda: _join_words(kept))
    return all(word in shown for word in call_filter.text.casefold().split())


def _matches(name: str, pattern: str) -> bool:
    return pattern[1:].lower() in name.lower() if pattern.startswith("~") else name == pattern


def _join_words(kept: KeptCall) -> str:
    """Returns the texts and numbers that the entry shows, case-folded, each on its own line. Kept arguments are not
    among them."""
    waiting: list[Any] = [make_entry(kept)]
    shown: list[str] = []
    while waiting:
        match waiting.pop():
            case dict() as found:
                waiting.extend(found.values())
            case list() | tuple() as found:
                waiting.extend(found)
            case str() as found:
                shown.append(found.casefold())
            case int() | float() as found:
                shown.append(str(found))
            case _:
                pass
    return "\n".join(shown)


def _fits_places(kept: KeptCall, call_filter: CallFilter) -> bool:
    """Returns whether code, rule and path are those of an error or a repair of the call."""
    if not (call_filter.code or call_filter.path or call_filter.rule):
        return True
    errors = kept.failure.errors if kept.failure is not None else ()
    repairs = kept.failure.repairs if kept.failure is not None else ()
    codes = [read_value(kept, "code"), *(each["code"] for each in errors)]
    if call_filter.code and not any(_matches(code, call_filter.code) for code in codes):
        return False
    if call_filter.rule and not any(_matches(each["rule"], call_filter.rule) for each in repairs):
        return False
    paths = [str(each[name]) for each in (*errors, *repairs) for name in ("path", "renamed") if name in each]
    if call_filter.path.startswith("~"):
        return any(_matches(path, call_filter.path) for path in paths)
    return not call_filter.path or any(is_below(path, call_filter.path) for path in paths)


def is_below(path: str, pattern: str) -> bool:
    """Returns whether a JSON Pointer is at or below a pattern, in which `*` matches any step."""
    steps, parts = path.split("/"), pattern.rstrip("/").split("/")
    return len(steps) >= len(parts) and all(
        part in ("*", step) for step, part in zip(steps[: len(parts)], parts, strict=True)
    )
