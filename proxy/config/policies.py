"""Policies: the keys that `defaults`, a tool and a route may all have, merged in layers.

The layer nearest to the request wins: a route's own key over the tool's, the tool's over `defaults`. Mappings are
merged key by key (`attempts: {max: 5}` keeps an outer ttl); lists and plain values replace.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from proxy.config.context import Context
from proxy.config.files.secrets import Secret, reveal
from proxy.config.keys.access_keys import HASHED, hash_token, list_tokens
from proxy.config.keys.policy_keys import IDEMPOTENCY, LIMITS, POLICY_KEYS, RESEND
from proxy.config.model import Policy
from proxy.config.sections.units import read_size, read_switch
from proxy.core.contract.policy import RepairPolicy, ResendPolicy
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue, Pointer
from proxy.plugin import AddsKeys
from proxy.plugins import find_plugins, list_plugins

_KEYS: Final = frozenset(key.name for key in POLICY_KEYS)
# Key -> its field of `Policy`, and its reader.
_READERS: Final = {key.name: (key.field or key.name, key.kind.read) for key in POLICY_KEYS if key.is_read}
_TOOL_KEYS: Final = frozenset(key.name for key in POLICY_KEYS if key.of_tool)
_WHOLE: Final = frozenset(key.name for key in POLICY_KEYS if key.is_whole)
_SPREADING: Final = {key.name: key.spread for key in POLICY_KEYS if key.spread is not None}

Written = Mapping[str, JsonValue]


@value_class
class _AddedKeys:
    """The keys that plugins add to a policy and to its `limits`, each with its plugin, and the keys of all policies."""

    policy: Mapping[str, AddsKeys]
    limits: Mapping[str, AddsKeys]
    known: frozenset[str]
    of_tools: frozenset[str]
    whole: frozenset[str]
    joined: frozenset[str]


@cache
def _list_added(number: int) -> _AddedKeys:  # noqa: ARG001 - so many plugins are loaded
    plugins = find_plugins(AddsKeys)
    policy = {key: plugin for plugin in plugins for key in plugin.policy_keys}
    return _AddedKeys(
        policy,
        {key: plugin for plugin in plugins for key in plugin.limit_keys},
        frozenset([*_KEYS, *policy]),
        _TOOL_KEYS.union(*(plugin.tool_keys for plugin in plugins)),
        _WHOLE.union(*(plugin.whole_keys for plugin in plugins)),
        frozenset(key for plugin in plugins for key in plugin.joined_keys),
    )


def _find_added() -> _AddedKeys:
    return _list_added(len(list_plugins()))


def list_tool_keys() -> frozenset[str]:
    """The policy keys that apply to one tool; the others are decided before the tool is known."""
    return _find_added().of_tools


def merge_layers(*layers: Written) -> dict[str, JsonValue]:
    """The policy keys of the layers, merged. Outer layers come first; later ones win."""
    merged: dict[str, JsonValue] = {}
    added = _find_added()
    for layer in layers:
        for key in filter(added.known.__contains__, layer):
            value = layer[key]
            if key in _SPREADING:
                value = _SPREADING[key](value)
            outer = merged.get(key)
            if key in added.joined and isinstance(outer, list) and isinstance(value, list):
                merged[key] = [*outer, *value]
            else:
                merged[key] = _merge(None if key in added.whole else outer, value)
    return merged


def name_scope(layer: Written, scope: str) -> Written:
    """Returns a layer whose limits on calls name their place: those of one place are counted together. A single limit
    becomes a list, so that an inner layer's replaces an outer one as a whole."""
    limits, counting = layer.get("limits"), _find_added().limits.keys()
    if not isinstance(limits, dict) or limits.keys().isdisjoint(counting):
        return layer
    scoped: dict[str, JsonValue] = {}
    for key in counting & limits.keys():
        value = limits[key]
        if isinstance(value, dict | list):
            listed = value if isinstance(value, list) else [value]
            scoped[key] = [{**each, "scope": scope} for each in listed if isinstance(each, dict)]
        elif value in ("off", False):
            scoped[key] = []
    return {**layer, "limits": limits | scoped}


def _merge(below: JsonValue, above: JsonValue) -> JsonValue:
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    return {**below, **{key: _merge(below.get(key), value) for key, value in above.items()}}


def read_policy(written: Written) -> Policy:
    """The policy of a merged mapping; missing keys have their defaults."""
    made: dict[str, Any] = {}
    values: dict[str, Any] = {}
    added = _find_added()
    for key, item in written.items():
        if key in _READERS:
            field, read = _READERS[key]
            made[field] = read(item)
        elif key in added.policy and (value := added.policy[key].read_policy_key(key, item)) is not None:
            values[key] = value
    made["added"] = values
    made["resend"] = _read_resend(written)
    if "limits" in written:
        limits = written["limits"]
        made["text"] = LIMITS.read(limits)
        if "body" in limits:
            made["max_body"] = read_size(limits["body"])
        listed = ((key, plugin) for key, plugin in added.limits.items() if limits.get(key))
        bounds = {key: plugin.read_policy_key(key, limits[key]) for key, plugin in listed}
        made["limits"] = {key: bound for key, bound in bounds.items() if bound is not None} or None
    return Policy(**made)


def _read_resend(written: Written) -> ResendPolicy:
    made = RESEND.read(written.get("resend", {})) | IDEMPOTENCY.read(written.get("idempotency", {}))
    made["idempotent"] = read_switch(written.get("idempotent", False))
    # draft-ietf-httpapi-idempotency-key-header names the header of generated keys.
    usual = "Idempotency-Key" if made.get("mint_key") else ""
    made["key_header"] = made.get("key_header", usual).lower()
    return ResendPolicy(**made)


def make_repair_policy(policy: Policy, *, listed: bool = False) -> RepairPolicy:
    """Returns what a policy says of repairs. `listed`: the tool is listed by its server."""
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


# RFC 6750 section 2.1: the grammar of a bearer token; clients could not send anything else.
_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
# Shorter tokens can be guessed; 16 characters from a good generator are about 95 bits.
_SHORTEST: Final = 16


def check_auth(context: Context, at: Pointer, value: JsonValue) -> None:
    """Reports unusable tokens."""
    if not isinstance(value, dict):
        return
    digests: dict[bytes, str] = {}
    for step, name, text in list_tokens(value.get("bearer", ())):
        path = (*at, "bearer", step)
        if isinstance(text, Secret) and not HASHED.fullmatch(text.reveal()):
            token = text.reveal()
            if not _TOKEN.fullmatch(token) or len(token) < _SHORTEST:
                hint = f"at least {_SHORTEST} letters, digits or -._~+/ (RFC 6750)"
                context.mistake(path, f"the token {name!r} is empty, too short or has other characters", hint)
        elif not HASHED.fullmatch(reveal(text)):
            hint = "write `sha256:` and the hash of the token in hex, or ${ENV} or ${file:/path}"
            context.mistake(path, f"the token {name!r} would be in the file", hint)
        other = digests.setdefault(hash_token(text), name)
        if other != name:
            context.mistake(path, f"the tokens {other!r} and {name!r} are the same", "drop one of them")
