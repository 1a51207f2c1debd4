"""What every stage of a call knows of it: a `CallContext`, opened once by `open_context`, and the `PendingFailure`.

A pending failure is what went wrong and has not been counted yet: it is told to the model only when nothing better is
left (a correction may still find a better call), so the store does not know of it yet.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import Final

from proxy.core.contract import attempts as contract
from proxy.core.contract import toolname
from proxy.core.contract.correction import CORRECTIONS
from proxy.core.contract.policy import Mode, ToolPolicy, UnknownTool
from proxy.core.model.values import CheckedCall, Failure, Repair, Rung, ToolCall, UpstreamReply, value_class
from proxy.interfaces import CallRecord, CallRoute, Services

_ADDRESS: Final = Rung.ADDRESS
_REPORT: Final = Mode.REPORT  # CPython 3.11 takes longer to look up a member of an enum than to call a function


@value_class
class CallContext:
    """One call under way. `policy` is None for an unknown tool. `opening` are the repairs made before anything was
    judged. The retry contract knows the call by `key` and `digest`: those of the call as it `came`, whatever becomes
    of `call`. `seen` is how many attempts this process knew of when the call arrived.

    A report-only call is neither changed nor refused: what would have been done is counted.
    """

    call: ToolCall
    policy: ToolPolicy | None
    call_route: CallRoute
    services: Services
    record: CallRecord
    report_only: bool
    came: ToolCall
    opening: tuple[Repair, ...] = ()
    seen: int = 0
    _key: str = field(default="", init=False, repr=False, compare=False)

    @property
    def counted_by(self) -> ToolPolicy | UnknownTool:
        """What its failures are counted by."""
        return self.call_route.unknown if self.policy is None else self.policy

    @property
    def key(self) -> str:
        """The store's key of its attempts, computed on first use: a clean call may never need it."""
        if not self._key:
            called = self.came
            digest = self.digest if called.conversation.rung is _ADDRESS else ""
            key = contract.make_attempt_key(called.conversation, called.tool, self.counted_by, digest)
            object.__setattr__(self, "_key", key)
        return self._key

    @property
    def digest(self) -> str:
        """The hash of the arguments as they came."""
        return contract.hash_call(self.came, self.counted_by)


@value_class
class ApprovedCall:
    """A call that may be sent, and what was done to it: `repairs` by the proxy, `corrections` by a model. `event` is
    what happened around its container, one of `container.EVENTS`, or ''."""

    checked: CheckedCall
    repairs: tuple[Repair, ...]
    corrections: tuple[Repair, ...]
    event: str


@value_class
class PendingFailure:
    """Why a call got no answer from its tool. `outcome` is the `CallRecord`'s word for it, `repairs` are those made
    before it failed. `answered` is the tool's answer and the call that it answers, where a success complains of its
    arguments: it goes on unchanged unless a correction finds a better call."""

    failure: Failure
    outcome: str
    repairs: tuple[Repair, ...] = ()
    answered: tuple[ApprovedCall, UpstreamReply] | None = None


def approve_call(context: CallContext, checked: CheckedCall, event: str) -> ApprovedCall:
    """A checked call with its repairs told apart from what a model changed in it."""
    repairs = context.opening + checked.repairs
    corrections: tuple[Repair, ...] = ()
    if checked.repairs:
        corrections = tuple(made for made in repairs if made.rule in CORRECTIONS)
        repairs = tuple(made for made in repairs if made.rule not in CORRECTIONS) if corrections else repairs
    return ApprovedCall(checked, repairs, corrections, event)


def open_context(call: ToolCall, call_route: CallRoute, services: Services, record: CallRecord) -> CallContext:
    """Finds the call's policy, under its name or under the known name that it stands for (`toolname`)."""
    opening: tuple[Repair, ...] = ()
    policy = call_route.tools.get(call.tool)
    known = toolname.find_known_name(call.tool, call_route.tools) if policy is None else None
    if known is not None:
        name, rule = known
        policy, opening = call_route.tools[name], (Repair(rule, ()),)
        call = call if policy.mode is _REPORT else replace(call, tool=name)
    report_only = call_route.can_forward_unknown(call.tool) if policy is None else policy.mode is _REPORT
    return CallContext(call, policy, call_route, services, record, report_only, call, opening)
