"""Imports of MCP servers' lists and of MCP clients' configs."""
