"""`toolcall-proxy pin CONFIG` writes the current definitions of tools, which are approved by it."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from proxy.plugin import add_header_option

if TYPE_CHECKING:
    from proxy.extensions.access.lock_file import Pins
    from proxy.plugin import Loaded

EXIT_DIFFERENT: Final = 1
EXIT_PROBLEM: Final = 2

_EPILOG: Final = """\
examples:
  toolcall-proxy pin config.yaml                              approve every tool as it is now
  toolcall-proxy pin config.yaml --check                      show the differences from the approved definitions
  toolcall-proxy pin config.yaml --route /mcp --only search   approve one tool of one route

The file is `pins.file` in the config (default: tools.lock). It has the definition and a digest of each tool that an MCP
server lists, and of each HTTP operation (`request`, or from an OpenAPI document). Review the file's changes, and keep
it with the config. `pins: {changed: warn | hide | refuse}` decides what happens to a tool whose definition differs from
the file (docs/access.md).
The command contacts each server in the same way as calls do.

exit codes: 0 success, 1 differences found (--check), 2 a server or a file cannot be read
"""


def register(subparsers: Any) -> None:
    """Describes the verb's arguments."""
    verb = subparsers.add_parser(
        "pin",
        help="approve the current definitions of tools",
        description="Approve tools: write their current definitions to a file, so that later changes are noticed.",
        epilog=_EPILOG,
    )
    verb.add_argument("config", metavar="CONFIG", help="the config file, such as config.yaml")
    verb.add_argument("--route", metavar="NAME", action="append", default=[], help="only this route; may be repeated")
    verb.add_argument("--only", metavar="TOOL", action="append", default=[], help="only this tool; may be repeated")
    verb.add_argument("--check", action="store_true", help="write nothing; show the differences")
    add_header_option(verb, "send this header to the servers; it is not stored")


def run(args: argparse.Namespace) -> int:
    """Asks the servers and writes the file; gives the exit code."""
    from proxy.extensions.access.lock_file import LockProblem
    from proxy.extensions.operations.importing.harvest import ImportProblem
    from proxy.plugin import ConfigError

    try:
        return _pin(args)
    except (ConfigError, ImportProblem, LockProblem) as problem:
        print(f"pin: {problem}", file=sys.stderr)
    except OSError as error:
        print(f"pin: {error.filename}: {error.strerror}", file=sys.stderr)
    return EXIT_PROBLEM


def _pin(args: argparse.Namespace) -> int:
    from proxy.extensions.access.lock_file import write_lock
    from proxy.extensions.access.pinning import apply_pin_changes, list_defined, list_pin_changes, list_warnings
    from proxy.file_writing import SHARED, replace_file

    loaded, path, before = _load(Path(args.config))
    names = _choose_routes(loaded, args.route)
    now = asyncio.run(list_defined(loaded, names, tuple(args.header)))
    only = frozenset(args.only)
    _check_named(only, now, before)
    changes = list_pin_changes(before, now, only)
    for warning in list_warnings(now, changes):
        print(f"warning: {warning}", file=sys.stderr)
    for change in changes:
        print(f"{change.kind:<8} {change.route} {change.tool}")
    if args.check:
        print(f"{len(changes)} differ from {path}" if changes else f"all tools are as in {path}")
        return EXIT_DIFFERENT if changes else 0
    replace_file(path, write_lock(apply_pin_changes(before, now, changes)).encode(), SHARED)
    print(f"wrote {path}: {sum(map(len, now.values()))} tools listed, {len(changes)} newly approved")
    if "pins" not in loaded.config.sections:
        print(f"next: add to {args.config}   pins: {{changed: hide}}")
    return 0


def _load(config: Path) -> tuple[Loaded, Path, Pins]:
    """The config, the file of pins, and its content. The file need not exist yet."""
    from proxy.extensions.access.lock_file import FILE, read_lock, write_lock
    from proxy.file_writing import SHARED, replace_file
    from proxy.plugin import ConfigError, Files, load

    value = Files().source(config, str(config)).value
    written = value.get("pins") if isinstance(value, dict) else None
    named = written.get("file", FILE) if isinstance(written, dict) else FILE
    path = config.parent / str(named)
    is_new = isinstance(written, dict) and not path.exists()
    if is_new:
        replace_file(path, write_lock({}).encode(), SHARED)
    try:
        loaded = load(config, os.environ)
    except ConfigError:
        if is_new:
            path.unlink()
        raise
    return loaded, path, read_lock(path.read_bytes()) if path.exists() else {}


def _choose_routes(loaded: Loaded, chosen: list[str]) -> frozenset[str]:
    """The names of the routes to ask. Raises ImportProblem for one that has no list of tools."""
    from proxy.extensions.access.pinning import list_pinned_routes
    from proxy.extensions.operations.importing.harvest import ImportProblem
    from proxy.plugin import join_words

    known = [route.name for route in list_pinned_routes(loaded.config)]
    if not known:
        raise ImportProblem("no route of this config has tools to pin", "MCP routes and HTTP operations have some")
    for name in chosen:
        if name not in known:
            raise ImportProblem(f"no route {name!r} has tools to pin", f"known: {join_words(known)}")
    return frozenset(chosen or known)


def _check_named(only: frozenset[str], now: Pins, before: Pins) -> None:
    """Raises ImportProblem for a tool that is neither listed nor approved."""
    from proxy.extensions.operations.importing.harvest import ImportProblem

    known = {name for route in now for name in (*now[route], *before.get(route, {}))}
    if unknown := sorted(only - known):
        raise ImportProblem(f"no server or document has {unknown[0]!r}", "`--check` shows what is defined otherwise")
