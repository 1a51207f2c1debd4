"""Requests that are the arguments of one tool: read, and written."""
