"""Policies: the keys that `defaults`, a tool and a route may all have, merged in layers.

The layer nearest to the request wins: a route's own key over the tool's, the tool's over `defaults`. Mappings are
merged key by key (`attempts: {max: 5}` keeps an outer ttl); lists and plain values replace.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from proxy.adapters.base import ConversationSource
from proxy.config.context import Context
from proxy.config.files.secrets import Secret, reveal
from proxy.config.model import Auth, Caps, Cors, HeaderChanges, Policy, RepairSettings
from proxy.config.sections.units import read_fields, read_seconds, read_size, read_switch, read_time_limit
from proxy.core.contract.policy import (
    AttemptsPolicy,
    Block,
    ByAddress,
    CallLimits,
    LeakedMarkup,
    Mode,
    NullOptional,
    RepairPolicy,
    ResendPolicy,
    ToolErrors,
    UnknownKeys,
    UpstreamErrors,
)
from proxy.core.json.jsontext import TextLimits
from proxy.core.model.values import FeedbackLimits, JsonValue, Pointer
from proxy.core.schema.formats import NONE, USUAL, Formats
from proxy.plugin import AddsKeys
from proxy.plugins import find_plugins

_TOOL_KEYS: Final = frozenset(
    ["mode", "repair", "null_optional", "aliases", "unknown_keys", "leaked_markup", "attempts", "caps",
     "feedback", "formats", "timeout",
     "validation", "upstream_errors", "wrap_success", "response_mode", "finalize_output_retries",
     "resend", "idempotent", "idempotency"]
)  # fmt: skip
_ROUTE_KEYS: Final = frozenset(
    ["envelope", "error_status", "detail", "limits", "conversation", "headers", "auth", "cors"]
)
# Keys that are replaced as a whole: a route with tokens of its own does not accept those of `defaults` too.
_WHOLE: Final = frozenset({"auth", "cors"})

Written = Mapping[str, JsonValue]


def list_tool_keys() -> frozenset[str]:
    """The policy keys that apply to one tool; the others are decided before the tool is known."""
    return _TOOL_KEYS.union(*(plugin.tool_keys for plugin in find_plugins(AddsKeys)))


def list_policy_keys() -> frozenset[str]:
    """All keys of a policy."""
    return (_TOOL_KEYS | _ROUTE_KEYS).union(*(plugin.policy_keys for plugin in find_plugins(AddsKeys)))


def merge_layers(*layers: Written) -> dict[str, JsonValue]:
    """The policy keys of the layers, merged. Outer layers come first; later ones win."""
    merged: dict[str, JsonValue] = {}
    known, whole = list_policy_keys(), _WHOLE.union(*(plugin.whole_keys for plugin in find_plugins(AddsKeys)))
    for layer in layers:
        for key in filter(known.__contains__, layer):
            value = layer[key]
            # A short form takes its long one, so that both can be merged.
            if key == "repair" and isinstance(value, str):
                value = {"level": reveal(value)}
            elif key == "headers" and isinstance(value, dict) and "set" in value:
                value = {**value, "set": {name.lower(): text for name, text in value["set"].items()}}
            merged[key] = _merge(None if key in whole else merged.get(key), value)
    return merged


def name_scope(layer: Written, scope: str) -> Written:
    """A layer whose limits on calls say where they are written: those of one place are counted together. A single limit
    becomes a list, so that an inner layer's replaces an outer one as a whole."""
    limits, counting = layer.get("limits"), {key for plugin in find_plugins(AddsKeys) for key in plugin.limit_keys}
    if not isinstance(limits, dict) or limits.keys().isdisjoint(counting):
        return layer
    scoped: dict[str, JsonValue] = {}
    for key in counting & limits.keys():
        listed = limits[key] if isinstance(limits[key], list) else [limits[key]]  # `off` is an empty list
        scoped[key] = [{**each, "scope": scope} for each in listed if isinstance(each, dict)]
    return {**layer, "limits": limits | scoped}


def _merge(below: JsonValue, above: JsonValue) -> JsonValue:
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    return {**below, **{key: _merge(below.get(key), value) for key, value in above.items()}}


def read_policy(written: Written) -> Policy:
    """The policy of a merged mapping; missing keys have their defaults."""
    known = {key: item for key, item in written.items() if key in _READERS}
    made = read_fields(known, _READERS, conversation="ladder")
    readers = {key: plugin for plugin in find_plugins(AddsKeys) for key in (*plugin.policy_keys, *plugin.limit_keys)}
    policy_keys = [key for plugin in find_plugins(AddsKeys) for key in plugin.policy_keys if key in written]
    added = {key: readers[key].read_policy_key(key, written[key]) for key in policy_keys}
    made["added"] = {key: value for key, value in added.items() if value is not None}
    made["resend"] = _read_resend(written)
    if "limits" in written:
        limits = written["limits"]
        made["text"] = TextLimits(**{key: limits[key] for key in ("depth", "nodes") if key in limits})
        if "body" in limits:
            made["max_body"] = read_size(limits["body"])
        limit_keys = [key for plugin in find_plugins(AddsKeys) for key in plugin.limit_keys if limits.get(key)]
        read: dict[str, Any] = {key: readers[key].read_policy_key(key, limits[key]) for key in limit_keys}
        made["limits"] = CallLimits(read.get("rate", ()), read.get("concurrent", ())) if read else None
    return Policy(**made)


def _read_resend(written: Written) -> ResendPolicy:
    """When a tool's calls may be sent again."""
    times = dict.fromkeys(("backoff", "max_backoff", "deadline"), read_seconds)
    readers = {"max": int, "on_retry_after": read_switch, **times}
    made = read_fields(written.get("resend", {}), readers, max="max_resends")
    key = written.get("idempotency", {})
    mint = read_switch(key.get("mint", False))
    # draft-ietf-httpapi-idempotency-key-header names the header of generated keys.
    header = reveal(key.get("header", "Idempotency-Key" if mint else "")).lower()
    idempotent = read_switch(written.get("idempotent", False))
    return ResendPolicy(**made, idempotent=idempotent, key_header=header, mint_key=mint)


def make_repair_policy(policy: Policy, *, listed: bool = False) -> RepairPolicy:
    """What a policy says of repairs. `listed`: the tool is listed by its server."""
    settings = policy.repair
    return RepairPolicy.of(
        settings.level,
        settings.rules,
        drop_keys=settings.drop_keys,
        null_optional=policy.null_optional,
        aliases=policy.aliases,
        listed=listed,
    )


def select_fingerprint(written: Written) -> dict[str, JsonValue]:
    """The keys of a policy that decide how a call is judged and answered, without header values."""
    known = list_tool_keys()
    return {key: value for key, value in written.items() if key in known}


def _read_repair(value: Written) -> RepairSettings:
    readers: dict[str, Any] = {
        "level": reveal,
        "rules": lambda rules: {name: read_switch(state) for name, state in rules.items()},
        "drop_keys": lambda keys: frozenset(map(reveal, keys)),
    }
    return RepairSettings(**read_fields(value, readers))


def _read_attempts(value: Written) -> AttemptsPolicy:
    readers: dict[str, Any] = {
        "ttl": read_seconds,
        "address_ttl": read_seconds,
        "address": lambda text: ByAddress(str(reveal(text)) if isinstance(text, str) else "off"),
        "block": Block,
        "tool_errors": lambda errors: ToolErrors(**read_fields(errors, {"window": read_seconds}, max="limit")),
    }
    return AttemptsPolicy(**read_fields(value, readers, max="max_attempts"))


def _read_caps(value: Written) -> Caps:
    counted = {key: item for key, item in value.items() if key != "per"}  # it has one value
    return Caps(**read_fields(counted, {"ttl": read_seconds, "by_address": read_switch}))


def _read_texts(items: JsonValue) -> tuple[str, ...]:
    return tuple(map(reveal, items))


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


# --- access to routes -------------------------------------------------------------------------------------------------
# Only the SHA-256 of a token is kept. A token in plain text must come from the environment or a secret file, so that no
# config file holds a usable token.
_HASHED: Final = re.compile(r"sha256:[0-9a-fA-F]{64}")
# RFC 6750 section 2.1: the grammar of a bearer token; clients could not send anything else.
_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
# Shorter tokens can be guessed; 16 characters from a good generator are about 95 bits.
_SHORTEST: Final = 16


def check_auth(context: Context, at: Pointer, value: JsonValue) -> None:
    """Reports unusable tokens."""
    if not isinstance(value, dict):
        return
    digests: dict[bytes, str] = {}
    for step, name, text in _list_tokens(value.get("bearer", ())):
        path = (*at, "bearer", step)
        if isinstance(text, Secret) and not _HASHED.fullmatch(text.reveal()):
            token = text.reveal()
            if not _TOKEN.fullmatch(token) or len(token) < _SHORTEST:
                hint = f"at least {_SHORTEST} letters, digits or -._~+/ (RFC 6750)"
                context.mistake(path, f"the token {name!r} is empty, too short or has other characters", hint)
        elif not _HASHED.fullmatch(reveal(text)):
            hint = "write `sha256:` and the hash of the token in hex, or ${ENV} or ${file:/path}"
            context.mistake(path, f"the token {name!r} would stand in the file", hint)
        other = digests.setdefault(_hash_token(text), name)
        if other != name:
            context.mistake(path, f"the tokens {other!r} and {name!r} are the same", "drop one of them")


def read_auth(value: JsonValue) -> Auth | None:
    """Reads an `auth` entry; None where it switches off."""
    if not isinstance(value, dict):
        return None
    tokens = tuple((name, _hash_token(text)) for _, name, text in _list_tokens(value.get("bearer", {})))
    return Auth(tokens, read_switch(value.get("forward", False)))


def read_cors(value: JsonValue) -> Cors | None:
    """Reads a `cors` entry; None where it switches off."""
    if not isinstance(value, dict):
        return Cors(upstream=True) if value == "upstream" else None
    readers = {"origins": lambda origins: frozenset(map(reveal, origins)), "headers": _read_texts}
    return Cors(**read_fields(value, {**readers, "max_age": read_seconds}))


def _list_tokens(tokens: JsonValue) -> Iterator[tuple[str | int, str, str]]:
    """(step in the config, name, text) of every token; tokens of a list are named by their number."""
    if isinstance(tokens, dict):
        yield from ((name, reveal(name), text) for name, text in tokens.items())
    else:
        yield from ((index, f"token-{index + 1}", text) for index, text in enumerate(tokens))


def _hash_token(text: str) -> bytes:
    token = reveal(text)
    if _HASHED.fullmatch(token):
        return bytes.fromhex(token.removeprefix("sha256:"))
    return hashlib.sha256(token.encode()).digest()


_READERS: Final[Mapping[str, Any]] = {
    "mode": Mode,
    "repair": _read_repair,
    "null_optional": NullOptional,
    "aliases": lambda names: {alias: reveal(name) for alias, name in names.items()},
    "unknown_keys": UnknownKeys,
    "leaked_markup": LeakedMarkup,
    "envelope": reveal,
    "error_status": reveal,
    "detail": reveal,
    "attempts": _read_attempts,
    "caps": _read_caps,
    "feedback": lambda value: FeedbackLimits(**read_fields(value, {"path_roots": _read_texts, "marks": read_switch})),
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
