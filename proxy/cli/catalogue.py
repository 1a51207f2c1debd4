"""The tools of a config by name, for the verbs that speak of tools and not of routes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from proxy.config.model import Config, Tool
    from proxy.core.policy import ToolPolicy

NOTHING: Final = "the config names no tool with a schema  (what an MCP server lists, the running proxy knows)"


def known_tools(verb: str, path: str, wanted: Sequence[str] | None) -> tuple[Config, dict[str, ToolPolicy]] | None:
    """The config and its tools, for a verb that prints something for each; None where it has said what is wrong."""
    from proxy.config.load import load
    from proxy.config.mistakes import ConfigError

    try:
        config = load(path, os.environ).config
    except ConfigError as error:
        print(error, file=sys.stderr)
        return None
    found = tools_of(config, wanted)
    if isinstance(found, str):
        print(f"{verb}: {found}", file=sys.stderr)
        return None
    if not found:
        print(f"{verb}: {NOTHING}", file=sys.stderr)
    return config, {name: policy for name, (_, policy) in found.items()}


def tools_of(config: Config, wanted: Sequence[str] | None) -> dict[str, tuple[Tool, ToolPolicy]] | str:
    """Each tool as the first route serves it, as written and as compiled; what is wrong where one is not served.

    Of the tools that an MCP server lists, those are known whose schema stands in the config.
    """
    from proxy.config.mistakes import remark
    from proxy.routing import build_routes

    found: dict[str, tuple[Tool, ToolPolicy]] = {}
    for entry, route in zip(config.routes, build_routes(config).routes, strict=True):
        for name, policy in route.tools.items():
            found.setdefault(name, (entry.tools[name], policy))
        for name, tool in (entry.mcp.tools if entry.mcp is not None else {}).items():
            if route.learn is not None and tool.schema is not None:
                found.setdefault(name, (tool, route.learn.overlays[name].policy))
    for name in wanted or ():
        if name not in found:
            told = f"no route serves a tool {name!r}{remark(name, found)}"
            return f"{told}\ntools: {', '.join(found) or 'none'}"
    return found if wanted is None else {name: found[name] for name in wanted}
