"""What hooks may do to a case. Asked only where hooks are configured; otherwise nothing here runs.

On a report-only route a hook may still refuse or answer a call (it is the operator's own rule, not the schema's), but
the arguments stay the client's.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from proxy.core.model import CheckedCall, Decision, Delivered, Failure, Outcome, ToolCall, UpstreamReply
from proxy.interfaces import Hooks, UpstreamRequest
from proxy.story.case import Case, Setback


async def admit(hooks: Hooks, case: Case) -> Case | Delivered | Setback:
    """The case as it is to be judged, or what hooks make of it before that."""
    match await hooks.before_decision(case.call, case.lane, case.record):
        case ToolCall() as call:
            return case if call is case.call or case.report_only else replace(case, call=call)
        case UpstreamReply() as reply:
            case.record.outcome = "answered"
            return Delivered(reply)
        case Failure() as failure:
            return Setback(failure, "refused")


async def told_decision(hooks: Hooks, case: Case, decision: Decision) -> Setback | None:
    """Tells hooks what was decided; a setback where one that must not fail did."""
    failure = await hooks.after_decision(case.call, decision, case.lane, case.record)
    return None if failure is None else Setback(failure, "refused")


async def dressed(
    hooks: Hooks, case: Case, checked: CheckedCall, request: UpstreamRequest
) -> UpstreamRequest | Setback:
    """The request with the headers that hooks want."""
    made = await hooks.before_forward(checked, request, case.lane, case.record)
    return Setback(made, "refused") if isinstance(made, Failure) else made


async def told_outcome(hooks: Hooks, case: Case, run: Coroutine[Any, Any, Outcome]) -> Outcome:
    """Lets the story run, and tells hooks what became of the call; None where its client has gone."""
    outcome: Outcome | None = None
    try:
        return (outcome := await run)
    finally:
        await hooks.after_outcome(case.call, outcome, case.lane, case.record)
