"""`toolcall-proxy import openapi URL|FILE`, `import mcp URL`, `import mcpservers FILE`: writes a config for tools that
exist already, with their schemas.

Existing files are replaced only with `--force`. Tools that cannot be imported are named, with the reason.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from proxy.cli.options import HelpText, add_header_option

if TYPE_CHECKING:
    from proxy.core.model.values import Headers
    from proxy.importing.client_files import ClientFile
    from proxy.importing.harvest import Harvest, LeftOut
    from proxy.importing.mcpservers import McpServers

EXIT_NOTHING: Final = 1
EXIT_PROBLEM: Final = 2

_EPILOG: Final = """\
examples:
  toolcall-proxy import openapi http://127.0.0.1:8000/openapi.json --into proxy
  toolcall-proxy import openapi petstore.yaml --upstream http://127.0.0.1:9000 --only 'add*'
  toolcall-proxy import mcp http://127.0.0.1:8000/mcp --header "Authorization: Bearer $TOKEN"
  toolcall-proxy import mcpservers claude_desktop_config.json

The config that is written is a config like any other: edit it, check it, serve it (docs/import.md).
exit codes: 0 written, 1 the source has nothing to judge, 2 it could not be read or written
"""


def register(subparsers: Any) -> None:
    """Describes the verb and its arguments."""
    verb = subparsers.add_parser(
        "import",
        help="write a config for tools that describe themselves",
        description="Reads an OpenAPI description, or an MCP server's list of tools, and writes config.yaml, a schema "
        "for each tool below schemas/, and imported.json, which `check --live` compares with.",
        epilog=_EPILOG,
        formatter_class=HelpText,
    )
    kinds = verb.add_subparsers(dest="kind", metavar="KIND", required=True)
    openapi = kinds.add_parser("openapi", help="FastAPI, mcpo, anything with an OpenAPI description")
    openapi.add_argument("source", metavar="URL|FILE", help="the description, JSON or YAML")
    openapi.add_argument("--upstream", metavar="URL", default="", help="where the tools run, if it does not say so")
    openapi.add_argument(
        "--only",
        metavar="NAME",
        action="append",
        default=[],
        help="take this operation only: an operationId or 'POST /path', * for anything; may be repeated",
    )
    openapi.add_argument("--relay", action="store_true", help="pass on, unjudged, what cannot be judged")
    openapi.add_argument(
        "--as", dest="serve_as", choices=("http", "mcp"), default="http",
        help="serve them under their own paths and names (http, the default), or as the tools of an MCP server",
    )  # fmt: skip
    _add_common_arguments(openapi)
    mcp = kinds.add_parser("mcp", help="an MCP server, by its list of tools")
    mcp.add_argument("source", metavar="URL", help="where MCP is spoken, such as http://127.0.0.1:8000/mcp")
    _add_common_arguments(mcp)
    _add_mcpservers(kinds)


def _add_mcpservers(kinds: Any) -> None:
    from proxy.importing.clients import CLIENTS

    clients = kinds.add_parser("mcpservers", help="the servers that a client's config names (Claude, Cursor, VS Code)")
    clients.add_argument(
        "source", metavar="FILE", type=Path, help="such as claude_desktop_config.json, .vscode/mcp.json or config.toml"
    )
    clients.add_argument("--into", metavar="FOLDER", type=Path, default=Path(), help="where to write (default: here)")
    clients.add_argument("--force", action="store_true", help="replace files that exist")
    clients.add_argument(
        "--client", choices=tuple(CLIENTS), default="", help="whose config it is (default: by the file)"
    )
    clients.add_argument(
        "--rewrite",
        action="store_true",
        help="write nothing: print the client's config with the proxy in front of each server, started by the client",
    )
    clients.add_argument(
        "--urls",
        action="store_true",
        help="with --rewrite: entries that lead to a proxy that serves the written config",
    )
    clients.add_argument(
        "--one", action="store_true", help="all servers behind one path, their tools under the servers' names"
    )


def _add_common_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--into", metavar="FOLDER", type=Path, default=Path(), help="where to write (default: here)")
    parser.add_argument("--force", action="store_true", help="replace files that exist")
    add_header_option(parser, "send this header with the question; it is written nowhere")


def run(args: argparse.Namespace) -> int:
    """Reads the source, writes the config and checks it; gives the exit code."""
    from proxy.importing.files import CONFIG, make_files, write_files
    from proxy.importing.harvest import ImportProblem

    if args.kind == "mcpservers":
        return _run_mcpservers(args)
    if args.kind == "openapi" and args.serve_as == "mcp" and args.relay:
        problem = "--relay and --as mcp cannot stand together: an MCP client calls tools and nothing else"
        print(f"import: {problem}", file=sys.stderr)
        return EXIT_PROBLEM
    try:
        harvest = asyncio.run(_harvest(args, tuple(args.header)))
        if not harvest.tools:
            print("\n".join(describe_harvest(harvest)))
            print("import: nothing here can be judged: nothing is written", file=sys.stderr)
            return EXIT_NOTHING
        written = write_files(args.into, make_files(_make_source_relative(args.into, harvest)), force=args.force)
    except ImportProblem as problem:
        print(f"import: {problem}", file=sys.stderr)
        return EXIT_PROBLEM
    print("\n".join(describe_harvest(harvest)))
    print(f"\n{_summarise(harvest)}\nwrote {', '.join(_list_written(written))}")
    return _check_written(args.into / CONFIG)


def _run_mcpservers(args: argparse.Namespace) -> int:
    """Writes the config for the servers that a client's config names, or prints that client's config rewritten."""
    from proxy.importing.client_files import find_own_program, read_client_file
    from proxy.importing.files import CONFIG, write_files
    from proxy.importing.harvest import ImportProblem
    from proxy.importing.mcpservers import read_mcpservers

    try:
        if args.rewrite and not (args.one or args.urls):
            return _print_in_front(read_client_file(args.source, args.client))
        found = read_mcpservers(args.source, args.client)
        if args.rewrite:
            print(found.rewrite_client_config(find_own_program(), one=args.one), end="")
            return 0
        for line in _describe_servers(found, one=args.one):
            print(line)
        if not found.upstreams:
            print("import: no server there can be served: nothing is written", file=sys.stderr)
            return EXIT_NOTHING
        (config,) = write_files(args.into, {CONFIG: found.write_config(CONFIG, one=args.one)}, force=args.force)
        config.chmod(0o600)
    except ImportProblem as problem:
        print(f"import: {problem}", file=sys.stderr)
        return EXIT_PROBLEM
    print(f"\nwrote {config}")
    if found.variables:
        print(f"set before it is served: {', '.join(found.variables)}")
        return 0
    return _check_written(config)


def _print_in_front(file: ClientFile) -> int:
    """Prints a client's config with the proxy in front of its servers; says on stderr which were left."""
    from proxy.importing.client_files import find_own_program, put_in_front

    edit = put_in_front(file, find_own_program())
    for line in write_table("left as it was", list_left_out(edit.left)):
        print(line, file=sys.stderr)
    sys.stdout.write(edit.text.decode())
    return 0 if edit.changed else EXIT_NOTHING


def list_left_out(left: Iterable[LeftOut]) -> list[tuple[str, str]]:
    """Rows of a table about what was left out, and why."""
    return [(each.name, f"{each.why}  ({each.hint})" if each.hint else each.why) for each in left]


def _describe_servers(found: McpServers, *, one: bool) -> Iterator[str]:
    """Lines about which servers are served where, and which are not."""
    from proxy.importing.mcpservers import JOINED_PATH

    yield from write_table("served", [(name, JOINED_PATH if one else f"/{name}/mcp") for name in found.upstreams])
    yield from write_table("left out", list_left_out(found.left_out))


async def _harvest(args: argparse.Namespace, headers: Headers) -> Harvest:
    from proxy.importing.mcp import read_mcp
    from proxy.importing.openapi import Choice, read_openapi

    if args.kind == "mcp":
        return await read_mcp(args.source, headers)
    with show_operations() as advance:
        choice = Choice(tuple(args.only), args.relay, args.upstream, args.serve_as == "mcp")
        return await read_openapi(args.source, choice, headers, advance=advance)


@contextlib.contextmanager
def show_operations() -> Iterator[Callable[[int, int], None]]:
    """Shows a progress bar on a terminal while operations are read. The context's value is called with (done,
    total)."""
    from proxy.cli.progress import Progress

    progress = Progress(None, counted="operations")
    try:
        yield lambda done, total: progress.at(done, done, total)
    finally:
        progress.erase()


def _make_source_relative(folder: Path, harvest: Harvest) -> Harvest:
    """The harvest with a source file's path relative to the config's folder, where `check --live` looks for it."""
    from proxy.importing.openapi import is_url

    return harvest if is_url(harvest.source) else replace(harvest, source=os.path.relpath(harvest.source, folder))


def describe_harvest(harvest: Harvest) -> Iterator[str]:
    """What was found, in lines: judged, relayed, left out, and what is worth knowing."""
    from proxy.importing.harvest import flatten_text

    yield f"{harvest.source.partition('?')[0]}: {flatten_text(harvest.about)}"
    yield from write_table("judged", [(f"{tool.method} {tool.path}".strip(), tool.name) for tool in harvest.tools])
    yield from write_table("relayed", [(f"{each.method} {each.path}", each.why) for each in harvest.relayed])
    yield from write_table("left out", list_left_out(harvest.left_out))
    notes = [f"{tool.name}: {note}" for tool in harvest.tools for note in tool.notes]
    yield from (f"note: {flatten_text(note)}" for note in (*harvest.notes, *notes))


def _summarise(harvest: Harvest) -> str:
    """The counts of the report in one line, for reports that are longer than a screen."""
    counts = (
        (len(harvest.tools), "judged"),
        (len(harvest.relayed), "relayed"),
        (len(harvest.left_out), "left out"),
    )
    return ", ".join(f"{count:,} {what}" for count, what in counts)


def write_table(title: str, written: list[tuple[str, str]]) -> Iterator[str]:
    """Lines of a table of two columns, with its title and length; none where it is empty."""
    from proxy.importing.harvest import flatten_text

    rows = [(flatten_text(left), flatten_text(right)) for left, right in written]
    if not rows:
        return
    yield f"{title} ({len(rows)}):"
    width = min(max(len(left) for left, _ in rows), 50)
    yield from (f"  {left:<{width}}  {right}" if left else f"  {right}" for left, right in rows)


def _list_written(paths: list[Path]) -> Iterator[str]:
    from proxy.importing.files import SCHEMAS

    schemas = [path for path in paths if path.parent.name == SCHEMAS]
    yield str(paths[0])
    yield f"{len(schemas)} schema{'s' * (len(schemas) != 1)} below {schemas[0].parent}"
    yield str(paths[-1])


def _check_written(config: Path) -> int:
    """Checks the written config as `serve` will read it."""
    from proxy.config.load import load
    from proxy.config.mistakes import ConfigError

    try:
        load(config, os.environ)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return EXIT_PROBLEM
    print(f"next: toolcall-proxy serve {config}")
    return 0
