"""Reads the smaller sections: operator's port, state, upstreams, documents, telemetry, reload, hooks, workers."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

from proxy.config.context import Context
from proxy.config.files.secrets import reveal, reveal_all
from proxy.config.files.source import Files
from proxy.config.keys.policy_keys import HEADERS
from proxy.config.model import (
    Address,
    AdminConfig,
    HeaderChanges,
    HookEntry,
    StateConfig,
    Telemetry,
    UpstreamConfig,
)
from proxy.config.sections.network import read_address, read_upstream_tls
from proxy.config.sections.units import read_fields, read_seconds, read_size, read_switch
from proxy.core.json.jsontext import make_decimal
from proxy.core.model.fields import OF_THE_SENDER
from proxy.core.model.values import JsonValue, Pointer
from proxy.core.tool_errors.backoff import BudgetPolicy
from proxy.core.tool_errors.circuit_breaker import BreakerPolicy, ConcurrencyPolicy, GuardPolicy
from proxy.plugin import KeepsState, RunsWorkers, SpeaksProtocol, TracesCalls
from proxy.plugins import find_plugin, find_plugins
from proxy.state import STORES

# The value of a route's `upstream` that means none.
NO_UPSTREAM: Final = "none"

# Keys about the operator's pages and who may see them.
_OF_PAGES: Final = ("token", "readers", "hosts", "console", "values")
# Keys that only an upstream with a command can have.
_OF_PROCESSES: Final = frozenset({"env", "pass_env", "cwd", "max_children", "idle_session", "shared"})
# The shortest reload interval: each check reads and hashes every file.
_SHORTEST_LOOK: Final = 0.05
# RFC 9110 section 5.5: field values contain no line breaks and no NUL.
_BAD_HEADER_VALUE: Final = re.compile(r"[\r\n\0]")


def read_admin(context: Context) -> AdminConfig | None:
    """The operator's port, or None where it is off."""
    value = context.structure.entry("admin")
    if value in ("off", False) and value is not None:
        return None
    written = value if isinstance(value, dict) else {}
    readers = {
        "hosts": lambda hosts: frozenset(str(host).lower() for host in hosts),
        "console": read_switch,
        "values": lambda mode: "off" if mode is False else mode,
    }
    made = read_fields({key: written[key] for key in _OF_PAGES if key in written}, readers)
    made |= read_fields(written.get("keep", {}), {"values": read_size}, calls="keep_calls", values="keep_values")
    for key in ("listen", "probes"):
        if key in written:
            made[key] = read_address(context, ("admin", key), written[key], AdminConfig().listen.port)
    admin = AdminConfig(**made)
    if admin.values != "off" and not admin.token:
        context.mistake(("admin", "values"), "values are shown only to who has the token", "add `token`")
    if admin.readers and admin.readers == admin.token:
        context.mistake(("admin", "readers"), "readers have the operator's token", "give them one of their own")
    if not admin.listen.is_loopback and not admin.token:
        reach = f"{admin.listen} is not a loopback address; whoever reaches it can see and reset state"
        context.notes.append(f"admin: {reach}")
        if admin.console:
            hint = "add `token`, listen on 127.0.0.1, or say `console: off`"
            context.mistake(("admin",), f"the console at {admin.listen} would be open to whoever reaches it", hint)
    return admin


def check_addresses(context: Context, listen: Address, admin: AdminConfig | None) -> None:
    """Reports two of calls, operator and probes on one address."""
    if admin is None:
        return
    if admin.listen == listen and (listen.port != 0 or listen.unix):
        context.mistake(("admin",), f"calls come in at {listen} already", "give the operator a port of its own")
    probes = admin.probes
    if probes is not None and probes in (listen, admin.listen) and (probes.port != 0 or probes.unix):
        hint = "give the probes a port of their own, or leave them out: the operator's port has them too"
        context.mistake(("admin", "probes"), f"{probes} is taken already", hint)


def read_upstreams(context: Context, files: Files) -> dict[str, UpstreamConfig]:
    """The upstreams by name."""
    found: dict[str, UpstreamConfig] = {}
    for name, entry in context.entries("upstreams"):
        path = ("upstreams", name)
        if name == NO_UPSTREAM:
            context.mistake(path, "'none' means no upstream at all", "choose another name", key=True)
        if "url" in entry and "command" in entry:
            message = "`url` and `command` both say where the service is"
            context.mistake((*path, "command"), message, "keep one", key=True)
        elif "url" in entry:
            found[name] = _read_upstream(context, files, name, entry)
        elif plugin := next(
            (p for p in find_plugins(SpeaksProtocol) if not entry.keys().isdisjoint(p.upstream_keys)), None
        ):
            found[name] = plugin.read_upstream(context, name, entry)
        elif not context.structure.has_mistake(path, "url", "command"):
            hint = "write `url: http://host:port`, or `command: [npx, -y, PACKAGE]` for an MCP server that speaks stdio"
            context.mistake(path, "'url' is missing", hint, key=True)
    return found


def _find_kind(entry: Mapping[str, JsonValue]) -> SpeaksProtocol | None:
    """The plugin with a key of an upstream in place of its URL."""
    return next(
        (each for each in find_plugins(SpeaksProtocol) if not entry.keys().isdisjoint(each.upstream_keys)), None
    )


def _read_upstream(context: Context, files: Files, name: str, entry: Mapping[str, JsonValue]) -> UpstreamConfig:
    path = ("upstreams", name)
    for key in _OF_PROCESSES & entry.keys():
        context.mistake((*path, key), f"`{key}` has no effect beside `url`", "it belongs to `command`", key=True)
    url, socket = reveal(entry["url"]), ""
    if url.startswith("unix:"):
        socket, _, prefix = url.removeprefix("unix:").partition(":")
        url = f"http://localhost{prefix}"  # its `Host`, because it has no name of its own
    _check_url(context, (*path, "url"), url)
    made: dict[str, Any] = {f"{key}_timeout": read_seconds(time) for key, time in entry.get("timeouts", {}).items()}
    pool = {f"pool_{key}": value for key, value in entry.get("pool", {}).items()}
    made |= read_fields(pool, {"pool_idle": read_seconds})
    if "buffer" in entry:
        made["buffer"] = read_size(entry["buffer"])
    if "tls" in entry:
        made["tls"] = read_upstream_tls(context, files, (*path, "tls"), entry["tls"], url)
    if "health" in entry:
        made["health"] = reveal(entry["health"])
    headers = read_headers(context, (*path, "headers"), entry.get("headers", {}))
    return UpstreamConfig(name, url, socket, headers=headers, guard=read_guard(entry), **made)


# The pool of an upstream whose answers are streams that stay open: sessions of MCP's old revisions, models' answers.
STREAM_CONNECTIONS: Final = 2048


def widen_pools(
    upstreams: Mapping[str, UpstreamConfig], names: Container[str], written: Mapping[str, JsonValue]
) -> dict[str, UpstreamConfig]:
    """The upstreams, with more connections for those of these names unless the config sets the number."""
    return {
        name: replace(upstream, pool_connections=STREAM_CONNECTIONS)
        if name in names and not _sets_connections(written.get(name))
        else upstream
        for name, upstream in upstreams.items()
    }


def _sets_connections(written: JsonValue) -> bool:
    pool = written.get("pool") if isinstance(written, dict) else None
    return isinstance(pool, dict) and "connections" in pool


def _read_share(percent: JsonValue) -> float:
    return float(make_decimal(percent)) / 100


def read_guard(entry: Mapping[str, JsonValue]) -> GuardPolicy:
    """Reads the breaker, concurrency limit and resend budget of an upstream from its entry."""
    breaker, concurrency = entry.get("breaker", "off"), entry.get("concurrency")
    guarded = bound = None
    if isinstance(breaker, dict):
        readers = {"failures": int, "percent": _read_share, "window": read_seconds, "calls": int}
        readers |= {"open": read_seconds, "probes": int}
        guarded = BreakerPolicy(**read_fields(breaker, readers, percent="ratio", open="open_for"))
    elif read_switch(breaker):
        guarded = BreakerPolicy()
    if isinstance(concurrency, dict):
        readers = {"limit": int, "wait": read_seconds, "queue": int}
        bound = ConcurrencyPolicy(**read_fields(concurrency, readers)) if "limit" in concurrency else None
    elif concurrency is not None:
        bound = ConcurrencyPolicy(int(concurrency))
    readers = {"percent": _read_share, "per_second": lambda number: float(make_decimal(number))}
    budget = BudgetPolicy(**read_fields(entry.get("resend_budget", {}), readers, percent="ratio"))
    return GuardPolicy(guarded, bound, budget)


def _check_url(context: Context, path: Pointer, url: str) -> None:
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname
    except ValueError:
        context.mistake(path, "the url's host or port cannot be read", "write http://host:port")
        return
    if parts.username is not None or parts.password is not None:
        hint = "set the header: `headers: {set: {authorization: ...}}`"
        context.mistake(path, "the url holds a user or a password", hint)
    if not host or port == 0:
        context.mistake(path, "the url has no host to connect to", "write http://host:port")


def read_headers(context: Context, path: Pointer, value: Mapping[str, JsonValue]) -> HeaderChanges:
    """Reads header changes, and reports names and values that must not be sent."""
    for name, text in value.get("set", {}).items():
        if name.lower() in OF_THE_SENDER:
            message = f"the header {name!r} is written by the proxy itself"
            context.mistake((*path, "set", name), message, "leave it out", key=True)
        if _BAD_HEADER_VALUE.search(reveal(text)):
            context.mistake((*path, "set", name), f"the value of {name!r} holds a line break or a NUL")
    changes: HeaderChanges = HEADERS.read(value)
    return changes


def read_state(context: Context, files: Files) -> StateConfig:
    """Reads where attempts and call counts are remembered."""
    written = context.mapping("state")
    made = {key: written[key] for key in ("backend", "max_keys") if key in written}
    state = StateConfig(**made)
    plugin = next((each for each in find_plugins(KeepsState) if each.backend == state.backend), None)
    if plugin is None:
        keepers = find_plugins(KeepsState)
        for key, name in ((key, each.backend) for each in keepers for key in each.state_keys if key in written):
            message, hint = f"`{key}` has no effect on state in {state.backend}", f"write `backend: {name}`, or drop it"
            context.mistake(("state", key), message, hint, key=True)
        if state.backend not in STORES:
            message = f"no plugin that keeps state in {state.backend!r} is installed"
            context.mistake(("state", "backend"), message, f"write `backend: {StateConfig().backend}`")
        return state
    return replace(state, shared=plugin.read_state(context, files, written))


def read_single_keys(context: Context) -> dict[str, Any]:
    """The fields of `Config` that the smaller keys say, without those whose default stands in `Config`."""
    made: dict[str, Any] = {
        "telemetry": _read_telemetry(context),
        "hooks": _read_hooks(context),
    }
    entry, limits = context.structure.entry, context.mapping("limits")
    if entry("reload") in ("off", False):
        made["reload"] = None
    elif "interval" in (looks := context.mapping("reload")):
        made["reload"] = read_seconds(looks["interval"])
        if made["reload"] < _SHORTEST_LOOK:
            hint = "2s finds a change soon enough; `reload: off` does not look"
            context.mistake(("reload", "interval"), "an interval this short leaves time for nothing else", hint)
    if "memory" in limits:
        made["memory"] = read_size(limits["memory"])
    drain = entry("drain")
    if isinstance(drain, dict):
        readers = {"serve": read_seconds, "finish": read_seconds, "stay_ready": read_switch}
        made |= read_fields(drain, readers, serve="drain")
    elif drain is not None:
        made["drain"] = read_seconds(drain)
    if (number := entry("workers")) is not None:
        made["workers"] = int(number)
        if int(number) > 1 and find_plugin(RunsWorkers) is None:
            context.mistake(("workers",), "no plugin that runs several workers is installed", "write `workers: 1`")
    return made


def _read_telemetry(context: Context) -> Telemetry:
    """Reads the settings of log and traces."""
    made: dict[str, Any] = {f"log_{key}": reveal(value) for key, value in context.mapping("telemetry", "log").items()}
    written = context.mapping("telemetry")
    if "traces" in written:
        made["traces"] = reveal(written["traces"])
    if made.get("traces") == "otlp":
        plugin, at = find_plugin(TracesCalls), ("telemetry", "traces")
        if plugin is None:
            context.mistake(at, "no plugin that traces is installed", "write `traces: off`")
        elif missing := plugin.find_missing():
            context.mistake(at, missing, "install it: pip install '.[otel]' in a clone")
    return Telemetry(**made)


def _read_hooks(context: Context) -> tuple[HookEntry, ...]:
    """Reads the hooks in their order. Loading them happens elsewhere, and reports its own mistakes."""
    entries = context.structure.entry("hooks")
    found = []
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        if not isinstance(entry, dict) or "use" not in entry:
            continue
        readers = {"use": reveal, "timeout": read_seconds, "on_failure": reveal, "settings": reveal_all}
        at = context.source.places.at(("hooks", index))
        found.append(HookEntry(**read_fields(entry, readers), at=at))
    return tuple(found)
