"""What the operator can look back at, in bounded memory: `ring.py` keeps the last calls, `mistake_counts.py` counts
what models get wrong by parameter, and `request_bars.py` how many calls ended how, every 15 seconds.

All of it is read through the operator's port (docs/console.md). Nothing here holds a value of a call, unless
`admin.values` asks for it (`KeptValues`).
"""
