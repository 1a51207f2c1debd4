"""MCP routes: messages are relayed and read on the way, calls are judged by the tools that their server lists.

entry.py            loads the rest when the first MCP route needs it
mcp_request.py      one request with all that it takes to answer it
exchange.py         one request of an MCP route, from its message to its answer
bound_mcp_route.py  how a call goes out
asking.py           finds the tools for a call: remembered, asked for, or from the config alone
detached_calls.py   calls that run on when their client has gone
"""
