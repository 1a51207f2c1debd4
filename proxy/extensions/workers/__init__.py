"""Several processes behind one port (`workers`).

`start.py` starts them, `supervisor.py` keeps them running, `pages.py` makes the operator's pages of theirs, and
`merged.py` one page of metrics.
"""
