"""Serves without a config of the user's: makes the config of one MCP server.

`serve --mcp` and `stdio` use the temporary files written here; they are removed at the end. The tools of the server are
learned while serving.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from proxy.file_writing import replace_file
from proxy.plugin import split_url, write_defaults

if TYPE_CHECKING:
    from proxy.interfaces import GuardedUpstream

_NAME: Final = "mcp.yaml"
# Seconds within which the end of a command that has answered nothing is reported.
_EARLY: Final = 60.0


def write_mcp_config(url: str, headers: Sequence[tuple[str, str]] = (), timeout: str | None = None) -> str:
    """A config (YAML) with one route to the MCP server at `url`, below the path that the server has. `headers` go with
    every request to it; `timeout` is how long its tools may take (None: as long as they may by default).

    A URL that no upstream can have (without a scheme) gives a config that reports it when it is read.
    """
    parts = split_url(url)
    origin, path = f"{parts.scheme}://{parts.netloc}" if parts.scheme else url, parts.path or "/"
    origin = escape_text(origin + (f"?{parts.query}" if parts.query else ""))
    sent = {name: escape_text(value) for name, value in headers}
    return f"""\
version: 1
admin: off
upstreams:
  mcp: {{url: {json.dumps(origin)}, headers: {{set: {json.dumps(sent)}}}}}
routes:
  - {{path: {json.dumps(path)}, upstream: mcp, protocol: mcp{_write_timeout(timeout)}}}
"""


def _write_timeout(timeout: str | None) -> str:
    return f", timeout: {json.dumps(timeout)}" if timeout else ""


def write_command_config(words: Sequence[str], timeout: str | None = None) -> str:
    """A config (YAML) with one route, `/mcp`, to the MCP server that a command starts. The server gets the environment
    and the working folder of the proxy, which the author of the command has chosen for it. `timeout` is how long its
    tools may take (None: there is no limit)."""
    command, folder = json.dumps([escape_text(word) for word in words]), json.dumps(escape_text(str(Path.cwd())))
    return f"""\
version: 1
admin: off
upstreams:
  mcp: {{command: {command}, pass_env: all, cwd: {folder}}}
routes:
  - {{path: /mcp, upstream: mcp, protocol: mcp{_write_timeout(timeout)}}}
"""


def escape_text(text: str) -> str:
    """A text as a config holds it, where `${` begins a reference."""
    return text.replace("$", "$$")


def make_mcp_config_file(config: str, kept: ExitStack) -> Path:
    """Writes a config to a file that exists until `kept` closes."""
    path = Path(kept.enter_context(tempfile.TemporaryDirectory(prefix="toolcall-proxy-"))) / _NAME
    replace_file(path, config.encode())
    return path


def make_config_file(args: argparse.Namespace, kept: ExitStack) -> Path:
    """Writes the config for `serve --mcp` to a file that exists until `kept` closes."""
    command, timeout = args.command, args.timeout
    config = write_command_config(command, timeout) if command else write_mcp_config(args.mcp, args.header, timeout)
    return make_mcp_config_file(config + write_defaults(args), kept)


async def find_command_trouble(words: Sequence[str], upstream: GuardedUpstream) -> list[str]:
    """Starts the command of a server for its first client. Returns lines if that fails, or if it ends early."""
    from proxy.extensions.mcp.upstream.stdio import StdioUpstream
    from proxy.extensions.mcp.upstream.stdio.session import NoChild

    if not shutil.which(words[0]):
        return [f"cannot start {words[0]!r}: no such command  (install it, or write its path)"]
    inner = getattr(upstream, "unguarded", None)
    if not isinstance(inner, StdioUpstream):
        raise TypeError("a command is served by its process")
    try:
        channel = await inner.sessions.start_early()
    except NoChild as none:
        return [none.fault.message]
    ended, last_lines = await channel.watch(_EARLY)
    if ended is None or channel.has_answered:
        return []
    wrote = "; it wrote to stderr:" if last_lines else ""
    return [f"its process ended at once ({ended.how}){wrote}", *(f"  {line}" for line in last_lines)]


async def find_trouble(url: str, headers: Sequence[tuple[str, str]]) -> tuple[list[str], bool]:
    """Returns lines that explain why no MCP server answers at a URL, none if one does, and whether they are final. A
    server that requires a login may get it from its clients."""
    from proxy.extensions.mcp.importing.mcp import read_mcp
    from proxy.extensions.operations.importing.harvest import ImportProblem

    try:
        await read_mcp(url, tuple(headers))
    except ImportProblem as problem:
        lines = [str(problem)]
        if split_url(url).path.rstrip("/").endswith("/sse"):
            lines.append(
                "this path belongs to the transport of 2024-11-05 (HTTP+SSE), which is not supported: put a bridge "
                f"in front of it (fastmcp run {url} --transport http) and use the bridge's URL"
            )
        return lines, not problem.asks_who
    return [], False
