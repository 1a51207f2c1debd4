"""`serve --openapi`: makes the config of one OpenAPI description, whose operations are imported as `import` does it."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from proxy.cli.options import write_defaults

# As for `serve --mcp`: `serve` adds the operator's port, at a free one.
_ADMIN: Final = "\nadmin: off\n"


def make_config_file(args: argparse.Namespace, kept: ExitStack) -> Path | None:
    """Imports the description `args.openapi` into a config file that exists until `kept` closes; None, with the reason
    printed, where that is impossible."""
    from proxy.extensions.operations.cli.import_ import describe_harvest, show_operations
    from proxy.extensions.operations.cli.import_openapi import RELAYS_NOTHING
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
