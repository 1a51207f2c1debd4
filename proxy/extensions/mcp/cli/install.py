"""`toolcall-proxy install CLIENT` puts the proxy in front of the MCP servers in a client's config, with a backup."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from proxy.extensions.mcp.importing.client_files import ClientFile

EXIT_NOTHING: Final = 1
EXIT_PROBLEM: Final = 2

_EPILOG: Final = """\
examples:
  toolcall-proxy install claude-desktop
  toolcall-proxy install cursor files github
  toolcall-proxy install claude-code --project

The client then starts each server behind the proxy (`toolcall-proxy stdio -- COMMAND ...`). A server at a URL is
changed only if its headers are in the config, or if it runs on this machine. Other servers may need OAuth, which only
the client can do: to change one anyway, name it as SERVER. `toolcall-proxy uninstall CLIENT` undoes the changes.

exit codes: 0 success, 1 no server to change, 2 the file cannot be read or written
"""


def register(subparsers: Any) -> None:
    """Describes the verb and its arguments."""
    parser = subparsers.add_parser(
        "install",
        help="put the proxy in front of the MCP servers in a client's config",
        description="Put the proxy in front of the servers in the config of an MCP client. Everything else in\n"
        "the file stays unchanged, and a copy is kept next to it.",
        epilog=_EPILOG,
    )
    add_client_arguments(parser)


def add_client_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that choose a client and its servers."""
    from proxy.extensions.mcp.importing.client_entries import CLIENTS

    parser.add_argument("client", metavar="CLIENT", choices=tuple(CLIENTS), help=", ".join(CLIENTS))
    parser.add_argument("servers", metavar="SERVER", nargs="*", help="only these servers (default: all)")
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--file", metavar="FILE", type=Path, help="edit this config (default: the user's)")
    place.add_argument("--project", action="store_true", help="edit the client's config in the current folder")


def read_chosen_file(args: argparse.Namespace) -> ClientFile:
    """Reads the config that the arguments name. Raises ImportProblem."""
    from proxy.extensions.mcp.importing.client_entries import CLIENTS
    from proxy.extensions.mcp.importing.client_files import check_in_project, read_client_file
    from proxy.extensions.operations.importing.harvest import ImportProblem

    client = CLIENTS[args.client]
    if args.project and not client.project_file:
        raise ImportProblem(f"{client.title} has no config of a project", "leave out --project")
    path = Path(client.project_file) if args.project else args.file or client.find_user_file(os.environ)
    if args.project:
        check_in_project(path)
    return read_client_file(path, client.name)


def run(args: argparse.Namespace) -> int:
    """Puts the proxy in front of the servers; gives the exit code."""
    from proxy.extensions.mcp.importing.client_files import find_own_program, install, put_in_front
    from proxy.extensions.operations.cli.import_ import list_left_out, write_table
    from proxy.extensions.operations.importing.harvest import ImportProblem

    try:
        file = read_chosen_file(args)
        edit = put_in_front(file, find_own_program(), args.servers)
        for line in write_table("left as it was", list_left_out(edit.left)):
            print(line)
        if not edit.changed:
            print(f"install: {file.path}: no server to put the proxy in front of: nothing is written", file=sys.stderr)
            return EXIT_NOTHING
        backup = install(file, edit)
    except ImportProblem as problem:
        print(f"install: {problem}", file=sys.stderr)
        return EXIT_PROBLEM
    print(f"wrote {file.path}: the proxy is in front of {', '.join(edit.changed)}")
    print(f"as it was before: {backup}\nnext: restart {file.client.title}")
    return 0
