"""The lists of tools of MCP servers: learned from the server, kept, and shown to clients.

learner.py      the lists that this process knows, and asking a server for one
reading.py      reads a server's answer, a large one in a child process
catalogue.py    the tools of one list under one route's rules
asking.py       finds the tools for a call: remembered, asked for, or from the config alone
shown_lists.py  the list that clients see where it is not the server's own
"""
