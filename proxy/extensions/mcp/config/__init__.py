"""What the config says of routes that speak MCP."""
