"""Policies: the keys that `defaults`, a tool and a route may all have, merged in layers.

The layer nearest to the request wins: a route's own key over the tool's, the tool's over `defaults`. Mappings are
merged key by key (`attempts: {max: 5}` keeps an outer ttl); lists and plain values replace.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from proxy.adapters.base import ConversationSource
from proxy.config.files.secrets import reveal
from proxy.config.model import Caps, HeaderChanges, Policy, RepairSettings
from proxy.config.sections.access import read_auth, read_cors
from proxy.config.sections.resilience import RESEND_KEYS, read_resend
from proxy.config.sections.units import read_seconds, read_size, read_switch, read_time_limit
from proxy.core.contract.policy import (
    AttemptsPolicy,
    Block,
    ByAddress,
    CallLimits,
    LeakedMarkup,
    Mode,
    RepairPolicy,
    ToolErrors,
    UnknownKeys,
    UpstreamErrors,
)
from proxy.core.json.jsontext import TextLimits, parse_pointer
from proxy.core.model.values import FeedbackLimits, JsonValue
from proxy.core.rules.rules import PLUMBING_KEYS, select_rules
from proxy.core.schema.formats import NONE, USUAL, Formats
from proxy.extensions import LIMIT_PLACES, POLICY_PLACES, load_place

# Policy keys that apply to one tool; the others are decided before the tool is known.
TOOL_KEYS: Final = frozenset(
    ["mode", "repair", "unknown_keys", "leaked_markup", "attempts", "caps", "feedback", "formats", "timeout",
     "validation", "upstream_errors", "wrap_success", "response_mode", "finalize_output_retries", "correct",
     *RESEND_KEYS]
)  # fmt: skip
POLICY_KEYS: Final = TOOL_KEYS | frozenset(
    ["envelope", "error_status", "detail", "limits", "conversation", "headers", "auth", "cors", "jwt", "allow"]
)
# Keys that are replaced as a whole: a route with tokens of its own does not accept those of `defaults` too.
_WHOLE: Final = frozenset({"auth", "cors", "jwt"})

Written = Mapping[str, JsonValue]


def merge_layers(*layers: Written) -> dict[str, JsonValue]:
    """The policy keys of the layers, merged. Outer layers come first; later ones win."""
    merged: dict[str, JsonValue] = {}
    for layer in layers:
        for key, value in layer.items():
            if key in POLICY_KEYS:
                below = None if key in _WHOLE else merged.get(key)
                merged[key] = _merge(below, _expand_short(key, value))
    return merged


def name_scope(layer: Written, scope: str) -> Written:
    """A layer whose limits on calls say where they are written: those of one place are counted together. A single limit
    becomes a list, so that an inner layer's replaces an outer one as a whole."""
    limits = layer.get("limits")
    if not isinstance(limits, dict) or limits.keys().isdisjoint(LIMIT_PLACES):
        return layer
    return {**layer, "limits": limits | {key: _scope(limits[key], scope) for key in LIMIT_PLACES if key in limits}}


def _scope(value: JsonValue, scope: str) -> JsonValue:
    """The limits of one key with their scope; `off` is an empty list."""
    listed = value if isinstance(value, list) else [value] if isinstance(value, dict) else []
    return [{**each, "scope": scope} for each in listed if isinstance(each, dict)]


def _expand_short(key: str, value: JsonValue) -> JsonValue:
    """The long form of a short one (`repair: standard`), so that both forms can be merged."""
    if key == "repair" and isinstance(value, str):
        return {"level": reveal(value)}
    if key == "headers" and isinstance(value, dict) and "set" in value:
        return {**value, "set": {name.lower(): text for name, text in value["set"].items()}}
    return value


def _merge(below: JsonValue, above: JsonValue) -> JsonValue:
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    return {**below, **{key: _merge(below.get(key), value) for key, value in above.items()}}


def read_policy(written: Written) -> Policy:
    """The policy of a merged mapping; missing keys have their defaults."""
    made: dict[str, Any] = {
        _FIELDS.get(key, key): read(written[key]) for key, read in _READERS.items() if key in written
    }
    added = {key: load_place(place)(written[key]) for key, place in POLICY_PLACES.items() if key in written}
    made["added"] = {key: value for key, value in added.items() if value is not None}
    made["resend"] = read_resend(written)
    if "limits" in written:
        limits = written["limits"]
        made["text"] = TextLimits(**{key: limits[key] for key in ("depth", "nodes") if key in limits})
        if "body" in limits:
            made["max_body"] = read_size(limits["body"])
        read = {key: load_place(place)(limits[key]) for key, place in LIMIT_PLACES.items() if limits.get(key)}
        made["limits"] = CallLimits(read.get("rate", ()), read.get("concurrent", ())) if read else None
    return Policy(**made)


def make_repair_policy(settings: RepairSettings, *, listed: bool = False) -> RepairPolicy:
    """The names of the rules that are on, and the keys that `drop_unknown` may remove. `listed`: the tool is listed by
    its server."""
    drop_keys = settings.drop_keys
    if drop_keys is None:
        drop_keys = PLUMBING_KEYS if settings.level == "lenient" else frozenset()
    by_hand = frozenset(name for name, on in settings.rules.items() if on)
    rules = select_rules(settings.level, settings.rules, listed=listed)
    return RepairPolicy(rules, drop_keys, by_hand, level=settings.level)


def select_fingerprint(written: Written) -> dict[str, JsonValue]:
    """The keys of a policy that decide how a call is judged and answered, without header values."""
    return {key: value for key, value in written.items() if key in TOOL_KEYS}


def _read_fields(value: Written, readers: Mapping[str, Any], **names: str) -> dict[str, Any]:
    """Keyword arguments: what each key says, under the name of its field where that is another."""
    return {names.get(key, key): readers[key](item) if key in readers else item for key, item in value.items()}


def _read_repair(value: Written) -> RepairSettings:
    rules = {name: read_switch(state) for name, state in value.get("rules", {}).items()}
    made: dict[str, Any] = {"level": reveal(value["level"])} if "level" in value else {}
    if "drop_keys" in value:
        made["drop_keys"] = frozenset(map(reveal, value["drop_keys"]))
    return RepairSettings(rules=rules, **made)


def _read_attempts(value: Written) -> AttemptsPolicy:
    readers: dict[str, Any] = {
        "ttl": read_seconds,
        "address_ttl": read_seconds,
        "address": lambda text: ByAddress(str(reveal(text)) if isinstance(text, str) else "off"),
        "block": Block,
        "tool_errors": lambda errors: ToolErrors(**_read_fields(errors, {"window": read_seconds}, max="limit")),
    }
    return AttemptsPolicy(**_read_fields(value, readers, max="max_attempts"))


def _read_caps(value: Written) -> Caps:
    counted = {key: item for key, item in value.items() if key != "per"}  # it has one value
    return Caps(**_read_fields(counted, {"ttl": read_seconds, "by_address": read_switch}))


def _read_feedback(value: Written) -> FeedbackLimits:
    roots = lambda items: tuple(map(reveal, items))  # noqa: E731 - the row of a table
    return FeedbackLimits(**_read_fields(value, {"path_roots": roots, "marks": read_switch}))


def read_formats(value: JsonValue) -> Formats:
    """Which formats are asserted: a switch for all, or a mapping from formats to their strictness."""
    if not isinstance(value, dict):
        return USUAL if read_switch(value) else NONE
    written = {name: "off" if mode is False else str(reveal(mode)) for name, mode in value.items()}
    return Formats(True, tuple({**dict(USUAL.modes), **written}.items()))


def read_header_changes(value: Written) -> HeaderChanges:
    """The header changes of a mapping `{set, remove}`. Values stay `Secret`s."""
    return HeaderChanges(
        set=tuple((name.lower(), text) for name, text in value.get("set", {}).items()),
        remove=frozenset(reveal(name).lower() for name in value.get("remove", ())),
    )


def _read_rung(value: JsonValue) -> ConversationSource:
    if isinstance(value, str):
        return ConversationSource("trace" if value == "trace" else "address")
    (kind, name), *_ = value.items()
    text = reveal(name)
    return ConversationSource(kind, text if kind in ("body", "meta") else text.lower())


def read_pointer(text: str) -> tuple[str | int, ...]:
    """The steps of a pointer the published schema accepts."""
    return parse_pointer(reveal(text))


_FIELDS: Final = {"conversation": "ladder"}
_READERS: Final[Mapping[str, Any]] = {
    "mode": Mode,
    "repair": _read_repair,
    "unknown_keys": UnknownKeys,
    "leaked_markup": LeakedMarkup,
    "envelope": reveal,
    "error_status": reveal,
    "detail": reveal,
    "attempts": _read_attempts,
    "caps": _read_caps,
    "feedback": _read_feedback,
    "timeout": read_time_limit,
    "formats": read_formats,
    "upstream_errors": UpstreamErrors,
    "wrap_success": read_switch,
    "response_mode": Mode,
    "finalize_output_retries": int,
    "conversation": lambda rungs: tuple(map(_read_rung, rungs)),
    "headers": read_header_changes,
    "auth": read_auth,
    "cors": read_cors,
}
