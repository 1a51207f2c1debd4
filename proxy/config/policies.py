"""Policies: the keys that `defaults`, a tool and a route may all hold, laid over one another.

The nearer to the request wins: a route's own key over the tool's, the tool's over `defaults`. Mappings are laid over
one another key by key (`attempts: {max: 5}` keeps the ttl from further out); lists and plain values replace.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from proxy.adapters.base import ConversationSource
from proxy.config.access import auth_of, cors_of
from proxy.config.correction import correction_policy
from proxy.config.model import Caps, HeaderChanges, Policy, RepairSettings
from proxy.config.resilience import RESEND_KEYS, resend_of
from proxy.config.secrets import reveal
from proxy.config.units import seconds, size, switch
from proxy.core.jsontext import TextLimits, parse_pointer
from proxy.core.model import FeedbackLimits, JsonValue
from proxy.core.policy import AttemptsPolicy, Block, Mode, RepairPolicy, UnknownKeys, UpstreamErrors
from proxy.core.rules import PLUMBING_KEYS, rules_for

# Keys of a policy that hold for one tool; the rest are decided before the tool is known.
TOOL_KEYS: Final = frozenset(
    ["mode", "repair", "unknown_keys", "attempts", "caps", "feedback", "formats", "timeout", "validation",
     "upstream_errors", "wrap_success", "response_mode", "finalize_output_retries", "correct", *RESEND_KEYS]
)  # fmt: skip
POLICY_KEYS: Final = TOOL_KEYS | {"envelope", "error_status", "limits", "conversation", "headers", "auth", "cors"}
# Keys that are not laid over one another: a route that names its tokens does not take those of `defaults` as well.
_WHOLE: Final = frozenset({"auth", "cors"})

Written = Mapping[str, JsonValue]


def layered(*layers: Written) -> dict[str, JsonValue]:
    """The policy keys of the layers, furthest out first, laid over one another."""
    merged: dict[str, JsonValue] = {}
    for layer in layers:
        for key, value in layer.items():
            if key in POLICY_KEYS:
                below = None if key in _WHOLE else merged.get(key)
                merged[key] = _over(below, _spelt_out(key, value))
    return merged


def _spelt_out(key: str, value: JsonValue) -> JsonValue:
    """The long form of a short one (`repair: standard`), so that layers of both forms can be laid over one another."""
    if key == "repair" and isinstance(value, str):
        return {"level": reveal(value)}
    if key == "headers" and isinstance(value, dict) and "set" in value:
        return {**value, "set": {name.lower(): text for name, text in value["set"].items()}}
    return value


def _over(below: JsonValue, above: JsonValue) -> JsonValue:
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    return {**below, **{key: _over(below.get(key), value) for key, value in above.items()}}


def policy_of(written: Written) -> Policy:
    """The policy a layered mapping means; what it does not name has its default."""
    made: dict[str, Any] = {
        _FIELDS.get(key, key): read(written[key]) for key, read in _READERS.items() if key in written
    }
    made["resend"] = resend_of(written)
    if "limits" in written:
        limits = written["limits"]
        made["text"] = TextLimits(**_picked(limits, {"depth": "depth", "nodes": "nodes"}))
        if "body" in limits:
            made["max_body"] = size(limits["body"])
    return Policy(**made)


def repair_policy(settings: RepairSettings) -> RepairPolicy:
    """The rules that are on, by name, and the keys that `drop_unknown` may remove."""
    drop_keys = settings.drop_keys
    if drop_keys is None:
        drop_keys = PLUMBING_KEYS if settings.level == "lenient" else frozenset()
    return RepairPolicy(rules_for(settings.level, settings.rules), drop_keys)


def fingerprint_parts(written: Written) -> dict[str, JsonValue]:
    """What of a policy decides how a call is judged and answered; header values stay out."""
    return {key: value for key, value in written.items() if key in TOOL_KEYS}


def _picked(value: Written, fields: Mapping[str, str], read: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Keyword arguments: field -> value, for the keys that are written."""
    readers = read or {}
    return {field: readers.get(key, lambda item: item)(value[key]) for key, field in fields.items() if key in value}


def _repair(value: Written) -> RepairSettings:
    rules = {name: switch(state) for name, state in value.get("rules", {}).items()}
    made: dict[str, Any] = {"level": reveal(value["level"])} if "level" in value else {}
    if "drop_keys" in value:
        made["drop_keys"] = frozenset(map(reveal, value["drop_keys"]))
    return RepairSettings(rules=rules, **made)


def _attempts(value: Written) -> AttemptsPolicy:
    fields = {"max": "max_attempts", "ttl": "ttl", "address_ttl": "address_ttl", "block": "block"}
    return AttemptsPolicy(**_picked(value, fields, {"ttl": seconds, "address_ttl": seconds, "block": Block}))


def _caps(value: Written) -> Caps:
    return Caps(**_picked(value, {"default": "default", "overrides": "overrides", "ttl": "ttl"}, {"ttl": seconds}))


def _feedback(value: Written) -> FeedbackLimits:
    fields = {name: name for name in ("max_errors", "max_chars", "max_preview", "path_roots", "marks")}
    roots = lambda items: tuple(map(reveal, items))  # noqa: E731 - the row of a table
    return FeedbackLimits(**_picked(value, fields, {"path_roots": roots, "marks": switch}))


def headers_of(value: Written) -> HeaderChanges:
    """The header changes a mapping `{set, remove}` means. Values stay as they are: they may be secrets."""
    return HeaderChanges(
        set=tuple((name.lower(), text) for name, text in value.get("set", {}).items()),
        remove=frozenset(reveal(name).lower() for name in value.get("remove", ())),
    )


def _ladder(value: Iterable[JsonValue]) -> tuple[ConversationSource, ...]:
    return tuple(map(_rung, value))


def _rung(value: JsonValue) -> ConversationSource:
    if isinstance(value, str):
        return ConversationSource("trace" if value == "trace" else "address")
    (kind, name), *_ = value.items()
    text = reveal(name)
    return ConversationSource(kind, text if kind in ("body", "meta") else text.lower())


def pointer(text: str) -> tuple[str | int, ...]:
    """The steps of a pointer the published schema accepts."""
    return parse_pointer(reveal(text))


_FIELDS: Final = {"conversation": "ladder", "correct": "correction"}
_READERS: Final[Mapping[str, Any]] = {
    "mode": Mode,
    "repair": _repair,
    "unknown_keys": UnknownKeys,
    "envelope": reveal,
    "error_status": reveal,
    "attempts": _attempts,
    "caps": _caps,
    "feedback": _feedback,
    "timeout": seconds,
    "formats": switch,
    "upstream_errors": UpstreamErrors,
    "wrap_success": switch,
    "response_mode": Mode,
    "finalize_output_retries": int,
    "correct": correction_policy,
    "conversation": _ladder,
    "headers": headers_of,
    "auth": auth_of,
    "cors": cors_of,
}
