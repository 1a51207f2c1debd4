"""The keys of an upstream."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from proxy.config.keys.kinds import (
    DURATION,
    SAME_OWNER,
    SIZE,
    SWITCH,
    WORD,
    ConfigKey,
    decimal,
    either,
    mapping,
    name_kind,
    number,
    text,
)
from proxy.config.keys.policy_keys import HEADERS
from proxy.config.model import UpstreamConfig, UpstreamTls
from proxy.config.sections.units import read_switch
from proxy.core.model.values import JsonValue
from proxy.core.tool_errors.backoff import BudgetPolicy
from proxy.core.tool_errors.circuit_breaker import BreakerPolicy, ConcurrencyPolicy, GuardPolicy


def _read_breaker(value: JsonValue) -> BreakerPolicy | None:
    made: BreakerPolicy = _BREAKER.read(value if isinstance(value, dict) else {})
    return made if isinstance(value, dict) or read_switch(value) else None


def _read_concurrency(value: JsonValue) -> ConcurrencyPolicy | None:
    made: dict[str, Any] = _BOUND.read(value if isinstance(value, dict) else {"limit": value})
    return ConcurrencyPolicy(**made) if "limit" in made else None


_LIMIT: Final = number(minimum=1)
_BREAKER: Final = mapping(
    BreakerPolicy,
    ConfigKey("failures", _LIMIT, "Failures in a row that open it: no answer, or 5xx but 501 and 505."),
    ConfigKey(
        "percent",
        decimal(100.0, exclusiveMinimum=0, maximum=100, x_expects="a percentage above 0 and at most 100"),
        "The percentage of failures that opens it too. Default: none.",
        field="ratio",
    ),
    ConfigKey("window", DURATION, "How far `percent` looks back."),
    ConfigKey("calls", _LIMIT, "Calls in that time before `percent` counts."),
    ConfigKey("open", DURATION, "How long nothing goes through.", field="open_for"),
    ConfigKey("probes", _LIMIT, "Calls that must then succeed before it closes."),
    description="When it opens.",
)
_BOUND: Final = mapping(
    ConcurrencyPolicy,
    ConfigKey("limit", _LIMIT, "Calls at a time."),
    ConfigKey("wait", DURATION, "How long a further call waits."),
    ConfigKey("queue", number(minimum=0), "The most calls that wait. Default: `limit`."),
    make=dict,
    description="A bound with a queue.",
    required=["limit"],
)
_BUDGET: Final = mapping(
    BudgetPolicy,
    ConfigKey(
        "percent",
        decimal(100.0, minimum=0, maximum=1000, x_expects="a percentage of at most 1000"),
        "Resends for every hundred requests.",
        field="ratio",
    ),
    ConfigKey(
        "per_second",
        decimal(minimum=0),
        "Resends per second whatever the traffic.",
    ),
)
GUARD: Final = mapping(
    GuardPolicy,
    ConfigKey(
        "breaker",
        either(
            SWITCH,
            _BREAKER,
            read=_read_breaker,
            x_expects="on, off, or a mapping of failures, percent, window, calls, open and probes",
        ),
        "Stops calls to a failing upstream for a while. `on`: with the defaults.",
        default="off",
    ),
    ConfigKey(
        "concurrency",
        either(
            number(minimum=1, x_expects="a whole number of at least 1"),
            _BOUND,
            read=_read_concurrency,
            x_expects="a whole number of at least 1, or a mapping of limit, wait and queue",
        ),
        "Calls the upstream gets at a time: a number or a mapping. Default: as many as connections.",
    ),
    ConfigKey("resend_budget", _BUDGET, "Resends that the upstream takes in all.", field="budget"),
)
_TLS: Final = name_kind(
    "upstream_tls",
    "Upstream TLS",
    mapping(
        UpstreamTls,
        ConfigKey("ca", WORD, "The authorities to trust. Default: the system's.", default=None),
        ConfigKey("cert", WORD, "The certificate to show (mTLS).", default=None),
        ConfigKey("key", WORD, "Its key, not encrypted. Default: in the certificate's file.", default=None),
        ConfigKey(
            "server_name", WORD, "The name in the upstream's certificate. Default: the url's host.", default=None
        ),
        ConfigKey(
            "verify",
            SWITCH,
            "Checks the upstream's certificate. `off` lets anyone on the network path read and change calls.",
        ),
    ),
    "TLS to an https upstream. PEM files.",
)
_URL: Final = replace(
    text(
        pattern=r'^(https?://[^/?#\s]+(/[^?#\s]*)?(\?[!-"$-~]*)?|unix:/[^:?#\s]+(:/[^?#\s]*(\?[!-"$-~]*)?)?)$',
        x_expects="http://host[:port][/path][?query], https://... or unix:/path",
    ),
    is_secret=True,
)
UPSTREAM: Final = name_kind(
    "upstream",
    "Upstream",
    mapping(
        UpstreamConfig,
        ConfigKey(
            "url",
            _URL,
            "http or https, with an optional path before every `upstream_path` and an optional query that goes with "
            "every request; or `unix:/path/of/socket`, followed by `:/prefix` for such a path.",
            is_read=False,
        ),
        ConfigKey(
            "timeouts",
            mapping(
                UpstreamConfig,
                ConfigKey("connect", DURATION, "For the connection.", field="connect_timeout"),
                ConfigKey("response", DURATION, "For the answer.", field="response_timeout"),
                ConfigKey("idle", DURATION, "Within a streamed answer.", field="idle_timeout"),
                make=dict,
            ),
            "How long to wait.",
            field=SAME_OWNER,
        ),
        ConfigKey(
            "pool",
            mapping(
                UpstreamConfig,
                ConfigKey(
                    "idle",
                    DURATION,
                    "How long an idle connection is kept; less than the service keeps it (uvicorn: 5 s).",
                    field="pool_idle",
                ),
                ConfigKey("connections", _LIMIT, "The most connections.", field="pool_connections"),
                make=dict,
            ),
            "Connections kept.",
            field=SAME_OWNER,
        ),
        ConfigKey(
            "health",
            text(pattern=r"^/[^?#\s]*$", x_expects="a path that starts with /"),
            "A path that answers below 400 when the service is ready, for `/readyz/upstream/NAME`. Default: ready when "
            "it takes connections.",
            default=None,
        ),
        ConfigKey("buffer", SIZE, "The longest answer read whole before it is handed on; longer ones stream."),
        ConfigKey("tls", _TLS, is_read=False),
        ConfigKey("headers", HEADERS, is_read=False),
        *(replace(key, default=key.write_default(GuardPolicy), is_read=False) for key in GUARD.keys or ()),
        make=dict,
    ),
    "One service behind the proxy: `url`, or `command` for an MCP server that is started here and speaks stdio.",
)
