"""The last calls, all outcomes, newest last: a bounded ring in memory.

    RecentCalls.finished   keeps one finished request, numbered; a usual call as a tuple of what its record holds
    RecentCalls.newest     the kept requests, newest first
    make_entry             one of them as a JSON object, built only when somebody reads it

An entry has the fields of the log's line, `seq`, `conversation`, for each error `expected` and `got`, and what is kept
of answers that others took the place of (`replaced`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Final, NamedTuple

from proxy.core.contract.attempts import hash_conversation
from proxy.core.envelope.view import show_name
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
PLACES: Final = {name: place for place, name in enumerate(_NAMES)}


class KeptCall(NamedTuple):
    """One kept request: its number, its end (seconds since the epoch), its conversation's hash ('' where it has none),
    the content of its line (the values of `_NAMES` for a usual call, otherwise the line's fields), its stages, and its
    failure, if any."""

    seq: int
    at: float
    conversation: str
    content: tuple[Any, ...] | dict[str, Any]
    stages: dict[str, float]
    failure: KeptFailure | None


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
        self.bound = kept
        self._characters = 0

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
        while len(self._kept) > self.bound or self._characters > MOST_CHARACTERS:
            gone = KeptCall._make(self._kept.popleft())
            self._characters -= 0 if gone.failure is None else gone.failure.length
        if self.values is not None:
            self.values.keep(seq, record)

    @property
    def size(self) -> int:
        """How many requests are kept now."""
        return len(self._kept)

    @property
    def oldest(self) -> int:
        """The number of the oldest kept request; 0 where none is kept."""
        return int(self._kept[0][0]) if self._kept else 0

    def newest(self) -> Iterator[KeptCall]:
        """The kept requests, newest first."""
        return map(KeptCall._make, reversed(self._kept))


def make_entry(kept: KeptCall) -> dict[str, Any]:
    """A kept request as the JSON object that the operator reads."""
    stamp = datetime.fromtimestamp(kept.at, UTC).isoformat(timespec="milliseconds")
    told = kept.content
    entry = dict(told) if isinstance(told, dict) else build_fields(CallRecord(**dict(zip(_NAMES, told, strict=True))))
    if kept.failure is not None:
        entry |= kept.failure.fields()
    if "total" in kept.stages:  # the log's line has it of calls that reached an upstream
        entry.setdefault("overhead_ms", round_milliseconds(kept.stages["total"]))
    if kept.conversation:
        entry["conversation"] = kept.conversation
    return {"seq": kept.seq, "timestamp": stamp, **entry}


def _read_usual_fields(record: CallRecord) -> tuple[Any, ...]:
    """The values of `_NAMES`. Of a trace its ids alone: its state is as long as the client likes."""
    told = _read_usual(record)
    if record.trace is None:
        return told
    place = PLACES["trace"]
    return (*told[:place], replace(record.trace, state="", sent=[]), *told[place + 1 :])


# What a reader may ask of a kept request -> its name in the log's line.
FIELDS: Final = {
    "tool": "gen_ai.tool.name",
    "model": "gen_ai.request.model",  # the model whose answer a call stood in
    "route": "http.route",
    "outcome": "outcome",
    "request_id": "correlation_id",
    "trace_id": "trace_id",
    "code": "error.code",
}


def read_value(kept: KeptCall, name: str) -> str:
    """A text of a kept request by its name in `FIELDS`, read without building its entry; '' where it has none."""
    told = kept.content
    if isinstance(told, dict):
        return str(told.get(FIELDS[name]) or "")
    if name == "model":
        return str(told[PLACES["notes"]].get(FIELDS[name], ""))
    return show_name(told[PLACES[name]]) if name == "tool" else str(told[PLACES[name]] or "")
