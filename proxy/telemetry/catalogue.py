"""Every metric there is, as a table: name, kind, labels and meaning. `metrics.py` makes them out of it, docs/metrics.md
is made from it, and tests hold the dashboard and the alerts against it.

All label values come from the config or from our own tables (`LABELS` says which). Nothing that a client makes up, and
no conversation, path or value of a call, is ever one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from proxy.core.backoff import Denied, Reason
from proxy.core.codes import ERROR_CODES, VIOLATION_CODES
from proxy.core.container import EVENTS
from proxy.core.correction import Asked, Layer
from proxy.core.guard import CALLED
from proxy.core.rules import HOOK, RULES

# Stands for whatever a client made up: a tool's name, a method, an error code of a tool's own.
OTHER: Final = "_other"

# The stages that are ours alone; reading a body and streaming an answer wait for others, `total` leaves them out.
OWN_STAGES: Final = ("decode", "decide", "answer", "total")
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
# Above this, `corrected` counts under one label value.
MOST_CORRECTED: Final = 10
# What the optional layers 3 and 4 do (GoMind's span events), as far as it is counted.
CORRECTION_EVENTS: Final = (
    "validation_feedback_started",
    "validation_feedback_success",
    "validation_feedback_failed",
    "contextual_re_resolution.start",
    "contextual_re_resolution.complete",
)
# Where hooks are asked, and what can go wrong with one (docs/hooks.md).
HOOK_POINTS: Final = ("before_decision", "after_decision", "before_forward", "after_outcome")
HOOK_REASONS: Final = ("timeout", "exception", "cancelled", "wrong_answer", "wrong_header")
# RFC 9209 section 2.3, all of them.
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
SPAN_RESULTS: Final = ("exported", "failed", "dropped")

Kind = Literal["counter", "gauge", "histogram", "info"]

_CALL: Final = ("route", "tool")


@dataclass(frozen=True, slots=True)
class Label:
    """What a label tells; `values` are all that it can have, () where they come from the config."""

    meaning: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Described:
    """One metric. `name` is that of its series (a histogram's without `_bucket`); `own` describes labels that mean
    something else here than in `LABELS`."""

    name: str
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()
    own: Mapping[str, Label] = field(default_factory=dict)

    def label(self, name: str) -> Label:
        """What one of its labels tells."""
        return self.own.get(name) or LABELS[name]


LABELS: Final[Mapping[str, Label]] = {
    "route": Label("The route's name; `_other` for a request that has none."),
    "tool": Label("The tool's name; `_other` for one that the config does not know."),
    "upstream": Label("The upstream's name."),
    "outcome": Label(
        "What became of the request.",
        (
            "delivered",
            "repaired",
            "corrected",
            "answered",
            "refused",
            "tool_error",
            "upstream_error",
            "passthrough",
            "client_gone",
        ),
    ),
    "mode": Label("Whether the route enforces or only reports.", ("enforce", "report")),
    "code": Label("The error code ([errors.md](errors.md)); `_other` for one of a tool's own.", (*ERROR_CODES, OTHER)),
    "rule": Label("The repair rule ([repair.md](repair.md)); `hook`: a hook did it.", (*RULES, HOOK)),
    "attempts": Label(
        f"Failed attempts before; {MOST_CORRECTED} stands for that and more.",
        tuple(map(str, range(1, MOST_CORRECTED + 1))),
    ),
    "event": Label("What happened.", EVENTS),
    "status": Label(
        "The class of the upstream's status; `_other` where no answer came.",
        ("1xx", "2xx", "3xx", "4xx", "5xx", OTHER),
    ),
    "layer": Label("Layer 3 (`validation_feedback`) or layer 4 (`semantic_retry`).", tuple(Layer)),
    "independent": Label("Whether no earlier result of the conversation was known.", ("true", "false")),
    "hook": Label("The hook, as the config names it (`use`)."),
    "point": Label("Where it was asked.", HOOK_POINTS),
    "error": Label("The fault, as a proxy error type of RFC 9209.", PROXY_ERRORS),
    "reason": Label("What allowed it ([upstream.md](upstream.md)).", tuple(Reason)),
    "why": Label("What stood against it.", tuple(Denied)),
    "stage": Label("The part of the proxy's own work; `total` is all of it.", OWN_STAGES),
    "result": Label("What came of it.", ("success", "unchanged", "failure")),
    "version": Label("The version of this software."),
    "hash": Label("The first digits of the hash over the config and all its files."),
    "schema_id": Label("The fingerprint of the tool's schema; empty where it has none."),
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

_TABLE: Final = (
    Described("toolproxy_requests_total", "counter", "Finished requests.", (*_CALL, "outcome")),
    Described("toolproxy_validations_total", "counter", "Judged calls.", (*_CALL, "outcome", "mode"),
              {"outcome": Label("What the check said; `skipped` where there is no schema.",
                                ("passed", "repaired", "rejected", "skipped"))}),
    Described("toolproxy_violations_total", "counter", "Broken schema keywords, by code.", (*_CALL, "code"),
              {"code": Label("The violation's code ([errors.md](errors.md)).", tuple(VIOLATION_CODES))}),
    Described("toolproxy_repairs_total", "counter", "Repairs made, by rule.", (*_CALL, "rule")),
    Described("toolproxy_episodes_total", "counter", "Calls that failed for the first time, to be corrected.", _CALL),
    Described("toolproxy_attempts_total", "counter", "Failed calls that raised the attempt.", _CALL),
    Described("toolproxy_corrected_total", "counter", "Delivered calls, by failed attempts before.",
              (*_CALL, "attempts")),
    Described("toolproxy_escalations_total", "counter", "Calls answered with an escalation.", _CALL),
    Described("toolproxy_repeats_total", "counter", "Byte-identical resends of refused arguments.", _CALL),
    Described("toolproxy_errors_total", "counter", "Failed requests, by error code.", (*_CALL, "code")),
    Described("toolproxy_caps_exceeded_total", "counter", "Calls refused because their call cap was used up.", _CALL),
    Described("toolproxy_containers_total", "counter", "What happened around containers.", (*_CALL, "event")),
    Described("toolproxy_corrections_total", "counter", "What the optional correction layers did.", (*_CALL, "event"),
              {"event": Label("The event, as in the span.", CORRECTION_EVENTS)}),
    Described("toolproxy_correction_questions_total", "counter",
              "Questions to the model endpoint ([correction.md](correction.md)).",
              (*_CALL, "layer", "outcome", "independent"),
              {"outcome": Label("What came of it; `busy` and `budget`: it was not asked.", tuple(Asked))}),
    Described("toolproxy_correction_seconds", "histogram", "How long the model endpoint took for one question.",
              ("layer",)),
    Described("toolproxy_answers_total", "counter", "Tools' answers held against their `response_schema`.",
              (*_CALL, "outcome"),
              {"outcome": Label("What the check said; `unread`: no whole JSON; `broken`: handed on all the same.",
                                ("passed", "broken", "refused", "unread"))}),
    Described("toolproxy_hook_failures_total", "counter", "Hooks that failed ([hooks.md](hooks.md)).",
              ("hook", "point", "reason"), {"reason": Label("What went wrong.", HOOK_REASONS)}),
    Described("toolproxy_upstream_requests_total", "counter", "Requests sent upstream.", ("upstream", "status")),
    Described("toolproxy_upstream_errors_total", "counter", "Upstream faults.", ("upstream", "error")),
    Described("toolproxy_upstream_resends_total", "counter", "Calls sent again.", ("upstream", "reason")),
    Described("toolproxy_upstream_resends_denied_total", "counter",
              "Calls not sent again although they might have been.", ("upstream", "why")),
    Described("toolproxy_upstream_breaker_state", "gauge", "Circuit breakers: 0 closed, 1 half-open, 2 open.",
              ("upstream",)),
    Described("toolproxy_upstream_breaker_changes_total", "counter", "Changes of state of circuit breakers.",
              ("upstream", "state"),
              {"state": Label("The state it came into.", tuple(CALLED.values()))}),
    Described("toolproxy_overhead_seconds", "histogram", "Time spent in this proxy alone.", ("stage",)),
    Described("http_server_request_duration_seconds", "histogram", "Requests, from head to answer (OTel's name).",
              ("http_request_method", "http_route", "http_response_status_code", "error_type")),
    Described("http_client_request_duration_seconds", "histogram", "Requests to upstreams (OTel's name).",
              ("http_route", "server_address", "http_response_status_code", "error_type")),
    Described("toolproxy_inflight_requests", "gauge", "Requests under way."),
    Described("toolproxy_draining", "gauge", "1 while the proxy drains."),
    Described("toolproxy_state_backend_up", "gauge", "1 while the state backend is in use, 0 while its stand-in is."),
    Described("toolproxy_event_loop_lag_seconds", "histogram",
              "How late the event loop came to a timer, looked at twice a second."),
    Described("toolproxy_spans_total", "counter", "Finished spans; none without traces.", ("result",),
              {"result": Label("`failed`: the collector did not take them; `dropped`: the queue was full.",
                               SPAN_RESULTS)}),
    Described("toolproxy_build_info", "info", "What is running.", ("version",)),
    Described("toolproxy_tool_info", "info", "The tools of the config being served.",
              (*_CALL, "kind", "mode", "schema_id")),
    Described("toolproxy_config_info", "info", "The config being served.", ("hash",)),
    Described("toolproxy_config_reloads_total", "counter", "Attempts to take over a changed config.", ("result",)),
    Described("toolproxy_config_last_reload_successful", "gauge", "1 while what is served is what the files say."),
    Described("toolproxy_config_last_reload_success_timestamp_seconds", "gauge",
              "When the config being served was loaded."),
    Described("toolproxy_config_restart_needed", "gauge", "Changed sections that only a restart takes over."),
)  # fmt: skip

CATALOGUE: Final[Mapping[str, Described]] = {metric.name: metric for metric in _TABLE}

# What the client library tells of the process (on Linux), under names that all exporters share.
OF_THE_PROCESS: Final = (
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_virtual_memory_bytes",
)
