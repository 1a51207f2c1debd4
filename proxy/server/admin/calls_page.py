"""The pages `/-/calls` and `/-/conversations`.

`/-/calls` lists the last calls with filters, shows one call in full, or sends calls as a stream of events.
`/-/conversations` lists the conversations that failed lately, with their attempts at each tool and whether they wait
for a human.

A position in the ring of kept calls is written `BOOT.NUMBER`: the run of the process and the number of the call. With
several workers a position holds one such pair for each worker, joined by commas. Every answer has a `cursor`; a reader
sends it back as `after` to get only newer calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import parse_qs, unquote

from proxy.core.contract import attempts as contract
from proxy.core.contract import refusals
from proxy.core.contract.policy import AttemptsPolicy
from proxy.core.json.jsontext import parse
from proxy.core.model import codes
from proxy.core.model.values import Episode, JsonProblem, JsonValue
from proxy.server.admin.console_data import ConsoleData
from proxy.server.admin.event_stream import Readers, follow_calls
from proxy.server.admin.page import EventPage, Page, PageRequest, make_json_page, refuse_question
from proxy.telemetry.recent.ring import STAGES, CallFilter, KeptCall, make_entry

# The highest and the default number of entries in one answer (`limit`).
MOST_ENTRIES: Final = 500
_USUAL: Final = 200
_SEVERAL: Final = ("tool", "route", "outcome")
_SINGLE: Final = ("code", "path", "rule", "conversation", "request_id", "trace_id")
_KNOWN: Final = frozenset({*_SEVERAL, *_SINGLE, "since", "after", "before", "limit", "changes"})
_SINCE: Final = re.compile(r"(?P<number>[0-9]+(\.[0-9]+)?)(?P<unit>ms|s|m|h|)")
_PLACE: Final = re.compile(r"[0-9]{1,15}|[^.,]+\.[0-9]{1,15}(,[^.,]+\.[0-9]{1,15})*")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}


async def list_calls(data: ConsoleData, question: PageRequest, readers: Readers) -> Page | EventPage:
    """Returns the kept calls, newest first, or a stream of the calls to come where the reader accepts events."""
    query = parse_qs(question.query, keep_blank_values=True)
    if question.wants_events and question.resume:
        query["after"] = [question.resume]
    wanted = read_filter(query, data)
    if isinstance(wanted, str):
        return refuse_question(wanted)
    if question.wants_events:
        return EventPage(follow_calls(data, wanted, _start(query, data), readers))
    limit = _read_limit(query)
    if limit is None:
        return refuse_question(f"`limit` is a number from 1 to {MOST_ENTRIES}")
    return make_json_page(list_entries(data, wanted, limit, query))


def list_entries(
    data: ConsoleData, wanted: CallFilter, limit: int, query: Mapping[str, list[str]]
) -> dict[str, JsonValue]:
    """Returns the answer of `/-/calls`.

    The answer holds the entries, the `cursor` behind the newest one, how many calls are kept (`kept`) and can be kept
    (`bound`), and how many newer calls than `after` are not in it (`missed`): they are more than `limit`, or have left
    the ring. With `changes` it also holds the proxy's changes since that position.
    """
    recent, continues = data.recent, bool(query.get("after"))
    found = list(recent.select(wanted, None if continues else limit))
    shown: dict[str, JsonValue] = {
        "calls": [name_entry(data, make_entry(kept)) for kept in found[:limit]],
        "cursor": f"{recent.boot}.{recent.last}",
        "kept": recent.size,
        "bound": recent.bound,
        "missed": count_missed(data, wanted.after) + len(found[limit:]) if continues else 0,
    }
    if "changes" in query:
        seen = read_place(query["changes"][0], data.recent.boot) or 0
        shown["changes"] = [{"event": each.event, "at": each.at, **each.data} for each in data.changes.after(seen)]
        shown["changes_cursor"] = f"{recent.boot}.{data.changes.last}"
    return shown


async def show_call(data: ConsoleData, question: PageRequest) -> Page:
    """Shows one call in full."""
    place = unquote(question.rest)
    seq = read_place(place, data.recent.boot) if "." in place else _number(place)
    kept = None if seq is None else data.recent.find(seq)
    if kept is None:
        return refuse_question(f"no call {place[:64]!r} is kept (any more)", 404)
    return make_json_page(open_call(data, kept, with_values=question.role == "operator"))


def open_call(data: ConsoleData, kept: KeptCall, *, with_values: bool) -> dict[str, JsonValue]:
    """Returns everything known about a kept call, and its arguments where they are kept and `with_values` allows it."""
    shown = name_entry(data, make_entry(kept))
    shown["stages_ms"] = {name: round(kept.stages[name] * 1000, 3) for name in STAGES if name in kept.stages}
    if kept.failure is not None and (text := kept.failure.compose_answer()):
        shown["model_read"] = text
    shown["values"] = data.values if with_values else "off"
    values = data.recent.values.read(kept.seq) if data.recent.values is not None and with_values else None
    if values is not None:
        came, went = (_read_value(text) for text in values)
        shown |= {"came": came, **({"went": went} if values[1] else {})}
    return shown


def name_entry(data: ConsoleData, entry: dict[str, Any]) -> dict[str, JsonValue]:
    """Adds the id (`BOOT.NUMBER`) under which `/-/calls/` finds the entry again."""
    return {"id": f"{data.recent.boot}.{entry['seq']}", **entry}


def _read_value(text: bytes) -> JsonValue:
    value = parse(text)
    return text.decode("utf-8", "replace") if isinstance(value, JsonProblem) else value


# --- the query --------------------------------------------------------------------------------------------------------
def read_filter(query: Mapping[str, list[str]], data: ConsoleData) -> CallFilter | str:
    """Returns the filter that a query describes, or a text that says what is wrong with the query."""
    for name in query:
        if name not in _KNOWN:
            return f"`{name[:40]}` is not a filter; the filters are: {', '.join(sorted(_KNOWN))}"
    found: dict[str, Any] = {name: frozenset(filter(None, query.get(name, ()))) for name in _SEVERAL}
    found |= {name: query[name][0] for name in _SINGLE if name in query}
    if text := _first(query, "since"):
        seconds = _read_since(text)
        if seconds is None:
            return "`since` is a duration such as 10m, or seconds since the epoch"
        found["since"] = seconds if seconds > 1e9 else data.wall() - seconds
    for name in ("after", "before"):
        if text := _first(query, name):
            if _PLACE.fullmatch(text) is None:
                return f"`{name}` is a number, or the `cursor` of an answer"
            place = read_place(text, data.recent.boot) if "." in text else _number(text)
            found[name] = place or 0
    return CallFilter(**found)


def read_place(text: str, boot: str) -> int | None:
    """Returns the number that a position holds for this run of the process, or None where it holds none."""
    for pair in text.split(","):
        run, _, number = pair.partition(".")
        if run == boot:
            return _number(number)
    return None


def count_missed(data: ConsoleData, after: int) -> int:
    """Counts the calls that left the ring before a reader at position `after` could see them."""
    return max(0, min(data.recent.oldest, data.recent.last) - after - 1) if data.recent.oldest else 0


def _start(query: Mapping[str, list[str]], data: ConsoleData) -> int | None:
    """Returns the position behind which a stream begins: the one in `after`, or the newest call without `after`.

    None means that `after` belongs to another run of the process.
    """
    text = _first(query, "after")
    if not text:
        return data.recent.last
    return read_place(text, data.recent.boot) if "." in text else _number(text)


def _first(query: Mapping[str, list[str]], name: str) -> str:
    return query.get(name, [""])[0]


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 16 else None


def _read_since(text: str) -> float | None:
    found = _SINCE.fullmatch(text)
    return float(found["number"]) * _UNITS[found["unit"]] if found is not None else None


def _read_limit(query: Mapping[str, list[str]]) -> int | None:
    text = _first(query, "limit")
    if not text:
        return _USUAL
    number = _number(text)
    return number if number is not None and 1 <= number <= MOST_ENTRIES else None


# --- conversations that failed ----------------------------------------------------------------------------------------


def list_attempts(
    episodes: Iterable[tuple[str, Episode]],
    limits: Mapping[str, AttemptsPolicy],
    data: ConsoleData | None,
    *,
    waiting: bool,
) -> list[JsonValue]:
    """Returns the episodes as JSON rows; those that wait for a human stand first.

    `limits` gives the policy of each tool. With `waiting`, only episodes that have escalated are listed. A tool's
    errors that have escalated are one row with the calls that were refused for them.
    """
    seen, shown, running = _last_seen(data), list[JsonValue](), dict(episodes)
    for key, episode in running.items():
        tool, is_over = contract.read_tool(key), is_waiting(key, episode, limits)
        if (episode.count == 0 and not is_over) or (waiting and not is_over):
            continue
        if refusals.make_blocked_key(key) in running:
            continue
        standing = refusals.read_standing(key, episode, _limit_of(tool, limits))
        shown.append(
            {
                "key": key,
                "conversation": key.partition("/")[0],
                "tool": tool,
                "kind": "attempts" if contract.is_attempts(key) else "tool_errors",
                "attempts": standing.number,
                "max_attempts": standing.limit,
                "calls": episode.failed,
                "waiting": is_over,
                "history": list(refusals.write_standing(key, episode)),
                **seen.get((key.partition("/")[0], tool), {}),
            }
        )
    return sorted(shown, key=lambda row: not row["waiting"])


def is_waiting(key: str, episode: Episode, limits: Mapping[str, AttemptsPolicy]) -> bool:
    """Whether an episode has escalated, so that its model was told to stop."""
    if not contract.is_attempts(key):
        return refusals.is_blocked(key)
    standing = refusals.read_standing(key, episode, _limit_of(contract.read_tool(key), limits))
    return standing.number >= standing.limit


def _limit_of(tool: str, limits: Mapping[str, AttemptsPolicy]) -> AttemptsPolicy:
    return limits.get(tool) or AttemptsPolicy()


def _last_seen(data: ConsoleData | None) -> dict[tuple[str, str], dict[str, JsonValue]]:
    """Finds, for each conversation and tool among the kept calls, its last failure and the source of its id."""
    found: dict[tuple[str, str], dict[str, JsonValue]] = {}
    if data is not None:
        wrong = CallFilter(outcome=frozenset({"refused", "tool_error"}))
        for entry in map(make_entry, data.recent.select(wrong)):
            who = (str(entry.get("conversation", "")), str(entry.get("gen_ai.tool.name", "")))
            told = {"last": entry["timestamp"], "source": entry.get("conversation.source")}
            found.setdefault(who, told)
            if entry.get("error.code") == codes.UNKNOWN_TOOL.name:  # the store counts these under the tool ''
                found.setdefault((who[0], ""), told)
    return found
