"""One call, from the decoded `ToolCall` to its outcome: `run.py` gives the order of the stages.

Beside it stand `context.py` (what every stage knows), `hooks.py`, `correction.py` and `outcome.py`
(the stages), `record.py` (the one file here that writes a `CallRecord`) and `dry_upstream.py` (a route that sends
nothing). The room names no protocol and no library.
"""
