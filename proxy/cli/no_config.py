"""Serves without a config of the user's: makes the config of one MCP server or of one OpenAPI description, and opens
the operator's port.

`serve --mcp`, `serve --openapi` and `stdio` use the temporary files written here; they are removed at the end. The
tools of an MCP server are learned while serving; those of a description are imported first, as `import` does it. The
files have no operator's port: `serve` and `demo` add one at a free port (`open_console`), so that several such
processes can run side by side. Its token stands in the fragment of the console's link, which no browser sends anywhere;
the page takes it out of the address at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from proxy.config.load import Loaded
    from proxy.config.model import Address


_NAME: Final = "mcp.yaml"


def write_mcp_config(url: str, headers: Sequence[tuple[str, str]] = (), timeout: str | None = None) -> str:
    """A config (YAML) with one route to the MCP server at `url`, below the path that the server has. `headers` go with
    every request to it; `timeout` is how long its tools may take (None: as long as they may by default).

    A URL that no upstream can have (with a query, without a scheme) gives a config that reports it when it is read.
    """
    parts = urlsplit(url)
    origin, path = f"{parts.scheme}://{parts.netloc}" if parts.scheme else url, parts.path or "/"
    origin += f"?{parts.query}" if parts.query else ""
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
    and the working folder that the proxy was started with: whoever wrote the command has chosen them for the server.
    `timeout` is how long its tools may take (None: there is no limit)."""
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
    """A text as a config holds it: `${` begins a reference there."""
    return text.replace("$", "$$")


def make_mcp_config_file(config: str, kept: ExitStack) -> Path:
    """Writes a config to a file that exists until `kept` closes."""
    path = Path(kept.enter_context(tempfile.TemporaryDirectory(prefix="toolcall-proxy-"))) / _NAME
    path.write_text(config, encoding="utf-8")
    return path


# As for `serve --mcp`: `serve` adds the operator's port, at a free one.
_ADMIN: Final = "\nadmin: off\n"


def make_config_file(args: argparse.Namespace, kept: ExitStack) -> Path | None:
    """Imports the description `args.openapi` into a config file that exists until `kept` closes; None, with the reason
    printed, where that is impossible."""
    from proxy.cli.import_ import describe_harvest, show_operations
    from proxy.importing.files import CONFIG, make_files, write_files
    from proxy.importing.harvest import ImportProblem
    from proxy.importing.openapi import Choice, read_openapi

    try:
        choice = Choice(relay=args.relay, upstream=args.upstream or "", as_mcp=args.serve_as == "mcp")
        with show_operations() as advance:
            harvest = asyncio.run(read_openapi(args.openapi, choice, advance=advance))
        print("\n".join(describe_harvest(harvest)), file=sys.stderr)
        if not harvest.tools:
            raise ImportProblem("nothing there can be judged")
        folder = Path(kept.enter_context(tempfile.TemporaryDirectory(prefix="toolcall-proxy-")))
        files = make_files(harvest)
        write_files(folder, {**files, CONFIG: files[CONFIG] + _ADMIN}, force=False)
    except ImportProblem as problem:
        print(f"serve --openapi: {problem}", file=sys.stderr)
        return None
    return folder / CONFIG


_TOKEN_BYTES: Final = 24


def open_console(loaded: Loaded, listen: Address | None = None) -> Loaded:
    """The config with an operator's port at `listen` (default: the usual one, or a free one where it is taken) that
    asks for a token: the config's own, or a fresh one."""
    from proxy.config.model import AdminConfig

    admin = loaded.config.admin or AdminConfig()
    address = listen or replace(admin.listen, or_free=True)
    token = admin.token or secrets.token_urlsafe(_TOKEN_BYTES)
    return replace(loaded, config=replace(loaded.config, admin=replace(admin, listen=address, token=token)))


def close_console(loaded: Loaded) -> Loaded:
    """The config without an operator's port."""
    return replace(loaded, config=replace(loaded.config, admin=None))


def make_link(admin_url: str | None, loaded: Loaded) -> str | None:
    """The console's URL with the operator's token in it; None where there is no console."""
    from proxy.config.files.secrets import reveal

    admin = loaded.config.admin
    if admin is None or not admin.console or not admin_url or not admin_url.startswith("http"):
        return None
    token = reveal(admin.token)
    return f"{admin_url}/ui/" + (f"#k={token}" if token else "")
