"""An MCP server that speaks stdio, as an `Upstream`: Streamable HTTP on our side, lines of JSON on the server's.

    transport.py `StdioUpstream`: one HTTP exchange -> one message to a child, and the messages that answer it
    session.py   the child of a request: one per session of the old revisions, one shared child for the new ones
    channel.py   one child's pipes: which request each line of its output belongs to
    child_client.py      one client of a child, and the messages on their way to its HTTP answers
    resumable_stream.py  these messages as events with ids, and the newest ones of a session for a client that returns
    child.py     one process and its settings: started without a shell, ended with its whole process group

Specification, "Transports", sections "stdio" and "Streamable HTTP" (2025-11-25 and 2026-07-28).
"""

from __future__ import annotations

from proxy.extensions.mcp.upstream.stdio.child import StdioSettings
from proxy.extensions.mcp.upstream.stdio.transport import StdioUpstream

__all__ = ["StdioSettings", "StdioUpstream"]
