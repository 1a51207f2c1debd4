"""How the story writes itself down: the fields of a `CallRecord` that come from the nouns of the core.

Names, codes, paths and numbers only; no argument value ever gets into a record.
"""

from __future__ import annotations

from typing import Final

from proxy.core.correction import CORRECTIONS
from proxy.core.model import CheckedCall, ToolCall, ToolResult
from proxy.core.policy import Mode, ToolPolicy
from proxy.interfaces import CallRecord

# An enum's members and their values cost a call more than the rest of `note_call`.
_ENFORCED: Final = Mode.ENFORCE
_WORDS: Final = (Mode.REPORT.value, Mode.ENFORCE.value)


def note_call(record: CallRecord, call: ToolCall, policy: ToolPolicy | None) -> None:
    """Who calls what, and under which policy."""
    record.tool, record.call_id, record.conversation_rung = call.tool, call.call_id, call.conversation.rung
    if policy is not None:
        record.mode, record.schema_id = _WORDS[policy.mode is _ENFORCED], policy.schema_id
        record.container = policy.container.name if policy.container is not None else ""


def note_checked(record: CallRecord, checked: CheckedCall) -> None:
    """What the check found in a call that may go on; on a report-only route, what it would have refused."""
    record.corrections = ()
    if checked.repairs:
        record.repairs = (*record.repairs, *(made for made in checked.repairs if made.rule not in CORRECTIONS))
        record.corrections = tuple(made for made in checked.repairs if made.rule in CORRECTIONS)
    record.would_refuse = checked.would is not None
    record.violations = checked.warnings if checked.would is None else checked.would.violations
    record.code = "" if checked.would is None else checked.would.code.name


def note_result(record: CallRecord, result: ToolResult, outcome: str) -> None:
    """What the model is told of a failed call."""
    record.outcome, record.code = outcome, result.failure.code.name
    record.violations = result.failure.violations
    record.repeated, record.escalated = result.repeated, result.escalated
    if result.attempt is not None:
        record.attempt, record.max_attempts = result.attempt.number, result.attempt.limit
