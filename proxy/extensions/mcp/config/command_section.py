"""Reads `upstreams.NAME.command`: an MCP server that the proxy starts as a process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from proxy.config.context import Context
from proxy.config.files.secrets import reveal
from proxy.config.model import UpstreamConfig, find_default
from proxy.config.sections.top_level import read_guard
from proxy.config.sections.units import read_seconds, read_switch
from proxy.core.model.values import JsonValue
from proxy.extensions.mcp.config.model import Command

# Keys that only an upstream with a URL can have.
_OF_CONNECTIONS: Final = frozenset({"pool", "tls", "headers", "buffer", "health"})


def read_process(context: Context, name: str, entry: Mapping[str, JsonValue]) -> UpstreamConfig:
    """Reads an upstream that the proxy starts as a process."""
    path = ("upstreams", name)
    for key in _OF_CONNECTIONS & entry.keys():
        context.mistake((*path, key), f"`{key}` has no effect beside `command`", "drop it", key=True)
    made: dict[str, Any] = {}
    if "cwd" in entry:
        made["cwd"] = str((context.folder / reveal(entry["cwd"])).resolve())
        if not Path(made["cwd"]).is_dir():
            hint = "paths start at the config file's folder"
            context.mistake((*path, "cwd"), f"there is no folder {reveal(entry['cwd'])!r}", hint)
    if "pass_env" in entry:
        made["pass_all"] = reveal(entry["pass_env"]) == "all"
    if "max_children" in entry:
        made["max_children"] = entry["max_children"]
    if "idle_session" in entry:
        made["idle"] = read_seconds(entry["idle_session"])
    if "shared" in entry:
        made["shared"] = read_switch(entry["shared"])
    words = tuple(reveal(word) for word in entry["command"])
    environment = {key: reveal(value) for key, value in entry.get("env", {}).items()}
    timeouts = entry.get("timeouts", {})
    response = (
        read_seconds(timeouts["response"])
        if "response" in timeouts
        else find_default(UpstreamConfig, "response_timeout")
    )
    command = Command(words, environment, **made)
    return UpstreamConfig(name, "", response_timeout=response, guard=read_guard(entry), added=command)
