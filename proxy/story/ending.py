"""How a call ends: the tool's answer, the tool's own error handed on, or what the model is told instead.

Each ending is written into the `CallRecord` and, where the retry contract asks for it, into the store.
"""

from __future__ import annotations

from dataclasses import replace

from proxy.core import container, contract
from proxy.core.advice import advise
from proxy.core.model import CheckedCall, Delivered, Failure, ToolResult, UpstreamReply
from proxy.core.policy import ToolPolicy
from proxy.core.wrapping import wrapped
from proxy.interfaces import Ahead, CallRecord
from proxy.story.case import Case, Setback
from proxy.telemetry.record import note_result


def heard_of(case: Case) -> bool:
    """Whether the store has to be asked before the call is judged. A clean call waits for no shared store."""
    store = case.services.store
    return (not store.is_idle() and store.knows(case.key)) or contract.asks_first(case.policy)


async def refused_before(case: Case) -> ToolResult | None:
    """The answer that needs no work, because the call was refused before; for a call that was `heard_of`."""
    known = contract.look(case.call, await case.services.store.look(case.key), case.digest, case.policy)
    if known is None or case.report_only:
        return None
    note_result(case.record, known, "refused")
    return known


async def refuse(case: Case, setback: Setback) -> ToolResult:
    """Counts the attempt where the failure is one, and lets the retry contract make the answer of it."""
    policy, failure, recorded = case.policy, setback.failure, None
    if contract.raises_attempt(failure) and not case.report_only:
        attempt, ttl = contract.remember(failure, case.digest), contract.ttl_of(case.call.conversation, policy)
        recorded = await case.services.store.fail(case.key, attempt, ttl)
    result = advise(contract.grant(case.call, failure, recorded, policy), policy)
    note_result(case.record, result, setback.outcome)
    lines = case.services.extra_lines(case.call.tool, failure)
    return replace(result, repairs=tuple(case.record.repairs), extra=lines)


def hand_on(case: Case, checked: CheckedCall, reply: UpstreamReply, failure: Failure) -> Delivered:
    """The tool's own error, untouched: it neither raises the attempts nor ends them, and takes no slot of a cap."""
    case.record.outcome, case.record.code = "tool_error", failure.code.name
    return Delivered(reply, tuple(case.record.repairs), checked.warnings, failed=True)


async def deliver(
    case: Case, checked: CheckedCall, reply: UpstreamReply, tool: ToolPolicy | None, ahead: Ahead | None = None
) -> Delivered:
    """The tool answered: the attempts of this call are over, and a container that was called is expanded. `tool` is the
    policy of the tool that was called."""
    policy, record, store = case.policy, case.record, case.services.store
    delivered = handed_over(case, checked, reply, tool)
    if reply.status < 300 and not store.knows(case.key):
        record.settling = store.clear_soon(case.key, ahead)
    elif reply.status < 300 and (episode := await store.clear(case.key)) is not None:
        record.corrected_after = episode.count
    if policy is not None and policy.container is not None and checked.call.tool == case.call.tool:
        record.container_event = record.container_event or "expanded"
        if policy.container.require_expansion:
            await store.mark(
                container.expansion_key(case.call.conversation, policy.container.name), policy.attempts.ttl
            )
    return delivered


def leaves_no_trace(case: Case) -> bool:
    """Whether a delivered call has nothing to tell the store: `handed_over` is then all that `deliver` would do."""
    store = case.services.store
    if case.policy is not None and case.policy.container is not None:
        return False
    return store.is_idle() or not (store.shared or store.knows(case.key))


def handed_over(case: Case, checked: CheckedCall, reply: UpstreamReply, tool: ToolPolicy | None) -> Delivered:
    """The tool's answer, as it goes to the client."""
    record = case.record
    if not checked.enforced:
        record.outcome = "delivered"
        return Delivered(reply, (), checked.warnings)
    record.outcome = _as_sent(record)
    if tool is not None:
        if case.services.corrector is not None and tool.correction.trajectory:  # remembered for later calls' correction
            case.services.corrector.delivered(checked, reply, tool, case.lane)
        if tool.wrap_success:
            reply = wrapped(reply)
    return Delivered(reply, tuple(record.repairs), checked.warnings, corrections=tuple(record.corrections))


def _as_sent(record: CallRecord) -> str:
    """The outcome of a delivered call, by what was done to its arguments: the boldest of it."""
    return "corrected" if record.corrections else "repaired" if record.repairs else "delivered"
