"""The config of routes that speak MCP."""
