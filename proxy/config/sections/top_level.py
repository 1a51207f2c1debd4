"""Reads the smaller sections: operator's port, state, upstreams, documents, telemetry, reload, hooks, workers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

from proxy.config.context import Context
from proxy.config.files.secrets import reveal, reveal_all
from proxy.config.files.source import ConfigSource, Files, describe_failure
from proxy.config.mistakes import ConfigError
from proxy.config.model import (
    Address,
    AdminConfig,
    HeaderChanges,
    HookEntry,
    Reload,
    SecondJudging,
    StateConfig,
    Telemetry,
    UnknownKeywords,
    UpstreamConfig,
)
from proxy.config.policies import read_header_changes
from proxy.config.sections.network import check_address, read_upstream_tls, split_unix
from proxy.config.sections.resilience import read_guard
from proxy.config.sections.units import read_address, read_seconds, read_size, read_switch
from proxy.core.model.fields import OF_THE_SENDER
from proxy.core.model.values import JsonValue, Pointer
from proxy.extensions import BACKENDS, find_tracer, find_upstream_reader, find_workers, load_place

# The value of a route's `upstream` that means none.
NO_UPSTREAM: Final = "none"

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
    made: dict[str, Any] = {
        key: _read_address_at(context, ("admin", key), written[key], AdminConfig().listen.port)
        for key in ("listen", "probes")
        if key in written
    }
    admin = AdminConfig(**made, **_read_console(written))
    if admin.values != "off" and not admin.token:
        context.mistake(("admin", "values"), "values are shown only to who has the token", "add `token`")
    if admin.readers and admin.readers == admin.token:
        context.mistake(("admin", "readers"), "readers have the operator's token", "give them one of their own")
    if not admin.listen.is_loopback:
        _check_reach(context, admin)
    return admin


def _read_console(written: Mapping[str, JsonValue]) -> dict[str, Any]:
    """Reads the keys about the operator's pages and who may see them."""
    found: dict[str, Any] = {key: written[key] for key in ("token", "readers") if key in written}
    if "hosts" in written:
        found["hosts"] = frozenset(str(host).lower() for host in written["hosts"])
    if "console" in written:
        found["console"] = read_switch(written["console"])
    if "values" in written:
        found["values"] = "off" if written["values"] is False else written["values"]
    keep = written.get("keep", {})
    if "calls" in keep:
        found["keep_calls"] = keep["calls"]
    if "values" in keep:
        found["keep_values"] = read_size(keep["values"])
    return found


def _check_reach(context: Context, admin: AdminConfig) -> None:
    """Notes, or reports, an operator's port that other machines can reach without a token."""
    if admin.token:
        return
    context.notes.append(f"admin: {admin.listen} is not a loopback address; whoever reaches it can see and reset state")
    if admin.console:
        hint = "add `token`, listen on 127.0.0.1, or say `console: off`"
        context.mistake(("admin",), f"the console at {admin.listen} would be open to whoever reaches it", hint)


def _read_address_at(context: Context, path: Pointer, value: JsonValue, port: int) -> Address:
    made = read_address(value, port)
    check_address(context, path, value, made.port)
    return made


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
        hurt = any(context.structure.is_hurt((*path, key)) for key in ("url", "command"))
        if "url" in entry and "command" in entry:
            context.mistake(
                (*path, "command"), "`url` and `command` both say where the service is", "keep one", key=True
            )
        elif "url" in entry:
            found[name] = _read_upstream(context, files, name, entry)
        elif place := find_upstream_reader(entry):
            found[name] = load_place(place)(context, name, entry)
        elif not hurt:
            hint = "write `url: http://host:port`, or `command: [npx, -y, PACKAGE]` for an MCP server that speaks stdio"
            context.mistake(path, "'url' is missing", hint, key=True)
    return found


def _read_upstream(context: Context, files: Files, name: str, entry: Mapping[str, JsonValue]) -> UpstreamConfig:
    path = ("upstreams", name)
    for key in _OF_PROCESSES & entry.keys():
        context.mistake((*path, key), f"`{key}` has no effect beside `url`", "it belongs to `command`", key=True)
    url, socket = split_unix(reveal(entry["url"]))
    _check_url(context, (*path, "url"), url)
    timeouts, pool = entry.get("timeouts", {}), entry.get("pool", {})
    made: dict[str, Any] = {
        field: read_seconds(timeouts[key])
        for key, field in (("connect", "connect_timeout"), ("response", "response_timeout"), ("idle", "idle_timeout"))
        if key in timeouts
    }
    if "idle" in pool:
        made["pool_idle"] = read_seconds(pool["idle"])
    if "connections" in pool:
        made["pool_connections"] = pool["connections"]
    if "buffer" in entry:
        made["buffer"] = read_size(entry["buffer"])
    if "tls" in entry:
        made["tls"] = read_upstream_tls(context, files, (*path, "tls"), entry["tls"], url)
    if "health" in entry:
        made["health"] = reveal(entry["health"])
    made["guard"] = read_guard(entry)
    return UpstreamConfig(
        name, url, socket, headers=read_headers(context, (*path, "headers"), entry.get("headers", {})), **made
    )


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
            context.mistake(
                (*path, "set", name), f"the header {name!r} is written by the proxy itself", "leave it out", key=True
            )
        if _BAD_HEADER_VALUE.search(reveal(text)):
            context.mistake((*path, "set", name), f"the value of {name!r} holds a line break or a NUL")
    return read_header_changes(value)


def read_documents(context: Context, files: Files) -> dict[str, ConfigSource]:
    """The registered schema documents by URI."""
    found: dict[str, ConfigSource] = {}
    for uri, name in context.mapping("documents").items():
        try:
            found[uri] = files.source(context.folder / reveal(name), reveal(name))
        except ConfigError as error:
            context.mistakes.extend(error.mistakes)
        except (OSError, ValueError) as error:
            reason, hint = describe_failure(error), "paths start at the config file's folder"
            context.mistake(("documents", uri), f"cannot read {name}: {reason}", hint)
    return found


def read_state(context: Context, files: Files) -> StateConfig:
    """Reads where attempts and call counts are remembered."""
    written = context.mapping("state")
    made = {key: written[key] for key in ("backend", "max_keys") if key in written}
    state = StateConfig(**made)
    if state.backend not in BACKENDS:
        added = ((key, name) for name, (_, backend) in BACKENDS.items() for key in backend.keys if key in written)
        for key, name in added:
            message, hint = f"`{key}` has no effect on state in {state.backend}", f"write `backend: {name}`, or drop it"
            context.mistake(("state", key), message, hint, key=True)
        return state
    row, backend = BACKENDS[state.backend]
    if not row.is_installed:
        context.mistake(("state", "backend"), f"the backend {state.backend!r} {row.absence}")
        return state
    return replace(state, shared=load_place(backend.reader)(context, files, written))


def read_telemetry(context: Context) -> Telemetry:
    """Reads the settings of log and traces."""
    made = {f"log_{key}": value for key, value in _reveal_texts(context.mapping("telemetry", "log")).items()}
    written = context.mapping("telemetry")
    if "traces" in written:
        made["traces"] = reveal(written["traces"])
    if made.get("traces") == "otlp":
        row, at = find_tracer(), ("telemetry", "traces")
        if not row.is_installed:
            context.mistake(at, f"the value 'otlp' {row.absence}")
        elif missing := load_place(row.tracer_library)():
            context.mistake(at, missing, "install it: pip install '.[otel]' in a clone")
    return Telemetry(**made)


def read_reload(context: Context) -> Reload:
    """Reads whether and how often the files are checked for changes."""
    value = context.structure.entry("reload")
    if value in ("off", False) and value is not None:
        return Reload(None)
    if not isinstance(value, dict) or "interval" not in value:
        return Reload()
    interval = read_seconds(value["interval"])
    if interval < _SHORTEST_LOOK:
        hint = "2s finds a change soon enough; `reload: off` does not look"
        context.mistake(("reload", "interval"), "an interval this short leaves time for nothing else", hint)
    return Reload(interval)


def read_drain(context: Context) -> dict[str, Any]:
    """Reads `drain` (how long to serve on after the signal to stop), `finish` (how long calls may then take) and
    `stay_ready`, where they are present."""
    value = context.structure.entry("drain")
    if value is None:
        return {}
    if not isinstance(value, dict):
        return {"drain": read_seconds(value)}
    fields = (("serve", "drain"), ("finish", "finish"))
    made: dict[str, Any] = {field: read_seconds(value[key]) for key, field in fields if key in value}
    return made | ({"stay_ready": read_switch(value["stay_ready"])} if "stay_ready" in value else {})


def read_second_judge(context: Context) -> SecondJudging:
    """Which calls are judged twice: `second_judge`."""
    written = context.structure.entry("second_judge")
    if written in ("off", "always"):
        return "off" if written == "off" else "always"
    return "sampled"


def read_unknown_keywords(context: Context) -> UnknownKeywords:
    """What becomes of unknown keywords in schemas: `schemas.unknown_keywords`."""
    written: UnknownKeywords | None = context.mapping("schemas").get("unknown_keywords")
    return written or "misspelt"


def read_hooks(context: Context) -> tuple[HookEntry, ...]:
    """Reads the hooks in their order. Loading them happens elsewhere, and reports its own mistakes."""
    entries = context.structure.entry("hooks")
    found = []
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        if not isinstance(entry, dict) or "use" not in entry:
            continue
        made: dict[str, Any] = {"settings": reveal_all(entry.get("settings", {}))}
        if "timeout" in entry:
            made["timeout"] = read_seconds(entry["timeout"])
        if "on_failure" in entry:
            made["on_failure"] = reveal(entry["on_failure"])
        at = context.source.places.at(("hooks", index))
        found.append(HookEntry(reveal(entry["use"]), at=at, **made))
    return tuple(found)


def read_workers(context: Context) -> int:
    """Reads the number of worker processes."""
    value = context.structure.entry("workers")
    number, row = 1 if value is None else int(value), find_workers()
    if number > 1 and not row.is_installed:
        context.mistake(("workers",), f"the value {number} {row.absence}")
    return number


def read_memory(context: Context) -> int | None:
    """Reads the memory that bodies may take together, in bytes; None where the config does not say."""
    value = context.structure.entry("limits")
    return read_size(value["memory"]) if isinstance(value, dict) and "memory" in value else None


def _reveal_texts(values: Mapping[str, JsonValue]) -> dict[str, Any]:
    return {key: reveal(value) if isinstance(value, str) else value for key, value in values.items()}
