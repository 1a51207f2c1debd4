"""One call, from the decoded `ToolCall` to its outcome: `run.py` gives the order of the stages.

Beside it are `context.py` (what every stage knows, and what is recorded of it), `judging.py`, `outcome.py` and
`optional.py` (the stages), and `jobs.py` (what a child process is asked). The room names no protocol and no library.
"""
