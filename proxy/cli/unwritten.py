"""`serve --openapi URL|FILE`: a config that nobody has written, made for as long as the process runs.

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

# As for `serve --mcp`: who has written no config has named no operator's port.
_ADMIN: Final = "\nadmin: off\n"


def made_config(args: argparse.Namespace, kept: ExitStack) -> Path | None:
    """The config that stands for `args.openapi` and `args.upstream`; it lasts as long as `kept`.

    None where none can be made, which is told.
    """
    from proxy.cli.import_ import told
    from proxy.importing.files import CONFIG, files_of, write_files
    from proxy.importing.harvest import ImportProblem
    from proxy.importing.openapi import Choice
    from proxy.importing.reading import read_openapi

    try:
        harvest = asyncio.run(read_openapi(args.openapi, Choice(upstream=args.upstream or "")))
        print("\n".join(told(harvest)), file=sys.stderr)
        if not harvest.tools:
            raise ImportProblem("nothing there can be judged")
        folder = Path(kept.enter_context(tempfile.TemporaryDirectory(prefix="toolcall-proxy-")))
        files = files_of(harvest)
        write_files(folder, {**files, CONFIG: files[CONFIG] + _ADMIN}, force=False)
    except ImportProblem as problem:
        print(f"serve --openapi: {problem}", file=sys.stderr)
        return None
    return folder / CONFIG
