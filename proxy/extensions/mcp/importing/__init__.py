"""What MCP servers, and the configs of MCP clients, say of tools."""
