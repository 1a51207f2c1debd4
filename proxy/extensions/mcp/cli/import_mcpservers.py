"""`toolcall-proxy import mcpservers FILE` writes a config for the servers that a client's config names."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proxy.extensions.operations.cli.import_ import (
    EXIT_NOTHING,
    EXIT_PROBLEM,
    check_written,
    list_left_out,
    write_table,
)

if TYPE_CHECKING:
    from proxy.extensions.mcp.importing.client_files import ClientFile
    from proxy.extensions.mcp.importing.mcpservers import McpServers


def register(kinds: Any) -> None:
    """Describes the kind of source."""
    from proxy.extensions.mcp.importing.client_entries import CLIENTS

    clients = kinds.add_parser("mcpservers", help="the servers in an MCP client's config (Claude, Cursor, VS Code)")
    clients.add_argument(
        "source", metavar="FILE", type=Path, help="the client's config, such as claude_desktop_config.json"
    )
    clients.add_argument(
        "--into", metavar="FOLDER", type=Path, default=Path(), help="write config.yaml into this folder (default: here)"
    )
    clients.add_argument("--force", action="store_true", help="replace an existing file")
    clients.add_argument(
        "--client", choices=tuple(CLIENTS), default="", help="the client (default: guessed from the file)"
    )
    clients.add_argument(
        "--rewrite",
        action="store_true",
        help="write no file; print the client's config, with the proxy in front of each server",
    )
    clients.add_argument(
        "--urls", action="store_true", help="with --rewrite: print the URLs of a proxy that serves the written config"
    )
    clients.add_argument(
        "--one", action="store_true", help="serve all servers at one path; a server's name is the prefix of its tools"
    )


def run(args: argparse.Namespace) -> int:
    """Writes the config for the servers that a client's config names, or prints that client's config rewritten."""
    from proxy.extensions.mcp.importing.client_files import find_own_program, read_client_file
    from proxy.extensions.mcp.importing.mcpservers import read_mcpservers
    from proxy.extensions.operations.importing.files import CONFIG, write_files
    from proxy.extensions.operations.importing.harvest import ImportProblem
    from proxy.file_writing import PRIVATE

    try:
        if args.rewrite and not (args.one or args.urls):
            return _print_in_front(read_client_file(args.source, args.client))
        found = read_mcpservers(args.source, args.client)
        if args.rewrite:
            print(found.rewrite_client_config(find_own_program(), one=args.one), end="")
            return 0
        for line in _describe_servers(found, one=args.one):
            print(line)
        if not found.upstreams:
            print("import: no server there can be served: nothing is written", file=sys.stderr)
            return EXIT_NOTHING
        text = found.write_config(CONFIG, one=args.one)
        (config,) = write_files(args.into, {CONFIG: text}, force=args.force, mode=PRIVATE)
    except ImportProblem as problem:
        print(f"import: {problem}", file=sys.stderr)
        return EXIT_PROBLEM
    print(f"\nwrote {config}")
    if found.variables:
        print(f"set before it is served: {', '.join(found.variables)}")
        return 0
    return check_written(config)


def _print_in_front(file: ClientFile) -> int:
    """Prints a client's config with the proxy in front of its servers, and on stderr those it leaves out."""
    from proxy.extensions.mcp.importing.client_files import find_own_program, put_in_front

    edit = put_in_front(file, find_own_program())
    for line in write_table("left as it was", list_left_out(edit.left)):
        print(line, file=sys.stderr)
    sys.stdout.write(edit.text.decode())
    return 0 if edit.changed else EXIT_NOTHING


def _describe_servers(found: McpServers, *, one: bool) -> Iterator[str]:
    """Lines about the served servers and their paths, and about those left out."""
    from proxy.extensions.mcp.importing.mcpservers import JOINED_PATH

    yield from write_table("served", [(name, JOINED_PATH if one else f"/{name}/mcp") for name in found.upstreams])
    yield from write_table("left out", list_left_out(found.left_out))
