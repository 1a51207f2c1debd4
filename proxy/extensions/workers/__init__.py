"""Several processes behind one port (`workers`).

`cli/serve_many.py` is what `serve` does with several, `start.py` starts them, `supervisor.py` keeps them running,
`pages.py` makes the operator's pages of theirs, and `merged.py` one page of metrics.
"""
