"""The compiled validation engine: one generated Python function per schema.

`validation.py` is the entrance for other rooms. `program.py` links generated functions, and `functions.py` writes them,
keyword by keyword (`writer.py`, `scalars.py`, `shapes.py`), as `graph.py` decides.
"""
