"""`toolcall-proxy import openapi URL|FILE` writes a config for the operations of an OpenAPI description."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from proxy.extensions.operations.cli.import_ import EXIT_PROBLEM, add_import_arguments, import_source, show_operations
from proxy.plugin import write_defaults

if TYPE_CHECKING:
    from proxy.extensions.operations.importing.harvest import Harvest

RELAYS_NOTHING: Final = "--relay and --as mcp cannot be combined: an MCP client calls tools and nothing else"


def register(kinds: Any) -> None:
    """Describes the kind of source."""
    openapi = kinds.add_parser("openapi", help="FastAPI, mcpo, any API with an OpenAPI description")
    openapi.add_argument("source", metavar="URL|FILE", help="the description, JSON or YAML")
    openapi.add_argument(
        "--upstream", metavar="URL", default="", help="the server's address, if the description does not name it"
    )
    openapi.add_argument(
        "--only",
        metavar="NAME",
        action="append",
        default=[],
        help="import only this operation: an operationId or 'POST /path', * as a wildcard; may be repeated",
    )
    unvalidated = "forward operations that cannot be validated, instead of answering 501"
    openapi.add_argument("--relay", action="store_true", help=unvalidated)
    openapi.add_argument(
        "--as", dest="serve_as", choices=("http", "mcp"), default="http",
        help="serve operations at their own paths (http, the default), or as MCP tools (mcp)",
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


# --- `serve --openapi` ------------------------------------------------------------------------------------------------
# As for `serve --mcp`: `serve` adds the operator's port, at a free one.
_ADMIN: Final = "\nadmin: off\n"


def make_config_file(args: argparse.Namespace, kept: ExitStack) -> Path | None:
    """Imports the description `args.openapi` into a config file that exists until `kept` closes. If that is impossible,
    prints the reason and returns None."""
    from proxy.extensions.operations.cli.import_ import describe_harvest, show_operations
    from proxy.extensions.operations.importing.files import CONFIG, make_files, write_files
    from proxy.extensions.operations.importing.harvest import ImportProblem
    from proxy.extensions.operations.importing.openapi import Choice, read_openapi

    if args.relay and args.serve_as == "mcp":
        print(f"serve: {RELAYS_NOTHING}", file=sys.stderr)
        return None
    try:
        choice = Choice(relay=args.relay, upstream=args.upstream or "", as_mcp=args.serve_as == "mcp")
        with show_operations() as advance:
            harvest = asyncio.run(read_openapi(args.openapi, choice, advance=advance))
        print("\n".join(describe_harvest(harvest)), file=sys.stderr)
        if not harvest.tools:
            raise ImportProblem("nothing there can be judged")
        folder = Path(kept.enter_context(tempfile.TemporaryDirectory(prefix="toolcall-proxy-")))
        files = make_files(harvest)
        write_files(folder, {**files, CONFIG: files[CONFIG] + _ADMIN + write_defaults(args)}, force=False)
    except ImportProblem as problem:
        print(f"serve --openapi: {problem}", file=sys.stderr)
        return None
    return folder / CONFIG
