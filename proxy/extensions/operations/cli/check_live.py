"""`check --live`: compares imported tools with their sources, and names the tools that refuse null at optional keys."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Final

from proxy.cli.check_formats import CheckReport
from proxy.config.load import Loaded
from proxy.extensions.operations.importing.harvest import ImportProblem
from proxy.extensions.operations.importing.live import describe_drift, describe_refused_nulls, look_live
from proxy.routing import build_routes

EXIT_DRIFT: Final = 1
EXIT_PROBLEM: Final = 2


def check_live(report: CheckReport, loaded: Loaded, args: argparse.Namespace) -> int:
    """Adds the changes and such tools to the report; gives the exit code for them."""
    try:
        drifts = asyncio.run(look_live(Path(report.path).parent, tuple(args.header)))
    except ImportProblem as problem:
        report.problem = f"check --live: {problem}"
        return EXIT_PROBLEM
    report.sources = [(list(describe_drift(found)), found.is_found) for found in drifts]
    tools = {policy.tool: policy for route in build_routes(loaded.config).routes for policy in route.tools.values()}
    if lines := [*describe_refused_nulls(tools.values())]:
        report.sources.append((lines, False))
    return EXIT_DRIFT * any(found.is_found for found in drifts)
