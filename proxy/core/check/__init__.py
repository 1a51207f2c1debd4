"""The compiled validation engine: one generated Python function per schema.

`validation.py` is the entrance for other rooms. `program.py` links generated functions, and `functions.py` writes them,
keyword by keyword (`writer.py`, `scalars.py`, `shapes.py`). `graph.py` decides, before anything is written, which nodes
are written in place, which must remember their verdicts, and which branches exclude each other. `numbers.py` holds the
exact arithmetic and equality.
"""
