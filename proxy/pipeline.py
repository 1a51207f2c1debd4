"""THE STORY OF ONE CALL, from the decoded call to what comes of it. Names no protocol and no library.

`run_call` is the table of contents; the rest stands in the order in which it is told. The pure core decides
everything; this file asks the store, sends, and notes in the `CallRecord` what happened.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from proxy.core import caps, container, contract, toolname
from proxy.core.advice import advise
from proxy.core.decide import decide
from proxy.core.jsontext import dumps
from proxy.core.model import (
    CheckedCall,
    Decision,
    Delivered,
    Failure,
    Forward,
    Outcome,
    Reject,
    Repair,
    ToolCall,
    UpstreamReply,
)
from proxy.core.policy import Mode, ToolPolicy, UpstreamErrors
from proxy.core.wrapping import wrapped
from proxy.interfaces import Ahead, CallRecord, Lane, Services
from proxy.telemetry.record import note_call, note_checked, note_result
from proxy.upstream.resending import send_with_backoff
from proxy.upstream.stream import close_body

_JSON = (("Content-Type", "application/json"),)


@dataclass(frozen=True, slots=True)
class _Case:
    """One call on its way. `policy` is None for an unknown tool; `key` and `digest` belong to the retry contract.
    A report-only route changes and refuses nothing: it counts what it would have done."""

    call: ToolCall
    policy: ToolPolicy | None
    lane: Lane
    services: Services
    record: CallRecord
    key: str
    digest: str

    @property
    def report_only(self) -> bool:
        return self.policy is not None and self.policy.mode is Mode.REPORT


async def run_call(call: ToolCall, lane: Lane, services: Services, record: CallRecord) -> Outcome:
    """What comes of a call: the tool's answer, or what the model is told instead. Fills `record` on the way."""
    case = _open(call, lane, services, record)
    if services.store.knows(case.key) or contract.asks_first(case.policy):  # a clean call waits for no shared store
        known = contract.look(case.call, await services.store.look(case.key), case.digest, case.policy)
        if known is not None and not case.report_only:
            note_result(record, known, "refused")
            return known
    started = services.clock.now()
    decision = await _judge(case)
    record.stages["decide"] = services.clock.now() - started
    if isinstance(decision, Forward):
        return await _forward(case, decision.checked)
    return await _refuse(case, decision.failure, "refused")


def _open(call: ToolCall, lane: Lane, services: Services, record: CallRecord) -> _Case:
    """Finds the call's policy, under its name or the known name inside it (`tool_name_trim`)."""
    policy = lane.tools.get(call.tool)
    trimmed = toolname.trim(call.tool, lane.tools) if policy is None else None
    if trimmed is not None and toolname.RULE in lane.tools[trimmed].repair.rules:
        policy, record.repairs = lane.tools[trimmed], (Repair(toolname.RULE, ()),)
        call = call if policy.mode is Mode.REPORT else replace(call, tool=trimmed)
    note_call(record, call, policy)
    key = contract.attempt_key(call.conversation, call.tool, policy)
    return _Case(call, policy, lane, services, record, key, contract.digest_of(call, policy))


async def _judge(case: _Case) -> Decision:
    """Forward or Reject: what `decide` says, once the tool is known and its container (if any) was opened."""
    if case.policy is None:
        failure = toolname.unknown(case.call, case.lane.tools)
        case.record.container_event = "dotted" if failure.container is not None else ""
        return Reject(failure)
    if case.policy.member_of is not None and not case.report_only:
        key = container.expansion_key(case.call.conversation, case.policy.member_of.name)
        early = container.check_expanded(case.policy, await case.services.store.marked(key))
        if early is not None:
            case.record.container_event = "not_expanded"
            return Reject(early)
    decision = decide(case.call, case.policy)
    if isinstance(decision, Reject) and decision.failure.container is not None:
        return _instead(case, case.policy, decision.failure, await case.services.store.look(case.key) is not None)
    return decision


def _instead(case: _Case, policy: ToolPolicy, failure: Failure, seen_before: bool) -> Decision:
    """A misused container is refused, expanded, or stands for the call of one of its functions."""
    case.record.container_event = "refused"
    match container.instead(case.call, failure, seen_before):
        case container.Expand(call):
            case.record.container_event = "auto_expanded"
            return decide(call, policy)
        case container.Dispatch(call) if (function := case.lane.tools.get(call.tool)) is not None:
            decision = decide(call, function)
            if isinstance(decision, Forward):
                case.record.container_event = "dispatched"
                return decision
    return Reject(failure)


async def _forward(case: _Case, checked: CheckedCall) -> Outcome:
    """Takes the call's slot of its cap, and gives it back unless the call is delivered."""
    note_checked(case.record, checked)
    store = case.services.store
    slot = None if case.policy is None or case.report_only else caps.reservation(checked.call, case.policy)
    if slot is not None and await store.reserve(slot.key, slot.limit, slot.ttl) is None:
        return await _refuse(case, caps.exceeded(checked.call, slot), "refused")
    outcome: Outcome | None = None
    try:
        return (outcome := await _send(case, checked))
    finally:
        if slot is not None and (not isinstance(outcome, Delivered) or outcome.failed):
            await store.release(slot.key)


async def _send(case: _Case, checked: CheckedCall) -> Outcome:
    group = case.policy.container if case.policy is not None and case.policy.tool == checked.call.tool else None
    if group is not None and group.expand == "proxy":
        text = dumps(container.expansion(group, case.record.container_event == "auto_expanded"))
        return await _deliver(case, checked, UpstreamReply(200, _JSON, text))
    request = case.lane.request(checked)
    if request is None:
        return await _deliver(case, checked, UpstreamReply(200, _JSON, checked.arguments or b"{}"))
    tool = case.lane.tools.get(checked.call.tool)
    ahead = case.services.store.look_ahead(case.key)  # runs beside the request; nobody waits for it
    answer = await send_with_backoff(checked, request, tool, case.services, case.record)
    if isinstance(answer, UpstreamReply):
        return await _deliver(case, checked, answer, ahead)
    if answer.reply is None:
        return await _refuse(case, answer.failure, "upstream_error")
    if case.report_only:  # leaves answers alone as well
        return await _deliver(case, checked, answer.reply, ahead)
    if tool is not None and tool.upstream_errors is UpstreamErrors.PASSTHROUGH:
        return _hand_on(case, checked, answer.reply, answer.failure)
    await close_body(answer.reply)
    return await _refuse(case, answer.failure, "tool_error")


def _hand_on(case: _Case, checked: CheckedCall, reply: UpstreamReply, failure: Failure) -> Delivered:
    """The tool's own error, untouched: it neither raises the attempts nor ends them, and takes no slot of a cap."""
    case.record.outcome, case.record.code = "tool_error", failure.code.name
    return Delivered(reply, tuple(case.record.repairs), checked.warnings, failed=True)


async def _deliver(case: _Case, checked: CheckedCall, reply: UpstreamReply, ahead: Ahead | None = None) -> Delivered:
    """The tool answered: the attempts of this call are over."""
    policy, record, store = case.policy, case.record, case.services.store
    record.outcome = "repaired" if record.repairs and checked.enforced else "delivered"
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
    if checked.enforced and (tool := case.lane.tools.get(checked.call.tool)) is not None and tool.wrap_success:
        reply = wrapped(reply)
    return Delivered(reply, tuple(record.repairs) if checked.enforced else (), checked.warnings)


async def _refuse(case: _Case, failure: Failure, outcome: str) -> Outcome:
    """Counts the attempt where the failure is one, and lets the retry contract make the answer of it."""
    policy, recorded = case.policy, None
    if contract.raises_attempt(failure) and not case.report_only:
        attempt, ttl = contract.remember(failure, case.digest), contract.ttl_of(case.call.conversation, policy)
        recorded = await case.services.store.fail(case.key, attempt, ttl)
    result = advise(contract.grant(case.call, failure, recorded, policy), policy)
    note_result(case.record, result, outcome)
    lines = case.services.extra_lines(case.call.tool, failure)
    return replace(result, repairs=tuple(case.record.repairs), extra=lines)
