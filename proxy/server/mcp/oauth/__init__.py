"""OAuth of MCP servers (specification, "Authorization"): what clients learn of the server's authorization, passed on.

protected_resource.py   the URL that clients know in place of the server's own, in its metadata and its challenges
"""
