"""MCP routes: calls are checked against the tools that their server lists, other messages are forwarded unchanged.

`exchange.py` handles one request of an MCP route, from its message to its answer.
`bound_mcp_route.py` turns a checked call into the request to an MCP server or to an HTTP service.
`lists/` learns, keeps and shows the lists of tools.
`watching.py` watches answers as they pass, and reads whether a tool's result is an error.
`guided_answers.py` adds guidance to answers that clients read before they call.
`protected_resource.py`: OAuth of MCP servers (specification, "Authorization"): the route's URL replaces the server's.
`detached_calls.py` continues calls after their client has disconnected.
`stdio.py` connects a client on standard input and output to a listener of this process.
"""
