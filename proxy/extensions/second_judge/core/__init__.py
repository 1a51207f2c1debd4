"""Verdicts of jsonschema and fastjsonschema that use our numbers, patterns and formats.

`question.py` is what the proxy asks and hears. `judge.py` picks one of the two for each schema, and asks
fastjsonschema; `reference.py` asks jsonschema.
"""
