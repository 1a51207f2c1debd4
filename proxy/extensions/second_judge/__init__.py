"""jsonschema and fastjsonschema as a second judge of calls that the proxy's own check accepts (docs/engine.md).

`second_judges.py` asks about calls, `cli.py` compares the
judges for `check` and `replay`, and `core/` has the second ones, which only a child process loads.
"""
