"""The second judge: verdicts of jsonschema and fastjsonschema that use our numbers, patterns and formats.

`judge.py` picks one of the two for each schema, and asks fastjsonschema; `reference.py` asks jsonschema. No other room
names the two libraries.
"""
