"""`toolcall-proxy import mcp URL` writes a config for an MCP server, with the schemas that it lists."""

from __future__ import annotations

import argparse
from typing import Any

from proxy.extensions.operations.cli.import_ import add_import_arguments, import_source


def register(kinds: Any) -> None:
    """Describes the kind of source."""
    mcp = kinds.add_parser("mcp", help="an MCP server at a URL")
    mcp.add_argument("source", metavar="URL", help="the server's address, such as http://127.0.0.1:8000/mcp")
    add_import_arguments(mcp)


def run(args: argparse.Namespace) -> int:
    """Asks the server and writes the config; gives the exit code."""
    from proxy.extensions.mcp.importing.mcp import read_mcp

    return import_source(args, lambda: read_mcp(args.source, tuple(args.header)))
