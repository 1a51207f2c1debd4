"""User middleware: the names that authors of hooks import (docs/hooks.md).

    from proxy.hooks import Answer, Call, Change, Hook, Refuse

A hook sees a call at five points. At one, *before* the decision, it may change the call; at another it may replace the
tool's answer. It sees copies and gives new arguments, never a checked call. So `decide` judges every call that is sent,
and the tool's `response_schema` judges every replaced answer, whatever a hook does.

Files: `api.py` is the interface for authors; `loading.py` finds and makes the hooks of a config. `running.py` runs them
within their time, and turns failures into a `Failure`. It also has `FollowingHooks`, for plugins that add hooks.
"""

from proxy.hooks.api import Answer, Broken, Call, Change, Ending, Hook, Outgoing, Refuse, Result, Verdict

__all__ = ["Answer", "Broken", "Call", "Change", "Ending", "Hook", "Outgoing", "Refuse", "Result", "Verdict"]
