"""The last calls, all outcomes, newest last: a bounded ring in memory.

    RecentCalls.finished   keeps one finished request, numbered; a usual call as a tuple of what its record holds
    RecentCalls.entries    the kept requests that a `CallFilter` lets through, newest first, as JSON objects
    RecentCalls.find       one of them by its number, for `open_call`

An entry has the fields of the log's line, `seq`, `conversation`, for each error `expected` and `got`, and what is kept
of answers that others took the place of (`replaced`). Entries are built only when somebody reads them, and the texts of
the newest once for all readers. A reader remembers the number of the last entry that it has seen, so readers cost no
memory here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, AnyStr, Final, Generic, NamedTuple

from proxy.core.contract.attempts import hash_conversation
from proxy.core.envelope.view import show_name
from proxy.core.json.jsontext import dumps
from proxy.core.model.value_class import value_class
from proxy.interfaces import CallRecord
from proxy.telemetry.logs import build_fields, read_fields, round_milliseconds
from proxy.telemetry.metric_table import WRONG
from proxy.telemetry.recent.failures import KeptFailure, keep_failure
from proxy.telemetry.recent.kept_values import KeptValues

# The default number of kept requests: at most 3.5 MB.
KEPT: Final = 2000
# Refused, failed and would-be-refused requests kept with `console: off`.
KEPT_WRONG: Final = 500
# The characters of errors kept of all calls together: beyond it the oldest calls go, however few are kept.
MOST_CHARACTERS: Final = 4 * 1024 * 1024
# What is left out of a usual call's record: its line does not show it. A call with one of the first five is unusual,
# and so is one with answers before its own.
_LEFT_OUT: Final = frozenset({
    "violations", "repairs", "questions", "answer_violations", "would_refuse",
    "repeated", "escalated", "hook_failures", "answer", "events", "corrections", "settling",
})  # fmt: skip
# The fields kept of a usual call. Those that a record's `repr` hides hold argument values.
_NAMES: Final = tuple(each.name for each in fields(CallRecord) if each.repr and each.name not in _LEFT_OUT)
_read_usual: Final = attrgetter(*_NAMES)
_PLACES: Final = {name: place for place, name in enumerate(_NAMES)}
# The most texts of entries that are kept for readers: as many as one answer holds. They take about 0.5 MB.
MOST_TEXTS: Final = 500
# Stages of a call, in the order in which they run, as `open_call` shows their times.
STAGES: Final = ("read", "decode", "hooks", "decide", "correction", "gather", "upstream", "answer", "stream", "total")


class KeptCall(NamedTuple):
    """One kept request: its number, its end (seconds since the epoch), its conversation's hash ('' where it has none),
    the content of its line (the values of `_NAMES` for a usual call, otherwise the line's fields), its stages, and its
    failure, if any."""

    seq: int
    at: float
    conversation: str
    told: tuple[Any, ...] | dict[str, Any]
    stages: dict[str, float]
    failure: KeptFailure | None


@value_class
class CallFilter:
    """Which entries are wanted: the one list of filters, which the operator's port and `calls` read too (`SEVERAL`,
    `SINGLE`). An empty field lets everything through; `code` is an error code or that of a violation,
    `path` a JSON Pointer or its beginning, `conversation` a hash or its beginning; a name that begins with `~` is a
    fragment, in either case of letters. Each word of `text` is part of something that the entry shows, in any case.
    `since` in seconds since the epoch; `after` and `before` are numbers: only later or earlier entries."""

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
        """Whether the filter compares nothing but numbers and times."""
        return all(not getattr(self, each.name) for each in fields(self) if each.name not in _BOUNDS)


_BOUNDS: Final = frozenset({"after", "before", "since"})
# The filters that take several values, and those that take one text.
SEVERAL: Final = tuple(each.name for each in fields(CallFilter) if each.default == frozenset())
SINGLE: Final = tuple(each.name for each in fields(CallFilter) if each.default == "")


class RecentCalls:
    """Implements `Observer`. `wall` gives seconds since the epoch, `boot` names this run of the process; `only_wrong`:
    usual calls are not kept. `values` keeps arguments, where the config wants that."""

    def __init__(
        self,
        wall: Callable[[], float],
        boot: str = "",
        kept: int = KEPT,
        *,
        only_wrong: bool = False,
        values: KeptValues | None = None,
    ) -> None:
        self.boot = boot
        self.values = values
        self.last = 0
        self._wall = wall
        self._only_wrong = only_wrong
        # Plain tuples; reading one makes a `KeptCall` of it.
        self._kept: deque[tuple[Any, ...]] = deque()
        self._most = kept
        self._characters = 0
        self._entries = _NewestTexts(lambda kept: dumps({"id": f"{boot}.{kept.seq}", **make_entry(kept)}))
        self._words = _NewestTexts(_join_words)

    def finished(self, record: CallRecord) -> None:
        """Keeps a finished request."""
        wrong = record.outcome in WRONG or record.would_refuse
        if self._only_wrong and not wrong:
            return
        self.last = seq = self.last + 1
        found = record.violations or record.repairs or record.questions or record.answer_violations or record.replaced
        usual = not (wrong or found)
        call = record.call
        who = "" if call is None else hash_conversation(call.conversation)  # its name is as long as the client likes
        told: tuple[Any, ...] | dict[str, Any] = _read_usual_fields(record) if usual else read_fields(record)
        if record.would_refuse:
            told = {**read_fields(record), "would_refuse": True}
        failure = None if usual else keep_failure(record)
        self._kept.append((seq, self._wall(), who, told, record.stages, failure))
        if failure is not None:
            self._characters += failure.length
        while len(self._kept) > self._most or self._characters > MOST_CHARACTERS:
            gone = KeptCall._make(self._kept.popleft())
            self._characters -= 0 if gone.failure is None else gone.failure.length
        if self.values is not None:
            self.values.keep(seq, record)

    @property
    def size(self) -> int:
        """How many requests are kept now."""
        return len(self._kept)

    @property
    def bound(self) -> int:
        """How many may be kept."""
        return self._most

    @property
    def oldest(self) -> int:
        """The number of the oldest kept request; 0 where none is kept."""
        return int(self._kept[0][0]) if self._kept else 0

    def select(self, wanted: CallFilter, limit: int | None = None) -> Iterator[KeptCall]:
        """The wanted requests, newest first, as they are kept."""
        is_open, found = wanted.is_open, 0
        for kept in map(KeptCall._make, reversed(self._kept)):
            if kept.seq <= wanted.after or kept.at < wanted.since or found == limit:
                return
            if wanted.before and kept.seq >= wanted.before:
                continue
            if is_open or _fits(kept, wanted, self._words):
                found += 1
                yield kept

    def write_entry(self, kept: KeptCall) -> bytes:
        """A kept request as the JSON text that every reader gets, with the id (`BOOT.NUMBER`) that finds it again."""
        return self._entries.read(kept)

    def find(self, seq: int) -> KeptCall | None:
        """The request with this number, if it is still kept."""
        return next((KeptCall._make(kept) for kept in reversed(self._kept) if kept[0] == seq), None)


class _NewestTexts(Generic[AnyStr]):
    """A text of each kept request, made when it is first read: a kept request never changes. The `MOST_TEXTS` that were
    made last are kept."""

    def __init__(self, make: Callable[[KeptCall], AnyStr]) -> None:
        self._make: Callable[[KeptCall], AnyStr] = make
        self._made: dict[int, AnyStr] = {}

    def read(self, kept: KeptCall) -> AnyStr:
        """The text of one kept request."""
        text = self._made.get(kept.seq)
        if text is None:
            text = self._made[kept.seq] = self._make(kept)
            if len(self._made) > MOST_TEXTS:
                del self._made[next(iter(self._made))]
        return text


def make_entry(kept: KeptCall) -> dict[str, Any]:
    """A kept request as the JSON object that the operator reads."""
    stamp = datetime.fromtimestamp(kept.at, UTC).isoformat(timespec="milliseconds")
    told = kept.told
    entry = dict(told) if isinstance(told, dict) else build_fields(_restore(told))
    if kept.failure is not None:
        entry |= kept.failure.fields()
    if "total" in kept.stages:  # the log's line has it of calls that reached an upstream
        entry.setdefault("overhead_ms", round_milliseconds(kept.stages["total"]))
    if kept.conversation:
        entry["conversation"] = kept.conversation
    return {"seq": kept.seq, "timestamp": stamp, **entry}


class KeptFigures(NamedTuple):
    """What summaries need of a kept request: its durations in ms (`own`: this proxy's; None where there was none) and
    how its conversation is known ('' without one)."""

    route: str
    tool: str
    took: float
    own: float | None
    source: str
    upstream: str
    upstream_took: float


def read_figures(kept: KeptCall) -> KeptFigures:
    """The figures of a kept request, read without building its entry: summaries read all kept requests."""
    told, total = kept.told, kept.stages.get("total")
    if isinstance(told, dict):
        upstream, tool = told.get("server.address", ""), told.get("gen_ai.tool.name", "")
        route, source = told["http.route"], told.get("conversation.source", "")
        took, upstream_took = told["duration_ms"], told.get("upstream.duration_ms", 0.0)
    else:
        upstream, is_call = told[_PLACES["upstream"]], told[_PLACES["call_id"]]
        tool, source = (_value(kept, "tool"), told[_PLACES["conversation_rung"]]) if is_call else ("", "")
        route, took = told[_PLACES["route"]], round_milliseconds(read_duration(kept))
        upstream_took = round_milliseconds(told[_PLACES["upstream_seconds"]])
    own = round_milliseconds(total or 0.0) if total is not None or upstream else None
    return KeptFigures(route, tool, took, own, source, upstream, upstream_took)


def read_duration(kept: KeptCall) -> float:
    """How long a kept request took, in seconds."""
    told = kept.told
    if isinstance(told, dict):
        return float(told["duration_ms"]) / 1000
    return float(told[_PLACES["ended"]] - told[_PLACES["started"]])


def read_attempt(kept: KeptCall) -> int:
    """Which attempt of the model a kept request was; 0 where no attempt was counted."""
    told = kept.told
    return int(told.get("retry_attempt", 0) if isinstance(told, dict) else told[_PLACES["attempt"]])


def _read_usual_fields(record: CallRecord) -> tuple[Any, ...]:
    """The values of `_NAMES`. Of a trace its ids alone: its state is as long as the client likes."""
    told = _read_usual(record)
    if record.trace is None:
        return told
    place = _PLACES["trace"]
    return (*told[:place], replace(record.trace, state="", sent=[]), *told[place + 1 :])


def _restore(told: tuple[Any, ...]) -> CallRecord:
    """A usual call's record, with the fields that its line depends on."""
    return CallRecord(**dict(zip(_NAMES, told, strict=True)))


# --- choosing ---------------------------------------------------------------------------------------------------------
# The name of the model whose answer a call stood in.
_MODEL: Final = "gen_ai.request.model"
# What a filter compares -> its name in the log's line.
_FIELDS: Final = {
    "tool": "gen_ai.tool.name",
    "model": _MODEL,
    "route": "http.route",
    "outcome": "outcome",
    "request_id": "correlation_id",
    "trace_id": "trace_id",
    "code": "error.code",
}


def _value(kept: KeptCall, name: str) -> str:
    told = kept.told
    if isinstance(told, dict):
        return str(told.get(_FIELDS[name]) or "")
    if name == "model":
        return str(told[_PLACES["notes"]].get(_MODEL, ""))
    return show_name(told[_PLACES[name]]) if name == "tool" else str(told[_PLACES[name]] or "")


# The columns by which calls are sorted -> what is compared, and the entry's field that shows it.
SORTS: Final[Mapping[str, tuple[Callable[[KeptCall], Any], str]]] = {
    "time": (attrgetter("seq"), "timestamp"),
    "tool": (lambda kept: _value(kept, "tool"), "gen_ai.tool.name"),
    "outcome": (lambda kept: _value(kept, "outcome"), "outcome"),
    "attempts": (read_attempt, "retry_attempt"),
    "duration": (lambda kept: round_milliseconds(read_duration(kept)), "duration_ms"),
}


def _fits(kept: KeptCall, wanted: CallFilter, words: _NewestTexts[str]) -> bool:
    for name in SEVERAL:
        choices: frozenset[str] = getattr(wanted, name)
        if choices and not any(_is_meant(_value(kept, name), choice) for choice in choices):
            return False
    for name in ("request_id", "trace_id"):
        if (one := getattr(wanted, name)) and not _is_meant(_value(kept, name), one):
            return False
    if not kept.conversation.startswith(wanted.conversation):
        return False
    if not _fits_places(kept, wanted):
        return False
    return not wanted.text or all(word in words.read(kept) for word in wanted.text.casefold().split())


def _is_meant(name: str, wanted: str) -> bool:
    return wanted[1:].lower() in name.lower() if wanted.startswith("~") else name == wanted


def _join_words(kept: KeptCall) -> str:
    """The texts and numbers that the entry shows, case-folded, each on lines of its own. Kept arguments are not among
    them."""
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


def _fits_places(kept: KeptCall, wanted: CallFilter) -> bool:
    """Whether code, rule and path are those of an error or a repair of the call."""
    if not (wanted.code or wanted.path or wanted.rule):
        return True
    errors = kept.failure.errors if kept.failure is not None else ()
    repairs = kept.failure.repairs if kept.failure is not None else ()
    codes = [_value(kept, "code"), *(each["code"] for each in errors)]
    if wanted.code and not any(_is_meant(code, wanted.code) for code in codes):
        return False
    if wanted.rule and not any(_is_meant(each["rule"], wanted.rule) for each in repairs):
        return False
    paths = [str(each["path"]) for each in (*errors, *repairs)]
    if wanted.path.startswith("~"):
        return any(_is_meant(path, wanted.path) for path in paths)
    return not wanted.path or any(is_below(path, wanted.path) for path in paths)


def is_below(path: str, wanted: str) -> bool:
    """Whether a JSON Pointer is at or below the wanted one, in which `*` stands for any step."""
    steps, parts = path.split("/"), wanted.rstrip("/").split("/")
    return len(steps) >= len(parts) and all(
        part in ("*", step) for step, part in zip(steps[: len(parts)], parts, strict=True)
    )
