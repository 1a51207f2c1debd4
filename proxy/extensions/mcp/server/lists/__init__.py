"""The lists of tools of MCP servers: learned from the server, kept, and shown to clients.

`learner.py` remembers the lists and asks servers for missing ones.
`reading.py` reads a server's answer, a large one in a child process.
`catalogue.py` has the tools of one list under one route's rules.
`asking.py` finds the tools for a call: from a remembered list, a new list, or the config.
`list_reports.py` tells the operator of listed tools.
`shown_lists.py` has the list that clients see if the route hides or groups tools.
"""
