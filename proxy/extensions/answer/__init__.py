"""`answer` bounds, masks and validates what tools answer, before a model reads it.

`core/` decides what becomes of an answer. `bounded_answer.py` reads no more of an answer than is allowed, and
`filtered_events.py` filters streams. `answer_filters.py` hooks that into the services of calls, and `answer_section.py`
reads the key.
"""
