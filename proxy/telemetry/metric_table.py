"""The table of all metrics: name, kind, labels and meaning. `metrics.py` and docs/reference/metrics.md come from it;
tests compare the dashboard and the alerts with it.

All label values come from the config or from our own tables (`LABELS` says which). A client's own texts, conversations,
paths and argument values are never label values. The exceptions are the names of models and tools that requests to a
model server carry: the first few of each (`chat/server/model_metrics.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final, Literal

from proxy.core.contract.container import EVENTS
from proxy.core.model.codes import ERROR_CODES, VIOLATION_CODES, Severity
from proxy.core.model.value_class import value_class
from proxy.core.rules.rules import HOOK, RULES
from proxy.core.tool_errors.backoff import Reason, ResendDenied
from proxy.core.tool_errors.circuit_breaker import CALLED
from proxy.telemetry.writer import DROP_REASONS

# Replaces every text that the config and our tables do not know: a tool's name, a method, a tool's own error code.
OTHER: Final = "_other"

# The stages of the proxy's own work. Reading a body and streaming an answer wait for others, so `total` omits them.
OWN_STAGES: Final = ("decode", "decide", "answer", "total")
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
# Larger values of `corrected` share one label value.
MOST_CORRECTED: Final = 10
# The points at which hooks run, and the ways one can fail (docs/hooks.md).
HOOK_POINTS: Final = ("before_decision", "after_decision", "before_forward", "after_answer", "after_outcome")
HOOK_REASONS: Final = ("timeout", "exception", "cancelled", "wrong_answer", "wrong_header")
# All error types of RFC 9209 section 2.3.
PROXY_ERRORS: Final = (
    "dns_timeout", "dns_error", "destination_not_found", "destination_unavailable", "destination_ip_prohibited",
    "destination_ip_unroutable", "connection_refused", "connection_terminated", "connection_timeout",
    "connection_read_timeout", "connection_write_timeout", "connection_limit_reached", "tls_protocol_error",
    "tls_certificate_error", "tls_alert_received", "http_request_error", "http_request_denied",
    "http_response_incomplete", "http_response_header_section_size", "http_response_header_size",
    "http_response_body_size", "http_response_trailer_section_size", "http_response_trailer_size",
    "http_response_transfer_coding", "http_response_content_coding", "http_response_timeout", "http_upgrade_failed",
    "http_protocol_error", "proxy_internal_response", "proxy_internal_error", "proxy_configuration_error",
    "proxy_loop_detected",
)  # fmt: skip
OUTCOMES: Final = (
    "delivered", "repaired", "corrected", "answered", "refused", "tool_error", "withheld", "upstream_error",
    "passthrough", "client_gone",
)  # fmt: skip
# Outcomes that operators look into.
WRONG: Final = frozenset({"refused", "tool_error", "withheld", "upstream_error"})

# The bounds that OTel recommends for HTTP durations, extended to the minutes that tools take.
_DURATIONS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_OVERHEADS: Final = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25)
# A timer is a millisecond late on a quiet machine; a second of lag fails a liveness probe.
_LAGS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)

Kind = Literal["counter", "gauge", "histogram", "info"]

_CALL: Final = ("route", "tool")


@value_class
class Label:
    """The meaning of a label. `values` are all it can have, or () where they come from the config."""

    meaning: str
    values: tuple[str, ...] = ()


@value_class
class MetricRow:
    """One metric. `name` is that of its series (a histogram's without `_bucket`). `own` describes labels that mean
    something else here than in `LABELS`. `bounds` are those of a histogram's buckets, in ascending order."""

    name: str
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()
    own: Mapping[str, Label] = field(default_factory=dict)
    bounds: tuple[float, ...] = ()

    def label(self, name: str) -> Label:
        """The meaning of one of its labels."""
        return self.own.get(name) or LABELS[name]


LABELS: Final[Mapping[str, Label]] = {
    "route": Label("The route's name; `_other` for a request that has none."),
    "tool": Label("The tool's name; `_other` for one that the config does not know."),
    "upstream": Label("The upstream's name."),
    "outcome": Label("The outcome of the request.", OUTCOMES),
    "mode": Label("The route enforces or only reports.", ("enforce", "report")),
    "code": Label("The error code ([codes.md](codes.md)); `_other` for one of a tool's own.", (*ERROR_CODES, OTHER)),
    "rule": Label("The repair rule ([rules.md](rules.md)); `hook`: a hook did it.", (*RULES, HOOK)),
    "attempts": Label(
        f"Failed attempts before; {MOST_CORRECTED} means that many or more.",
        tuple(map(str, range(1, MOST_CORRECTED + 1))),
    ),
    "event": Label("The event.", EVENTS),
    "status": Label(
        "The class of the upstream's status; `_other` where no answer came.", ("1xx", "2xx", "3xx", "4xx", "5xx", OTHER)
    ),
    "hook": Label("The hook, as the config names it (`use`)."),
    "point": Label("The point of the call.", HOOK_POINTS),
    "error": Label("The fault, as a proxy error type of RFC 9209.", PROXY_ERRORS),
    "reason": Label("The reason for the resend ([upstream.md](upstream.md)).", tuple(Reason)),
    "why": Label("The limit that denied it.", tuple(ResendDenied)),
    "stage": Label("The part of the proxy's own work; `total` is all of it.", OWN_STAGES),
    "result": Label("The result.", ("success", "unchanged", "failure")),
    "version": Label("The version of this software."),
    "hash": Label("The hash over the config and all its files."),
    "files_hash": Label("The same over the files in the config's folder, without secrets."),
    "schema_id": Label("The fingerprint of the tool's schema; empty if it has none."),
    "kind": Label(
        "`call` forwards, `validate` answers the checked arguments itself (structured-output finalisation).",
        ("call", "validate"),
    ),
    "http_request_method": Label("The method.", (*METHODS, OTHER)),
    "http_route": Label("The route's name, as in `route`."),
    "http_response_status_code": Label("The status code; empty where no answer came."),
    "error_type": Label("The fault or the status code from 500 on; empty where all went well."),
    "server_address": Label("The upstream's name."),
}

_VIOLATION: Final = Label("The violation's code ([codes.md](codes.md)).", tuple(VIOLATION_CODES))

_TABLE: Final = (
    MetricRow("toolproxy_requests_total", "counter", "Finished requests.", (*_CALL, "outcome")),
    MetricRow("toolproxy_validations_total", "counter", "Judged calls.", (*_CALL, "outcome", "mode"),
              {"outcome": Label("The result of validation; `skipped` if there is no schema.",
                                ("passed", "repaired", "rejected", "skipped"))}),
    MetricRow("toolproxy_violations_total", "counter", "Broken schema keywords, by code.", (*_CALL, "code"),
              {"code": _VIOLATION}),
    MetricRow("toolproxy_warnings_total", "counter", "Violations that block nothing, by code and severity.",
              (*_CALL, "code", "severity"),
              {"code": _VIOLATION,
               "severity": Label("The severity ([codes.md](codes.md)).", (Severity.WARNING, Severity.INFO))}),
    MetricRow("toolproxy_repairs_total", "counter", "Repairs made, by rule.", (*_CALL, "rule")),
    MetricRow("toolproxy_coerced_calls_total", "counter",
              "Calls of which at least one value was converted to another JSON type.", _CALL),
    MetricRow("toolproxy_episodes_total", "counter", "Calls that failed for the first time, to be corrected.", _CALL),
    MetricRow("toolproxy_attempts_total", "counter", "Failed calls that raised the attempt.", _CALL),
    MetricRow("toolproxy_corrected_total", "counter", "Delivered calls, by failed attempts before.",
              (*_CALL, "attempts")),
    MetricRow("toolproxy_escalations_total", "counter", "Escalations, each counted once.", _CALL),
    MetricRow("toolproxy_repeats_total", "counter", "Byte-identical resends of refused arguments.", _CALL),
    MetricRow("toolproxy_errors_total", "counter", "Failed requests, by error code.", (*_CALL, "code")),
    MetricRow("toolproxy_caps_exceeded_total", "counter", "Calls refused because their call cap was used up.", _CALL),
    MetricRow("toolproxy_containers_total", "counter", "Events of containers.", (*_CALL, "event")),
    MetricRow("toolproxy_answers_total", "counter", "Tools' answers held against their `response_schema`.",
              (*_CALL, "outcome"),
              {"outcome": Label("The result of the check; `unread`: no whole JSON; `broken`: forwarded all the same.",
                                ("passed", "broken", "refused", "unread"))}),
    MetricRow("toolproxy_unpinned_tools_total", "counter",
              "Definitions of listed tools and HTTP operations that are not those of `pins` "
              "([access.md](access.md)), each counted once.",
              _CALL),
    MetricRow("toolproxy_hook_failures_total", "counter", "Hooks that failed ([hooks.md](hooks.md)).",
              ("hook", "point", "reason"), {"reason": Label("The kind of failure.", HOOK_REASONS)}),
    MetricRow("toolproxy_upstream_requests_total", "counter", "Requests sent upstream.", ("upstream", "status")),
    MetricRow("toolproxy_upstream_errors_total", "counter", "Upstream faults.", ("upstream", "error")),
    MetricRow("toolproxy_upstream_resends_total", "counter", "Calls sent again.", ("upstream", "reason")),
    MetricRow("toolproxy_upstream_resends_denied_total", "counter",
              "Calls not sent again although they might have been.", ("upstream", "why")),
    MetricRow("toolproxy_upstream_breaker_state", "gauge", "Circuit breakers: 0 closed, 1 half-open, 2 open.",
              ("upstream",)),
    MetricRow("toolproxy_upstream_breaker_changes_total", "counter", "Changes of state of circuit breakers.",
              ("upstream", "state"),
              {"state": Label("The state it came into.", tuple(CALLED.values()))}),
    MetricRow("toolproxy_overhead_seconds", "histogram", "Time spent only in this proxy.", ("stage",),
              bounds=_OVERHEADS),
    MetricRow("http_server_request_duration_seconds", "histogram", "Requests, from head to answer (OTel's name).",
              ("http_request_method", "http_route", "http_response_status_code", "error_type"), bounds=_DURATIONS),
    MetricRow("http_client_request_duration_seconds", "histogram", "Requests to upstreams (OTel's name).",
              ("http_route", "server_address", "http_response_status_code", "error_type"), bounds=_DURATIONS),
    MetricRow("toolproxy_inflight_requests", "gauge", "Requests under way."),
    MetricRow("toolproxy_draining", "gauge", "1 while the proxy drains."),
    MetricRow("toolproxy_state_backend_up", "gauge", "1 while the state backend is in use, 0 while its substitute is."),
    MetricRow("toolproxy_event_loop_lag_seconds", "histogram",
              "How late the event loop came to a timer, looked at twice a second.", bounds=_LAGS),
    MetricRow("toolproxy_log_lines_dropped_total", "counter", "Lines that the log lost.", ("reason",),
              {"reason": Label("`queue_full`: nobody reads the log, or too slowly; `write_failed`: it cannot be "
                               "written (full disk, closed pipe).", DROP_REASONS)}),
    MetricRow("toolproxy_build_info", "info", "The running version.", ("version",)),
    MetricRow("toolproxy_tool_info", "info", "The tools of the config being served.",
              (*_CALL, "kind", "mode", "schema_id")),
    MetricRow("toolproxy_config_info", "info", "The config being served: `files_hash` is what "
              "`toolcall-proxy check --config-only --digest` prints.", ("hash", "files_hash")),
    MetricRow("toolproxy_config_reloads_total", "counter", "Attempts to take over a changed config.", ("result",)),
    MetricRow("toolproxy_config_last_reload_successful", "gauge", "1 while what is served is what the files say."),
    MetricRow("toolproxy_config_last_reload_success_timestamp_seconds", "gauge",
              "When the config being served was loaded."),
    MetricRow("toolproxy_config_restart_needed", "gauge", "Changed sections that only a restart takes over."),
)  # fmt: skip

# The metrics of the main job.
METRICS: Final[Mapping[str, MetricRow]] = {metric.name: metric for metric in _TABLE}
