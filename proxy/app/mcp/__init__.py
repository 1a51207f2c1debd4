"""MCP routes, wired: what flows by is relayed and looked at, calls are judged by the tools that their server lists.

exchange.py    one request of an MCP route, from its message to its answer
lane.py        how a call goes out
asking.py      finds the tools for a call: remembered, asked for, or from the config alone
afterlife.py   calls that run on when their client has gone
"""

from __future__ import annotations

from proxy.app.mcp.asking import Reports
from proxy.app.mcp.exchange import Mcp, Turn

__all__ = ["Mcp", "Reports", "Turn"]
