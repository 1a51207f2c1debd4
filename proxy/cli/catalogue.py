"""The tools of a config by name, for the verbs that speak of tools and not of routes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxy.config.model import Config, Tool
    from proxy.core.policy import ToolPolicy


def tools_of(config: Config, wanted: Sequence[str] | None) -> dict[str, tuple[Tool, ToolPolicy]] | str:
    """Each tool as the first route serves it, as written and as compiled; what is wrong where one is not served."""
    from proxy.config.mistakes import did_you_mean
    from proxy.routing import build_routes

    found: dict[str, tuple[Tool, ToolPolicy]] = {}
    for entry, route in zip(config.routes, build_routes(config).routes, strict=True):
        for name, policy in route.tools.items():
            found.setdefault(name, (entry.tools[name], policy))
    for name in wanted or ():
        if name not in found:
            told = f"no route serves a tool {name!r} {did_you_mean(name, found)}".rstrip()
            return f"{told}\ntools: {', '.join(found) or 'none'}"
    return found if wanted is None else {name: found[name] for name in wanted}
