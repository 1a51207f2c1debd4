"""`serve --openapi URL|FILE` makes a temporary config, for users who have none.

It is what `import` would write, in a folder that is removed at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

# As for `serve --mcp`: `serve` adds the operator's port, at a free one.
_ADMIN: Final = "\nadmin: off\n"


def make_config_file(args: argparse.Namespace, kept: ExitStack) -> Path | None:
    """The config that stands for `args.openapi` and `args.upstream`; it lasts as long as `kept`.

    None where that is impossible; the reason is printed.
    """
    from proxy.cli.import_ import describe_harvest, showing_operations
    from proxy.importing.files import CONFIG, make_files, write_files
    from proxy.importing.harvest import ImportProblem
    from proxy.importing.openapi import Choice
    from proxy.importing.reading import read_openapi

    try:
        choice = Choice(relay=args.relay, upstream=args.upstream or "", as_mcp=args.doors == "mcp")
        with showing_operations() as advance:
            harvest = asyncio.run(read_openapi(args.openapi, choice, advance=advance))
        print("\n".join(describe_harvest(harvest)), file=sys.stderr)
        if not harvest.tools:
            raise ImportProblem("nothing there can be judged")
        folder = Path(kept.enter_context(tempfile.TemporaryDirectory(prefix="toolcall-proxy-")))
        files = make_files(harvest)
        write_files(folder, {**files, CONFIG: files[CONFIG] + _ADMIN}, force=False)
    except ImportProblem as problem:
        print(f"serve --openapi: {problem}", file=sys.stderr)
        return None
    return folder / CONFIG
