"""fastmcp's own proxy in front of an MCP server. Runs in `.parties/py2`.

python fastmcp_proxy.py PORT URL
"""
# mypy: ignore-errors
# The peer is no dependency of the product, so its types are not there to be checked.

from __future__ import annotations

import logging
import sys

from fastmcp.server import create_proxy

if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    create_proxy(sys.argv[2]).run(
        transport="http", host="127.0.0.1", port=int(sys.argv[1]), path="/mcp", show_banner=False, log_level="critical"
    )
