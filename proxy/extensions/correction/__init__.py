"""Corrections (GoMind's layers 3 and 4): asks a model for the call that a failed one was meant to be.

    ModelCorrector   one correction, in order: check the budgets, ask, read the answer, try the call, record the result
      rules          when a layer is asked, and the action for its verdict: the seeds' tables as data
      questions      the bundled prompts (`prompts/`) and their values; the form of the answer
      changes        secrets out of the prompt and back into the answer; the places a correction may change
      endpoint       the model endpoint: its budgets, one question and its answer
      verdicts       from an endpoint's answer to a verdict
      record         span events and questions for the record; whole prompts and answers for inspection
      trajectory     what is remembered of a conversation
      evaluation     the calls that `evaluate` measures with, and the tools that receive them

Nothing here sends to a tool or judges a call: a correction proposes a `ToolCall`, which is checked like every other.
"""
