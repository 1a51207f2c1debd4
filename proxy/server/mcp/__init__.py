"""MCP routes: messages are relayed and read on the way, calls are judged by the tools that their server lists.

entry.py               loads the rest when the first MCP route needs it
mcp_request.py         one request with all that it takes to answer it
exchange.py            one request of an MCP route, from its message to its answer
bound_mcp_route.py     how a call goes out
lists/                 the lists of tools: learned, kept, shown
watching.py            looks at answers as they pass; verdicts.py reads what a result says of its call
guided_answers.py      answers that tell clients how to call the tools
protected_resource.py  OAuth of MCP servers (specification, "Authorization"): the route's URL in place of the server's
detached_calls.py      calls that run on when their client has gone
stdio.py               the same for a client on standard input and output
"""
