"""What the operator can look back at, in bounded memory, through the operator's port (docs/console.md).

    ring.py      the last calls, and their arguments, where `admin.values` asks for them
    failures.py  what is kept of a call that was refused, repaired or failed

Nothing here holds an argument value, unless `admin.values` asks for it.
"""
