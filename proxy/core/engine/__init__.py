"""The compiled validation engine: one generated Python function per schema.

`program.py` links generated functions, `writer.py` writes them, keyword by keyword; `graph.py` decides, before
anything is written, what may be written out in place, what must remember its verdicts, and what generated code cannot
express at all (`judge.py` serves that: the only file that names jsonschema-rs). `numbers.py` and `equality.py` hold
the exact arithmetic, `patterns.py` the regular expressions, `unions.py` the branches that exclude each other.
"""
