"""Prometheus metrics, as `metric_table.py` describes them.

Counts are in plain dictionaries by label values. The library reads them through its `Collector` interface at each
scrape (metrics_page.py, which the first scrape loads). This takes a third of the time of the library's counters, which
lock (docs/performance.md). One thread counts each series.

Label values come only from the config and our own tables. An unknown text from a client (a tool's name, a method)
counts as `_other`, so no client can increase the number of series.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any, Final, NamedTuple

from proxy import __version__
from proxy.call_record import CallRecord
from proxy.core.model import codes
from proxy.core.model.codes import ERROR_CODES
from proxy.core.model.values import Rung
from proxy.core.rules.rules import COERCIONS
from proxy.telemetry.logs import is_validation_failure
from proxy.telemetry.metric_table import METHODS, METRICS, MOST_CORRECTED, OTHER, OWN_STAGES, WRONG, MetricRow

# CallRecord.outcome -> the result of the check, where one ran.
_RESULTS: Final = {
    "delivered": "passed",
    "repaired": "repaired",
    "corrected": "passed",  # the corrected call that was sent
    "refused": "rejected",
    "tool_error": "passed",
    "withheld": "passed",
    "upstream_error": "passed",
}
# Calls that passed the check and were refused for how many there are.
_PASSED: Final = frozenset(
    code.name for code in (codes.CALL_CAP_EXCEEDED, codes.CALL_RATE_EXCEEDED, codes.TOO_MANY_CALLS_AT_ONCE)
)

# The most (route, tool) pairs with their own series among tools that upstreams list.
_MOST_LEARNED: Final = 5_000
# The longest tool name that the MCP specification allows ("Tool Names").
_LONGEST_LEARNED: Final = 128

Labels = tuple[str, ...]
Series = MutableMapping[Any, Any]
# The lengths of a request's stages, of its wait for the upstream, and of all of it, in seconds.
Times = tuple[float, ...]

# The kinds of requests that are remembered, and the requests that wait to be counted.
_MOST_KINDS: Final = 256
_MOST_WAITING: Final = 256
# The series of a request depend on these fields, its code, violations, repairs, resends and hook failures.
KIND_FIELDS: Final = (
    "route", "tool", "outcome", "mode", "schema_id", "method", "status", "would_refuse", "attempt", "repeated",
    "escalated", "corrected_after", "conversation_rung", "container_event", "answer", "upstream", "upstream_status",
    "upstream_error", "resend_denied",
)  # fmt: skip
_read_labels: Final = attrgetter(*KIND_FIELDS)


class Served(NamedTuple):
    """A tool of the served config, as `toolproxy_tool_info` shows it."""

    route: str
    tool: str
    kind: str = "call"
    mode: str = "enforce"
    schema_id: str = ""


class Counter:
    """One metric of kind counter. Callers add to the series of their label values, in the order of the metric table."""

    def __init__(self, described: MetricRow) -> None:
        self.described = described
        self.series: defaultdict[Labels, float] = defaultdict(float)


class Histogram:
    """One metric of kind histogram. A series holds the count of each bucket, then the sum of all values. A value
    belongs to the first bucket whose bound is not below it; the last bucket holds values above all bounds."""

    def __init__(self, described: MetricRow) -> None:
        self.described = described
        self._bounds = described.bounds
        self.series: dict[Labels, list[float]] = {}

    def observe(self, value: float, labels: Labels = ()) -> None:
        """Counts a value in the series of these label values, in the order of the metric table."""
        self.observe_all((value,), labels)

    def observe_all(self, values: Sequence[float], labels: Labels) -> None:
        """Counts values in one series, all values of a bucket at once."""
        series, bounds = self.series.get(labels) or self.begin(labels), self._bounds
        rising, counted = sorted(values), 0
        while counted < len(rising):
            bucket = bisect_left(bounds, rising[counted])
            end = bisect_right(rising, bounds[bucket], counted) if bucket < len(bounds) else len(rising)
            series[bucket] += end - counted
            counted = end
        series[-1] += sum(values)

    def begin(self, labels: Labels = ()) -> list[float]:
        """Starts a series, which scrapes show from then on."""
        series = self.series[labels] = [0.0] * (len(self._bounds) + 2)
        return series


class _Kind:
    """Requests that count in the same series. Each adds one to all of `counts`, and each of its times to one of `timed`
    (None: to none). `waiting` has the times of requests that are not counted yet."""

    __slots__ = ("counts", "timed", "waiting")

    def __init__(self, counts: Sequence[tuple[Series, Any]], timed: Sequence[tuple[Histogram, Labels] | None]) -> None:
        self.counts = counts
        self.timed = timed
        self.waiting: list[Times] = []


class Gauge:
    """One metric of kind gauge or info. `read` gives the value of a series at each scrape."""

    def __init__(self, described: MetricRow) -> None:
        self.described = described
        self.read: Callable[[], Mapping[Labels, float]] = dict

    def set(self, value: float, *labels: str) -> None:
        """Shows a series with this value from now on."""
        self.read = lambda: {labels: value}

    def watch(self, read: Callable[[], float]) -> None:
        """Shows one series without labels, and reads its value at each scrape."""
        self.read = lambda: {(): read()}


class Metrics:
    """Implements `Observer`. `tools` are all tools of the config, `digest` is its hash."""

    def __init__(self, tools: Iterable[Served], digest: str) -> None:
        self._shown: list[Counter | Histogram | Gauge] = []
        self._make_calls()
        self._inflight = self._add_gauge("toolproxy_inflight_requests", 0)
        self._draining = self._add_gauge("toolproxy_draining", 0)
        self.state_up = self._add_gauge("toolproxy_state_backend_up", 1)
        self.lag = self.add_histogram(METRICS["toolproxy_event_loop_lag_seconds"])
        self.lag.begin()
        self._dropped = self.add_counter(METRICS["toolproxy_log_lines_dropped_total"])
        self._lines_dropped: Callable[[], Mapping[str, int]] = dict
        self._add_gauge("toolproxy_build_info").set(1, __version__)
        self._config = self._add_gauge("toolproxy_config_info")
        self._tools = self._add_gauge("toolproxy_tool_info")
        self._reloads = self.add_counter(METRICS["toolproxy_config_reloads_total"])
        self._reloaded = self._add_gauge("toolproxy_config_last_reload_successful", 0)
        self._reloaded_at = self._add_gauge("toolproxy_config_last_reload_success_timestamp_seconds", 0)
        self._restart = self._add_gauge("toolproxy_config_restart_needed", 0)
        self._set_tools(tools, digest)

    def _make_calls(self) -> None:
        self._kinds: dict[tuple[object, ...], _Kind] = {}
        self._waiting = 0
        self.sources: defaultdict[Rung, int] = defaultdict(int)
        self.requests = self.add_counter(METRICS["toolproxy_requests_total"])
        self._validations = self.add_counter(METRICS["toolproxy_validations_total"])
        self._violations = self.add_counter(METRICS["toolproxy_violations_total"])
        self._warnings = self.add_counter(METRICS["toolproxy_warnings_total"])
        self._repairs = self.add_counter(METRICS["toolproxy_repairs_total"])
        self._coerced = self.add_counter(METRICS["toolproxy_coerced_calls_total"])
        self._episodes = self.add_counter(METRICS["toolproxy_episodes_total"])
        self._attempts = self.add_counter(METRICS["toolproxy_attempts_total"])
        self._corrected = self.add_counter(METRICS["toolproxy_corrected_total"])
        self._escalations = self.add_counter(METRICS["toolproxy_escalations_total"])
        self._repeats = self.add_counter(METRICS["toolproxy_repeats_total"])
        self._errors = self.add_counter(METRICS["toolproxy_errors_total"])
        self._caps = self.add_counter(METRICS["toolproxy_caps_exceeded_total"])
        self._containers = self.add_counter(METRICS["toolproxy_containers_total"])
        self._answers = self.add_counter(METRICS["toolproxy_answers_total"])
        self._hooks = self.add_counter(METRICS["toolproxy_hook_failures_total"])
        self.unpinned = self.add_counter(METRICS["toolproxy_unpinned_tools_total"])
        self.sent = self.add_counter(METRICS["toolproxy_upstream_requests_total"])
        self._faults = self.add_counter(METRICS["toolproxy_upstream_errors_total"])
        self.resent = self.add_counter(METRICS["toolproxy_upstream_resends_total"])
        self._denied = self.add_counter(METRICS["toolproxy_upstream_resends_denied_total"])
        self._breakers = self._add_gauge("toolproxy_upstream_breaker_state")
        self.breaker_changes = self.add_counter(METRICS["toolproxy_upstream_breaker_changes_total"])
        self._overhead = self.add_histogram(METRICS["toolproxy_overhead_seconds"])
        self._server = self.add_histogram(METRICS["http_server_request_duration_seconds"])
        self._client = self.add_histogram(METRICS["http_client_request_duration_seconds"])

    def add_counter(self, row: MetricRow) -> Counter:
        """Adds a metric."""
        self._shown.append(made := Counter(row))
        return made

    def add_histogram(self, row: MetricRow) -> Histogram:
        """Adds a metric."""
        self._shown.append(made := Histogram(row))
        return made

    def _add_gauge(self, name: str, value: float | None = None) -> Gauge:
        self._shown.append(made := Gauge(METRICS[name]))
        if value is not None:
            made.set(value)
        return made

    # --- what the proxy reports ---------------------------------------------------------------------------------------
    def _set_tools(self, tools: Iterable[Served], digest: str, files_digest: str = "") -> None:
        served = tuple(tools)
        self._forget_kinds()
        self._known = frozenset((tool.route, tool.tool) for tool in served)
        self._tools.read = lambda: {tuple(tool): 1.0 for tool in served}
        self._config.set(1, digest, files_digest)

    def knows(self, route: str, tool: str) -> bool:
        """Returns whether a tool's name is known, and so may be a label value."""
        return (route, tool) in self._known

    def learn_tools(self, route: str, tools: Iterable[str]) -> None:
        """Adds separate series for tools that a route has learned, up to _MOST_LEARNED in all. A too long or
        unprintable name stays `_other`."""
        room = max(0, _MOST_LEARNED - len(self._known))
        self._forget_kinds()
        fit = ((route, tool) for tool in tools if len(tool) <= _LONGEST_LEARNED and tool.isprintable())
        self._known |= frozenset(islice(fit, room))

    def watch(
        self,
        inflight: Callable[[], int],
        draining: Callable[[], bool],
        breakers: Callable[[], Mapping[str, int]],
        lines_dropped: Callable[[], Mapping[str, int]],
    ) -> None:
        """Sets where values are read. `breakers`: 0 closed, 1 half-open, 2 open; `lines_dropped`: by reason."""
        self._inflight.watch(inflight)
        self._draining.watch(draining)
        self._breakers.read = lambda: {(upstream,): state for upstream, state in breakers().items()}
        self._lines_dropped = lines_dropped

    def note_config(self, tools: Iterable[Served], digest: str, wall: float, files_digest: str = "") -> None:
        """Records that another config is served; `wall` is in seconds since the Unix epoch."""
        self._set_tools(tools, digest, files_digest)
        self._reloaded.set(1)
        self._reloaded_at.set(wall)

    def count_reload(self, result: str, restart_needed: int) -> None:
        """Counts one attempt to reload: `success`, `unchanged` or `failure`."""
        self._reloads.series[result,] += 1
        self._reloaded.set(result != "failure")
        self._restart.set(restart_needed)

    # --- scrapes ------------------------------------------------------------------------------------------------------
    def list_shown(self) -> list[Counter | Histogram | Gauge]:
        """Every metric, as a scrape shows it."""
        self.settle()
        self._dropped.series.update(((reason,), float(lines)) for reason, lines in self._lines_dropped().items())
        return self._shown

    # --- finished requests --------------------------------------------------------------------------------------------
    def count_sent(self, upstream: str, status: int, error: str = "") -> None:
        """Counts one request to an upstream: its status, 0 for none, and the fault, if any."""
        self.sent.series[upstream, f"{str(status)[0]}xx" if status else OTHER] += 1
        if error:
            self._faults.series[upstream, error] += 1

    def finished(self, record: CallRecord) -> None:
        """Counts one finished request. Requests of one kind are counted together, before anybody reads a count."""
        stages = record.stages
        key: tuple[object, ...] = (record.call_id != "", (*stages,), *_read_labels(record))
        if record.code or record.violations or record.repairs or record.resends or record.hook_failures:
            found, made = record.violations, [each.rule for each in record.repairs]
            key += (record.code, is_validation_failure(record), *made)
            key += (tuple(record.resends), tuple(record.hook_failures))
            key += (*[each.code.name for each in found], *[each.severity for each in found])
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= _MOST_KINDS:
                self._forget_kinds()
            kind = self._kinds[key] = self._describe(record)
        kind.waiting.append((*stages.values(), record.upstream_seconds, record.ended - record.started))
        self._waiting += 1
        if self._waiting >= _MOST_WAITING:
            self.settle()

    def settle(self) -> Metrics:
        """Counts the requests that wait. Whoever reads a series of requests calls this first."""
        if self._waiting:
            self._waiting = 0
            for kind in self._kinds.values():
                waiting, kind.waiting = kind.waiting, []
                self._add(kind, waiting)
        return self

    def _forget_kinds(self) -> None:
        self.settle()
        self._kinds.clear()

    def _add(self, kind: _Kind, times: Sequence[Times]) -> None:
        if not times:
            return
        for series, labels in kind.counts:
            series[labels] += len(times)
        for timed, values in zip(kind.timed, zip(*times, strict=True), strict=True):
            if timed is not None:
                histogram, labels = timed
                histogram.observe_all(values, labels)

    def _describe(self, record: CallRecord) -> _Kind:
        route = record.route or OTHER
        tool = record.tool if (record.route, record.tool) in self._known else OTHER
        counts: list[tuple[Series, Any]] = [(self.requests.series, (route, tool, record.outcome))]
        if record.call_id:
            counts += self._describe_call(record, route, tool)
        # A report-only route delivers the call and still has a code.
        if record.code and (record.outcome in WRONG or record.code == codes.INTERNAL_ERROR.name):
            code = record.code if record.code in ERROR_CODES else OTHER
            counts.append((self._errors.series, (route, tool, code)))
        counts += [(self._hooks.series, (each.hook, each.point, each.reason)) for each in record.hook_failures]
        client = None
        if upstream := record.upstream:
            status = str(record.upstream_status) if record.upstream_status else ""
            client = (route, upstream, status, record.upstream_error)
            counts.append((self.sent.series, (upstream, f"{status[0]}xx" if status else OTHER)))
            if record.upstream_error:
                counts.append((self._faults.series, (upstream, record.upstream_error)))
            counts += [(self.resent.series, (upstream, reason)) for reason in record.resends]
            if record.resend_denied is not None:
                counts.append((self._denied.series, (upstream, record.resend_denied)))
        method = record.method if record.method in METHODS else OTHER
        status = str(record.status)
        error = record.upstream_error or (status if record.status >= 500 else "")
        stages = [(self._overhead, (stage,)) if stage in OWN_STAGES else None for stage in record.stages]
        server = (self._server, (method, route, status, error))
        return _Kind(counts, [*stages, None if client is None else (self._client, client), server])

    def _describe_call(self, record: CallRecord, route: str, tool: str) -> Iterator[tuple[Series, Any]]:
        yield self._validations.series, (route, tool, find_validation_result(record), record.mode)
        if record.conversation_rung is not None:
            yield self.sources, record.conversation_rung
        for violation in record.violations:
            if violation.severity is codes.ERROR:
                yield self._violations.series, (route, tool, violation.code.name)
            else:
                yield self._warnings.series, (route, tool, violation.code.name, violation.severity.value)
        for repair in record.repairs:
            yield self._repairs.series, (route, tool, repair.rule)
        if record.repairs and any(repair.rule in COERCIONS for repair in record.repairs):
            yield self._coerced.series, (route, tool)
        if record.attempt and "decide" in record.stages:  # a call answered without a decision is not an attempt
            yield self._attempts.series, (route, tool)
            if record.attempt == 1:
                yield self._episodes.series, (route, tool)
        if record.repeated:
            yield self._repeats.series, (route, tool)
        if record.escalated:
            yield self._escalations.series, (route, tool)
        if record.corrected_after:
            yield self._corrected.series, (route, tool, str(min(record.corrected_after, MOST_CORRECTED)))
        if record.code == codes.CALL_CAP_EXCEEDED.name:
            yield self._caps.series, (route, tool)
        if record.answer:
            yield self._answers.series, (route, tool, record.answer)
        if record.container_event:
            yield self._containers.series, (route, tool, record.container_event)


def find_validation_result(record: CallRecord) -> str:
    """The result of the check: a value of the label `outcome` of `toolproxy_validations_total`."""
    if record.would_refuse:
        return "skipped" if record.code == codes.INTERNAL_ERROR.name else "rejected"
    result = _RESULTS.get(record.outcome, "skipped")
    if result == "rejected" and not is_validation_failure(record):
        result = "passed" if record.code in _PASSED else "skipped"
    if result == "passed" and record.repairs:
        return "repaired"
    return "skipped" if result == "passed" and not record.schema_id else result
