"""`toolcall-proxy check CONFIG` prints every mistake of a config on its own line, or a summary of what it serves."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proxy.cli.check_formats import WRITERS, CheckReport, list_flags
from proxy.plugin import ExtendsVerbs
from proxy.plugins import find_plugins, list_used

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.config.load import Loaded
    from proxy.config.mistakes import Mistake
    from proxy.config.model import HookEntry
    from proxy.routing import RouteTable

EXIT_FOUND = 1
EXIT_MISTAKES = 2

_EPILOG = """\
examples:
  toolcall-proxy check config.yaml
  toolcall-proxy check config.yaml --format sarif > check.sarif

Each error is one line:  file:line:col  section  message  (fix).  Editors and CI systems can jump to it. The command
contacts no server, unless you add --live. It reads ${NAME} from the environment and imports the modules of hooks (your
Python code).

With --config-only, the command needs only the config and the files next to it. Values of ${NAME} and ${file:...}, files
in other folders and the modules of hooks may be missing. Use it in a pipeline before a release; the chart does so too.
--digest prints one hash of these files. A running proxy shows it as files_hash in the metric toolproxy_config_info.

--format json prints one object (schemas/verbs/check.schema.json). --format sarif prints a SARIF 2.1.0 log for code
scanning. --format github prints annotations for a pull request. All use standard output and the same exit codes.
"""
_EXIT_CODES = """
exit codes: 0 success, 1 an option such as --live found a difference, 2 the config has errors, or a source is unreadable
"""


def register(subparsers: Any) -> None:
    """Adds the verb to the command line's parser."""
    parser = subparsers.add_parser(
        "check",
        help="check a config without serving it",
        description="Read a config with all its files, compile every schema, and print the errors or the routes.",
        epilog=_EPILOG,
    )
    config = parser.add_mutually_exclusive_group(required=True)
    config.add_argument("path", nargs="?", metavar="CONFIG", help="the config file, such as config.yaml")
    config.add_argument("-c", "--config", metavar="FILE", help="the same as CONFIG")
    parser.add_argument(
        "--config-only",
        action="store_true",
        help="check only the config: variables, secrets, modules of hooks and files in other folders may be missing",
    )
    parser.add_argument("--format", choices=("text", *WRITERS), default="text", help="output format (default: text)")
    parser.add_argument("--digest", action="store_true", help="print only a hash of the config and its files")
    parser.add_argument("-q", "--quiet", action="store_true", help="print only errors")
    for plugin in find_plugins(ExtendsVerbs):
        plugin.add_check_flags(parser)
    parser.epilog += _EXIT_CODES


def run(args: argparse.Namespace) -> int:
    """Checks the config of `args` and prints what was found; gives the exit code, which no format changes."""
    if args.format in ("sarif", "github") and args.digest:
        print("check: --digest is printed as text or with --format json", file=sys.stderr)
        return EXIT_MISTAKES
    report = CheckReport(args.path or args.config)
    loaded = _read(report, args)
    for name, flag in list_flags().items():
        if loaded is not None and getattr(args, name.replace("-", "_")):
            report.found[flag.key] = found = flag.look(report, loaded, args)
            code = EXIT_MISTAKES if report.problem else EXIT_FOUND if any(each.text for each in found) else 0
            report.exit_code = max(report.exit_code, code)
    if args.format == "text":
        _print_text(report, loaded, args)
    elif text := WRITERS[args.format](replace(report, notes=[]) if args.quiet else report):
        print(text)
    return report.exit_code


def _read(report: CheckReport, args: argparse.Namespace) -> Loaded | None:
    """Reads the config and puts what it serves into the report, or its mistakes and None."""
    from proxy.config.load import load
    from proxy.config.mistakes import ConfigError
    from proxy.routing import build_routes

    try:
        try:
            loaded = load(report.path, os.environ, config_only=args.config_only)
        except ConfigError as error:
            raise ConfigError([*error.mistakes, *_check_hooks(error.hooks, report.path, args)]) from None
        if mistakes := _check_hooks(loaded.config.hooks, report.path, args):
            raise ConfigError(mistakes)
    except ConfigError as error:
        # Mistakes name files other than the config relative to its folder; editors jump to a path from the shell's.
        report.mistakes = tuple(
            mistake
            if mistake.file == report.path or Path(mistake.file).is_absolute()
            else replace(mistake, file=os.path.relpath(Path(report.path).parent / mistake.file))
            for mistake in error.mistakes
        )
        report.exit_code = EXIT_MISTAKES
        return None
    table = build_routes(loaded.config)
    report.notes = _list_notes(loaded, table)
    report.served = _show_served(loaded, table)
    return loaded


def _check_hooks(hooks: Sequence[HookEntry], file: str, args: argparse.Namespace) -> list[Mistake]:
    if not hooks or args.config_only:
        return []
    from proxy.server import check_hooks  # the serving code is needed only for hooks

    return check_hooks(hooks, file)


def _print_text(report: CheckReport, loaded: Loaded | None, args: argparse.Namespace) -> None:
    """Prints the report for people: mistakes and problems to stderr, the rest to stdout."""
    if loaded is None:
        for mistake in report.mistakes:
            print(mistake, file=sys.stderr)
        counted = _count(len(report.mistakes), "mistake")
        print(f"{report.path}: {counted}; nothing would be served", file=sys.stderr)
        return
    if args.digest:
        print(loaded.files_digest)
    elif not args.quiet:
        print("\n".join(summarize(loaded, report.path)))
    for found in (each for listed in report.found.values() for each in listed):
        if found.text or not args.quiet:
            print(found.printed)
    if report.problem:
        print(report.problem, file=sys.stderr)


def summarize(loaded: Loaded, name: str) -> list[str]:
    """Returns lines about a config: routes with their tools and upstreams, then notes."""
    from proxy.routing import build_routes

    table = build_routes(loaded.config)
    tools = {tool for route in table.routes for tool in (*route.tools, *route.operations)}
    lines = [f"{name}: ok, {_count(len(table.routes), 'route')}, {_count(len(tools), 'tool')}"]
    width = max((len(route.path) for route in table.routes), default=0)
    for route in table.routes:
        listed = route.learn is not None and not route.operations
        judged = "what its server lists" if listed else ", ".join(route.tools or route.operations) or "anything"
        methods = ",".join(sorted(route.methods))
        goal = f"{_show_base(loaded, route.upstream)}{route.upstream_path}" if route.upstream else "answered here"
        lines.append(f"  {methods:<6} {route.path:<{width}}  {route.kind:<11}  {judged} -> {goal}")
    lines += [
        f"  {','.join(left.methods):<6} {left.path:<{width}}  {'refused':<11}  {left.why}"
        for left in loaded.config.left_out
    ]
    lines += [line for plugin in list_used(loaded.config) for line in plugin.summarize(loaded.config)]
    return lines + [f"note: {note}" for note in _list_notes(loaded, table)]


def _show_base(loaded: Loaded, upstream: str) -> str:
    """The URL of an upstream as the config writes it, without secrets and query; the name of one without a URL."""
    written = loaded.config.written
    entries = written.get("upstreams") if isinstance(written, dict) else None
    entry = entries.get(upstream) if isinstance(entries, dict) else None
    url = entry.get("url") if isinstance(entry, dict) else None
    if not isinstance(url, str):
        return upstream
    return (url if "${" in url else url.partition("?")[0]).rstrip("/")


def _list_notes(loaded: Loaded, table: RouteTable) -> list[str]:
    notes = list(loaded.config.notes)
    if unjudged := [f"'{route.name}'" for route in table.routes if route.forwards_unjudged_query]:
        notes.append(f"query strings reach the tool unjudged on {', '.join(unjudged)} (`query: refuse` takes none)")
    relayed = [f"'{route.name}'" for route in table.routes if route.relayed_by is not None]
    if relayed and loaded.config.hooks:
        notes.append(
            f"hooks do not run on {', '.join(relayed)}: no tool is called there; they run when the agent "
            "sends the call through a route of a tool"
        )
    return notes


def _show_served(loaded: Loaded, table: RouteTable) -> dict[str, Any]:
    """Returns a usable config's routes and tools, as `schemas/verbs/check.schema.json` has them."""
    return {
        "files_digest": loaded.files_digest,
        "routes": [
            {
                "name": route.name,
                "path": route.path,
                "methods": sorted(route.methods),
                "kind": route.kind,
                "tools": list(route.tools or route.operations),
                "upstream": route.upstream or None,
            }
            for route in table.routes
        ],
        "left_out": [
            {"path": left.path, "methods": list(left.methods), "why": left.why} for left in loaded.config.left_out
        ],
    }


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"
