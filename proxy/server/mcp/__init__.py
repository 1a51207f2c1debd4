"""MCP routes: messages are relayed and read on the way, calls are checked against the tools that their server lists.

entry.py               loads the rest when the first MCP route needs it
mcp_request.py         one request with everything needed to answer it
exchange.py            one request of an MCP route, from its message to its answer
bound_mcp_route.py     how a call goes out, to an MCP server or to an HTTP service
lists/                 the lists of tools: learned, kept, shown
watching.py            watches answers as they pass, and reads what a result says of its call
guided_answers.py      answers that tell clients how to call the tools
protected_resource.py  OAuth of MCP servers (specification, "Authorization"): the route's URL replaces the server's
detached_calls.py      calls that continue after their client has left
stdio.py               the same for a client on standard input and output
"""
