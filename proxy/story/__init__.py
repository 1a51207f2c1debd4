"""The chapters of the story that `pipeline.py` tells: how a case is opened, what hooks may do, how a call ends.

One floor and one story: `pipeline.py` says what happens in which order, a chapter how. Like it, they name no protocol
and no library; only they import each other.
"""
