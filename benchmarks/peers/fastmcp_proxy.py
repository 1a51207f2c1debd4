"""fastmcp's own proxy in front of an MCP server: an URL, or a command that speaks stdio. Runs in `.parties/py2`.

python fastmcp_proxy.py PORT URL|COMMAND ARGUMENT ...
"""
# mypy: ignore-errors
# The peer is not a dependency of the product, so its types are not there to be checked.

from __future__ import annotations

import logging
import sys

from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy

if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    server = sys.argv[2] if len(sys.argv) == 3 else Client(StdioTransport(sys.argv[2], sys.argv[3:]))
    create_proxy(server).run(
        transport="http", host="127.0.0.1", port=int(sys.argv[1]), path="/mcp", show_banner=False, log_level="critical"
    )
