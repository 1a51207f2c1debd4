"""MCP servers behind a route: processes, several as one, and HTTP operations as one."""
