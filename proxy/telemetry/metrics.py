"""Prometheus metrics, as `catalogue.py` describes them. What each call counts is kept in `tallies.py`, where that costs
a dictionary look-up; `exposition.py` shows it when somebody scrapes.

Label values come from the config and from our own tables alone; whatever a client makes up (a tool's name, a method)
counts as `_other`, so no client can grow the number of series.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

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
from proxy.telemetry.exposition import exposition, loaded
from proxy.telemetry.kinds import PREPARED, WRONG, Told, nothing_waits
from proxy.telemetry.tallies import Count, Family, Gauge, S, Spread, Tally

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
        self._families: list[Family[Any]] = []
        self.settle: Callable[[], None] = nothing_waits
        self._make_calls()
        self._make_wire()
        self._make_process()
        self._know(tools, digest)

    def _know(self, tools: Iterable[Served], digest: str) -> None:
        served = tuple(tools)
        self.known = frozenset((tool.route, tool.tool) for tool in served)
        self._tools.series = {tuple(tool): Gauge(1) for tool in served}
        self._config.series = {(digest,): Gauge(1)}

    def learned(self, route: str, tools: Iterable[str]) -> None:
        """Tools that a route has learned of: they are told apart from here on, the first thousands of them. A name that
        no label should hold, because it is too long or means something to a terminal, stays `_other`."""
        self.settle()
        room = max(0, _MOST_LEARNED - len(self.known))
        fit = ((route, tool) for tool in tools if len(tool) <= _LONGEST_LEARNED and tool.isprintable())
        self.known |= frozenset(islice(fit, room))

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
        self._own = tuple((stage, Spread(_OVERHEADS)) for stage in OWN_STAGES)
        self._server = self._histogram("http_server_request_duration_seconds", _DURATIONS)
        self._client = self._histogram("http_client_request_duration_seconds", _DURATIONS)

    def _make_process(self) -> None:
        self._inflight = self._gauge("toolproxy_inflight_requests").of()
        self._draining = self._gauge("toolproxy_draining").of()
        self._state_up = self._gauge("toolproxy_state_backend_up").of()
        self._state_up.set(1)
        self._lag = self._histogram("toolproxy_event_loop_lag_seconds", _LAGS).of()
        self._spans = self._counter("toolproxy_spans_total")
        self._gauge("toolproxy_build_info").of(__version__).set(1)
        self._config = self._gauge("toolproxy_config_info")
        self._tools = self._gauge("toolproxy_tool_info")
        self._reloads = self._counter("toolproxy_config_reloads_total")
        self._reloaded = self._gauge("toolproxy_config_last_reload_successful").of()
        self._reloaded_at = self._gauge("toolproxy_config_last_reload_success_timestamp_seconds").of()
        self._restart = self._gauge("toolproxy_config_restart_needed").of()

    def _counter(self, name: str) -> Family[Count]:
        return self._family(name, Count)

    def _histogram(self, name: str, bounds: tuple[float, ...]) -> Family[Spread]:
        return self._family(name, lambda: Spread(bounds))

    def _gauge(self, name: str) -> Family[Gauge]:
        return self._family(name, Gauge)

    def _family(self, name: str, make: Callable[[], S]) -> Family[S]:
        family = Family(name, CATALOGUE[name].meaning, CATALOGUE[name].labels, make)
        self._families.append(family)
        return family

    def watch(
        self,
        inflight: Callable[[], int],
        draining: Callable[[], bool],
        breakers: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        """Where the gauges look when they are read. `breakers`: upstream -> 0 closed, 1 half-open, 2 open."""
        self._breaker_states = breakers
        self._inflight.read = inflight
        self._draining.read = draining

    def loaded(self, tools: Iterable[Served], digest: str, wall: float) -> None:
        """Another config is served from here on; `wall` in seconds since the Unix epoch."""
        self.settle()
        self._know(tools, digest)
        self._reloaded.set(1)
        self._reloaded_at.set(wall)

    def reloaded(self, result: str, restart_needed: int) -> None:
        """Counts one attempt to reload: `success`, `unchanged` or `failure`."""
        self._reloads.of(result).inc()
        self._reloaded.set(result != "failure")
        self._restart.set(restart_needed)

    def watch_state(self, up: Callable[[], bool]) -> None:
        """Where the gauge of the state backend looks when it is read."""
        self._state_up.read = up

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
        return (route, tool) in self.known

    async def prepare_page(self) -> None:
        """Returns when `page` has all it needs at hand."""
        await loaded()

    def page(self) -> tuple[str, bytes]:
        """Content type and text of `/metrics`."""
        self.settle()
        self._overhead.series = {(stage,): spread for stage, spread in self._own if any(spread.buckets)}
        # A reload takes upstreams away.
        self._breakers.series = {(upstream,): Gauge(state) for upstream, state in self._breaker_states().items()}
        return exposition(self._families)

    def finished(self, record: CallRecord) -> None:
        """Counts one finished request."""
        self.told([(None, record, 0.0, PREPARED)])

    def told(self, requests: Sequence[Told]) -> None:
        """Counts finished requests. The tally of a kind holds as long as `known` is what it was."""
        own = self._own
        for kind, record, _, _ in requests:
            if kind is None:
                tally = self.tally(record)
                self._timed_questions(record)
            else:
                tally = kind.tally
            for count in tally.counts:
                count.value += 1.0
            stages = record.stages
            for stage, spread in own:
                if (seconds := stages.get(stage)) is not None:
                    spread.observe(seconds)
            tally.server.observe(record.ended - record.started)
            if tally.client is not None:
                tally.client.observe(record.upstream_seconds)

    def tally(self, record: CallRecord) -> Tally:
        """The series in which a request counts."""
        route = record.route or OTHER
        counts = (*self._finished(record, route), *self._sent(record))
        return Tally(counts, self._server_of(record, route), self._client_of(record, route))

    def _finished(self, record: CallRecord, route: str) -> Iterator[Count]:
        tool = record.tool if self.knows(record.route, record.tool) else OTHER
        yield self._requests.of(route, tool, record.outcome)
        if record.call_id:
            yield from self._judged(record, route, tool)
        if record.code and record.outcome in WRONG:  # a report-only route delivers what it would have refused
            yield self._errors.of(route, tool, record.code if record.code in ERROR_CODES else OTHER)
        for failed in record.hook_failures:
            yield self._hooks.of(failed.hook, failed.point, failed.reason)

    def _judged(self, record: CallRecord, route: str, tool: str) -> Iterator[Count]:
        capped = record.code == CALL_CAP_EXCEEDED.name
        outcome = "passed" if capped else _VALIDATION.get(record.outcome, "skipped")
        if record.would_refuse:
            outcome = "rejected"
        elif record.repairs:
            outcome = "repaired" if outcome == "passed" else outcome
        elif not record.schema_id and outcome == "passed":
            outcome = "skipped"
        yield self._validations.of(route, tool, outcome, record.mode)
        for violation in record.violations:
            yield self._violations.of(route, tool, violation.code.name)
        for repair in record.repairs:
            yield self._repairs.of(route, tool, repair.rule)
        if record.attempt and not record.repeated:
            yield self._attempts.of(route, tool)
            if record.attempt == 1:
                yield self._episodes.of(route, tool)
        if capped:
            yield self._caps.of(route, tool)
        for event in record.events:
            if event.name in _COUNTED:
                yield self._corrections.of(route, tool, event.name)
        for asked in record.questions:
            independent = "true" if asked.independent else "false"
            yield self._questions.of(route, tool, asked.layer, asked.outcome, independent)
        if record.repeated:
            yield self._repeats.of(route, tool)
        if record.escalated:
            yield self._escalations.of(route, tool)
        if record.corrected_after:
            yield self._corrected.of(route, tool, str(min(record.corrected_after, MOST_CORRECTED)))
        if record.answer:
            yield self._answers.of(route, tool, record.answer)
        if record.container_event:
            yield self._containers.of(route, tool, record.container_event)

    def _timed_questions(self, record: CallRecord) -> None:
        for asked in record.questions if record.call_id else ():
            if asked.seconds:  # else it was not asked
                self._asking.of(asked.layer).observe(asked.seconds)

    def _sent(self, record: CallRecord) -> Iterator[Count]:
        upstream, status = record.upstream, record.upstream_status
        if not upstream:
            return
        yield self._upstream.of(upstream, f"{str(status)[:1]}xx" if status else OTHER)
        if record.upstream_error:
            yield self._faults.of(upstream, record.upstream_error)
        for reason in record.resends:
            yield self._resends.of(upstream, reason)
        if record.resend_denied is not None:
            yield self._denied.of(upstream, record.resend_denied)

    def _server_of(self, record: CallRecord, route: str) -> Spread:
        method = record.method if record.method in METHODS else OTHER
        status = str(record.status)
        return self._server.of(method, route, status, record.upstream_error or (status if record.status >= 500 else ""))

    def _client_of(self, record: CallRecord, route: str) -> Spread | None:
        if not record.upstream:
            return None
        status = str(record.upstream_status) if record.upstream_status else ""
        return self._client.of(route, record.upstream, status, record.upstream_error)
