"""The pages that summarise: `/-/overview`, `/-/tools/` and `/-/upstreams`.

`/-/overview` shows whether the proxy works and what needs attention. `/-/tools/` shows the mistakes of models with one
tool. `/-/upstreams` shows the circuit breaker, statuses, faults and times of each upstream.

Counts come from the counters of the metrics. Percentiles come from the kept calls, so they cover the last 2,000 calls
at most (`admin.keep.calls` sets another number).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from proxy import __version__
from proxy.config.model import UpstreamConfig
from proxy.core.contract.policy import ToolPolicy
from proxy.core.json.jsontext import dumps, format_pointer
from proxy.core.model.codes import VIOLATION_CODES
from proxy.core.model.values import JsonValue, Pointer
from proxy.core.rules.rules import LEVEL_MEANINGS
from proxy.extensions.console.attention import list_needs
from proxy.extensions.console.core.repair_advice import CountedMistake, ToolMistakes
from proxy.extensions.console.kept_calls import CallFilter, read_figures, select_calls
from proxy.extensions.console.mistake_counts import RETRIED, RIGHT, MistakeCounts
from proxy.extensions.console.page_counts import ConsoleCounts, find_counts, make_stamp
from proxy.plugin import Metrics
from proxy.server.admin.page import ConsoleData, Page, PageRequest, make_json_page, refuse_question

if TYPE_CHECKING:
    from proxy.extensions.console.core.improvements import Improvement

WINDOWS: Final = {"1m": 60.0, "5m": 300.0, "15m": 900.0, "1h": 3600.0}
_P95: Final = 0.95
_MEDIAN: Final = 0.5
# The most changes of a circuit breaker that are shown for an upstream.
MOST_CHANGES: Final = 20
# The most tools that have a sentence: each takes about 0.1 ms, in which no call is answered.
_MOST_SUMMED_UP: Final = 50
_REPORT: Final = "report"
_SAFE_AFTER: Final = 24 * 3600.0

_WORDS: Final = {name: code.meaning for name, code in VIOLATION_CODES.items()}

Tools = Mapping[tuple[str, str], ToolPolicy]


def show_overview(data: ConsoleData, question: PageRequest, tools: Tools, state: Mapping[str, JsonValue]) -> Page:
    """Shows the overview of a time window. `tools` are the served tools by route and name; `state` holds the fields
    about the proxy itself, such as its status and digest."""
    window = parse_qs(question.query).get("window", ["15m"])[0]
    counted = find_counts(data)
    if window not in WINDOWS or counted is None:
        return refuse_question(
            f"`window` is one of: {', '.join(WINDOWS)}" if counted is not None else "the console is off", 400
        )
    seconds = WINDOWS[window]
    bars = list(counted.bars.within(seconds))
    calls: Counter[tuple[str, ...]] = Counter()
    for bar in bars:
        calls.update(bar.counts)
    times = _read_times(data, seconds)
    shown: dict[str, JsonValue] = {
        "version": __version__,
        "at": make_stamp(data.wall()),
        "window": window,
        "values": data.values if question.role == "operator" else "off",
        "role": question.role,
        "calls_kept": data.recent.size,
        "calls_bound": data.recent.bound,
        **state,
        "totals": _by_outcome(calls),
        "own_p95_ms": _percentile(times.own),
        "bars": [{"at": make_stamp(bar.at), "outcomes": _by_outcome(bar.counts)} for bar in bars],
        "tools": list(_rows(counted, tools, calls, times, seconds)),
        "by_address": times.by_address,
    }
    shown["needs"] = list_needs(shown)
    return make_json_page(shown)


class _Times:
    """Figures of the kept calls of a window: durations by tool and the proxy's own time (both in ms), and how many
    conversations (`of`) are known by their address (`calls`). By tool, `failures` counts the failures of its upstream,
    whose name `upstreams` holds."""

    def __init__(self) -> None:
        self.failures: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        self.upstreams: dict[tuple[str, str], str] = {}
        self.by_tool: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        self.own: list[float] = []
        self.by_address = {"calls": 0, "of": 0}


def _read_times(data: ConsoleData, seconds: float) -> _Times:
    times = _Times()
    for figures in map(read_figures, select_calls(data.recent, CallFilter(since=data.wall() - seconds))):
        key = figures.route, figures.tool
        times.by_tool[key].append(figures.took)
        if figures.failure:
            times.failures[key][figures.failure] += 1
            times.upstreams[key] = figures.upstream
        if figures.own is not None:
            times.own.append(figures.own)
        if figures.source:
            times.by_address["of"] += 1
            times.by_address["calls"] += figures.source == "address"
    return times


Key = tuple[str, str]


def _rows(
    counted: ConsoleCounts, tools: Tools, calls: Counter[tuple[str, ...]], times: _Times, seconds: float
) -> Iterable[dict[str, JsonValue]]:
    """Yields one row for each tool that is served or was called, the tools with the most calls first. Every number is
    that of the window."""
    mistakes = _Mistakes(counted.mistakes, counted.mistake_bars.sum_within(seconds))
    by_tool: defaultdict[Key, Counter[str]] = defaultdict(Counter)
    for (route, tool, outcome), number in calls.items():
        by_tool[route, tool][outcome] += number
    keys = sorted({*by_tool, *tools}, key=lambda key: (-by_tool[key].total(), key))
    total = counted.bars.total()
    for place, key in enumerate(keys):
        policy, outcomes = tools.get(key), by_tool[key]
        if policy is None and set(outcomes) <= {"passthrough"}:
            continue
        retried, right = mistakes.retries[key]
        row: dict[str, JsonValue] = {
            "route": key[0], "tool": key[1], "calls": outcomes.total(), "outcomes": dict(outcomes),
            "mode": policy.mode.value if policy is not None else "enforce", "retried": retried, "right": right,
            "p95_ms": _percentile(times.by_tool.get(key, [])), "served": policy is not None,
            "upstream": times.upstreams.get(key, ""), "failures": dict(times.failures[key]),
        }  # fmt: skip
        if (worst := mistakes.find_worst(key)) is not None:
            row["worst"] = worst
        if policy is not None and place < _MOST_SUMMED_UP and mistakes.seen[key]:
            row["summary"] = mistakes.sum_up(key, policy, outcomes.total())
        if policy is not None and policy.mode.value == _REPORT:
            seen = counted.mistakes.mistakes_of(
                *key, sum(n for (r, t, _), n in total.items() if (r, t) == key), _REPORT
            )
            row |= {"would_refuse": seen.would_refuse, "safe_to_enforce": seen.since_refusal >= _SAFE_AFTER}
        yield row


class _Mistakes:
    """The mistakes of a window: by tool, their numbers of calls by place and code, and (retried, right)."""

    def __init__(self, counts: MistakeCounts, window: Counter[tuple[Any, ...]]) -> None:
        self._counts = counts
        self.seen: defaultdict[Key, dict[tuple[Pointer, str], int]] = defaultdict(dict)
        self.retries: defaultdict[Key, tuple[int, int]] = defaultdict(lambda: (0, 0))
        for (route, tool, place, code), number in window.items():
            if code in (RETRIED, RIGHT):
                retried, right = self.retries[route, tool]
                more = (number, 0) if code == RETRIED else (0, number)
                self.retries[route, tool] = (retried + more[0], right + more[1])
            else:
                self.seen[route, tool][place, code] = number

    def find_worst(self, key: Key) -> dict[str, JsonValue] | None:
        """Returns the most frequent mistake of a tool, a refusal before any repair."""
        found = [
            (mistake, number)
            for (place, code), number in self.seen[key].items()
            if (mistake := self._counts.find((*key, place, code))) is not None
        ]
        worst, calls = min(found, key=lambda each: (each[0].repaired, -each[1]), default=(None, 0))
        return None if worst is None else show_mistake(worst) | {"calls": calls}

    def sum_up(self, key: Key, policy: ToolPolicy, calls: int) -> str:
        """Returns one sentence about a tool: the share of its calls with the mistake of the first proposed change."""
        seen = self._counts.mistakes_of(*key, calls, policy.mode.value, policy.repair)
        changes = ((self.seen[key].get(each.counted, 0), each) for each in _list_improvements(policy, seen))
        number, first = next(((number, each) for number, each in changes if number and each.summary), (0, None))
        return (
            "" if first is None or not calls else f"{min(100, round(100 * number / calls))} % of calls {first.summary}"
        )


def _list_improvements(policy: ToolPolicy, seen: ToolMistakes) -> list[Improvement]:
    from proxy.extensions.console.core.improvements import list_improvements

    return list_improvements(policy.check, seen)


def show_mistake(mistake: CountedMistake) -> dict[str, JsonValue]:
    """Returns one counted mistake as a JSON object."""
    found: dict[str, JsonValue] = {
        "path": format_pointer(mistake.place), "code": mistake.code, "repaired": mistake.repaired,
        "calls": mistake.calls, "alone": mistake.alone, "retried": mistake.retried, "right": mistake.right,
        "last": make_stamp(mistake.last), "got": dict(mistake.got),
    }  # fmt: skip
    if mistake.code in _WORDS:
        found["what"] = _WORDS[mistake.code]
    for name in ("expected", "keyword"):
        if value := getattr(mistake, name):
            found[name] = value
    if mistake.shapes:
        found["shapes"] = dict(mistake.shapes.most_common())
    return found


def _by_outcome(counts: Mapping[tuple[str, ...], int]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for key, number in counts.items():
        found[key[-1]] += number
    return dict(found)


def _percentile(times: list[float], share: float = _P95) -> float | None:
    return sorted(times)[min(len(times) - 1, int(len(times) * share))] if times else None


# --- one tool ---------------------------------------------------------------------------------------------------------
def show_tool(data: ConsoleData, question: PageRequest, tools: Tools) -> Page:
    """Answers `/-/tools/ROUTE/TOOL`: the schema, counts, invented keys, and proposed changes of the schema. A schema is
    given as a value and as `schema_text`, its JSON text, which a reader copies without touching its numbers."""
    route, _, tool = map(unquote, question.rest.partition("/"))
    policy, counted = tools.get((route, tool)), find_counts(data)
    if policy is None or counted is None:
        return refuse_question(f"no tool {tool[:128]!r} is served on the route {route[:128]!r}", 404)
    total = {key[2]: number for key, number in counted.bars.total().items() if key[:2] == (route, tool)}
    seen = counted.mistakes.mistakes_of(route, tool, sum(total.values()), policy.mode.value, policy.repair)
    with_values = question.role == "operator" and data.values != "off"
    schema = policy.check.root.raw if policy.check is not None else None
    shown = [
        {"rule": each.rule, "path": each.place, "text": each.text, "calls": each.calls, "passes": each.passes,
         **({"config": each.config} if each.config else {}),
         **({"summary": f"{min(100, round(100 * each.calls / seen.calls))} % of calls {each.summary}"}
            if each.summary and seen.calls else {}),
         **({"schema": each.schema, "schema_text": dumps(each.schema).decode()} if each.schema is not None else {})}
        for each in _list_improvements(policy, seen)
        if with_values or each.rule != "value_tried" or not each.passes
    ]  # fmt: skip
    return make_json_page(
        {
            "route": route, "tool": tool, "mode": policy.mode.value, "schema_id": policy.schema_id,
            "repair": f"{level} ({LEVEL_MEANINGS[level]})" if (level := policy.repair.level) else "none",
            "description": policy.description, "schema": schema, "schema_text": dumps(schema).decode(),
            "outcomes": total, "calls": seen.calls,
            "mistakes": [show_mistake(each) for each in seen.mistakes],
            "invented": [
                {"parent": format_pointer(key.parent), "name": key.name, "calls": key.calls, "refused": key.refused,
                 "last": make_stamp(key.last), "beside": dict(key.beside)}
                for key in seen.invented
            ],
            "changes": shown,
        }
    )  # fmt: skip


# --- upstreams --------------------------------------------------------------------------------------------------------

_WINDOW: Final = 900.0


def show_upstreams(
    data: ConsoleData,
    upstreams: Mapping[str, UpstreamConfig],
    breakers: Mapping[str, str],
    connections: Mapping[str, tuple[int, int, int]],
    metrics: Metrics,
) -> Page:
    """Shows every upstream of the config. `connections` are those of its pool: open, idle, and the most. Requests and
    resends count since the start of the process; faults and times cover the last 15 minutes."""
    times, metrics = _read_upstream_times(data), metrics.settle()
    shown, counted, breaker_changes = [], find_counts(data), data.changes.list_latest("breaker")
    for name in upstreams:
        changes = [each for each in breaker_changes if each["upstream"] == name]
        row: dict[str, JsonValue] = {
            "upstream": name,
            "address": _show_address(upstreams[name]),
            "breaker": breakers.get(name, "none"),
            "connections": dict(zip(("open", "idle", "most"), connections.get(name, ()), strict=False)),
            "breaker_since": changes[0]["timestamp"] if changes else None,
            "requests": {labels[1]: int(number) for labels, number in metrics.sent.series.items() if labels[0] == name},
            "faults": {} if counted is None else dict(counted.count_faults(name, data.wall() - _WINDOW)),
            "resent": sum(int(number) for labels, number in metrics.resent.series.items() if labels[0] == name),
            "p50_ms": _percentile(times[name], _MEDIAN),
            "p95_ms": _percentile(times[name]),
            "changes": changes[:MOST_CHANGES],
        }
        shown.append(row)
    return make_json_page({"upstreams": shown})


def _show_address(upstream: UpstreamConfig) -> str:
    """Returns where an upstream listens: scheme, host and port, or the socket; no path and no credentials of its URL.
    Words if it is a process or made of other upstreams."""
    if upstream.added is not None:
        return upstream.added.described
    if upstream.socket:
        return f"unix:{upstream.socket}"
    parts = urlsplit(upstream.url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _read_upstream_times(data: ConsoleData) -> Mapping[str, list[float]]:
    """Returns the durations of each upstream in ms, of the kept calls of the last 15 minutes."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for figures in map(read_figures, select_calls(data.recent, CallFilter(since=data.wall() - _WINDOW))):
        if figures.upstream:
            found[figures.upstream].append(figures.upstream_took)
    return found
