"""`serve --mcp` and `stdio` make the config of one MCP server, for users who have none. The tools are learned while
serving.

The config has no operator's port: `serve` adds one at a free port, so that several such processes can run side by side.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

_NAME: Final = "mcp.yaml"


def write_mcp_config(url: str, headers: Sequence[tuple[str, str]] = ()) -> str:
    """A config (YAML) with one route to the MCP server at `url`, below the path that the server has. `headers` go with
    every request to it.

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
  - {{path: {json.dumps(path)}, upstream: mcp, protocol: mcp}}
"""


def write_command_config(words: Sequence[str]) -> str:
    """A config (YAML) with one route, `/mcp`, to the MCP server that a command starts."""
    return f"""\
version: 1
admin: off
upstreams:
  mcp: {{command: {json.dumps([escape_text(word) for word in words])}, cwd: {json.dumps(escape_text(str(Path.cwd())))}}}
routes:
  - {{path: /mcp, upstream: mcp, protocol: mcp}}
"""


def escape_text(text: str) -> str:
    """A text as a config holds it: `${` begins a reference there."""
    return text.replace("$", "$$")


def make_mcp_config_file(config: str, kept: ExitStack) -> Path:
    """A config as a file that lasts as long as `kept`."""
    path = Path(kept.enter_context(tempfile.TemporaryDirectory(prefix="toolcall-proxy-"))) / _NAME
    path.write_text(config, encoding="utf-8")
    return path
