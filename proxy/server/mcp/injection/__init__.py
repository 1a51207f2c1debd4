"""Guidance that reaches models through MCP's own messages (`guidance: {mcp: ...}`)."""
