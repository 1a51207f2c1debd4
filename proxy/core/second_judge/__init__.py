"""The second judge: verdicts of jsonschema and fastjsonschema that use our numbers, patterns and formats.

`reference.py` asks jsonschema, `compiled.py` asks fastjsonschema; `judge.py` picks one for each schema. No other room
names the two libraries.
"""
