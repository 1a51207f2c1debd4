"""What the config says of failing upstreams: breaker, concurrency and budget of an upstream, resends of a tool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from proxy.config.secrets import reveal
from proxy.config.units import seconds, switch
from proxy.core.backoff import BudgetPolicy
from proxy.core.guard import BreakerPolicy, ConcurrencyPolicy, GuardPolicy
from proxy.core.jsontext import as_decimal
from proxy.core.model import JsonValue
from proxy.core.policy import ResendPolicy

Written = Mapping[str, JsonValue]

# What a minted key is called unless the config says otherwise (draft-ietf-httpapi-idempotency-key-header).
_KEY_HEADER: Final = "Idempotency-Key"

# Keys of a policy that make up its `ResendPolicy`.
RESEND_KEYS: Final = ("resend", "idempotent", "idempotency")


def _number(value: JsonValue) -> float:
    return float(as_decimal(value))


def _share(percent: JsonValue) -> float:
    return _number(percent) / 100


def _made(value: Written, fields: Mapping[str, tuple[str, Any]]) -> dict[str, Any]:
    """Keyword arguments for the keys that are written: key -> (field, how to read it)."""
    return {field: read(value[key]) for key, (field, read) in fields.items() if key in value}


def guard_of(entry: Written) -> GuardPolicy:
    """What stands in front of an upstream, out of its entry."""
    budget = BudgetPolicy(
        **_made(entry.get("resend_budget", {}), {"percent": ("ratio", _share), "per_second": ("per_second", _number)})
    )
    return GuardPolicy(_breaker(entry.get("breaker", "off")), _concurrency(entry.get("concurrency")), budget)


def _breaker(value: JsonValue) -> BreakerPolicy | None:
    if not isinstance(value, dict):
        return BreakerPolicy() if switch(value) else None
    fields = {
        "failures": ("failures", int),
        "percent": ("ratio", _share),
        "window": ("window", seconds),
        "calls": ("calls", int),
        "open": ("open_for", seconds),
        "probes": ("probes", int),
    }
    return BreakerPolicy(**_made(value, fields))


def _concurrency(value: JsonValue) -> ConcurrencyPolicy | None:
    if isinstance(value, dict):
        fields = {"limit": ("limit", int), "wait": ("wait", seconds), "queue": ("queue", int)}
        return ConcurrencyPolicy(**_made(value, fields)) if "limit" in value else None
    return None if value is None else ConcurrencyPolicy(int(value))


def resend_of(written: Written) -> ResendPolicy:
    """When a tool's calls may be sent again, out of the keys of its policy."""
    made = _made(
        written.get("resend", {}),
        {
            "max": ("max_resends", int),
            "backoff": ("backoff", seconds),
            "max_backoff": ("max_backoff", seconds),
            "deadline": ("deadline", seconds),
            "on_retry_after": ("on_retry_after", switch),
        },
    )
    key = written.get("idempotency", {})
    mint = switch(key.get("mint", False))
    header = reveal(key.get("header", _KEY_HEADER if mint else "")).lower()
    return ResendPolicy(**made, idempotent=switch(written.get("idempotent", False)), key_header=header, mint_key=mint)
