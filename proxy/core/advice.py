"""What an answer adds to its errors so that the next call can be right: the tool's signature and a valid example."""

from __future__ import annotations

from dataclasses import replace

from proxy.core.examples import example
from proxy.core.guidance import signature
from proxy.core.jsontext import dumps, equal
from proxy.core.model import ABSENT, ToolResult
from proxy.core.policy import ToolPolicy
from proxy.core.preview import sanitise


def advise(result: ToolResult, policy: ToolPolicy | None) -> ToolResult:
    """The result with `accepts` and `example`, where arguments broke a schema; any other comes back as it is.

    The example keeps what the caller sent well, so it is sanitised like every other echo of arguments.
    """
    if policy is None or policy.check is None or not result.failure.violations:
        return result
    shown = example(policy.check, result.failure.sent)
    safe = sanitise(shown.value, result.limits)
    text = "" if shown.value is ABSENT else dumps(safe).decode()
    complete = shown.complete and equal(safe, shown.value)  # a masked or shortened value is not to be sent as it stands
    return replace(result, accepts=signature(policy.check.root), example=text, example_complete=complete)
