"""Reads routes with `protocol: mcp`: their own defaults, the operator's rules for listed tools, and OAuth metadata.

Further routes relay the OAuth metadata of the servers (RFC 9728). A refused client requests
`/.well-known/oauth-protected-resource` followed by the path of its server, and then only the well-known path. Both lead
to the server; the second only if the config has a single such server. If the server's URL has a path, the well-known
path goes before it (RFC 9728 section 3.1).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from proxy.config.keys.access_keys import AUTH
from proxy.config.keys.policy_keys import POLICY_KEYS
from proxy.config.model import PluginSettings, RouteEntry, ToolConfig, UpstreamConfig
from proxy.config.policies import Written, merge_layers, name_scope, read_policy
from proxy.core.lint.keywords import lint
from proxy.core.model.values import Container, JsonValue, Pointer
from proxy.core.schema.dialects import normalise
from proxy.core.schema.nodes import Schemas
from proxy.extensions.mcp.config.model import COLLAPSE, MCP, McpConfig, find_mcp
from proxy.extensions.mcp.core.served_tools import ShownNames
from proxy.plugin import (
    BASE,
    CallShape,
    Context,
    ReadSchema,
    SchemaError,
    SchemaPlace,
    ToolReader,
    check_policy,
    describe_finding,
    reveal,
    split_url,
    suggest_word,
    widen_pools,
)

# Defaults that differ on these routes. Tools of agents run for minutes, and their arguments hold whole files (the
# servers of the Python SDK accept 4 MiB). The protocol gives statuses a meaning.
MCP_DEFAULTS: Final[Written] = {
    "timeout": "5m",
    "limits": {"body": "4MiB"},
    "upstream_errors": "outages",
    "conversation": [
        {"header": "X-Conversation-Id"},
        {"meta": "vscode.conversationId"},
        {"meta": "openai/session"},
        {"meta": "ai.opencode/sessionID"},
        {"meta": "antigravity.google/conversation_id"},
        {"meta": "threadId"},
        "trace",
        {"session": "Mcp-Session-Id"},
        "address",
    ],
}

# A process of a session's own serves one client, which sets its own limits. Over stdio there is no limit without a
# proxy either.
OWN_CHILD_DEFAULTS: Final[Written] = {**MCP_DEFAULTS, "timeout": "off"}


WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
# The path at which a server of 2025-03-26 describes its authorization server, itself ("Server Metadata Discovery").
_AUTHORIZATION_SERVER: Final = "/.well-known/oauth-authorization-server"


def widen_session_pools(
    upstreams: Mapping[str, UpstreamConfig], routes: Iterable[RouteEntry], written: Mapping[str, JsonValue]
) -> dict[str, UpstreamConfig]:
    """The upstreams, with more connections for those of MCP routes: every session of an old revision keeps a stream
    open, and so a connection."""
    served = {name for route in routes if (mcp := find_mcp(route)) is not None for name in (route.upstream, *mcp.parts)}
    return widen_pools(upstreams, served, written)


@dataclass(slots=True)
class McpReader:
    """Reads the `mcp` mapping of one route."""

    context: Context
    catalogue: ToolReader
    defaults: Written = field(default_factory=lambda: MCP_DEFAULTS)

    def policy(self, entry: Written) -> Written:
        """The policy keys of the route, with MCP's own defaults furthest out."""
        return merge_layers(self.defaults, self.catalogue.defaults, entry)

    def read(self, entry: Written, at: Pointer, route: str) -> McpConfig:
        """Returns the route's rules for the tools that its server lists. `route` is its name."""
        value = entry.get("mcp", {})
        at = (*at, "mcp")
        made: dict[str, Any] = MCP.read(value)
        if "collapse" in value:  # its name is '' if the value is reported already
            found = {"name": "", "description": "", **COLLAPSE.read(value["collapse"])}
            made["collapse_description"] = found.pop("description")
            made["collapse"] = Container(**found, source="mcp", expand="proxy")
        self._check_tokens(value.get("tokens", {}), self.policy(entry), (*at, "tokens"))
        written = self.policy(name_scope(entry, f"route {route}"))
        made |= self._read_tools(value.get("tools", {}), self._read_names(entry, at), written, (*at, "tools"), route)
        shown = (*made["tools"], *([made["collapse"].name] if "collapse" in made else ()))
        note_refused_names(self.context, route, ((name, f"the tool name {name!r}") for name in shown))
        return McpConfig(template=read_policy(written), written=written, name=route, **made)

    def _read_tools(
        self, entries: Mapping[str, JsonValue], names: ShownNames, written: Written, at: Pointer, route: str
    ) -> dict[str, Any]:
        """The config of single listed tools, by the names that clients see."""
        tools: dict[str, ToolConfig] = {}
        patches: dict[str, JsonValue] = {}
        descriptions: dict[str, str] = {}
        for listed, own in entries.items():
            if not isinstance(own, dict):
                continue
            self._check(own, (*at, listed))
            name = names.renamed.get(reveal(listed), reveal(listed))
            scoped = name_scope(own, f"route {route} tool {name}")
            tools[name] = self._read_tool(name, scoped, written, (*at, listed))
            if "overlay" in own:
                patches[name] = own["overlay"]
                self._check_overlay(own["overlay"], (*at, listed, "overlay"))
            if "description" in own:
                descriptions[name] = reveal(own["description"])
        return {"names": names, "tools": tools, "patches": patches, "descriptions": descriptions}

    def _check_overlay(self, patch: JsonValue, at: Pointer) -> None:
        """Reports what a merge patch for a schema surely misspells. Its nulls take keywords out."""
        try:
            schemas = Schemas(normalise(_without_nulls(patch))[0], base=BASE)
        except SchemaError:
            return  # it is no schema by itself: a reference may lead into the schema below it
        read = ReadSchema(patch, SchemaPlace(self.context.source, at, self.context.where(at)), BASE)
        for finding in self.catalogue.schemas.weigh(lint(schemas)):
            if finding.is_grave and finding.is_keyword:
                self.context.mistakes.append(describe_finding(finding, read))

    def _read_names(self, entry: Written, at: Pointer) -> ShownNames:
        """The names that clients see. Reports names that two tools would have, and keys that use a tool's new name."""
        value = entry.get("mcp", {})
        written = {reveal(name): own for name, own in value.get("tools", {}).items() if isinstance(own, dict)}
        renamed: dict[str, str] = {}
        collapsed = value.get("collapse", {})
        taken = {name for name, own in written.items() if "as" not in own}
        taken |= {reveal(collapsed["name"])} if isinstance(collapsed, dict) and "name" in collapsed else set()
        for listed, own in written.items():
            if "as" not in own:
                continue
            shown = reveal(own["as"])
            if shown in taken:
                hint = "give each tool another name"
                self.context.mistake((*at, "tools", listed, "as"), f"the name {shown!r} is taken on this route", hint)
            taken.add(shown)
            renamed[listed] = shown
        names = ShownNames.of({listed: shown for listed, shown in renamed.items() if listed != shown})
        for place, name in _list_named(entry, at):
            if name in names.listed and name not in names.renamed:
                hint = f"say {names.listed[name]!r}, as its server lists it"
                self.context.mistake(place, f"only clients call a tool {name!r}", hint, key=place[-1] == name)
        return names

    def _check_tokens(self, tokens: Mapping[str, JsonValue], policy: Written, at: Pointer) -> None:
        """Reports tokens that `auth` does not name."""
        auth = policy.get("auth")
        read = AUTH.read(auth) if isinstance(auth, dict) and "bearer" in auth else None
        known = [name for name, _ in read.tokens] if read is not None else []
        for name in tokens:
            if reveal(name) not in known:
                hint = suggest_word(reveal(name), known) or "name it under `auth: {bearer: {NAME: ...}}`"
                self.context.mistake((*at, name), f"unknown token {reveal(name)!r}", hint, key=True)

    def _check(self, own: Written, at: Pointer) -> None:
        self.catalogue.check_contradictions(own, at)
        check_policy(self.context, at, own, self.catalogue.known_to_caps)
        for key in ("response_schema", *(key.name for key in POLICY_KEYS if key.of_answers and key.of_tool)):
            if key in own:
                hint = "MCP defines the answers: drop it"
                self.context.mistake((*at, key), f"`{key}` has no effect on an MCP route", hint, key=True)
        for key in ("schema", "container"):
            if key in own and "overlay" in own:
                message = f"`overlay` has no effect beside `{key}`, which takes the place of the listed schema"
                self.context.mistake((*at, "overlay"), message, "drop one of them", key=True)

    def _read_tool(self, name: str, own: Written, route: Written, at: Pointer) -> ToolConfig:
        written = merge_layers(route, own)
        schema = self.catalogue.schema(own["schema"], at, written) if "schema" in own else None
        container = self.catalogue.container(name, at, own.get("container"))
        described = reveal(own.get("description", "")) or (schema.description if schema else "")
        return ToolConfig(name, described, schema, container, read_policy(written), written)


# The names that the APIs of Anthropic, OpenAI and others take for tools; clients hand listed names on to them.
_TAKEN_BY_VENDORS: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def note_refused_names(context: Context, route: str, named: Iterable[tuple[str, str]]) -> None:
    """Notes names, or beginnings of names, that vendors' APIs refuse; each comes with words for it."""
    for name, words in named:
        if name and not _TAKEN_BY_VENDORS.fullmatch(name):
            why = "letters, digits, '_' and '-', at most 64 of them"
            context.notes.append(f"route {route!r}: {words} is refused by the APIs of many models  (they take {why})")


def _list_named(entry: Written, at: Pointer) -> Iterator[tuple[Pointer, str]]:
    """The places of a route that name listed tools outside of `mcp.tools`, each with the name or pattern."""
    value = entry.get("mcp", {})
    tokens = [((*at, "tokens", name), patterns) for name, patterns in value.get("tokens", {}).items()]
    for place, patterns in ((at, value), *tokens):
        for key in ("allow", "deny"):
            written = patterns.get(key, ())
            yield from (((*place, key, index), reveal(name)) for index, name in enumerate(written))
    caps = entry.get("caps", {}).get("overrides", {})
    yield from (((*at[:-1], "caps", "overrides", name), reveal(name)) for name in caps)


def make_metadata_routes(
    routes: tuple[RouteEntry, ...], upstreams: Mapping[str, UpstreamConfig]
) -> tuple[RouteEntry, ...]:
    """The routes for the metadata. A route of the config with the same path replaces one."""
    remote = [route for route in routes if _has_metadata(route, upstreams)]
    written = {route.path for route in routes}
    added = [route for route in _list_metadata_routes(remote, upstreams) if route.path not in written]
    return tuple({route.path: route for route in reversed(added)}.values())


def _has_metadata(route: RouteEntry, upstreams: Mapping[str, UpstreamConfig]) -> bool:
    """Returns whether the server behind a route may request tokens from clients; not if the proxy requests them."""
    upstream = upstreams.get(route.upstream)
    asks_here = route.policy.auth is not None and not route.policy.auth.forward
    return (
        find_mcp(route) is not None
        and upstream is not None
        and bool(upstream.url)
        and "{" not in route.path
        and not asks_here
    )


def _list_metadata_routes(
    remote: Sequence[RouteEntry], upstreams: Mapping[str, UpstreamConfig]
) -> Iterator[RouteEntry]:
    for route in remote:
        url = split_url(upstreams[route.upstream].url)
        base = url.path.rstrip("/") if url.scheme != "unix" else ""  # there the path is the socket's
        path, own = "" if route.path == "/" else route.path, base + route.upstream_path.removesuffix("/")
        yield _make_metadata_route(route, f"{WELL_KNOWN}{path}", f"{WELL_KNOWN}{own}")
    if len(remote) == 1:
        if remote[0].path != "/":
            yield _make_metadata_route(remote[0], WELL_KNOWN, WELL_KNOWN)
        made = _make_metadata_route(remote[0], _AUTHORIZATION_SERVER, _AUTHORIZATION_SERVER)
        url = split_url(upstreams[remote[0].upstream].url)
        host = url.netloc.rpartition("@")[2]
        yield replace(made, rewritten_by=_describe_server(made.rewritten_by, f"{url.scheme}://{host}" if host else ""))


def _describe_server(rewritten_by: PluginSettings | None, server: str) -> PluginSettings | None:
    if rewritten_by is None:
        return None
    return replace(rewritten_by, settings=replace(rewritten_by.settings, describes=server))


def _make_metadata_route(route: RouteEntry, path: str, target: str) -> RouteEntry:
    policy = replace(route.policy, auth=None)
    return RouteEntry(
        name=path,
        path=path,
        methods=("GET", "HEAD"),
        kind="passthrough",
        adapter="plain",
        shape=CallShape(),
        policy=policy,
        upstream=route.upstream,
        upstream_path=target,
        websocket=False,
        rewritten_by=route.rewritten_by,
        is_from_root=True,
    )


def _without_nulls(patch: JsonValue) -> JsonValue:
    if not isinstance(patch, dict):
        return patch
    return {key: _without_nulls(value) for key, value in patch.items() if value is not None}
