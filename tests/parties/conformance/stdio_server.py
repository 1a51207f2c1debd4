"""The suite's server over stdio, for the ways that start it as a command."""

from __future__ import annotations

import logging

from everything_server import mcp  # beside this file

logging.disable(logging.CRITICAL)
mcp.run(transport="stdio")
