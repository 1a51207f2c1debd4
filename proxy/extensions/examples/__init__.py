"""Example arguments made from a schema, for what shows or tries them: `core/examples.py` makes whole ones."""
