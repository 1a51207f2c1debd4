"""Routes: how a request's path and body lead to a tool, and from there to an upstream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from proxy.adapters.base import CallShape
from proxy.config.access import check_auth
from proxy.config.combinations import PARAMETER, WrittenRoute, check_route
from proxy.config.context import Context
from proxy.config.mcp import McpReader
from proxy.config.mistakes import did_you_mean, one_of
from proxy.config.model import Policy, RouteEntry, Tool
from proxy.config.policies import Written, layered, pointer, policy_of, repair_policy
from proxy.config.secrets import reveal
from proxy.config.sections import NO_UPSTREAM, read_headers
from proxy.config.tools import NO_SCHEMA, Catalogue, check_policy, says_what
from proxy.config.units import switch
from proxy.core.model import JsonValue, Pointer
from proxy.core.rules import TEXT_RULES


class Routes:
    """Reads all routes. What is wrong is reported; a route that cannot be served is left out."""

    def __init__(self, context: Context, catalogue: Catalogue) -> None:
        self._context = context
        self._catalogue = catalogue
        self._upstreams = context.names("upstreams")
        self.used_upstreams: set[str] = set()

    def read(self) -> tuple[RouteEntry, ...]:
        """The routes in their order."""
        written = list(self._written())
        self._check_duplicates(written)
        return tuple(entry for route in written if (entry := self._route(route)) is not None)

    def _written(self) -> Iterator[WrittenRoute]:
        routes = self._context.structure.value.get("routes")
        steps = routes if isinstance(routes, dict) else range(len(routes)) if isinstance(routes, list) else ()
        for step in steps:
            at = ("routes", step)
            entry = self._context.structure.entry(*at)
            if not isinstance(entry, dict):
                continue
            if isinstance(step, str) and "path" in entry:
                message = "the path stands before the route already"
                self._context.mistake((*at, "path"), message, "drop it", key=True)
            if isinstance(step, str) or "path" in entry:
                yield WrittenRoute(at, entry, step if isinstance(step, str) else reveal(entry["path"]))

    def _route(self, route: WrittenRoute) -> RouteEntry | None:
        before = len(self._context.mistakes)
        check_route(self._context, route)
        self._check_upstream(route)
        listed = frozenset(route.entry.get("caps", {}).get("overrides", {})) if route.speaks_mcp else frozenset()
        check_policy(self._context, route.at, route.entry, self._catalogue.known_to_caps | listed)
        read_headers(self._context, (*route.at, "headers"), route.entry.get("headers", {}))
        check_auth(self._context, (*route.at, "auth"), route.entry.get("auth"))
        reader = McpReader(self._context, self._catalogue)
        mcp = reader.read(route.entry, route.at) if route.speaks_mcp else None
        tools = {} if route.passes or mcp is not None else self._tools(route)
        name = reveal(route.entry.get("tool", ""))
        hurt = any(self._context.structure.is_hurt(path) for path in (("defaults",), ("tools", name), route.at))
        if len(self._context.mistakes) > before or hurt:
            return None
        single = self._context.mapping("tools", name)
        policy = mcp.template if mcp else policy_of(layered(self._catalogue.defaults, single, route.entry))
        sends = route.upstream != NO_UPSTREAM
        return RouteEntry(
            name=route.name,
            path=route.path,
            methods=route.methods,
            kind="passthrough" if route.passes else "call" if sends else "validate",
            adapter="mcp" if mcp is not None else "dispatch" if "dispatch" in route.entry else "plain",
            shape=_shape(route, policy, tools),
            policy=policy,
            tools=tools,
            upstream=route.upstream if sends else "",
            upstream_path=route.upstream_path if sends else "",
            websocket=switch(route.entry.get("websocket", True)),
            mcp=mcp,
        )

    def _check_upstream(self, route: WrittenRoute) -> None:
        known = f"known: {one_of(self._upstreams)}" if self._upstreams else "add it under `upstreams`"
        at = (*route.at, "upstream")
        self.used_upstreams.add(route.upstream)
        if not route.upstream:
            if not self._context.structure.is_hurt(at):
                hint = f"{known}; `none` checks calls and sends them nowhere"
                self._context.mistake(route.at, "'upstream' is missing", hint, key=True)
        elif route.upstream not in (*self._upstreams, NO_UPSTREAM):
            hint = did_you_mean(route.upstream, self._upstreams) or known
            self._context.mistake(at, f"unknown upstream {route.upstream!r}", hint)

    # --- its tools ----------------------------------------------------------------------------------------------------
    def _tools(self, route: WrittenRoute) -> dict[str, Tool]:
        upstream = self._context.mapping("upstreams", route.upstream)
        headers = layered(upstream, self._catalogue.defaults, route.entry).get("headers", {})
        provided = frozenset(route.parameters) | frozenset(headers.get("set", {}))
        self._catalogue.contradictions(route.entry, route.at)
        found: dict[str, Tool] = {}
        for name, at in self._tool_names(route):
            if (tool := self._catalogue.tool(name, route.entry, route.at, provided)) is not None:
                found[name] = tool
            elif "tool" in route.entry:
                self._check_has_schema(route, name, at)
        return found

    def _tool_names(self, route: WrittenRoute) -> Iterator[tuple[str, Pointer]]:
        """The tools a route serves, each with the place that says so."""
        known = self._catalogue.names
        if "tool" in route.entry:
            yield reveal(route.entry["tool"]), (*route.at, "tool")
        elif "tool" not in route.parameters and "dispatch" not in route.entry:
            return
        elif not known:
            hint = "add the tools that may be called"
            self._context.mistake(route.at, "the catalogue `tools` is empty", hint, key=True)
        elif "tools" not in route.entry:
            yield from ((name, route.at) for name in known)
        else:
            for index, name in enumerate(map(reveal, route.entry["tools"])):
                at = (*route.at, "tools", index)
                if name in known:
                    yield name, at
                else:
                    hint = did_you_mean(name, known) or f"known: {one_of(known)}"
                    self._context.mistake(at, f"unknown tool {name!r}", hint)

    def _check_has_schema(self, route: WrittenRoute, name: str, at: Pointer) -> None:
        """A tool that could not be put together: because nothing says what it takes?"""
        hurt = any(self._context.structure.is_hurt((*route.at, key)) for key in ("schema", "container", "validation"))
        if name in self._catalogue.names or says_what(route.entry) or hurt:
            return
        nearest = did_you_mean(name, self._catalogue.names)
        hint = f"{nearest} Otherwise {NO_SCHEMA}" if nearest else NO_SCHEMA
        self._context.mistake(at, f"the tool {name!r} has no schema", hint)

    def _check_duplicates(self, routes: list[WrittenRoute]) -> None:
        """Two routes for one path and method, whatever the parameters are called; and two of one name."""
        served: dict[tuple[str, str], WrittenRoute] = {}
        named: dict[str, WrittenRoute] = {}
        for route in routes:
            if (other := named.setdefault(route.name, route)) is not route and "name" in route.entry:
                at = (*route.at, "name")
                self._context.mistake(
                    at, f"the name {route.name!r} is taken", f"by the route on line {self._line(other)}"
                )
            for method in route.methods:
                other = served.setdefault((PARAMETER.sub("{}", route.path), method), route)
                if other is not route:
                    message = f"{method} {route.path} is served already, by the route on line {self._line(other)}"
                    self._context.mistake(
                        route.path_at, message, "change one of the paths or methods", key=route.path_at == route.at
                    )
                    break

    def _line(self, route: WrittenRoute) -> int:
        return self._context.source.places.at(route.at)[0]


# --- where the call stands in the request -----------------------------------------------------------------------------
def _shape(route: WrittenRoute, policy: Policy, tools: dict[str, Tool]) -> CallShape:
    allowed = [repair_policy(tool.policy.repair).rules for tool in tools.values()]
    if route.speaks_mcp:
        allowed = [repair_policy(policy.repair).rules]
    # The text is repaired before the tool is known: only what every tool of the route allows.
    text_repairs = frozenset(TEXT_RULES).intersection(*allowed) if allowed else frozenset()
    made: dict[str, Any] = {"ladder": policy.ladder, "text": policy.text, "text_repairs": text_repairs}
    return CallShape(**made, **_where_tool(route.entry, route.parameters))


def _where_tool(entry: Written, names: tuple[str, ...]) -> dict[str, Any]:
    if "dispatch" in entry:
        return _dispatch(entry["dispatch"])
    if "tool" in entry:
        return {"tool": reveal(entry["tool"])}
    return {"tool_param": "tool"} if "tool" in names else {}


def _dispatch(value: JsonValue) -> dict[str, Any]:
    made: dict[str, Any] = {"tool_pointer": pointer(value["tool"]), "arguments_pointer": pointer(value["arguments"])}
    if "call_id" in value:
        made["call_id_pointer"] = pointer(value["call_id"])
    if "arguments_encoding" in value:
        made["arguments_encoding"] = reveal(value["arguments_encoding"])
    return made
