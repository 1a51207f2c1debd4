"""What an operator should change in a schema, from what models got wrong: `tool_mistakes.py` is what was counted,
`improvements.py` the table of rules over it, and the changed schemas that they propose.
"""
