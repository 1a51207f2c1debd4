"""`toolcall-proxy check CONFIG`: every mistake of a config on a line of its own, or what it serves."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proxy.config.load import Loaded

EXIT_MISTAKES = 2

_EPILOG = """\
Each mistake is printed as  file:line:col  section  message  (what to write instead)  so that editors and CI systems can
jump to it. Nothing is served and nothing is contacted; ${NAME} is looked up in the environment.

exit codes: 0 the config can be served, 2 it cannot
"""


def register(subparsers: Any) -> None:
    """Adds the verb to the command line's parser."""
    parser = subparsers.add_parser(
        "check",
        help="find every mistake of a config without serving it",
        description="Reads a config with all the files it names, compiles every schema, and says what is wrong or what "
        "would be served.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("config", metavar="CONFIG", help="the config file, such as config.yaml")
    parser.add_argument("-q", "--quiet", action="store_true", help="print mistakes only")


def run(args: argparse.Namespace) -> int:
    """Checks `args.config`. Mistakes go to stderr, the summary to stdout; gives the exit code."""
    from proxy.config.load import load
    from proxy.config.mistakes import ConfigError

    try:
        loaded = load(args.config, os.environ)
    except ConfigError as error:
        for mistake in error.mistakes:
            print(mistake, file=sys.stderr)
        count = len(error.mistakes)
        print(f"{args.config}: {count} mistake{'s' * (count != 1)}; nothing would be served", file=sys.stderr)
        return EXIT_MISTAKES
    if not args.quiet:
        print("\n".join(summary(loaded, args.config)))
    return 0


def summary(loaded: Loaded, name: str) -> list[str]:
    """What a config serves, in lines: routes with their tools and where they lead, then what is worth knowing."""
    from proxy.routing import build_routes

    table = build_routes(loaded.config)
    tools = {tool for route in table.routes for tool in route.tools}
    lines = [f"{name}: ok, {_count(len(table.routes), 'route')}, {_count(len(tools), 'tool')}"]
    width = max(len(route.path) for route in table.routes)
    for route in table.routes:
        judged = ", ".join(route.tools) or "anything"
        methods = ",".join(sorted(route.methods))
        lines.append(f"  {methods:<6} {route.path:<{width}}  {route.kind:<11}  {judged} -> {_goal(route)}")
    lines += [f"note: {note}" for note in loaded.config.notes]
    return lines


def _goal(route: Any) -> str:
    return f"{route.upstream}{route.upstream_path}" if route.upstream else "answered here"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"
