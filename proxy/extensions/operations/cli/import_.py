"""`toolcall-proxy import KIND SOURCE`: writes a config for tools that exist already, with their schemas.

Extensions read the kinds of sources.
Existing files are replaced only with `--force`. Tools that cannot be imported are named, with the reason.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from proxy.extensions.operations.importing import list_import_kinds
from proxy.plugin import add_header_option

if TYPE_CHECKING:
    from proxy.extensions.operations.importing.harvest import Harvest, LeftOut
    from proxy.plugin import CheckReport, FlagFinding, Loaded


# --- `check --live` ---------------------------------------------------------------------------------------------------
def check_live(report: CheckReport, loaded: Loaded, args: argparse.Namespace) -> list[FlagFinding]:
    """Returns the changes of the sources, and the tools whose nulls are refused."""
    from proxy.extensions.operations.importing.harvest import ImportProblem
    from proxy.extensions.operations.importing.live import describe_drift, describe_refused_nulls, look_live
    from proxy.plugin import FlagFinding
    from proxy.routing import build_routes

    try:
        drifts = asyncio.run(look_live(Path(report.path).parent, tuple(args.header)))
    except ImportProblem as problem:
        report.problem = f"check --live: {problem}"
        return []
    sources = [("\n".join(describe_drift(found)), found.is_found) for found in drifts]
    tools = {policy.tool: policy for route in build_routes(loaded.config).routes for policy in route.tools.values()}
    if lines := [*describe_refused_nulls(tools.values())]:
        sources.append(("\n".join(lines), False))
    return [FlagFinding(text, text * changed, {"changed": changed, "text": text}) for text, changed in sources]


# --- `toolcall-proxy import KIND SOURCE` ------------------------------------------------------------------------------
EXIT_NOTHING: Final = 1
EXIT_PROBLEM: Final = 2

_EPILOG: Final = """\
examples:
  toolcall-proxy import openapi http://127.0.0.1:8000/openapi.json --into proxy
  toolcall-proxy import openapi petstore.yaml --upstream http://127.0.0.1:9000 --only 'add*'
  toolcall-proxy import mcp http://127.0.0.1:8000/mcp --header "Authorization: Bearer $TOKEN"
  toolcall-proxy import mcpservers claude_desktop_config.json

The result is an ordinary config: edit it, check it, serve it (docs/http-apis.md).

exit codes: 0 success, 1 the source has no tool to validate, 2 the source cannot be read, or a file cannot be written
"""


def register(subparsers: Any) -> None:
    """Describes the verb and its arguments."""
    verb = subparsers.add_parser(
        "import",
        help="write a config from an OpenAPI description or for MCP servers",
        description="Write config.yaml for existing tools. `openapi` and `mcp` also write a schema for each tool\n"
        "into schemas/, and imported.json, so that `check --live` can find later changes.",
        epilog=_EPILOG,
    )
    kinds = verb.add_subparsers(dest="kind", metavar="KIND", required=True)
    for kind in list_import_kinds().values():
        kind.register(kinds)


def add_import_arguments(parser: argparse.ArgumentParser) -> None:
    """Describes the arguments of every kind of source."""
    parser.add_argument(
        "--into", metavar="FOLDER", type=Path, default=Path(), help="write the files into this folder (default: here)"
    )
    parser.add_argument("--force", action="store_true", help="replace existing files")
    add_header_option(parser, "send this header with the request; it is not stored")


def run(args: argparse.Namespace) -> int:
    """Reads the source, writes the config and checks it; gives the exit code."""
    return list_import_kinds()[args.kind].run(args)


def import_source(args: argparse.Namespace, read: Callable[[], Awaitable[Harvest]]) -> int:
    """Reads a source, writes the config and checks it; gives the exit code."""
    from proxy.extensions.operations.importing.files import CONFIG, make_files, write_files
    from proxy.extensions.operations.importing.harvest import ImportProblem

    async def harvest_source() -> Harvest:
        return await read()

    try:
        harvest = asyncio.run(harvest_source())
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
    return check_written(args.into / CONFIG)


def list_left_out(left: Iterable[LeftOut]) -> list[tuple[str, str]]:
    """Rows of a table: each left out, with the reason."""
    return [(each.name, f"{each.why}  ({each.hint})" if each.hint else each.why) for each in left]


@contextlib.contextmanager
def show_operations() -> Iterator[Callable[[int, int], None]]:
    """Shows a progress bar on a terminal while operations are read. The context's value is called with (done,
    total)."""
    from proxy.plugin import Progress

    progress = Progress(None, counted="operations")
    try:
        yield lambda done, total: progress.at(done, done, total)
    finally:
        progress.erase()


def _make_source_relative(folder: Path, harvest: Harvest) -> Harvest:
    """The harvest with a source file's path relative to the config's folder, where `check --live` looks for it."""
    from proxy.extensions.operations.importing.fetch import is_url

    return harvest if is_url(harvest.source) else replace(harvest, source=os.path.relpath(harvest.source, folder))


def describe_harvest(harvest: Harvest) -> Iterator[str]:
    """The harvest in lines: judged, relayed, left out, and notes."""
    from proxy.extensions.operations.importing.harvest import flatten_text

    yield f"{harvest.source.partition('?')[0]}: {flatten_text(harvest.about)}"
    yield from write_table("judged", [(f"{tool.method} {tool.path}".strip(), tool.name) for tool in harvest.tools])
    yield from write_table("relayed", [(f"{each.method} {each.path}", each.why) for each in harvest.relayed])
    yield from write_table("left out", list_left_out(harvest.left_out))
    notes = [f"{tool.name}: {note}" for tool in harvest.tools for note in tool.notes]
    yield from (f"note: {flatten_text(note)}" for note in (*harvest.notes, *notes))


def _summarise(harvest: Harvest) -> str:
    """The counts of the report in one line, for reports that are longer than a screen."""
    counts = ((len(harvest.tools), "judged"), (len(harvest.relayed), "relayed"), (len(harvest.left_out), "left out"))
    return ", ".join(f"{count:,} {what}" for count, what in counts)


def write_table(title: str, written: list[tuple[str, str]]) -> Iterator[str]:
    """Yields the lines of a table of two columns, with its title and length; none if it is empty."""
    from proxy.extensions.operations.importing.harvest import flatten_text

    rows = [(flatten_text(left), flatten_text(right)) for left, right in written]
    if not rows:
        return
    yield f"{title} ({len(rows)}):"
    width = min(max(len(left) for left, _ in rows), 50)
    yield from (f"  {left:<{width}}  {right}" if left else f"  {right}" for left, right in rows)


def _list_written(paths: list[Path]) -> Iterator[str]:
    from proxy.extensions.operations.importing.files import SCHEMAS

    schemas = [path for path in paths if path.parent.name == SCHEMAS]
    yield str(paths[0])
    yield f"{len(schemas)} schema{'s' * (len(schemas) != 1)} below {schemas[0].parent}"
    yield str(paths[-1])


def check_written(config: Path) -> int:
    """Checks the written config as `serve` will read it."""
    from proxy.plugin import ConfigError, load

    try:
        load(config, os.environ)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return EXIT_PROBLEM
    print(f"next: toolcall-proxy serve {config}")
    return 0
