"""Reads routes: how the path and body of a request lead to a tool and to its upstream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol

from proxy.adapters.base import CallShape
from proxy.config.combinations import PARAMETER, WrittenRoute, check_route, find_protocol
from proxy.config.context import Context
from proxy.config.files.secrets import restore_written, reveal
from proxy.config.keys.route_keys import DISPATCH
from proxy.config.mistakes import DROP_ONE, join_words, suggest_word
from proxy.config.model import LeftOutEntry, ListedRoute, PluginSettings, Policy, RouteEntry, ToolConfig, UpstreamConfig
from proxy.config.policies import check_auth, make_repair_policy, merge_layers
from proxy.config.sections.top_level import NO_UPSTREAM, read_headers
from proxy.config.sections.units import read_switch
from proxy.config.tools import NO_SCHEMA, ToolReader, check_policy, is_tool_defined
from proxy.core.contract.request_rules import ChannelJudge, QueryPolicy, RequestForm
from proxy.core.model.value_class import share
from proxy.core.model.values import JsonValue, Pointer
from proxy.core.rules.rules import TEXT_RULES
from proxy.plugins import find_requests

# The rule by which an absent body is `{}`; for an HTTP operation it is applied while the request is read.
_EMPTY: Final = "empty_arguments"


class RouteKindReader(Protocol):
    """Reads what a route of a plugin's protocol says beyond the keys of every route."""

    def read(self, route: WrittenRoute, read_tools: Callable[[WrittenRoute], dict[str, ToolConfig]]) -> ListedRoute:
        """Returns what the route does with its tools; `read_tools` reads those of the catalogue that it names."""

    def name_tools(self, route: WrittenRoute, known: tuple[str, ...]) -> Iterator[tuple[str, Pointer]]:
        """The tools of the catalogue that the route names, each with the place of its name."""

    def complete_upstreams(
        self, upstreams: Mapping[str, UpstreamConfig], routes: tuple[RouteEntry, ...], written: Mapping[str, JsonValue]
    ) -> dict[str, UpstreamConfig]:
        """Returns the upstreams that the routes need, and those that represent others."""

    def make_metadata_routes(
        self, routes: tuple[RouteEntry, ...], upstreams: Mapping[str, UpstreamConfig]
    ) -> tuple[RouteEntry, ...]:
        """Routes that the config does not name, beside its own."""


class Routes:
    """Reads all routes; reports mistakes, and leaves out routes that cannot be served."""

    def __init__(self, context: Context, catalogue: ToolReader) -> None:
        self._context = context
        self._catalogue = catalogue
        self._upstreams = context.names("upstreams")
        self.kinds: dict[str, RouteKindReader] = {}
        """Reads the routes of a plugin's protocol, which is imported for the first of them."""
        self.left_out: tuple[LeftOutEntry, ...] = ()

    def read(self) -> tuple[RouteEntry, ...]:
        """The routes, in their order."""
        written = list(self._list_written())
        self._check_duplicates(
            [route for route in written if route.path_at != route.at or isinstance(route.at[-1], str)]
        )
        entries: list[RouteEntry] = []
        for route in written:
            if "refuse" in route.entry:
                for key in route.entry.keys() - {"path", "methods", "refuse"}:
                    self._context.mistake(
                        (*route.at, key), f"`{key}` has no effect beside `refuse`", DROP_ONE, key=True
                    )
                self.left_out += (LeftOutEntry(route.path, route.methods, reveal(route.entry["refuse"])),)
            elif (entry := self._read_route(route)) is not None:
                entries.append(entry)
        return tuple(entries)

    def _list_written(self) -> Iterator[WrittenRoute]:
        routes = self._context.structure.value.get("routes")
        steps = routes if isinstance(routes, dict) else range(len(routes)) if isinstance(routes, list) else ()
        for step in steps:
            at = ("routes", step)
            entry = self._context.structure.entry(*at)
            if not isinstance(entry, dict):
                continue
            if isinstance(step, str) and "path" in entry:
                message = "the path is already the key of the route"
                self._context.mistake((*at, "path"), message, "drop it", key=True)
            if isinstance(step, str) or "path" in entry:
                yield WrittenRoute(at, entry, step if isinstance(step, str) else reveal(entry["path"]))
            elif not entry.keys().isdisjoint(("tool", "tools")):  # its path is reported already, and the rest checked
                yield WrittenRoute(at, entry, "/")

    def _read_route(self, route: WrittenRoute) -> RouteEntry | None:
        before = len(self._context.mistakes)
        self._check_keys(route)
        listed = self._read_listed(route)
        relay = route.relay
        relayed_by = None if relay is None else PluginSettings(route.relay_key, relay.read_relay(self._context, route))
        tools = {} if route.passes or listed is not None else self._read_tools(route)
        name = reveal(route.entry.get("tool", ""))
        is_reported = any(
            self._context.structure.has_mistake(path) for path in (("defaults",), ("tools", name), route.at)
        )
        if len(self._context.mistakes) > before or is_reported:
            return None
        written = self._catalogue.merge_policy(name, route.entry, route.at)
        policy = listed.template if listed else self._catalogue.read_policy(written)
        sends = route.upstream != NO_UPSTREAM
        channels, query = self._read_channels(route, name, tools if listed is None else listed.tools)
        request = self._find_request(route, tools.get(name))
        return RouteEntry(
            name=route.name,
            path=route.path,
            methods=route.methods,
            kind="passthrough" if route.passes else "call" if sends else "validate",
            adapter=_choose_adapter(route, request is not None),
            shape=_make_shape(route, policy, tools, is_operation=request is not None),
            policy=policy,
            tools=tools,
            upstream=(listed or route).upstream if sends else "",
            upstream_path=(listed or route).upstream_path if sends else "",
            websocket=read_switch(route.entry.get("websocket", True)),
            listed=listed,
            rewritten_by=listed.rewritten_by if listed is not None else None,
            query=query,
            channels=channels,
            lookalikes="pass" if reveal(route.entry.get("lookalikes", "")) == "pass" else "refuse",
            relayed_by=relayed_by,
        )

    def _check_keys(self, route: WrittenRoute) -> None:
        check_route(self._context, route)
        self._check_upstream(route)
        known = self._catalogue.known_to_caps
        if route.is_listed:
            known |= frozenset(route.entry.get("caps", {}).get("overrides", {}))
        check_policy(self._context, route.at, route.entry, known)
        read_headers(self._context, (*route.at, "headers"), route.entry.get("headers", {}))
        check_auth(self._context, (*route.at, "auth"), route.entry.get("auth"))

    def _read_listed(self, route: WrittenRoute) -> ListedRoute | None:
        """Returns what a route of a plugin's protocol does with its tools; None for other routes."""
        plugin = find_protocol(route.protocol)
        if plugin is None:
            return None
        if route.protocol not in self.kinds:
            self.kinds[route.protocol] = plugin.make_reader(self._context, self._catalogue)
        listed = self.kinds[route.protocol].read(route, self._read_tools)
        self._context.used_upstreams.update(listed.parts)
        return listed

    def _read_channels(
        self, route: WrittenRoute, name: str, tools: Mapping[str, ToolConfig]
    ) -> tuple[ChannelJudge | None, QueryPolicy]:
        """Returns what the route judges besides the body. Only a route that calls one tool can declare parameters."""
        if any(tool.request is not None for tool in tools.values()):
            if "parameters" in route.entry:
                hint = "say it under `tools: {NAME: {request: ...}}`"
                message = "`parameters` has no effect: the tool's request says where its arguments go"
                self._context.mistake((*route.at, "parameters"), message, hint, key=True)
            usual = QueryPolicy.JUDGE if name in tools else QueryPolicy.REFUSE
            return None, QueryPolicy(reveal(route.entry.get("query", usual)))
        if name not in tools:
            return None, QueryPolicy(reveal(route.entry.get("query", "forward")))
        chosen = QueryPolicy(reveal(route.entry["query"])) if "query" in route.entry else None
        if route.entry.get("parameters"):
            policy, formats = chosen or QueryPolicy.JUDGE, tools[name].written.get("formats", True)
            plugin = find_requests()
            made = None if plugin is None else plugin.read_channels(self._catalogue, route, formats, policy)
            return made, policy
        if chosen in (QueryPolicy.JUDGE, QueryPolicy.STRICT):
            hint = "declare them under `parameters`, or say `query: refuse`"
            message = f"`query: {chosen}` where nothing declares query parameters"
            self._context.mistake((*route.at, "query"), message, hint, key=True)
        return None, chosen or QueryPolicy.FORWARD

    def _find_request(self, route: WrittenRoute, tool: ToolConfig | None) -> RequestForm | None:
        """The request of the route's operation; None if it has none. Reports path parameters that the path lacks."""
        if tool is None or tool.request is None or route.upstream == NO_UPSTREAM:
            return None
        for name in tool.request.path_names:
            if name not in route.parameters:
                hint = f"put it into the route's path, as in `path: /.../{{{name}}}`"
                message = f"the operation needs the path parameter {name!r}"
                self._context.mistake(route.path_at, message, hint, key=route.path_at == route.at)
        return tool.request

    def _check_upstream(self, route: WrittenRoute) -> None:
        known = f"known: {join_words(self._upstreams)}" if self._upstreams else "add it under `upstreams`"
        at = (*route.at, "upstream")
        self._context.used_upstreams.add(route.upstream)
        if "servers" in route.entry:
            return
        if not route.upstream:
            if not self._context.structure.has_mistake(at):
                hint = f"{known}; `none` checks calls and sends them nowhere"
                self._context.mistake(route.at, "'upstream' is missing", hint, key=True)
        elif route.upstream not in (*self._upstreams, NO_UPSTREAM):
            hint = suggest_word(route.upstream, self._upstreams) or known
            written = restore_written(route.entry["upstream"])
            self._context.mistake(at, f"unknown upstream {written!r}", hint)

    # --- the tools of a route -----------------------------------------------------------------------------------------
    def _read_tools(self, route: WrittenRoute) -> dict[str, ToolConfig]:
        upstream = self._context.mapping("upstreams", route.upstream)
        headers = merge_layers(upstream, self._catalogue.defaults, route.entry).get("headers", {})
        provided = frozenset(name.lower() for name in headers.get("set", {}))
        self._catalogue.check_contradictions(route.entry, route.at)
        found: dict[str, ToolConfig] = {}
        named = list(self._list_tool_names(route))
        for name, at in named:
            if (tool := self._catalogue.tool(name, route.entry, route.at, provided)) is not None:
                found[name] = tool
            elif "tool" in route.entry:
                structure = self._context.structure
                is_defined = name in self._catalogue.names or is_tool_defined(route.entry)
                is_defined = is_defined or structure.has_misspelt(route.at, "schema")
                if is_defined or structure.has_mistake(route.at, "schema", "container", "validation"):
                    continue  # another mistake says why the tool is not served
                nearest = suggest_word(name, self._catalogue.names)
                hint = f"{nearest} Otherwise {NO_SCHEMA}" if nearest else NO_SCHEMA
                written = restore_written(route.entry["tool"])
                self._context.mistake(at, f"the tool {written!r} has no schema", hint)
        self._check_dispatching(route, found, {name for name, _ in named})
        return found

    def _check_dispatching(self, route: WrittenRoute, tools: Mapping[str, ToolConfig], served: set[str]) -> None:
        """Reports containers that dispatch to functions which the route does not serve."""
        for name, tool in tools.items():
            group = tool.container
            if group is None or group.auto_expand != "dispatch":
                continue
            functions = [function.name for function in group.functions if function.name not in served]
            if functions:
                message = f"the container {name!r} dispatches to {join_words(functions)}, not served on this route"
                hint = (
                    "serve them on a route with `{tool}` in its path or with `dispatch`, together with the container; "
                    "or say `auto_expand: expand` or `off`"
                )
                self._context.mistake(route.at, message, hint, key=True)

    def _list_tool_names(self, route: WrittenRoute) -> Iterator[tuple[str, Pointer]]:
        known = self._catalogue.names
        if route.is_listed:
            yield from self.kinds[route.protocol].name_tools(route, known)
        elif "tool" in route.entry:
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
                    hint = suggest_word(name, known) or f"known: {join_words(known)}"
                    self._context.mistake(at, f"unknown tool {name!r}", hint)

    def _check_duplicates(self, routes: list[WrittenRoute]) -> None:
        """Reports two routes with the same path and method, whatever their parameters are called, or the same name."""
        served: dict[tuple[str, str], WrittenRoute] = {}
        named: dict[str, WrittenRoute] = {}
        for route in routes:
            if (other := named.setdefault(route.name, route)) is not route and "name" in route.entry:
                at = (*route.at, "name")
                taken = f"by the route on line {self._find_line(other)}"
                self._context.mistake(at, f"the name {route.name!r} is taken", taken)
            for method in route.methods:
                other = served.setdefault((PARAMETER.sub("{}", route.path), method), route)
                if other is not route:
                    message = f"{method} {route.path} is served already, by the route on line {self._find_line(other)}"
                    hint = "change one of the paths or methods"
                    self._context.mistake(route.path_at, message, hint, key=route.path_at == route.at)
                    break

    def _find_line(self, route: WrittenRoute) -> int:
        return self._context.source.places.at(route.at)[0]


def _choose_adapter(route: WrittenRoute, is_operation: bool) -> str:
    """Returns the name of the route's adapter: the key of the plugin that answers its requests, or its `protocol`. Only
    HTTP has several adapters."""
    if route.relay_key:
        return route.relay_key
    if route.protocol != "http":
        return route.protocol
    return "dispatch" if "dispatch" in route.entry else "http" if is_operation else "plain"


def _make_shape(route: WrittenRoute, policy: Policy, tools: dict[str, ToolConfig], *, is_operation: bool) -> CallShape:
    allowed = [make_repair_policy(tool.policy).rules for tool in tools.values()]
    if route.is_listed:
        allowed = [make_repair_policy(policy).rules]
    # The text is repaired before the tool is known, so only rules that every tool of the route allows apply.
    rules = TEXT_RULES | {_EMPTY} if is_operation else TEXT_RULES
    made: dict[str, Any] = {"text_repairs": share(rules.intersection(*allowed))} if allowed else {}
    if "dispatch" in route.entry:
        made |= DISPATCH.read(route.entry["dispatch"])
    elif "tool" in route.entry:
        made["tool"] = reveal(route.entry["tool"])
    elif "tool" in route.parameters:
        made["tool_param"] = "tool"
    return CallShape(ladder=policy.ladder, text=policy.text, **made)
