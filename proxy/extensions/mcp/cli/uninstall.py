"""`toolcall-proxy uninstall CLIENT` takes the proxy away from the MCP servers in a client's config."""

from __future__ import annotations

import argparse
import sys
from typing import Any, Final

from proxy.extensions.mcp.cli.install import EXIT_NOTHING, EXIT_PROBLEM, add_client_arguments, read_chosen_file

_EPILOG: Final = """\
examples:
  toolcall-proxy uninstall claude-desktop
  toolcall-proxy uninstall cursor github

If nothing else has changed since `toolcall-proxy install`, this restores the file byte for byte.

exit codes: 0 success, 1 no server has the proxy, 2 the file cannot be read or written
"""


def register(subparsers: Any) -> None:
    """Describes the verb and its arguments."""
    parser = subparsers.add_parser(
        "uninstall",
        help="undo `install`",
        description="Remove the proxy from the config of an MCP client.",
        epilog=_EPILOG,
    )
    add_client_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Takes the proxy away from the servers; gives the exit code."""
    from proxy.extensions.mcp.importing.client_files import take_away, uninstall
    from proxy.extensions.operations.cli.import_ import list_left_out, write_table
    from proxy.extensions.operations.importing.harvest import ImportProblem

    try:
        file = read_chosen_file(args)
        edit = take_away(file, args.servers)
        for line in write_table("left as it was", list_left_out(edit.left)):
            print(line)
        if not edit.changed:
            print(f"uninstall: {file.path}: the proxy is in front of no server: nothing is written", file=sys.stderr)
            return EXIT_NOTHING
        backup = uninstall(file, edit)
    except ImportProblem as problem:
        print(f"uninstall: {problem}", file=sys.stderr)
        return EXIT_PROBLEM
    print(f"wrote {file.path}: the client itself starts {', '.join(edit.changed)} again")
    if backup is not None:
        print(f"other parts have changed since it was installed; as it was before that: {backup}")
    return 0
