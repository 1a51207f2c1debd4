"""THE STORY OF ONE CALL, from the decoded call to what comes of it. Names no protocol and no library.

`run_call` is the table of contents; the rest stands in the order in which it is told, its chapters in `story/`. The
pure core decides everything; this file asks the store, sends, and notes in the `CallRecord` what happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from proxy.core import caps, container, toolname
from proxy.core.caps import Reservation
from proxy.core.decide import decide, let_through
from proxy.core.jsontext import dumps
from proxy.core.model import (
    CheckedCall,
    Decision,
    Delivered,
    Failure,
    Forward,
    Outcome,
    Reject,
    ToolCall,
    UpstreamReply,
)
from proxy.core.policy import ToolPolicy
from proxy.interfaces import CallRecord, Lane, Services
from proxy.story.answering import held_back
from proxy.story.case import Case, Setback, open_case
from proxy.story.correcting import correct
from proxy.story.ending import deliver, hand_on, handed_over, heard_of, leaves_no_trace, refuse, refused_before
from proxy.story.hooked import admit, dressed, told_decision, told_outcome
from proxy.telemetry.record import note_checked
from proxy.upstream.resending import send_with_backoff
from proxy.upstream.stream import close_body

_JSON = (("Content-Type", "application/json"),)


def run_call(call: ToolCall, lane: Lane, services: Services, record: CallRecord) -> Coroutine[Any, Any, Outcome]:
    """What comes of a call: the tool's answer, or what the model is told instead. Fills `record` on the way.

    Gives the coroutine that is to be awaited; around it another one would do nothing where there are no hooks.
    """
    case = open_case(call, lane, services, record)
    return _run(case) if services.hooks is None else told_outcome(services.hooks, case, _run(case))


async def _run(case: Case) -> Outcome:
    if heard_of(case) and (known := await refused_before(case)) is not None:
        return known
    result = case if case.services.hooks is None else await admit(case.services.hooks, case)
    if isinstance(result, Case):
        case = result
        result = await _try(case)
        if isinstance(result, Setback):
            result = await correct(case, result, _try_anew)
    return await refuse(case, result) if isinstance(result, Setback) else result


async def _try_anew(case: Case) -> Delivered | Setback:
    """A corrected call goes the whole way of a new one."""
    result = case if case.services.hooks is None else await admit(case.services.hooks, case)
    return await _try(result) if isinstance(result, Case) else result


async def _try(case: Case) -> Delivered | Setback:
    """One call, judged and sent."""
    record, policy, now = case.record, case.policy, case.services.clock.now
    record.repairs, started = case.opening, now()
    decision = decide(case.call, policy) if policy is not None and policy.at_once else await _judge(case)
    record.stages["decide"] = now() - started
    hooks = case.services.hooks
    unheard = None if hooks is None else await told_decision(hooks, case, decision)
    if isinstance(decision, Reject):
        return Setback(decision.failure, "refused")
    if unheard is not None:
        return unheard
    note_checked(record, decision.checked)
    slot = None if policy is None or case.report_only else caps.reservation(decision.checked.call, policy)
    return await (_send(case, decision.checked) if slot is None else _capped(case, decision.checked, slot))


async def _judge(case: Case) -> Decision:
    """Forward or Reject: what `decide` says, once the tool is known and its container (if any) was opened."""
    if case.policy is None:
        failure = toolname.unknown(case.call, case.lane.tools)
        case.record.container_event = "dotted" if failure.container is not None else ""
        return let_through(case.call, failure) if case.report_only else Reject(failure)
    if case.policy.member_of is not None and not case.report_only:
        key = container.expansion_key(case.call.conversation, case.policy.member_of.name)
        early = container.check_expanded(case.policy, await case.services.store.marked(key))
        if early is not None:
            case.record.container_event = "not_expanded"
            return Reject(early)
    if not case.policy.ready:  # a first call; other calls go on while its code is written
        await asyncio.to_thread(case.policy.prepare)
    decision = decide(case.call, case.policy)
    if isinstance(decision, Reject) and decision.failure.container is not None:
        return _instead(case, case.policy, decision.failure, await case.services.store.look(case.key) is not None)
    return decision


def _instead(case: Case, policy: ToolPolicy, failure: Failure, seen_before: bool) -> Decision:
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


async def _capped(case: Case, checked: CheckedCall, slot: Reservation) -> Delivered | Setback:
    """Takes the call's slot of its cap, and gives it back unless the call is delivered."""
    store = case.services.store
    if await store.reserve(slot.key, slot.limit, slot.ttl) is None:
        return Setback(caps.exceeded(checked.call, slot), "refused")
    result: Delivered | Setback | None = None
    try:
        return (result := await _send(case, checked))
    finally:
        if not isinstance(result, Delivered) or result.failed:
            await store.release(slot.key)


async def _send(case: Case, checked: CheckedCall) -> Delivered | Setback:
    tool = case.lane.tools.get(checked.call.tool)
    group = case.policy.container if case.policy is not None and case.policy.tool == checked.call.tool else None
    if group is not None and group.expand == "proxy":
        text = dumps(container.expansion(group, case.record.container_event == "auto_expanded"))
        return await deliver(case, checked, UpstreamReply(200, _JSON, text), tool)
    request = case.lane.request(checked)
    if request is None:
        return await deliver(case, checked, UpstreamReply(200, _JSON, checked.arguments or b"{}"), tool)
    hooks, store = case.services.hooks, case.services.store
    dress = request if hooks is None else await dressed(hooks, case, checked, request)
    if isinstance(dress, Setback):
        return dress
    ahead = store.look_ahead(case.key) if store.shared else None  # runs beside the request; nobody waits for it
    answer = await send_with_backoff(checked, dress, tool, case.services, case.record)
    if isinstance(answer, UpstreamReply):
        if tool is not None and tool.answer is not None and (held := held_back(case, tool.answer, answer)) is not None:
            return held
        if leaves_no_trace(case):
            return handed_over(case, checked, answer, tool)
        return await deliver(case, checked, answer, tool, ahead)
    if answer.reply is None:
        return Setback(answer.failure, "upstream_error")
    if case.report_only:  # leaves answers alone as well
        return await deliver(case, checked, answer.reply, tool, ahead)
    if tool is not None and tool.upstream_errors.hands_on(answer.reply.status):
        return hand_on(case, checked, answer.reply, answer.failure)
    await close_body(answer.reply)
    return Setback(answer.failure, "tool_error")
