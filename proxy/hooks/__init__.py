"""User middleware: what an author of hooks imports, and the chain that runs them (docs/hooks.md).

    from proxy.hooks import Answer, Call, Change, Hook, Refuse

A hook may look at a call at four points and change it at one: *before* the decision. It hands over new arguments,
never a checked call, and what it is shown are copies; so whatever a hook does, `decide` judges what is sent.

Files: `api.py` what authors see; `loading.py` finds and makes the hooks of a config; `running.py` asks them, each
within its time, and makes a `Failure` of what goes wrong.
"""

from proxy.hooks.api import Answer, Broken, Call, Change, Ending, Hook, Outgoing, Refuse, Verdict
from proxy.hooks.loading import GROUP, HookMistake, LoadedHook, find_hook, load_hook
from proxy.hooks.running import HookChain

__all__ = [
    "GROUP",
    "Answer",
    "Broken",
    "Call",
    "Change",
    "Ending",
    "Hook",
    "HookChain",
    "HookMistake",
    "LoadedHook",
    "Outgoing",
    "Refuse",
    "Verdict",
    "find_hook",
    "load_hook",
]
