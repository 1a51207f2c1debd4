"""`toolcall-proxy import mcpservers FILE` writes a config for the servers that a client's config names."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proxy.cli.import_ import EXIT_NOTHING, EXIT_PROBLEM, check_written, write_table

if TYPE_CHECKING:
    from proxy.extensions.mcp.importing.mcpservers import McpServers


def register(kinds: Any) -> None:
    """Describes the kind of source."""
    clients = kinds.add_parser("mcpservers", help="the servers that a client's config names (Claude, Cursor, VS Code)")
    clients.add_argument(
        "source", metavar="FILE", type=Path, help="such as claude_desktop_config.json or .vscode/mcp.json"
    )
    clients.add_argument("--into", metavar="FOLDER", type=Path, default=Path(), help="where to write (default: here)")
    clients.add_argument("--force", action="store_true", help="replace files that exist")
    clients.add_argument(
        "--client", choices=("claude", "cursor", "vscode"), default="", help="whose config it is (default: by the file)"
    )
    clients.add_argument(
        "--rewrite", action="store_true", help="write nothing: print the client's config with the proxy in their place"
    )
    clients.add_argument(
        "--one", action="store_true", help="all servers behind one path, their tools under the servers' names"
    )


def run(args: argparse.Namespace) -> int:
    """Writes the config for the servers that a client's config names, or prints that client's config rewritten."""
    from proxy.extensions.mcp.importing.mcpservers import read_mcpservers
    from proxy.importing.files import CONFIG, write_files
    from proxy.importing.harvest import ImportProblem

    try:
        found = read_mcpservers(args.source, args.client)
        if args.rewrite:
            print(json.dumps(found.rewrite_client_config(one=args.one), indent=2, ensure_ascii=False))
            return 0
        for line in _describe_servers(found, one=args.one):
            print(line)
        if not found.upstreams:
            print("import: no server there can be served: nothing is written", file=sys.stderr)
            return EXIT_NOTHING
        (config,) = write_files(args.into, {CONFIG: found.write_config(CONFIG, one=args.one)}, force=args.force)
        config.chmod(0o600)
    except ImportProblem as problem:
        print(f"import: {problem}", file=sys.stderr)
        return EXIT_PROBLEM
    print(f"\nwrote {config}")
    if found.variables:
        print(f"set before it is served: {', '.join(found.variables)}")
        return 0
    return check_written(config)


def _describe_servers(found: McpServers, *, one: bool) -> Iterator[str]:
    """Lines about which servers are served where, and which are not."""
    from proxy.extensions.mcp.importing.mcpservers import JOINED_PATH

    yield from write_table("served", [(name, JOINED_PATH if one else f"/{name}/mcp") for name in found.upstreams])
    left = [(each.name, f"{each.why}  ({each.hint})" if each.hint else each.why) for each in found.left_out]
    yield from write_table("left out", left)
