"""Lists the current tools of a config's servers, for `toolcall-proxy pin`.

The proxy starts on a free loopback port with the routes of the config, except that every tool is shown as its server
lists it. So the requests for lists take the way of calls: over the network or to a process, alone or joined, with the
headers that the route sets.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from proxy.config.model import Config, Listen, RouteEntry, StateConfig
from proxy.core.contract.listed_tool import DEFINED, define_tool
from proxy.core.model.value_class import value_class
from proxy.core.model.values import Headers
from proxy.extensions.access.lock_file import Definition, Pins, digest_tool, find_hidden
from proxy.extensions.access.pins_section import find_operations
from proxy.extensions.operations.importing import read_source_again
from proxy.extensions.operations.importing.harvest import ImportProblem, Recorded
from proxy.interfaces import JoinsServers
from proxy.plugin import Loaded
from proxy.server import start_serving


@value_class
class PinChange:
    """One difference between the approved and the listed tools: new, changed or gone."""

    route: str
    tool: str
    kind: str


def list_pinned_routes(config: Config) -> list[RouteEntry]:
    """The routes whose tools a server lists, except those whose path has parameters, which have many servers; and those
    with HTTP operations."""
    return [route for route in config.routes if _has_list(route) or find_operations([route]).plain]


def _has_list(route: RouteEntry) -> bool:
    return route.listed is not None and "{" not in route.path


async def list_defined(loaded: Loaded, names: frozenset[str], headers: Headers) -> dict[str, dict[str, Definition]]:
    """The current definitions of the tools of these routes, by route: of listed tools, and of the config's operations.
    Raises ImportProblem, with the route, if a server does not answer."""
    with_lists = frozenset(route.name for route in loaded.config.routes if _has_list(route)) & names
    found = await ask_servers(loaded, with_lists, headers) if with_lists else {}
    for route in loaded.config.routes:
        operations = find_operations([route])
        if route.name in names and operations.plain:
            found.setdefault(route.name, {}).update(operations.plain)
        for name, request in operations.requests.items():
            if name in found.get(route.name, {}):
                found[route.name][name] = {**found[route.name][name], DEFINED[-1]: request}
    return found


async def ask_servers(loaded: Loaded, names: frozenset[str], headers: Headers) -> dict[str, dict[str, Definition]]:
    """The current lists of the servers of these routes, by route. Raises ImportProblem, with the route, where one does
    not answer."""
    config = loaded.config
    shown = tuple(map(_show_all, config.routes))
    plain = replace(
        config, routes=shown, listen=Listen(host="127.0.0.1", port=0), admin=None, sections={}, hooks=(), workers=1,
        state=StateConfig(),
    )  # fmt: skip
    serving = await start_serving(replace(loaded, config=plain), log_to=io.StringIO(), environ={})
    found: dict[str, dict[str, Definition]] = {}
    try:
        for route in filter(_has_list, plain.routes):
            if route.name in names:
                url = f"{serving.url}{route.path}"
                found[route.name] = await _ask(url, route.name, headers)
                _check_reached(serving.handler.snapshot.services.upstreams[route.upstream], route.name)
    finally:
        await serving.stop(grace=1.0)
    return found


def _check_reached(upstream: object, route: str) -> None:
    """Raises ImportProblem where one of several servers is out of reach: its tools are not in the list."""
    for server in upstream.list_servers() if isinstance(upstream, JoinsServers) else ():
        if server.down:
            hint = "nothing is written: pin when all servers of the route answer"
            raise ImportProblem(f"route {route!r}: server {server.name!r} is out of reach: {server.down}", hint)


async def _ask(url: str, route: str, headers: Headers) -> dict[str, Definition]:
    recorded = Recorded("mcp", url, url, frozenset(), {})
    try:
        harvest = await read_source_again(recorded, headers, Path())
    except ImportProblem as problem:
        message = f"route {route!r}: its server does not list its tools: {problem.message.replace(url, 'it')}"
        raise ImportProblem(message, problem.hint) from None
    return {name: define_tool(entry) for name, entry in harvest.definitions.items()}


def _show_all(route: RouteEntry) -> RouteEntry:
    """A route without rules on tools, which shows every tool as its server lists it."""
    if route.listed is None:
        return route
    policy = replace(route.policy, auth=None, cors=None, added={}, limits=None)
    return replace(route, listed=route.listed.show_all(), policy=policy)


# --- from approved to listed definitions ------------------------------------------------------------------------------
def list_pin_changes(
    before: Pins, now: Mapping[str, Mapping[str, Definition]], only: frozenset[str]
) -> list[PinChange]:
    """The differences, by route and tool."""
    found: list[PinChange] = []
    for route, tools in now.items():
        known = before.get(route, {})
        for name in sorted({*known, *tools}):
            if only and name not in only:
                continue
            if name not in tools or name not in known:
                found.append(PinChange(route, name, "new" if name in tools else "gone"))
            elif digest_tool(name, known[name]) != digest_tool(name, tools[name]):
                found.append(PinChange(route, name, "changed"))
    return found


def apply_pin_changes(before: Pins, now: Mapping[str, Mapping[str, Definition]], changes: list[PinChange]) -> Pins:
    """The approved definitions after these changes."""
    made = {route: dict(tools) for route, tools in before.items()} | {
        route: dict(before.get(route, {})) for route in now
    }
    for change in changes:
        if change.kind == "gone":
            del made[change.route][change.tool]
        else:
            made[change.route][change.tool] = now[change.route][change.tool]
    return made


def list_warnings(now: Mapping[str, Mapping[str, Definition]], changes: list[PinChange]) -> list[str]:
    """The suspicious parts of new and changed definitions."""
    others = frozenset(name for tools in now.values() for name in tools)
    return [
        f"{change.route} {change.tool}: {what}"
        for change in changes
        if change.kind != "gone"
        for what in find_hidden(now[change.route][change.tool], change.tool, others)
    ]
