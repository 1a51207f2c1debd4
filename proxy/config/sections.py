"""The sections that stand for themselves: addresses, upstreams, documents, telemetry."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Final
from urllib.parse import urlsplit

from proxy.config.context import Context
from proxy.config.mistakes import ConfigError
from proxy.config.model import Address, Admin, Guidance, HeaderChanges, HookEntry, Reload, Telemetry, Upstream
from proxy.config.network import check_address, read_upstream_tls, split_unix
from proxy.config.policies import headers_of
from proxy.config.resilience import guard_of
from proxy.config.secrets import reveal, revealed
from proxy.config.source import Files, Source
from proxy.config.units import address, seconds, size, switch
from proxy.core.framing import OF_THE_SENDER
from proxy.core.model import JsonValue, Pointer

# What a route says instead of an upstream's name.
NO_UPSTREAM: Final = "none"

# Each look reads and hashes every file.
_SHORTEST_LOOK: Final = 0.05
# RFC 9110 section 5.5: no line breaks and no NUL in a field value.
_BAD_HEADER_VALUE: Final = re.compile(r"[\r\n\0]")


def read_admin(context: Context) -> Admin | None:
    """The operator's port, or None where it is off."""
    value = context.structure.entry("admin")
    if value in ("off", False) and value is not None:
        return None
    written = value if isinstance(value, dict) else {}
    made: dict[str, Any] = {
        key: _address(context, ("admin", key), written[key], Admin().listen.port)
        for key in ("listen", "probes")
        if key in written
    }
    admin = Admin(**made, token=reveal(written.get("token", "")))
    if not admin.listen.is_loopback:
        context.notes.append(
            f"admin: {admin.listen} is no loopback address; whoever reaches it can see and reset state"
        )
    return admin


def _address(context: Context, path: Pointer, value: JsonValue, port: int) -> Address:
    made = address(value, port)
    check_address(context, path, value, made.port)
    return made


def check_addresses(context: Context, listen: Address, admin: Admin | None) -> None:
    """Reports calls and operator on one address."""
    if admin is None:
        return
    if admin.listen == listen and (listen.port != 0 or listen.unix):
        context.mistake(("admin",), f"calls come in at {listen} already", "give the operator a port of its own")
    probes = admin.probes
    if probes is not None and probes in (listen, admin.listen) and (probes.port != 0 or probes.unix):
        hint = "give the probes a port of their own, or leave them out: the operator's port has them too"
        context.mistake(("admin", "probes"), f"{probes} is taken already", hint)


def read_upstreams(context: Context, files: Files) -> dict[str, Upstream]:
    """The upstreams by name."""
    found: dict[str, Upstream] = {}
    for name, entry in context.entries("upstreams"):
        path = ("upstreams", name)
        if name == NO_UPSTREAM:
            context.mistake(path, "'none' means no upstream at all", "choose another name", key=True)
        if "url" in entry:
            found[name] = _upstream(context, files, name, entry)
    return found


def _upstream(context: Context, files: Files, name: str, entry: Mapping[str, JsonValue]) -> Upstream:
    path = ("upstreams", name)
    url, socket = split_unix(reveal(entry["url"]))
    _check_url(context, (*path, "url"), url)
    timeouts, pool = entry.get("timeouts", {}), entry.get("pool", {})
    made: dict[str, Any] = {
        field: seconds(timeouts[key])
        for key, field in (("connect", "connect_timeout"), ("response", "response_timeout"), ("idle", "idle_timeout"))
        if key in timeouts
    }
    if "idle" in pool:
        made["pool_idle"] = seconds(pool["idle"])
    if "connections" in pool:
        made["pool_connections"] = pool["connections"]
    if "buffer" in entry:
        made["buffer"] = size(entry["buffer"])
    if "tls" in entry:
        made["tls"] = read_upstream_tls(context, files, (*path, "tls"), entry["tls"], url)
    made["guard"] = guard_of(entry)
    return Upstream(
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
    """Header changes, looked through for names and values that must not go out."""
    for name, text in value.get("set", {}).items():
        if name.lower() in OF_THE_SENDER:
            context.mistake(
                (*path, "set", name), f"the header {name!r} is written by the proxy itself", "leave it out", key=True
            )
        if _BAD_HEADER_VALUE.search(reveal(text)):
            context.mistake((*path, "set", name), f"the value of {name!r} holds a line break or a NUL")
    return headers_of(value)


def read_documents(context: Context, files: Files) -> dict[str, Source]:
    """The registered schema documents by URI."""
    found: dict[str, Source] = {}
    for uri, name in context.mapping("documents").items():
        path = ("documents", uri)
        try:
            found[uri] = files.source(context.folder / reveal(name), reveal(name))
        except ConfigError as error:
            context.mistakes.extend(error.mistakes)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            context.mistake(path, f"cannot read {name}: {reason}", "paths start at the config file's folder")
    return found


def read_telemetry(context: Context) -> Telemetry:
    """What the proxy says about itself."""
    made = {f"log_{key}": value for key, value in _plain(context.mapping("telemetry", "log")).items()}
    written = context.mapping("telemetry")
    if "traces" in written:
        made["traces"] = reveal(written["traces"])
    if made.get("traces") == "otlp" and not has_otel():
        hint = "install it: pip install 'toolcall-proxy[otel]'"
        context.mistake(("telemetry", "traces"), "the libraries of OpenTelemetry are not there", hint)
    return Telemetry(**made)


def has_otel() -> bool:
    """Whether the extra `otel` is installed."""
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http.trace_exporter") is not None
    except ModuleNotFoundError:  # not even the packages around it
        return False


def read_reload(context: Context) -> Reload:
    """Whether and how often the files are looked at."""
    value = context.structure.entry("reload")
    if value in ("off", False) and value is not None:
        return Reload(None)
    if not isinstance(value, dict) or "interval" not in value:
        return Reload()
    interval = seconds(value["interval"])
    if interval < _SHORTEST_LOOK:
        hint = "2s finds a change soon enough; `reload: off` does not look"
        context.mistake(("reload", "interval"), "looking that often would do nothing else", hint)
    return Reload(interval)


def read_drain(context: Context) -> dict[str, float]:
    """How long to serve on once told to stop, and how long calls may then take to finish: `drain` and `finish`, as far
    as they are written."""
    value = context.structure.entry("drain")
    if value is None:
        return {}
    if not isinstance(value, dict):
        return {"drain": seconds(value)}
    fields = (("serve", "drain"), ("finish", "finish"))
    return {field: seconds(value[key]) for key, field in fields if key in value}


def read_guidance(context: Context) -> Guidance:
    """What agents are told before they call."""
    written = context.mapping("guidance")
    made: dict[str, Any] = {"max_chars": written["max_chars"]} if "max_chars" in written else {}
    if "dynamic_state" in written:
        made["dynamic_state"] = switch(written["dynamic_state"])
    return Guidance(**made)


def read_hooks(context: Context) -> tuple[HookEntry, ...]:
    """The hooks in their order. Whether they can be loaded is for those to say who load them."""
    entries = context.structure.entry("hooks")
    found = []
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        if not isinstance(entry, dict) or "use" not in entry:
            continue
        made: dict[str, Any] = {"settings": revealed(entry.get("settings", {}))}
        if "timeout" in entry:
            made["timeout"] = seconds(entry["timeout"])
        if "on_failure" in entry:
            made["on_failure"] = reveal(entry["on_failure"])
        at = context.source.places.at(("hooks", index))
        found.append(HookEntry(reveal(entry["use"]), at=at, **made))
    return tuple(found)


def read_workers(context: Context) -> int:
    """How many processes serve."""
    value = context.structure.entry("workers")
    return 1 if value is None else int(value)


def _plain(values: Mapping[str, JsonValue]) -> dict[str, Any]:
    return {key: reveal(value) if isinstance(value, str) else value for key, value in values.items()}
