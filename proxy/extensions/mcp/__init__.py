"""Everything of MCP: messages, lists of tools, sessions, stdio on both sides, several servers behind one path, and
HTTP operations as the tools of one server."""
