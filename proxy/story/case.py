"""A case: one call on its way, with everything its chapters need. Opened once, by `open_case`.

A `Setback` is what went wrong and has not been counted yet: it is told to the model only when nothing better is left
(a correction may still mend it), so nothing in the store has heard of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from proxy.core import contract, toolname
from proxy.core.model import Failure, Repair, ToolCall
from proxy.core.noun import noun
from proxy.core.policy import Mode, ToolPolicy
from proxy.interfaces import CallRecord, Lane, Services
from proxy.telemetry.record import note_call

_REPORT: Final = Mode.REPORT  # CPython 3.11 takes longer to look up a member of an enum than to call a function


@noun
class Case:
    """One call on its way, `came` as it came. `policy` is None for an unknown tool. `opening`: the repairs made before
    anything was judged. What the retry contract knows a call by, `key` and `digest`, are those of `came`, whatever
    becomes of `call`; they are worked out when somebody asks, which for a clean call may be nobody.

    A report-only case changes and refuses nothing: it counts what it would have done.
    """

    call: ToolCall
    policy: ToolPolicy | None
    lane: Lane
    services: Services
    record: CallRecord
    came: ToolCall
    report_only: bool
    opening: tuple[Repair, ...] = ()
    _key: str = field(default="", init=False, repr=False, compare=False)

    @property
    def key(self) -> str:
        """The store's key of the episode."""
        if not self._key:  # asked several times, and the same each time
            key = contract.attempt_key(self.came.conversation, self.came.tool, self.policy)
            object.__setattr__(self, "_key", key)
        return self._key

    @property
    def digest(self) -> str:
        """The hash of the arguments."""
        return contract.digest_of(self.came, self.policy)


@dataclass(frozen=True, slots=True)
class Setback:
    """Why a call got no answer from its tool. `outcome` is the `CallRecord`'s word for it."""

    failure: Failure
    outcome: str


def open_case(call: ToolCall, lane: Lane, services: Services, record: CallRecord) -> Case:
    """Finds the call's policy, under its name or under the known name that it stands for (`toolname`)."""
    opening: tuple[Repair, ...] = ()
    tools = lane.tools
    policy = tools.get(call.tool)
    known = toolname.known_name(call.tool, tools) if policy is None else None
    if known is not None:
        name, rule = known
        policy, opening = tools[name], (Repair(rule, ()),)
        call = call if policy.mode is _REPORT else replace(call, tool=name)
    report_only = lane.lets_through(call.tool) if policy is None else policy.mode is _REPORT
    record.repairs = opening
    note_call(record, call, policy)
    return Case(call, policy, lane, services, record, call, report_only, opening)
