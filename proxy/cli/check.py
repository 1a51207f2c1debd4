"""`toolcall-proxy check CONFIG`: every mistake of a config on a line of its own, or what it serves."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proxy.cli.helptext import HelpText
from proxy.cli.import_ import header

if TYPE_CHECKING:
    from proxy.config.load import Loaded
    from proxy.config.mistakes import Mistake

EXIT_DRIFT = 1
EXIT_MISTAKES = 2

_EPILOG = """\
examples:
  toolcall-proxy check config.yaml
  toolcall-proxy check guarded/config.yaml --live

Each mistake is printed as  file:line:col  section  message  (what to write instead)  so that editors and CI systems can
jump to it. Nothing is served and nothing is contacted; ${NAME} is looked up in the environment,
and the modules of hooks are imported.

With --live the sources of an import (docs/import.md) are asked, and what has changed there since is told, tool by tool.

exit codes: 0 the config can be served, 1 a source has changed (--live), 2 it cannot be served, or a source not asked
"""


def register(subparsers: Any) -> None:
    """Adds the verb to the command line's parser."""
    parser = subparsers.add_parser(
        "check",
        help="find every mistake of a config without serving it",
        description="Reads a config with all the files it names, compiles every schema, and says what is wrong or what "
        "would be served.",
        epilog=_EPILOG,
        formatter_class=HelpText,
    )
    config = parser.add_mutually_exclusive_group(required=True)
    config.add_argument("path", nargs="?", metavar="CONFIG", help="the config file, such as config.yaml")
    config.add_argument("-c", "--config", metavar="FILE", help="the same, by name")
    parser.add_argument("-q", "--quiet", action="store_true", help="print mistakes only")
    parser.add_argument(
        "--live", action="store_true", help="compare what was imported with its sources as they are now"
    )
    parser.add_argument(
        "--header",
        metavar="'NAME: VALUE'",
        type=header,
        action="append",
        default=[],
        help="for --live: send this header",
    )


def run(args: argparse.Namespace) -> int:
    """Checks the config that `args` names. Mistakes go to stderr, the summary to stdout; gives the exit code."""
    from proxy.config.load import load
    from proxy.config.mistakes import ConfigError

    path = args.path or args.config
    try:
        loaded = load(path, os.environ)
        if loaded.config.hooks and (mistakes := _hooks(loaded)):
            raise ConfigError(mistakes)
    except ConfigError as error:
        for mistake in error.mistakes:
            print(mistake, file=sys.stderr)
        count = len(error.mistakes)
        print(f"{path}: {count} mistake{'s' * (count != 1)}; nothing would be served", file=sys.stderr)
        return EXIT_MISTAKES
    if not args.quiet:
        print("\n".join(summary(loaded, path)))
    return _live(Path(path).parent, args) if args.live else 0


def _live(folder: Path, args: argparse.Namespace) -> int:
    """Asks the sources and says what has changed."""
    from proxy.importing.harvest import ImportProblem
    from proxy.importing.live import look_live, told

    try:
        drifts = asyncio.run(look_live(folder, tuple(args.header)))
    except ImportProblem as problem:
        print(f"check --live: {problem}", file=sys.stderr)
        return EXIT_MISTAKES
    for found in drifts:
        if found.is_found or not args.quiet:
            print("\n".join(told(found)))
    return EXIT_DRIFT if any(found.is_found for found in drifts) else 0


def _hooks(loaded: Loaded) -> list[Mistake]:
    """What is wrong with the hooks; only a config that has some imports what serves."""
    from proxy.app import check_hooks

    return check_hooks(loaded)


def summary(loaded: Loaded, name: str) -> list[str]:
    """What a config serves, in lines: routes with their tools and where they lead, then what is worth knowing."""
    from proxy.routing import build_routes

    table = build_routes(loaded.config)
    tools = {tool for route in table.routes for tool in route.tools}
    lines = [f"{name}: ok, {_count(len(table.routes), 'route')}, {_count(len(tools), 'tool')}"]
    width = max(len(route.path) for route in table.routes)
    for route in table.routes:
        judged = "what its server lists" if route.learn is not None else ", ".join(route.tools) or "anything"
        methods = ",".join(sorted(route.methods))
        lines.append(f"  {methods:<6} {route.path:<{width}}  {route.kind:<11}  {judged} -> {_goal(route)}")
    lines += [f"note: {note}" for note in loaded.config.notes]
    return lines


def _goal(route: Any) -> str:
    return f"{route.upstream}{route.upstream_path}" if route.upstream else "answered here"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"
