"""A server's tools as one: what `tools/list` shows then, and what a session has seen of the rest.

collapsing.py       the list with the container, the search, and the functions that a session has seen
visible_tools.py    which functions each session has seen, and how it hears of them
"""
