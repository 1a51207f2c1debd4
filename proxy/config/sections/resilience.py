"""Reads the keys about failing upstreams: breaker, concurrency and budget of an upstream, resends of a tool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from proxy.config.files.secrets import reveal
from proxy.config.sections.units import read_seconds, read_switch
from proxy.core.contract.policy import ResendPolicy
from proxy.core.json.jsontext import make_decimal
from proxy.core.model.values import JsonValue
from proxy.core.tool_errors.backoff import BudgetPolicy
from proxy.core.tool_errors.circuit_breaker import BreakerPolicy, ConcurrencyPolicy, GuardPolicy

Written = Mapping[str, JsonValue]

# The header of generated keys unless the config names one (draft-ietf-httpapi-idempotency-key-header).
_KEY_HEADER: Final = "Idempotency-Key"

# The policy keys that form a `ResendPolicy`.
RESEND_KEYS: Final = ("resend", "idempotent", "idempotency")


def _read_number(value: JsonValue) -> float:
    return float(make_decimal(value))


def _read_share(percent: JsonValue) -> float:
    return _read_number(percent) / 100


def _convert(value: Written, fields: Mapping[str, tuple[str, Any]]) -> dict[str, Any]:
    """Keyword arguments for the keys that are present: key -> (field, conversion)."""
    return {field: read(value[key]) for key, (field, read) in fields.items() if key in value}


def read_guard(entry: Written) -> GuardPolicy:
    """Reads the breaker, concurrency limit and resend budget of an upstream from its entry."""
    budget = BudgetPolicy(
        **_convert(
            entry.get("resend_budget", {}),
            {"percent": ("ratio", _read_share), "per_second": ("per_second", _read_number)},
        )
    )
    return GuardPolicy(_read_breaker(entry.get("breaker", "off")), _read_concurrency(entry.get("concurrency")), budget)


def _read_breaker(value: JsonValue) -> BreakerPolicy | None:
    if not isinstance(value, dict):
        return BreakerPolicy() if read_switch(value) else None
    fields = {
        "failures": ("failures", int),
        "percent": ("ratio", _read_share),
        "window": ("window", read_seconds),
        "calls": ("calls", int),
        "open": ("open_for", read_seconds),
        "probes": ("probes", int),
    }
    return BreakerPolicy(**_convert(value, fields))


def _read_concurrency(value: JsonValue) -> ConcurrencyPolicy | None:
    if isinstance(value, dict):
        fields = {"limit": ("limit", int), "wait": ("wait", read_seconds), "queue": ("queue", int)}
        return ConcurrencyPolicy(**_convert(value, fields)) if "limit" in value else None
    return None if value is None else ConcurrencyPolicy(int(value))


def read_resend(written: Written) -> ResendPolicy:
    """Reads when a tool's calls may be sent again from the keys of its policy."""
    made = _convert(
        written.get("resend", {}),
        {
            "max": ("max_resends", int),
            "backoff": ("backoff", read_seconds),
            "max_backoff": ("max_backoff", read_seconds),
            "deadline": ("deadline", read_seconds),
            "on_retry_after": ("on_retry_after", read_switch),
        },
    )
    key = written.get("idempotency", {})
    mint = read_switch(key.get("mint", False))
    header = reveal(key.get("header", _KEY_HEADER if mint else "")).lower()
    return ResendPolicy(
        **made, idempotent=read_switch(written.get("idempotent", False)), key_header=header, mint_key=mint
    )
