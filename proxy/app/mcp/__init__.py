"""MCP routes, wired: what flows by is relayed and looked at, calls are judged by the tools that their server lists.

door.py        what other routes never need is loaded behind it
turn.py        what goes in at the door
exchange.py    one request of an MCP route, from its message to its answer
lane.py        how a call goes out
asking.py      finds the tools for a call: remembered, asked for, or from the config alone
afterlife.py   calls that run on when their client has gone
"""

from __future__ import annotations

from proxy.app.mcp.door import Mcp, load_exchange
from proxy.app.mcp.turn import Reports, Turn

__all__ = ["Mcp", "Reports", "Turn", "load_exchange"]
