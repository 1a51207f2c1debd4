"""Writes the results of a call's stages into its `CallRecord`. No other file of this room changes a record.

Names, codes, paths and numbers; the call itself goes along for what the operator may ask to see (docs/console.md).
"""

from __future__ import annotations

from asyncio import Future
from dataclasses import fields
from typing import Final

from proxy.call.context import ApprovedCall, CallContext
from proxy.core.contract.policy import Mode
from proxy.core.model.values import Episode, Failure, ToolResult, Violation
from proxy.interfaces import CallRecord, Ending

# A member's `value` is two function calls in CPython 3.11.
_MODES: Final = {mode: mode.value for mode in Mode}
# What of a record tells of the tries of a correction themselves.
_KEPT: Final = frozenset({"events", "questions", "stages", "hook_failures", "trace"})


def record_call(context: CallContext) -> None:
    """Records the caller, the tool and the policy."""
    record, call, policy = context.record, context.call, context.policy
    record.tool, record.call_id, record.conversation_rung = call.tool, call.call_id, call.conversation.rung
    record.repairs = context.opening
    record.call, record.policy = call, policy
    if policy is not None:
        record.mode, record.schema_id = _MODES[policy.mode], policy.schema_id
        record.container = policy.container.name if policy.container is not None else ""


def record_approval(record: CallRecord, approved: ApprovedCall, seconds: float) -> None:
    """Records the findings on a call that is forwarded; on a report-only route, those it would have refused."""
    checked = record.checked = approved.checked
    record.stages["decide"] = seconds
    record.container_event = approved.event or record.container_event
    record.repairs, record.corrections = approved.repairs, approved.corrections
    record.would_refuse = checked.would is not None
    record.violations = checked.warnings if checked.would is None else checked.would.violations
    record.code = "" if checked.would is None else checked.would.code.name


def record_refusal(context: CallContext, event: str, seconds: float) -> None:
    """Records a refusal; the reason is recorded with the result."""
    context.record.stages["decide"] = seconds
    context.record.container_event = event or context.record.container_event
    context.record.repairs = context.opening


def record_answer(record: CallRecord, verdict: str, violations: tuple[Violation, ...]) -> None:
    """Records the result of checking the tool's answer."""
    record.answer, record.answer_violations = verdict, violations


def record_delivery(
    record: CallRecord, outcome: str, ended: Episode | Ending | None = None, container_event: str = ""
) -> None:
    """Records a delivery. `ended`: the episode that the delivery ended, now or later."""
    record.outcome = outcome
    record.container_event = record.container_event or container_event
    if isinstance(ended, Future):
        record.settling = ended
    elif ended is not None:
        record.corrected_after = ended.count


def record_tool_error(record: CallRecord, failure: Failure) -> None:
    """Records that the tool's own error goes to the client unchanged."""
    record.outcome, record.code = "tool_error", failure.code.name


def record_result(record: CallRecord, result: ToolResult, outcome: str) -> None:
    """Records the answer that the model reads for a failed call."""
    record.outcome, record.code = outcome, result.failure.code.name
    record.violations = result.failure.violations
    record.result = result
    record.repeated, record.escalated = result.repeated, result.escalated
    if result.attempt is not None:
        record.attempt, record.max_attempts = result.attempt.number, result.attempt.limit


def record_correction(record: CallRecord, before: CallRecord, seconds: float, *, found: bool) -> None:
    """Records the time spent on corrections. Where none was `found`, only the questions are recorded."""
    if not found:
        for entry in fields(record):
            if entry.name not in _KEPT:
                setattr(record, entry.name, getattr(before, entry.name))
    record.stages["correction"] = seconds
