"""Why a finished call was refused: because it broke its tool's rules, or for another reason."""

from __future__ import annotations

from typing import Final

from proxy.core.contract.attempts import RAISES_ATTEMPT
from proxy.core.contract.refusals import REFUSED_BY_TOOL
from proxy.core.model import codes
from proxy.interfaces import CallRecord

# The messages in the log of calls that are refused for another reason, by error code.
_MESSAGES: Final = {
    codes.CALL_CAP_EXCEEDED.name: "Tool call beyond its cap refused",
    codes.CALL_RATE_EXCEEDED.name: "Tool call beyond its rate refused",
    codes.TOO_MANY_CALLS_AT_ONCE.name: "Tool call refused beside those under way",
    codes.TOOL_ERROR_BUDGET.name: "Tool call refused after too many errors of the tool",
    codes.CALL_NOT_ALLOWED.name: "Tool call not allowed by a hook or a rule",
    codes.HOOK_FAILED.name: "Tool call refused because a hook failed",
}
_BLOCKED: Final = "Tool call refused that the tool has refused before"
_NOT_SENT: Final = "Tool call refused"


def is_validation_failure(record: CallRecord) -> bool:
    """Whether a call was refused because it broke its tool's rules, now or when the same call came before."""
    is_escalation = record.code == codes.ATTEMPTS_EXHAUSTED.name and not _is_blocked(record)
    return is_escalation or record.code in RAISES_ATTEMPT


def name_refusal(record: CallRecord) -> str:
    """The message in the log of a call that was refused although it broke no rule of its tool."""
    return _BLOCKED if _is_blocked(record) else _MESSAGES.get(record.code, _NOT_SENT)


def _is_blocked(record: CallRecord) -> bool:
    """Whether a call was not sent because its tool had refused the same one."""
    return record.result is not None and record.result.failure.details.get("blocked") == REFUSED_BY_TOOL
