"""`toolcall-proxy stdio` speaks MCP over stdin and stdout, for clients that start commands (Claude Desktop, Cursor).

The proxy serves on a unix socket in a private folder, and a bridge carries lines to it, so a call over stdio takes the
same path as any other. Stdout carries only messages; anything else written to it, by a library for example, goes to
stderr.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import select
import stat
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from proxy.plugin import add_header_option, add_timeout_option, read_header

if TYPE_CHECKING:
    from proxy.config.model import RouteEntry
    from proxy.plugin import Loaded

EXIT_CONFIG: Final = 2
# The longest message of a client; the proxy's own limit for a body applies first.
_LINE: Final = 64 * 1024 * 1024

DESCRIPTION: Final = """\
Speak MCP over stdin and stdout, for clients that start commands. Protect one MCP server: a command, a URL, or a route
of a config. `toolcall-proxy install CLIENT` writes this command into the client's config."""

EPILOG: Final = """\
examples:
  toolcall-proxy stdio -- npx -y @modelcontextprotocol/server-filesystem /data
  toolcall-proxy stdio --url https://tools.example.com/mcp --header "Authorization: Bearer $TOKEN"
  toolcall-proxy stdio --config config.yaml --route /files

Logs go to stderr (docs/mcp.md).

exit codes: 0 the client closed its end, 1 the same, but some requests got no answer, 2 usage or config error
"""


def register(subparsers: Any) -> None:
    """Describes the verb and its arguments."""
    parser = subparsers.add_parser(
        "stdio",
        help="wrap a stdio MCP server, for clients that start commands",
        description=DESCRIPTION,
        epilog=EPILOG,
        usage="toolcall-proxy stdio [--config FILE [--route PATH] | --url URL | [--] COMMAND ARGUMENT ...]",
    )
    parser.add_argument(
        "command",
        metavar="COMMAND",
        nargs=argparse.REMAINDER,
        help="the command that starts the server, preferably after --",
    )
    parser.add_argument("--config", metavar="FILE", help="a config with a route of `protocol: mcp`")
    parser.add_argument("--route", metavar="PATH", help="the MCP route, if the config has several")
    parser.add_argument("--url", metavar="URL", help="without a config: the MCP server at this URL")
    add_header_option(parser, "send this header with every request; may be repeated")
    parser.add_argument(
        "--header-env",
        metavar="NAME=VARIABLE",
        action="append",
        default=[],
        help="the same with a variable's value, which other users cannot see in the process list; may be repeated",
    )
    add_timeout_option(parser, "limit each tool call (default: off for a command, 5m for a URL)")


def run(args: argparse.Namespace) -> int:
    """Serves one client until it closes its input; gives the exit code."""
    from proxy.plugin import ConfigError

    args.command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if unfit := _find_contradiction(args):
        print(f"stdio: {unfit}", file=sys.stderr)
        return EXIT_CONFIG
    with contextlib.ExitStack() as kept:
        out = kept.enter_context(_reserve_stdout())
        folder = Path(kept.enter_context(tempfile.TemporaryDirectory(prefix="toolcall-proxy-")))
        try:
            loaded = _load(args, kept)
            route = _find_route(loaded, args.route)
            headers = dict(args.header) | _read_variables(args.header_env)
        except ConfigError as error:
            print("\n".join(str(mistake) for mistake in error.mistakes), file=sys.stderr)
            return EXIT_CONFIG
        except LookupError as error:
            print(f"stdio: {error.args[0]}", file=sys.stderr)
            return EXIT_CONFIG
        unanswered = 0
        with contextlib.suppress(BrokenPipeError):
            unanswered = asyncio.run(_serve(loaded, route, folder / "listen", headers, out, args.url or ""))
    if unanswered:
        print(f"stdio: {unanswered} requests got no answer in time after the client closed its end", file=sys.stderr)
    return 1 if unanswered else 0


def _find_contradiction(args: argparse.Namespace) -> str:
    """The contradiction among the arguments, or ''."""
    sources = [word for word, value in (("--config", args.config), ("--url", args.url), ("--", args.command)) if value]
    if len(sources) != 1:
        return "which server?  (-- COMMAND ARGUMENT ..., --url URL or --config FILE: one of them)"
    if args.timeout and args.config is not None:
        return "--timeout goes with --url and a command; a config says `timeout`"
    return "--route goes only with --config" if args.route is not None and args.config is None else ""


@contextlib.contextmanager
def _reserve_stdout() -> Iterator[BinaryIO]:
    """Reserves stdout for messages: other writes to it go to stderr from now on."""
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "wb", buffering=0) as out:
        os.dup2(2, 1)
        yield out


def _load(args: argparse.Namespace, kept: contextlib.ExitStack) -> Loaded:
    from proxy.extensions.mcp.cli.no_config import make_mcp_config_file, write_command_config, write_mcp_config
    from proxy.plugin import load

    if args.config is not None:
        return load(args.config, os.environ)
    if args.url:
        text = write_mcp_config(args.url, timeout=args.timeout)
    else:
        text = write_command_config(args.command, args.timeout)
    return load(make_mcp_config_file(text, kept), os.environ)


def _read_variables(written: Sequence[str]) -> dict[str, str]:
    """Returns the headers whose values are in the environment. Raises LookupError, which names the missing ones."""
    headers: dict[str, str] = {}
    for word in written:
        name, _, variable = word.partition("=")
        if not variable or variable not in os.environ:
            raise LookupError(f"--header-env {word}: there is no environment variable {variable!r}")
        try:
            header, value = read_header(f"{name}: {os.environ[variable]}")
        except argparse.ArgumentTypeError as error:
            raise LookupError(f"--header-env {word}: {error}") from None
        headers[header] = value
    return headers


def _find_route(loaded: Loaded, path: str | None) -> RouteEntry:
    """The MCP route to serve. Raises LookupError, whose message has the remedy."""
    routes = {route.path: route for route in loaded.config.routes if route.listed is not None}
    if path is not None and path not in routes:
        raise LookupError(f"no MCP route has the path {path!r}  (there are: {', '.join(routes) or 'none'})")
    if path is None and len(routes) != 1:
        there = f"say one of them with --route: {', '.join(routes)}" if routes else "add one with `protocol: mcp`"
        raise LookupError(f"the config has {len(routes) or 'no'} MCP routes  ({there})")
    return routes[path] if path is not None else next(iter(routes.values()))


async def _serve(
    loaded: Loaded, route: RouteEntry, socket: Path, headers: dict[str, str], out: BinaryIO, server: str
) -> int:
    from proxy.config.model import Address
    from proxy.extensions.mcp.server.stdio import carry
    from proxy.server import start_serving

    one_at_a_time = asyncio.Lock()

    async def write(message: bytes) -> None:
        async with one_at_a_time:
            await asyncio.get_running_loop().run_in_executor(None, _write_line, out, message)

    serving = await start_serving(_make_single(loaded, route), listen=Address(unix=str(socket)))
    try:
        client = _read_lines(), write, partial(_is_read, out)
        return await carry(*client, socket, route.path, headers, serving=serving, server=server)
    finally:
        await serving.stop()


def _make_single(loaded: Loaded, route: RouteEntry) -> Loaded:
    """The config without an operator's port, for the one client of a route."""
    from proxy.extensions.mcp.config.model import Command

    upstreams, entry = dict(loaded.config.upstreams), loaded.config.upstreams[route.upstream]
    if isinstance(entry.added, Command):
        upstreams[route.upstream] = replace(entry, added=replace(entry.added, single_client=True))
    return replace(loaded, config=replace(loaded.config, admin=None, upstreams=upstreams))


def _write_line(out: BinaryIO, message: bytes) -> None:
    rest = memoryview(message + b"\n")
    while rest:
        rest = rest[out.write(rest) :]


def _is_read(out: BinaryIO) -> bool:
    """Returns whether somebody still reads `out`: a pipe without a reader has an error."""
    poll = select.poll()
    poll.register(out, 0)
    return not poll.poll(0)


async def _read_lines() -> AsyncIterator[bytes]:
    """The lines of stdin, until the client closes it. Files and /dev/null cannot be waited for: a thread reads them."""
    if sys.stdin is None:  # closed by who started this process
        return
    kind = os.fstat(sys.stdin.fileno()).st_mode
    if not (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind) or sys.stdin.isatty()):
        while line := await asyncio.to_thread(sys.stdin.buffer.readline):
            yield line
        return
    reader = asyncio.StreamReader(limit=_LINE)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield line
