"""`toolcall-proxy check CONFIG` prints every mistake of a config on its own line, or a summary of what it serves."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proxy.cli.options import HelpText, add_header_option

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

With --live the sources of an import (docs/http-apis.md) are asked, and their changes since are told, tool by tool.

With --config-only nothing has to be there but the config and the files beside it: what ${NAME} and ${file:...} stand
for, certificates elsewhere and the modules of hooks may be missing. A pipeline checks so, and a chart before a release.
With --digest the hash over those files is printed; a running proxy shows it as files_hash of toolproxy_config_info.

With --second-opinion the examples and defaults of each tool's schema, and values made from it, are judged by jsonschema
or fastjsonschema as well (docs/engine.md); a value on which they differ is printed with the keyword's place.

exit codes: 0 the config can be served, 1 a source has changed (--live) or the judges differ (--second-opinion), 2 it
cannot be served, or a source not asked
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
    parser.add_argument(
        "--config-only",
        action="store_true",
        help="judge the config alone: variables, secrets, modules of hooks and files outside its folder may be missing",
    )
    parser.add_argument("--digest", action="store_true", help="print the config's hash alone, over its files")
    parser.add_argument("-q", "--quiet", action="store_true", help="print mistakes only")
    parser.add_argument(
        "--second-opinion",
        action="store_true",
        help="judge examples of every tool by jsonschema or fastjsonschema too, and list the differences",
    )
    parser.add_argument(
        "--live", action="store_true", help="compare what was imported with its sources as they are now"
    )
    add_header_option(parser, "for --live: send this header")


def run(args: argparse.Namespace) -> int:
    """Checks the config of `args`. Prints mistakes to stderr and the summary to stdout; gives the exit code."""
    from proxy.config.load import load
    from proxy.config.mistakes import ConfigError

    path = args.path or args.config
    try:
        loaded = load(path, os.environ, config_only=args.config_only)
        if loaded.config.hooks and not args.config_only and (mistakes := _check_hooks(loaded)):
            raise ConfigError(mistakes)
    except ConfigError as error:
        for mistake in error.mistakes:
            print(_make_relative(mistake, path), file=sys.stderr)
        count = len(error.mistakes)
        print(f"{path}: {count} mistake{'s' * (count != 1)}; nothing would be served", file=sys.stderr)
        return EXIT_MISTAKES
    if args.digest:
        print(loaded.files_digest)
    elif not args.quiet:
        print("\n".join(summarize(loaded, path)))
    differs = _print_second_opinion(loaded, args) if args.second_opinion else 0
    return max(differs, _check_live(Path(path).parent, args) if args.live else 0)


def _make_relative(mistake: Mistake, path: str) -> Mistake:
    """The mistake with its file's path relative to the shell's folder, so that editors can jump to it. Mistakes name
    files other than the config relative to the config's folder."""
    if mistake.file == path or Path(mistake.file).is_absolute():
        return mistake
    return replace(mistake, file=os.path.relpath(Path(path).parent / mistake.file))


def _print_second_opinion(loaded: Loaded, args: argparse.Namespace) -> int:
    """Prints where the two judges differ on examples of every tool."""
    from proxy.cli.second_opinion import compare_judges

    lines = compare_judges(loaded)
    for line in lines:
        print(f"second opinion: {line}")
    if not lines and not args.quiet:
        print("second opinion: no difference")
    return EXIT_DRIFT if lines else 0


def _check_live(folder: Path, args: argparse.Namespace) -> int:
    """Asks the sources of imported tools, and prints what has changed."""
    from proxy.importing.harvest import ImportProblem
    from proxy.importing.live import describe_drift, look_live

    try:
        drifts = asyncio.run(look_live(folder, tuple(args.header)))
    except ImportProblem as problem:
        print(f"check --live: {problem}", file=sys.stderr)
        return EXIT_MISTAKES
    for found in drifts:
        if found.is_found or not args.quiet:
            print("\n".join(describe_drift(found)))
    return EXIT_DRIFT if any(found.is_found for found in drifts) else 0


def _check_hooks(loaded: Loaded) -> list[Mistake]:
    """The mistakes of the hooks; imports the serving code only where there are hooks."""
    from proxy.server import check_hooks

    return check_hooks(loaded)


def summarize(loaded: Loaded, name: str) -> list[str]:
    """What a config serves, in lines: routes with their tools and where they lead, then what is worth knowing."""
    from proxy.routing import build_routes

    table = build_routes(loaded.config)
    tools = {tool for route in table.routes for tool in (*route.tools, *route.operations)}
    lines = [f"{name}: ok, {_count(len(table.routes), 'route')}, {_count(len(tools), 'tool')}"]
    width = max((len(route.path) for route in table.routes), default=0)
    for route in table.routes:
        listed = route.learn is not None and not route.operations
        judged = "what its server lists" if listed else ", ".join(route.tools or route.operations) or "anything"
        methods = ",".join(sorted(route.methods))
        lines.append(f"  {methods:<6} {route.path:<{width}}  {route.kind:<11}  {judged} -> {_describe_goal(route)}")
    lines += [
        f"  {','.join(left.methods):<6} {left.path:<{width}}  {'refused':<11}  {left.why}"
        for left in loaded.config.left_out
    ]
    lines += [f"note: {note}" for note in loaded.config.notes]
    if unjudged := [f"'{route.name}'" for route in table.routes if route.forwards_unjudged_query]:
        hint = "`query: refuse` takes none"
        lines.append(f"note: query strings reach the tool unjudged on {', '.join(unjudged)} ({hint})")
    return lines


def _describe_goal(route: Any) -> str:
    return f"{route.upstream}{route.upstream_path}" if route.upstream else "answered here"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"
