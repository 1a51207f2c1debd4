"""`toolcall-proxy import openapi URL|FILE` writes a config for the operations of an OpenAPI description."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, Final

from proxy.extensions.operations.cli.import_ import EXIT_PROBLEM, add_import_arguments, import_source, show_operations

if TYPE_CHECKING:
    from proxy.extensions.operations.importing.harvest import Harvest

RELAYS_NOTHING: Final = "--relay and --as mcp cannot stand together: an MCP client calls tools and nothing else"


def register(kinds: Any) -> None:
    """Describes the kind of source."""
    openapi = kinds.add_parser("openapi", help="FastAPI, mcpo, anything with an OpenAPI description")
    openapi.add_argument("source", metavar="URL|FILE", help="the description, JSON or YAML")
    openapi.add_argument("--upstream", metavar="URL", default="", help="where the tools run, if it does not say so")
    openapi.add_argument(
        "--only",
        metavar="NAME",
        action="append",
        default=[],
        help="take this operation only: an operationId or 'POST /path', * for anything; may be repeated",
    )
    openapi.add_argument("--relay", action="store_true", help="forward operations that cannot be validated")
    openapi.add_argument(
        "--as", dest="serve_as", choices=("http", "mcp"), default="http",
        help="serve them under their own paths and names (http, the default), or as the tools of an MCP server",
    )  # fmt: skip
    add_import_arguments(openapi)


def run(args: argparse.Namespace) -> int:
    """Reads the description and writes the config; gives the exit code."""
    if args.serve_as == "mcp" and args.relay:
        print(f"import: {RELAYS_NOTHING}", file=sys.stderr)
        return EXIT_PROBLEM
    return import_source(args, lambda: _read_openapi(args))


async def _read_openapi(args: argparse.Namespace) -> Harvest:
    from proxy.extensions.operations.importing.openapi import Choice, read_openapi

    with show_operations() as advance:
        choice = Choice(tuple(args.only), args.relay, args.upstream, args.serve_as == "mcp")
        return await read_openapi(args.source, choice, tuple(args.header), advance=advance)
