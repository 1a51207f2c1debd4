"""One call, from the decoded `ToolCall` to its outcome: `run.py` gives the order of the stages.

Beside it stand `context.py` (what every stage knows, and what is recorded of it), `judging.py`, `hooks.py`,
`correction.py` and `outcome.py` (the stages), `jobs.py` (what a child process is asked) and `dry_upstream.py` (a route
that sends nothing). The room names no protocol and no library.
"""
