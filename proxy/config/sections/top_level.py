"""Reads the smaller sections: operator's port, state, upstreams, documents, telemetry, reload, hooks, workers."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

from proxy.config.context import Context
from proxy.config.files.secrets import reveal
from proxy.config.files.source import Files
from proxy.config.keys.policy_keys import HEADERS
from proxy.config.keys.section_keys import ADMIN, HOOK, SINGLE_KEYS, STATE, TELEMETRY
from proxy.config.keys.upstream_keys import GUARD, UPSTREAM
from proxy.config.model import Address, AdminConfig, HeaderChanges, HookEntry, StateConfig, Telemetry, UpstreamConfig
from proxy.config.sections.network import read_address, read_upstream_tls
from proxy.core.model.fields import OF_THE_SENDER
from proxy.core.model.values import JsonValue, Pointer
from proxy.plugin import HostsProcess, ObservesCalls, SpeaksProtocol
from proxy.plugins import find_plugins
from proxy.state import list_keepers

# The value of a route's `upstream` that means none.
NO_UPSTREAM: Final = "none"

# The shortest reload interval: each check reads and hashes every file.
_SHORTEST_LOOK: Final = 0.05
# RFC 9110 section 5.5: field values contain no line breaks and no NUL.
_BAD_HEADER_VALUE: Final = re.compile(r"[\r\n\0]")


def read_admin(context: Context, listen: Address) -> AdminConfig | None:
    """The operator's port, by default the one above `listen`; None if it is off."""
    value = context.structure.entry("admin")
    if value in ("off", False) and value is not None:
        return None
    written = value if isinstance(value, dict) else {}
    made = {"listen": listen.above, **ADMIN.read(written)}
    for key in ("listen", "probes"):
        if key in written:
            made[key] = read_address(context, ("admin", key), written[key], listen.above.port)
    admin = AdminConfig(**made)
    if admin.values != "off" and not admin.token:
        context.mistake(("admin", "values"), "values are shown only to who has the token", "add `token`")
    if admin.readers and admin.readers == admin.token:
        context.mistake(("admin", "readers"), "readers have the operator's token", "give them another one")
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
        context.mistake(("admin",), f"calls come in at {listen} already", "give the operator another port")
    probes = admin.probes
    if probes is not None and probes in (listen, admin.listen) and (probes.port != 0 or probes.unix):
        hint = "give the probes another port, or leave them out: the operator's port has them too"
        context.mistake(("admin", "probes"), f"{probes} is taken already", hint)


def read_upstreams(context: Context, files: Files) -> dict[str, UpstreamConfig]:
    """The upstreams by name."""
    found: dict[str, UpstreamConfig] = {}
    makers = {each.upstream_keys[0]: each for each in find_plugins(SpeaksProtocol) if each.upstream_keys}
    for name, entry in context.entries("upstreams"):
        path = ("upstreams", name)
        if name == NO_UPSTREAM:
            context.mistake(path, "'none' means no upstream at all", "choose another name", key=True)
        key = next((key for key in makers if key in entry), "")
        if "url" in entry and key:
            context.mistake((*path, key), f"`url` and `{key}` both name the service", "keep one", key=True)
        elif "url" in entry:
            found[name] = _read_upstream(context, files, name, entry)
        elif key:
            found[name] = makers[key].read_upstream(context, name, entry)
        elif not context.structure.has_mistake(path, "url", *makers):
            hint = ", or ".join(["write `url: http://host:port`", *(each.upstream_hint for each in makers.values())])
            context.mistake(path, "'url' is missing", hint, key=True)
    return found


def _read_upstream(context: Context, files: Files, name: str, entry: Mapping[str, JsonValue]) -> UpstreamConfig:
    path = ("upstreams", name)
    for first, *more in (each.upstream_keys for each in find_plugins(SpeaksProtocol) if each.upstream_keys):
        for key in (key for key in more if key in entry):
            context.mistake((*path, key), f"`{key}` has no effect beside `url`", f"it belongs to `{first}`", key=True)
    url, socket = reveal(entry["url"]), ""
    if url.startswith("unix:"):
        socket, _, prefix = url.removeprefix("unix:").partition(":")
        url = f"http://localhost{prefix}"  # its `Host`, because it has no name
    _check_url(context, (*path, "url"), url)
    made = UPSTREAM.read(entry)
    if "tls" in entry:
        made["tls"] = read_upstream_tls(context, files, (*path, "tls"), entry["tls"], url)
    headers = read_headers(context, (*path, "headers"), entry.get("headers", {}))
    return UpstreamConfig(name, url, socket, headers=headers, guard=GUARD.read(entry), **made)


# The pool of an upstream whose answers are streams that stay open: sessions of MCP's old revisions, models' answers.
STREAM_CONNECTIONS: Final = 2048


def widen_pools(
    upstreams: Mapping[str, UpstreamConfig], names: Container[str], written: Mapping[str, JsonValue]
) -> dict[str, UpstreamConfig]:
    """The upstreams, with more connections for those of these names unless the config sets the number."""
    return {
        name: replace(upstream, pool_connections=STREAM_CONNECTIONS)
        if name in names and "connections" not in written.get(name, {}).get("pool", {})
        else upstream
        for name, upstream in upstreams.items()
    }


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
    state: StateConfig = STATE.read(written)
    others = [each for each in list_keepers() if each.backend != state.backend]
    for key, name in ((key, each.backend) for each in others for key in each.state_keys if key in written):
        message, hint = f"`{key}` has no effect on state in {state.backend}", f"write `backend: {name}`, or drop it"
        context.mistake(("state", key), message, hint, key=True)
    keeper = next(each for each in list_keepers() if each.backend == state.backend)
    return replace(state, shared=keeper.read_state(context, files, written))


def read_single_keys(context: Context) -> dict[str, Any]:
    """Returns the fields of `Config` that the smaller keys set, without those whose default is in `Config`."""
    written = ((key.name, context.structure.entry(key.name)) for key in SINGLE_KEYS.keys or ())
    made: dict[str, Any] = SINGLE_KEYS.read({key: value for key, value in written if value is not None})
    if "interval" in context.mapping("reload") and made["reload"] < _SHORTEST_LOOK:
        hint = "2s finds a change soon enough; `reload: off` does not look"
        context.mistake(("reload", "interval"), "an interval this short leaves time for nothing else", hint)
    if made.get("workers", 1) > 1 and not any(each.runs_workers for each in find_plugins(HostsProcess)):
        context.mistake(("workers",), "no plugin that runs several workers is installed", "write `workers: 1`")
    telemetry: Telemetry = TELEMETRY.read(context.mapping("telemetry"))
    if telemetry.traces == "otlp":
        at, plugin = ("telemetry", "traces"), next((each for each in find_plugins(ObservesCalls) if each.traces), None)
        if plugin is None:
            context.mistake(at, "no plugin that traces is installed", "write `traces: off`")
        elif missing := plugin.find_missing():
            context.mistake(at, missing, "install it: pip install '.[otel]' in a clone")
    return made | {"telemetry": telemetry, "hooks": _read_hooks(context)}


def _read_hooks(context: Context) -> tuple[HookEntry, ...]:
    """Reads the hooks in their order. Loading them happens elsewhere, and reports its own mistakes."""
    entries = context.structure.entry("hooks")
    return tuple(
        HookEntry(**HOOK.read(entry), at=context.source.places.at(("hooks", index)))
        for index, entry in enumerate(entries if isinstance(entries, list) else ())
        if isinstance(entry, dict) and "use" in entry
    )
