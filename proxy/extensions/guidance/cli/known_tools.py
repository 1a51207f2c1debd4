"""Finds the tools of a config by name, for the verbs about tools."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from proxy.config.model import Config, ToolConfig
    from proxy.core.contract.policy import ToolPolicy

NOTHING: Final = "the config names no tool with a schema  (what an MCP server lists, the running proxy knows)"


def load_tools(verb: str, path: str, names: Sequence[str] | None) -> tuple[Config, dict[str, ToolPolicy]] | None:
    """Reads a config and its tools. None, with the reason printed under the verb's name, where that fails."""
    from proxy.config.load import load
    from proxy.config.mistakes import ConfigError

    try:
        config = load(path, os.environ).config
    except ConfigError as error:
        print(error, file=sys.stderr)
        return None
    found = find_tools(config, names)
    if isinstance(found, str):
        print(f"{verb}: {found}", file=sys.stderr)
        return None
    if not found:
        print(f"{verb}: {NOTHING}", file=sys.stderr)
    return config, {name: policy for name, (_, policy) in found.items()}


def find_tools(config: Config, names: Sequence[str] | None) -> dict[str, tuple[ToolConfig, ToolPolicy]] | str:
    """Tool -> (as written, as compiled) on the first route that serves it; a message where no route serves
    one of `names`.

    A tool that an MCP server lists is known only if its schema stands in the config.
    """
    from proxy.config.mistakes import suggest_remark
    from proxy.routing import build_routes

    found: dict[str, tuple[ToolConfig, ToolPolicy]] = {}
    # The routes of the config come first; those for an MCP server's metadata follow.
    for entry, route in zip(config.routes, build_routes(config).routes, strict=False):
        for name, policy in route.tools.items():
            found.setdefault(name, (entry.tools[name], policy))
        for name, tool in (entry.listed.tools if entry.listed is not None else {}).items():
            if route.learn is not None and tool.schema is not None:
                found.setdefault(name, (tool, route.learn.whole()[name]))
    for name in names or ():
        if name not in found:
            known = ", ".join(found) or "none"
            return f"no route serves a tool {name!r}{suggest_remark(name, found)}\ntools: {known}"
    return found if names is None else {name: found[name] for name in names}


def find_http(config: Config, names: Sequence[str]) -> list[dict[str, str]]:
    """The method and the URL at this proxy of each tool, with path parameters in braces. A route that serves one tool
    goes before a route that serves many."""
    found: dict[str, dict[str, str]] = {}
    for entry in sorted(config.routes, key=lambda entry: len(entry.tools)):
        method = "POST" if "POST" in entry.methods or not entry.methods else entry.methods[0]
        for name in names:
            if name in entry.tools or (entry.listed is not None and name in entry.listed.tools):
                path = entry.path.replace("{tool}", name)
                found.setdefault(name, {"method": method, "url": f"http://{config.listen.address}{path}"})
    return [found.get(name, {"method": "", "url": ""}) for name in names]
