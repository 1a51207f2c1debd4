"""The last calls, all outcomes, newest last: a bounded ring in memory.

    RecentCalls.finished   keeps one finished request, numbered; a usual call as a tuple of what its record holds
    RecentCalls.newest     the kept requests, newest first
    make_entry             one of them as a JSON object, built only when somebody reads it
    KeptValues             their arguments, where `admin.values` asks for them

An entry has the fields of the log's line, `seq`, `conversation`, for each error `expected` and `got`, and what is kept
of answers that others took the place of (`replaced`).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple

from proxy.call_record import CallRecord
from proxy.core.contract.attempts import hash_conversation
from proxy.core.display.preview import MASK, sanitise_value
from proxy.core.envelope.feedback import write_feedback
from proxy.core.envelope.view import show_name
from proxy.core.explain.advice import add_advice
from proxy.core.json.jsontext import dumps
from proxy.core.model.values import Document, FeedbackLimits, JsonValue
from proxy.telemetry.failures import KeptFailure, keep_failure
from proxy.telemetry.logs import build_fields, read_fields, round_milliseconds
from proxy.telemetry.metric_table import WRONG

# The default number of kept requests: at most 3.5 MB.
KEPT: Final = 2000
# Refused, failed and would-be-refused requests kept with `console: off`.
KEPT_WRONG: Final = 500
# The characters of errors kept of all calls together: beyond it the oldest calls go, however few are kept.
MOST_CHARACTERS: Final = 4 * 1024 * 1024
# The fields that a usual call's record leaves out: its line does not show them. A call with one of the first five is
# unusual, and so is one with answers before its own.
_LEFT_OUT: Final = frozenset({
    "violations", "repairs", "questions", "answer_violations", "would_refuse",
    "repeated", "escalated", "hook_failures", "answer", "events", "corrections", "settling", "sending_since", "sent",
    "max_attempts",
})  # fmt: skip
# The fields kept of a usual call. Those that a record's `repr` hides hold argument values.
_NAMES: Final = tuple(each.name for each in fields(CallRecord) if each.repr and each.name not in _LEFT_OUT)
_read_usual: Final = attrgetter(*_NAMES)
PLACES: Final = {name: place for place, name in enumerate(_NAMES)}


class KeptCall(NamedTuple):
    """One kept request: its number, end (seconds since the epoch), conversation's hash or '', stages and failure.
    `content` is that of its line (of a usual call the values of `_NAMES`, otherwise the line's fields)."""

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
        call, failure = record.call, None
        who = "" if call is None else hash_conversation(call.conversation)  # its name is as long as the client likes
        content: tuple[Any, ...] | dict[str, Any]
        if wrong or found:
            content, failure = read_fields(record), keep_failure(record)
            content = {**content, "would_refuse": True} if record.would_refuse else content
            self._characters += failure.length
        else:
            content = _read_usual(record)
            if record.trace is not None:  # only its ids: its state is as long as the client likes
                place = PLACES["trace"]
                content = (*content[:place], replace(record.trace, state="", sent=[]), *content[place + 1 :])
        self._kept.append((seq, self._wall(), who, content, record.stages, failure))
        while len(self._kept) > self.bound or self._characters > MOST_CHARACTERS:
            gone: KeptFailure | None = self._kept.popleft()[-1]
            self._characters -= 0 if gone is None else gone.length
        if self.values is not None:
            self.values.keep(seq, record)

    @property
    def size(self) -> int:
        """Returns how many requests are kept now."""
        return len(self._kept)

    @property
    def oldest(self) -> int:
        """Returns the number of the oldest kept request; 0 if none is kept."""
        return int(self._kept[0][0]) if self._kept else 0

    def newest(self) -> Iterator[KeptCall]:
        """The kept requests, newest first."""
        return map(KeptCall._make, reversed(self._kept))


def make_entry(kept: KeptCall) -> dict[str, Any]:
    """A kept request as the JSON object that the operator reads."""
    stamp = datetime.fromtimestamp(kept.at, UTC).isoformat(timespec="milliseconds")
    content = kept.content
    entry = (
        dict(content)
        if isinstance(content, dict)
        else build_fields(CallRecord(**dict(zip(_NAMES, content, strict=True))))
    )
    if kept.failure is not None:
        entry |= kept.failure.fields()
    if "total" in kept.stages:  # the log's line has it of calls that reached an upstream
        entry.setdefault("overhead_ms", round_milliseconds(kept.stages["total"]))
    if kept.conversation:
        entry["conversation"] = kept.conversation
    return {"seq": kept.seq, "timestamp": stamp, **entry}


# The fields by which a reader selects kept requests -> the name in the log's line.
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
    """Returns a text of a kept request by its name in `FIELDS`, read without building its entry; '' if it has none."""
    content = kept.content
    if isinstance(content, dict):
        return str(content.get(FIELDS[name]) or "")
    if name == "model":
        return str(content[PLACES["notes"]].get(FIELDS[name], ""))
    return show_name(content[PLACES[name]]) if name == "tool" else str(content[PLACES[name]] or "")


# --- arguments --------------------------------------------------------------------------------------------------------
# The longest arguments kept of one call, in bytes.
LONGEST_ARGUMENTS: Final = 16 * 1024
_OVERHEAD: Final = 200
# The place of the text that the model read among the kept texts of a call.
_READ: Final = 2

ShownValues = Literal["off", "preview", "full"]


class KeptValues:
    """The arguments of the last calls by the call's number: as received, as sent if repaired, and those of each call in
    `replaced` answers. Also the text that the model read of a failed call. The oldest are dropped first.

    `preview` keeps what a model would be shown: secret names and credentials masked, paths shortened, long texts cut.
    `full` keeps the arguments whole. Values that the schema marks secret are `***` in both.
    """

    def __init__(self, shown: ShownValues, room: int) -> None:
        self.shown = shown
        self._room = self._left = room
        self._kept: OrderedDict[int, tuple[bytes, ...]] = OrderedDict()

    def keep(self, seq: int, record: CallRecord) -> None:
        """Keeps the arguments of one call, unless too long, and those of answers before its own as far as room goes."""
        earlier = [each for answer in record.replaced for each in answer.calls]
        if record.call is None and not earlier:
            return
        texts = [self._came(record), self._went(record), b""]
        left = LONGEST_ARGUMENTS - sum(map(len, texts))
        if left < 0:
            return
        if record.result is not None:
            text = dumps(write_feedback(add_advice(record.result, record.policy)))
            texts[_READ] = text if len(text) <= left else b""
            left -= len(texts[_READ])
        for each in earlier:
            text = self._came(each)
            texts.append(text if len(text) <= left else b"")
            left -= len(texts[-1])
        self._kept[seq] = tuple(texts)
        self._left -= LONGEST_ARGUMENTS - left + _OVERHEAD
        while self._left < 0:
            _, gone = self._kept.popitem(last=False)
            self._left += sum(map(len, gone)) + _OVERHEAD

    def read(self, seq: int) -> tuple[bytes, ...] | None:
        """Arguments as received and as sent, the text that the model read, and arguments of each call in answers
        before, as JSON texts; b'' for none."""
        return self._kept.get(seq)

    def _came(self, record: CallRecord) -> bytes:
        call, limits = record.call, _find_limits(record)
        if call is None:
            return b""
        if not isinstance(call.arguments, Document):
            text = call.raw[:LONGEST_ARGUMENTS].decode("utf-8", "replace")
            return dumps(text if self.shown == "full" else sanitise_value(text, limits))
        if self.shown == "full" and not limits.secret_names:
            return call.arguments.text[: LONGEST_ARGUMENTS + 1]
        return self._value(call.arguments.value, limits)

    def _went(self, record: CallRecord) -> bytes:
        if record.checked is None or not (record.repairs or record.corrections):
            return b""
        return self._value(record.checked.value, _find_limits(record))

    def _value(self, value: JsonValue, limits: FeedbackLimits) -> bytes:
        is_preview = self.shown == "preview"
        return dumps(sanitise_value(value, limits) if is_preview else mask_names(value, limits.secret_names))


def _find_limits(record: CallRecord) -> FeedbackLimits:
    return FeedbackLimits() if record.policy is None else record.policy.feedback


def mask_names(value: JsonValue, names: frozenset[str]) -> JsonValue:
    """A value with `***` at each key of these names."""
    if isinstance(value, Mapping):
        return {key: MASK if key in names else mask_names(item, names) for key, item in value.items()}
    return [mask_names(item, names) for item in value] if isinstance(value, list) else value
