"""The compiled validation engine: one generated Python function per schema.

`validation.py` is the entrance for other rooms. `program.py` links generated functions, and `functions.py` writes them,
keyword by keyword (`writer.py`, `scalars.py`, `shapes.py`, `unevaluated.py`). `graph.py` decides, before anything is
written, which nodes are written in place and which must remember their verdicts. `numbers.py` and `equality.py` hold
the exact arithmetic, `unions.py` the branches that exclude each other.
"""
