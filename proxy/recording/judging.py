"""Judges arguments as they came, without a request, a conversation or a tool: what records, replays and comparisons do.

The arguments are read as the route reads them (its text repairs, its limits) and decided by the tool's policy as if it
enforced. Hooks, caps and corrections have no part in it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from proxy.adapters import ADAPTERS
from proxy.adapters.base import CallShape
from proxy.core.contract import attempts as contract
from proxy.core.contract.policy import Mode, ToolPolicy
from proxy.core.decide import decide
from proxy.core.fates import Fate, reduce_decision
from proxy.core.guidance.examples import add_advice
from proxy.core.model.values import (
    Conversation,
    Decision,
    Document,
    Failure,
    RawRequest,
    Reject,
    Rung,
    ToolCall,
    ToolResult,
)

_HEADERS: Final = (("content-type", "application/json"), ("x-conversation-id", "replay"))


def decide_sent(sent: bytes, shape: CallShape, policy: ToolPolicy) -> Decision:
    """The decision about arguments that came as these bytes."""
    plain = replace(
        shape, tool=policy.tool, tool_param=None, tool_pointer=None, arguments_pointer=None, arguments_encoding="json",
        call_id_pointer=None,
    )  # fmt: skip
    call = ADAPTERS["plain"].decode(RawRequest("POST", "/", "", _HEADERS, sent, {}, ""), plain, "replay")
    if isinstance(call, Failure):
        return Reject(call)
    if not isinstance(call, ToolCall):
        raise TypeError("the plain protocol knows calls alone")
    return decide(call, replace(policy, mode=Mode.ENFORCE))


def judge_sent(sent: bytes, shape: CallShape, policy: ToolPolicy) -> Fate:
    """What becomes of arguments that came as these bytes."""
    return reduce_decision(decide_sent(sent, shape, policy))


def explain_refusal(failure: Failure, policy: ToolPolicy) -> ToolResult:
    """The answer to a refused call that is the first of its conversation: what a served call would be told."""
    call = ToolCall(policy.tool, Document(b"", None), "replay", Conversation("replay", Rung.HEADER))
    recorded = contract.add(None, contract.make_failed_attempt(failure, ""))
    return add_advice(contract.grant_attempt(call, failure, recorded, policy), policy)
