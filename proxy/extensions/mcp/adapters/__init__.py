"""MCP's messages: read and written without I/O."""
