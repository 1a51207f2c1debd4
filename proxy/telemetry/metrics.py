"""Prometheus metrics. Names are prefixed `toolproxy_`, units are base units; the two HTTP histograms bear OTel's names.

Label values come from the config and from our own tables alone; whatever a client makes up (a tool's name, a method)
counts as `_other`, so no client can grow the number of series. What each call counts is kept in `tallies.py`, where
that costs a dictionary look-up; prometheus_client reads it when somebody scrapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import prometheus_client
from prometheus_client import CollectorRegistry, Gauge, Info, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from proxy import __version__
from proxy.core.codes import ERROR_CODES
from proxy.interfaces import CallRecord
from proxy.telemetry.tallies import Count, Family, Spread

OTHER: Final = "_other"

# A second series per metric with its time of birth; nobody reads it and it doubles the page.
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# OTel's advice for HTTP durations, stretched to the minutes that tools take.
_DURATIONS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_OVERHEADS: Final = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25)
# The stages that are ours alone; reading a body and streaming an answer wait for others, `total` leaves them out.
_OWN_STAGES: Final = ("decode", "decide", "answer", "total")
_MOST_CORRECTED: Final = 10

# CallRecord.outcome -> what the check said, where there was one.
_VALIDATION: Final = {
    "delivered": "passed",
    "repaired": "repaired",
    "refused": "rejected",
    "tool_error": "passed",
    "upstream_error": "passed",
}

# What counts as failed in `errors`.
_FAILED: Final = frozenset({"refused", "tool_error", "upstream_error"})


class Metrics:
    """Implements `Observer`. `tools` are all (route, tool) pairs of the config, `digest` its hash."""

    def __init__(self, tools: Iterable[tuple[str, str]], digest: str) -> None:
        self.registry = CollectorRegistry()
        self._known = frozenset(tools)
        self._make_calls()
        self._make_wire()
        self._make_process(digest)

    def _make_calls(self) -> None:
        tool = ("route", "tool")
        self._requests = self._counter("requests", "Finished requests.", *tool, "outcome")
        self._validations = self._counter("validations", "Judged calls.", *tool, "outcome", "mode")
        self._violations = self._counter("violations", "Broken schema keywords, by code.", *tool, "code")
        self._repairs = self._counter("repairs", "Repairs made, by rule.", *tool, "rule")
        self._attempts = self._counter("attempts", "Failed calls that raised the attempt.", *tool)
        self._corrected = self._counter("corrected", "Delivered calls, by failed attempts before.", *tool, "attempts")
        self._escalations = self._counter("escalations", "Calls answered with an escalation.", *tool)
        self._repeats = self._counter("repeats", "Byte-identical resends of refused arguments.", *tool)
        self._errors = self._counter("errors", "Failed requests, by error code.", *tool, "code")
        self._containers = self._counter("containers", "What happened around containers.", *tool, "event")

    def _make_wire(self) -> None:
        self._upstream = self._counter("upstream_requests", "Requests sent upstream.", "upstream", "status")
        self._faults = self._counter("upstream_errors", "Upstream faults (RFC 9209 error type).", "upstream", "error")
        self._resends = self._counter("upstream_resends", "Calls sent again, by the reason.", "upstream", "reason")
        self._denied = self._counter(
            "upstream_resends_denied", "Calls not sent again although they might have been.", "upstream", "why"
        )
        self._breakers = Gauge(
            "toolproxy_upstream_breaker_state", "Circuit breakers: 0 closed, 1 half-open, 2 open.", ("upstream",),
            registry=self.registry,
        )  # fmt: skip
        self._breaker_states: Callable[[], Mapping[str, int]] = dict
        self._overhead = self._histogram(
            "toolproxy_overhead_seconds", "Time spent in this proxy alone.", _OVERHEADS,
            "stage",
        )  # fmt: skip
        self._server = self._histogram(
            "http_server_request_duration_seconds", "Requests, from head to answer.", _DURATIONS,
            "http_request_method", "http_route", "http_response_status_code", "error_type",
        )  # fmt: skip
        self._client = self._histogram(
            "http_client_request_duration_seconds", "Requests to upstreams.", _DURATIONS,
            "http_route", "server_address", "http_response_status_code", "error_type",
        )  # fmt: skip

    def _make_process(self, digest: str) -> None:
        self._inflight = Gauge("toolproxy_inflight_requests", "Requests under way.", registry=self.registry)
        self._draining = Gauge("toolproxy_draining", "1 while the proxy drains.", registry=self.registry)
        self._state_up = Gauge(
            "toolproxy_state_backend_up", "1 while the state backend is in use, 0 while its stand-in is.",
            registry=self.registry,
        )  # fmt: skip
        self._state_up.set(1)
        Info("toolproxy_build", "What is running.", registry=self.registry).info({"version": __version__})
        self._config = Info("toolproxy_config", "The config being served.", registry=self.registry)
        self._config.info({"hash": digest})
        self._reloads = self._counter("config_reloads", "Attempts to take over a changed config.", "result")
        self._reloaded = Gauge(
            "toolproxy_config_last_reload_successful", "1 while what is served is what the files say.",
            registry=self.registry,
        )  # fmt: skip
        self._reloaded_at = Gauge(
            "toolproxy_config_last_reload_success_timestamp_seconds", "When the config being served was loaded.",
            registry=self.registry,
        )  # fmt: skip
        self._restart = Gauge(
            "toolproxy_config_restart_needed", "Changed sections that only a restart takes over.",
            registry=self.registry,
        )  # fmt: skip
        prometheus_client.ProcessCollector(registry=self.registry)

    def _counter(self, name: str, meaning: str, *labels: str) -> Family[Count]:
        family = Family(f"toolproxy_{name}_total", meaning, labels, Count)
        self.registry.register(_Counters(family))
        return family

    def _histogram(self, name: str, meaning: str, bounds: tuple[float, ...], *labels: str) -> Family[Spread]:
        family = Family(name, meaning, labels, lambda: Spread(bounds))
        self.registry.register(_Histograms(family, bounds))
        return family

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

    def loaded(self, tools: Iterable[tuple[str, str]], digest: str, wall: float) -> None:
        """Another config is served from here on; `wall` in seconds since the Unix epoch."""
        self._known = frozenset(tools)
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

    def page(self) -> tuple[str, bytes]:
        """Content type and text of `/metrics`."""
        self._breakers.clear()  # a reload takes upstreams away
        for upstream, state in self._breaker_states().items():
            self._breakers.labels(upstream).set(state)
        return prometheus_client.CONTENT_TYPE_LATEST, generate_latest(self.registry)

    def finished(self, record: CallRecord) -> None:
        """Counts one finished request."""
        route = record.route or OTHER
        tool = record.tool if (record.route, record.tool) in self._known else OTHER
        self._requests.of(route, tool, record.outcome).inc()
        if record.call_id:
            self._judged(record, route, tool)
        if record.code and record.outcome in _FAILED:  # a report-only route delivers what it would have refused
            code = record.code if record.code in ERROR_CODES else OTHER
            self._errors.of(route, tool, code).inc()
        self._timed(record, route)
        if record.upstream:
            self._sent(record, route)

    def _judged(self, record: CallRecord, route: str, tool: str) -> None:
        outcome = _VALIDATION.get(record.outcome, "skipped")
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
        if record.repeated:
            self._repeats.of(route, tool).inc()
        if record.escalated:
            self._escalations.of(route, tool).inc()
        if record.corrected_after:
            self._corrected.of(route, tool, str(min(record.corrected_after, _MOST_CORRECTED))).inc()
        if record.container_event:
            self._containers.of(route, tool, record.container_event).inc()

    def _timed(self, record: CallRecord, route: str) -> None:
        for stage in _OWN_STAGES:
            if (seconds := record.stages.get(stage)) is not None:
                self._overhead.of(stage).observe(seconds)
        method = record.method if record.method in _METHODS else OTHER
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
