"""`serve --mcp URL`: the config of one MCP server, for whoever has written none. Its tools are learned while serving.

It has no operator's port, so that one process for each of several servers can run side by side.
"""

from __future__ import annotations

import json
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

_NAME: Final = "mcp.yaml"
# Every session of an old revision keeps a stream open, and with it a connection to the server.
_CONNECTIONS: Final = 2048


def mcp_config(url: str) -> str:
    """A config (YAML) with one route to the MCP server at `url`, below the path that the server has.

    A url that no upstream can have (with a query, without a scheme) makes a config that says so when it is read.
    """
    parts = urlsplit(url)
    origin, path = f"{parts.scheme}://{parts.netloc}" if parts.scheme else url, parts.path or "/"
    origin += f"?{parts.query}" if parts.query else ""
    return f"""\
version: 1
admin: off
upstreams:
  mcp: {{url: {json.dumps(origin)}, pool: {{connections: {_CONNECTIONS}}}}}
routes:
  - {{path: {json.dumps(path)}, upstream: mcp, protocol: mcp}}
"""


def made_mcp_config(url: str, kept: ExitStack) -> Path:
    """The same as a file that lasts as long as `kept`."""
    path = Path(kept.enter_context(tempfile.TemporaryDirectory(prefix="toolcall-proxy-"))) / _NAME
    path.write_text(mcp_config(url), encoding="utf-8")
    return path
