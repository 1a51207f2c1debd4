"""Prometheus metrics, as `catalogue.py` describes them. What each call counts is kept in `tallies.py`, where that costs
a dictionary look-up; prometheus_client reads it when somebody scrapes.

Label values come from the config and from our own tables alone; whatever a client makes up (a tool's name, a method)
counts as `_other`, so no client can grow the number of series.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Final, NamedTuple

import prometheus_client
from prometheus_client import CollectorRegistry, Gauge, Info, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from proxy import __version__
from proxy.core.codes import CALL_CAP_EXCEEDED, ERROR_CODES
from proxy.interfaces import CallRecord
from proxy.telemetry.catalogue import (
    CATALOGUE,
    CORRECTION_EVENTS,
    METHODS,
    MOST_CORRECTED,
    OTHER,
    OWN_STAGES,
    SPAN_RESULTS,
)
from proxy.telemetry.tallies import Count, Family, Spread

# A second series per metric with its time of birth; nobody reads it and it doubles the page.
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]

# OTel's advice for HTTP durations, stretched to the minutes that tools take.
_DURATIONS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_OVERHEADS: Final = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25)
# A timer is a millisecond late on a quiet machine; a second is what stops a liveness probe.
_LAGS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)

# A model takes seconds.
_ASKED: Final = (0.1, 0.25, 0.5, 1, 2, 3, 5, 7.5, 10, 15, 20, 30, 60)

# CallRecord.outcome -> what the check said, where there was one.
_VALIDATION: Final = {
    "delivered": "passed",
    "repaired": "repaired",
    "corrected": "passed",  # the call that was sent has
    "refused": "rejected",
    "tool_error": "passed",
    "upstream_error": "passed",
}

_COUNTED: Final = frozenset(CORRECTION_EVENTS)
# What counts as failed in `errors`.
_FAILED: Final = frozenset({"refused", "tool_error", "upstream_error"})


# (route, tool) pairs that get series of their own where upstreams say which tools there are.
_MOST_LEARNED: Final = 5_000
# The longest name that an MCP server should give a tool (specification, "Tool Names").
_LONGEST_LEARNED: Final = 128


class Served(NamedTuple):
    """A tool of the config being served, as `toolproxy_tool_info` shows it."""

    route: str
    tool: str
    kind: str = "call"
    mode: str = "enforce"
    schema_id: str = ""


class Metrics:
    """Implements `Observer`. `tools` are all tools of the config, `digest` its hash."""

    def __init__(self, tools: Iterable[Served], digest: str) -> None:
        self.registry = CollectorRegistry()
        self._know(tools)
        self._make_calls()
        self._make_wire()
        self._make_process()
        self._config.info({"hash": digest})

    def _know(self, tools: Iterable[Served]) -> None:
        self._served = tuple(tools)
        self._known = {(tool.route, tool.tool) for tool in self._served}

    def learned(self, route: str, tools: Iterable[str]) -> None:
        """Tools that a route has learned of: they are told apart from here on, the first thousands of them. A name that
        no label should hold, because it is too long or means something to a terminal, stays `_other`."""
        room = max(0, _MOST_LEARNED - len(self._known))
        fit = ((route, tool) for tool in tools if len(tool) <= _LONGEST_LEARNED and tool.isprintable())
        self._known.update(islice(fit, room))

    def _make_calls(self) -> None:
        self._requests = self._counter("toolproxy_requests_total")
        self._validations = self._counter("toolproxy_validations_total")
        self._violations = self._counter("toolproxy_violations_total")
        self._repairs = self._counter("toolproxy_repairs_total")
        self._episodes = self._counter("toolproxy_episodes_total")
        self._attempts = self._counter("toolproxy_attempts_total")
        self._corrected = self._counter("toolproxy_corrected_total")
        self._escalations = self._counter("toolproxy_escalations_total")
        self._repeats = self._counter("toolproxy_repeats_total")
        self._errors = self._counter("toolproxy_errors_total")
        self._caps = self._counter("toolproxy_caps_exceeded_total")
        self._containers = self._counter("toolproxy_containers_total")
        self._corrections = self._counter("toolproxy_corrections_total")
        self._questions = self._counter("toolproxy_correction_questions_total")
        self._asking = self._histogram("toolproxy_correction_seconds", _ASKED)
        self._answers = self._counter("toolproxy_answers_total")
        self._hooks = self._counter("toolproxy_hook_failures_total")

    def _make_wire(self) -> None:
        self._upstream = self._counter("toolproxy_upstream_requests_total")
        self._faults = self._counter("toolproxy_upstream_errors_total")
        self._resends = self._counter("toolproxy_upstream_resends_total")
        self._denied = self._counter("toolproxy_upstream_resends_denied_total")
        self._breakers = self._gauge("toolproxy_upstream_breaker_state")
        self._breaker_changes = self._counter("toolproxy_upstream_breaker_changes_total")
        self._breaker_states: Callable[[], Mapping[str, int]] = dict
        self._overhead = self._histogram("toolproxy_overhead_seconds", _OVERHEADS)
        self._server = self._histogram("http_server_request_duration_seconds", _DURATIONS)
        self._client = self._histogram("http_client_request_duration_seconds", _DURATIONS)

    def _make_process(self) -> None:
        self._inflight = self._gauge("toolproxy_inflight_requests")
        self._draining = self._gauge("toolproxy_draining")
        self._state_up = self._gauge("toolproxy_state_backend_up")
        self._state_up.set(1)
        self._lag = self._histogram("toolproxy_event_loop_lag_seconds", _LAGS).of()
        self._spans = self._counter("toolproxy_spans_total")
        self._info("toolproxy_build_info").info({"version": __version__})
        self._config = self._info("toolproxy_config_info")
        self.registry.register(_Infos("toolproxy_tool_info", lambda: self._served))
        self._reloads = self._counter("toolproxy_config_reloads_total")
        self._reloaded = self._gauge("toolproxy_config_last_reload_successful")
        self._reloaded_at = self._gauge("toolproxy_config_last_reload_success_timestamp_seconds")
        self._restart = self._gauge("toolproxy_config_restart_needed")
        prometheus_client.ProcessCollector(registry=self.registry)

    def _counter(self, name: str) -> Family[Count]:
        family = Family(name, CATALOGUE[name].meaning, CATALOGUE[name].labels, Count)
        self.registry.register(_Counters(family))
        return family

    def _histogram(self, name: str, bounds: tuple[float, ...]) -> Family[Spread]:
        family = Family(name, CATALOGUE[name].meaning, CATALOGUE[name].labels, lambda: Spread(bounds))
        self.registry.register(_Histograms(family, bounds))
        return family

    def _gauge(self, name: str) -> Gauge:
        return Gauge(name, CATALOGUE[name].meaning, CATALOGUE[name].labels, registry=self.registry)

    def _info(self, name: str) -> Info:
        return Info(name.removesuffix("_info"), CATALOGUE[name].meaning, registry=self.registry)

    def watch(
        self,
        inflight: Callable[[], int],
        draining: Callable[[], bool],
        breakers: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        """Where the gauges look when they are read. `breakers`: upstream -> 0 closed, 1 half-open, 2 open."""
        self._breaker_states = breakers
        self._inflight.set_function(inflight)
        self._draining.set_function(draining)

    def loaded(self, tools: Iterable[Served], digest: str, wall: float) -> None:
        """Another config is served from here on; `wall` in seconds since the Unix epoch."""
        self._know(tools)
        self._config.info({"hash": digest})
        self._reloaded.set(1)
        self._reloaded_at.set(wall)

    def reloaded(self, result: str, restart_needed: int) -> None:
        """Counts one attempt to reload: `success`, `unchanged` or `failure`."""
        self._reloads.of(result).inc()
        self._reloaded.set(result != "failure")
        self._restart.set(restart_needed)

    def watch_state(self, up: Callable[[], bool]) -> None:
        """Where the gauge of the state backend looks when it is read."""
        self._state_up.set_function(up)

    def lagged(self, seconds: float) -> None:
        """Takes down how late the event loop came to a timer."""
        self._lag.observe(seconds)

    def spans(self) -> Mapping[str, Count]:
        """The counts of finished spans, by SPAN_RESULTS. Each is to be counted up by one thread alone."""
        return {result: self._spans.of(result) for result in SPAN_RESULTS}

    def breaker_changed(self, upstream: str, state: str) -> None:
        """Counts a circuit breaker that came into another state."""
        self._breaker_changes.of(upstream, state).inc()

    def knows(self, route: str, tool: str) -> bool:
        """Whether a tool's name is one of ours, and so one of few."""
        return (route, tool) in self._known

    def page(self) -> tuple[str, bytes]:
        """Content type and text of `/metrics`."""
        self._breakers.clear()  # a reload takes upstreams away
        for upstream, state in self._breaker_states().items():
            self._breakers.labels(upstream).set(state)
        return prometheus_client.CONTENT_TYPE_LATEST, generate_latest(self.registry)

    def finished(self, record: CallRecord) -> None:
        """Counts one finished request."""
        route = record.route or OTHER
        tool = record.tool if self.knows(record.route, record.tool) else OTHER
        self._requests.of(route, tool, record.outcome).inc()
        if record.call_id:
            self._judged(record, route, tool)
        if record.code and record.outcome in _FAILED:  # a report-only route delivers what it would have refused
            self._errors.of(route, tool, record.code if record.code in ERROR_CODES else OTHER).inc()
        for failed in record.hook_failures:
            self._hooks.of(failed.hook, failed.point, failed.reason).inc()
        self._timed(record, route)
        if record.upstream:
            self._sent(record, route)

    def _judged(self, record: CallRecord, route: str, tool: str) -> None:
        capped = record.code == CALL_CAP_EXCEEDED.name
        outcome = "passed" if capped else _VALIDATION.get(record.outcome, "skipped")
        if record.would_refuse:
            outcome = "rejected"
        elif record.repairs:
            outcome = "repaired" if outcome == "passed" else outcome
        elif not record.schema_id and outcome == "passed":
            outcome = "skipped"
        self._validations.of(route, tool, outcome, record.mode).inc()
        for violation in record.violations:
            self._violations.of(route, tool, violation.code.name).inc()
        for repair in record.repairs:
            self._repairs.of(route, tool, repair.rule).inc()
        if record.attempt and not record.repeated:
            self._attempts.of(route, tool).inc()
            if record.attempt == 1:
                self._episodes.of(route, tool).inc()
        if capped:
            self._caps.of(route, tool).inc()
        for event in record.events:
            if event.name in _COUNTED:
                self._corrections.of(route, tool, event.name).inc()
        for asked in record.questions:
            independent = "true" if asked.independent else "false"
            self._questions.of(route, tool, asked.layer, asked.outcome, independent).inc()
            if asked.seconds:  # else it was not asked
                self._asking.of(asked.layer).observe(asked.seconds)
        if record.repeated:
            self._repeats.of(route, tool).inc()
        if record.escalated:
            self._escalations.of(route, tool).inc()
        if record.corrected_after:
            self._corrected.of(route, tool, str(min(record.corrected_after, MOST_CORRECTED))).inc()
        if record.answer:
            self._answers.of(route, tool, record.answer).inc()
        if record.container_event:
            self._containers.of(route, tool, record.container_event).inc()

    def _timed(self, record: CallRecord, route: str) -> None:
        for stage in OWN_STAGES:
            if (seconds := record.stages.get(stage)) is not None:
                self._overhead.of(stage).observe(seconds)
        method = record.method if record.method in METHODS else OTHER
        error = record.upstream_error or (str(record.status) if record.status >= 500 else "")
        child = self._server.of(method, route, str(record.status), error)
        child.observe(record.ended - record.started)

    def _sent(self, record: CallRecord, route: str) -> None:
        status = str(record.upstream_status) if record.upstream_status else ""
        self._upstream.of(record.upstream, f"{status[:1]}xx" if status else OTHER).inc()
        if record.upstream_error:
            self._faults.of(record.upstream, record.upstream_error).inc()
        for reason in record.resends:
            self._resends.of(record.upstream, reason).inc()
        if record.resend_denied is not None:
            self._denied.of(record.upstream, record.resend_denied).inc()
        child = self._client.of(route, record.upstream, status, record.upstream_error)
        child.observe(record.upstream_seconds)


class _Counters(Collector):
    """Shows a family of counters to whoever scrapes."""

    def __init__(self, family: Family[Count]) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        family = self._family
        shown = CounterMetricFamily(family.name, family.meaning, labels=family.labels)
        for labels, count in family.series.items():
            shown.add_metric(labels, count.value)
        yield shown


class _Histograms(Collector):
    """Shows a family of histograms to whoever scrapes."""

    def __init__(self, family: Family[Spread], bounds: tuple[float, ...]) -> None:
        self._family = family
        self._bounds = [*map(floatToGoString, bounds), "+Inf"]

    def collect(self) -> Iterable[Metric]:
        family = self._family
        shown = HistogramMetricFamily(family.name, family.meaning, labels=family.labels)
        for labels, spread in family.series.items():
            shown.add_metric(labels, list(zip(self._bounds, spread.cumulative(), strict=True)), spread.total)
        yield shown


class _Infos(Collector):
    """Shows the tools of the config to whoever scrapes."""

    def __init__(self, name: str, served: Callable[[], Iterable[Served]]) -> None:
        self._described = CATALOGUE[name]
        self._served = served

    def collect(self) -> Iterable[Metric]:
        described = self._described
        shown = InfoMetricFamily(described.name.removesuffix("_info"), described.meaning, labels=())
        for tool in self._served():
            shown.add_metric((), tool._asdict())
        yield shown
