"""Corrections (GoMind's layers 3 and 4): a model is asked for the call that was meant, in place of one that failed.

    ModelCorrector   the room's story: may it be asked? ask, read the answer, let the story try it, mark what came of it
      rules          when a layer is asked, and what its verdict leads to: the seeds' tables as data
      prompting      the bundled prompts (`prompts/`), and what is filled in
      changes        secrets out of the prompt and back into the answer; what a correction may change
      endpoint       one question and its answer, bounded
      verdicts       from an endpoint's answer to a verdict, whatever it holds
      marks          the span events and the questions asked, for the record
      trajectory     what is remembered of a conversation
      debug          whole prompts and answers for inspection

The room sends nothing to a tool and judges nothing: it proposes a `ToolCall`, which goes the way of every other.
"""

from proxy.correction.corrector import ModelCorrector
from proxy.correction.debug import DebugLog
from proxy.correction.endpoint import Endpoint
from proxy.correction.trajectory import Trajectories

__all__ = ["DebugLog", "Endpoint", "ModelCorrector", "Trajectories"]
