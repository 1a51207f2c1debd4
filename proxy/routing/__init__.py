"""From a loaded config to the route of a request: `build.py` compiles the routes, `table.py` finds the route of a
request, `dry_run.py` that of a dry run.
"""

from __future__ import annotations

from proxy.routing.build import build_routes, name_routes
from proxy.routing.table import (
    DryRoute,
    DryTarget,
    LeftOutOperation,
    Match,
    MethodNotAllowed,
    Route,
    RouteTable,
    find_dry_target,
    walk_trie,
)

__all__ = [
    "DryRoute",
    "DryTarget",
    "LeftOutOperation",
    "Match",
    "MethodNotAllowed",
    "Route",
    "RouteTable",
    "build_routes",
    "find_dry_target",
    "name_routes",
    "walk_trie",
]
