"""The plugin `mcp`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from proxy.plugin import AddsKeys, AddsVerbs, ExtendsVerbs, Flag, NoConfig, SpeaksProtocol, Verb

if TYPE_CHECKING:
    import argparse
    from contextlib import ExitStack
    from pathlib import Path

    from proxy.config.keys.kinds import Kind
    from proxy.config.model import RouteEntry, UpstreamConfig
    from proxy.core.model.values import Headers, JsonValue
    from proxy.extensions.mcp.config.mcp_routes import McpRoutes
    from proxy.extensions.mcp.server.exchange import Exchange
    from proxy.extensions.mcp.server.lists.reading import Catalogues
    from proxy.extensions.mcp.upstreams import McpUpstreams
    from proxy.extensions.operations.importing.harvest import Harvest, Recorded
    from proxy.plugin import (
        Adapter,
        Clock,
        Context,
        Finding,
        Log,
        MetricRow,
        PassedOn,
        Reports,
        Serving,
        ToolReader,
        WrittenRoute,
    )


class McpPlugin(AddsVerbs, ExtendsVerbs, AddsKeys, SpeaksProtocol):
    """Speaks MCP to servers that list their tools."""

    name = "mcp"
    adds = "MCP: servers that list their tools, over HTTP or as processes, alone or several as one; `stdio`"
    uses = ("operations",)
    verbs = ("stdio", "install", "uninstall")
    protocol = "mcp"
    # POST carries messages; GET opens the stream of old revisions, DELETE ends their sessions.
    methods = ("POST", "GET", "DELETE")
    page_headers = ("Mcp-Session-Id", "Mcp-Protocol-Version", "Mcp-Method", "Mcp-Name", "Mcp-Param-*")
    answer_headers = ("Mcp-Session-Id",)
    header_prefix = "mcp-"
    adapter = "mcp"
    upstream_keys = ("command", "env", "pass_env", "cwd", "max_children", "idle_session", "shared")
    upstream_hint = "`command: [npx, -y, PACKAGE]` for an MCP server that speaks stdio"
    other_keys = (*upstream_keys, "mcp", "servers", "operations", "overlay", "as")
    call_keys = ("mcp", "servers", "operations")
    secrets = (("upstreams", "*", "env"),)
    schemas = tuple(("routes", "*", "mcp", "tools", "*", key) for key in ("schema", "overlay"))
    commands = ("command",)

    def declare_keys(self) -> Mapping[str, Kind]:
        from proxy.extensions.mcp.config.mcp_routes import KEYS

        return KEYS

    def list_metrics(self) -> Sequence[MetricRow]:
        from proxy.extensions.mcp.server.lists.list_reports import METRICS

        return METRICS

    def load_verb(self, verb: str) -> Verb:
        from proxy.extensions.mcp.cli import install, stdio, uninstall

        verbs: dict[str, Verb] = {"stdio": stdio, "install": install, "uninstall": uninstall}
        return verbs[verb]

    def list_no_config(self) -> Sequence[NoConfig]:
        stands = "without a config: protect the MCP server at URL, or the one that a command after -- starts"
        examples = (
            "--mcp http://127.0.0.1:8000/mcp --listen 127.0.0.1:8090",
            "--mcp -- npx -y @modelcontextprotocol/server-filesystem /data",
        )
        source = NoConfig(
            Flag("--mcp", stands, metavar="URL", nargs="?", const=""),
            _make_config_file,
            examples,
            shares=frozenset(["header", "timeout", "null_optional", "admin", "wait"]),
            takes_command=True,
            find_trouble=_find_trouble,
        )
        return (source,)

    def load_import_kinds(self) -> Mapping[str, Verb]:
        """Kind of `import` -> its module."""
        from proxy.extensions.mcp.cli import import_mcp, import_mcpservers

        return {"mcp": import_mcp, "mcpservers": import_mcpservers}

    async def read_source(self, recorded: Recorded, headers: Headers, folder: Path) -> Harvest | None:
        """A recorded source as it is now; None for the kinds of others."""
        if recorded.kind != "mcp":
            return None
        from proxy.extensions.mcp.importing.mcp import read_again

        return await read_again(recorded, headers, folder)

    def check_keys(self, context: Context, routes: tuple[RouteEntry, ...]) -> None:
        from proxy.extensions.mcp.config.mcp_routes import check_catalogue

        check_catalogue(context)

    def check_route(self, context: Context, route: WrittenRoute) -> Iterator[Finding]:
        from proxy.extensions.mcp.config.mcp_routes import check_route_keys

        return check_route_keys(context, route)

    def make_reader(self, context: Context, catalogue: ToolReader) -> McpRoutes:
        from proxy.extensions.mcp.config.mcp_routes import McpRoutes

        return McpRoutes(context, catalogue)

    def make_handler(
        self, clock: Clock, fresh_id: Callable[[], str], reports: Reports, passed_on: PassedOn | None
    ) -> Exchange:
        from proxy.extensions.mcp.server.exchange import Exchange

        return Exchange(clock, fresh_id, reports, passed_on)

    def prepare(self) -> None:
        from proxy.extensions.mcp.server import exchange  # noqa: F401

    def make_lists(self) -> Catalogues:
        from proxy.extensions.mcp.server.lists.reading import Catalogues

        return Catalogues()

    def load_adapter(self) -> Adapter:
        from proxy.extensions.mcp.adapters.mcp import ADAPTER

        return ADAPTER

    def read_upstream(self, context: Context, name: str, written: Mapping[str, JsonValue]) -> UpstreamConfig:
        from proxy.extensions.mcp.config.mcp_upstreams import read_process

        return read_process(context, name, written)

    def make_upstreams(self, log: Log) -> McpUpstreams:
        from proxy.extensions.mcp.upstreams import McpUpstreams

        return McpUpstreams(log)


def _make_config_file(args: argparse.Namespace, kept: ExitStack) -> Path | None:
    from proxy.extensions.mcp.cli.no_config import make_config_file

    return make_config_file(args, kept)


async def _find_trouble(args: argparse.Namespace, serving: Serving) -> tuple[list[str], bool]:
    from proxy.extensions.mcp.cli.no_config import find_command_trouble, find_trouble

    if args.command:
        return await find_command_trouble(args.command, serving.handler.snapshot.services.upstreams["mcp"]), True
    return await find_trouble(args.mcp, args.header)
