"""One call, from the decoded `ToolCall` to its outcome: `run.py` gives the order of the stages.

The other files are `context.py` (the shared knowledge of the stages, and the record), `judging.py`, `outcome.py` and
`optional.py` (the stages), and `jobs.py` (the jobs of child processes). The room names no protocol and no library.
"""
