"""A case: one call on its way, with everything its chapters need. Opened once, by `open_case`.

A `Setback` is what went wrong and has not been counted yet: it is told to the model only when nothing better is left
(a correction may still mend it), so nothing in the store has heard of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from proxy.core import contract, toolname
from proxy.core.model import Failure, Repair, ToolCall
from proxy.core.policy import Mode, ToolPolicy
from proxy.interfaces import CallRecord, Lane, Services
from proxy.telemetry.record import note_call


@dataclass(frozen=True, slots=True)
class Case:
    """One call on its way, `came` as it came. `policy` is None for an unknown tool; `key` and `digest` belong to the
    retry contract and are those of `came`, whatever becomes of `call`. `opening`: the repairs made before anything was
    judged.

    A report-only case changes and refuses nothing: it counts what it would have done.
    """

    call: ToolCall
    policy: ToolPolicy | None
    lane: Lane
    services: Services
    record: CallRecord
    key: str
    came: ToolCall
    report_only: bool
    opening: tuple[Repair, ...] = ()

    @property
    def digest(self) -> str:
        """The hash of the arguments, worked out when somebody asks: of a clean call nobody does."""
        return contract.digest_of(self.came, self.policy)


@dataclass(frozen=True, slots=True)
class Setback:
    """Why a call got no answer from its tool. `outcome` is the `CallRecord`'s word for it."""

    failure: Failure
    outcome: str


def open_case(call: ToolCall, lane: Lane, services: Services, record: CallRecord) -> Case:
    """Finds the call's policy, under its name or under the known name that it stands for (`toolname`)."""
    opening: tuple[Repair, ...] = ()
    policy = lane.tools.get(call.tool)
    known = toolname.known_name(call.tool, lane.tools) if policy is None else None
    if known is not None:
        name, rule = known
        policy, opening = lane.tools[name], (Repair(rule, ()),)
        call = call if policy.mode is Mode.REPORT else replace(call, tool=name)
    report_only = lane.lets_through(call.tool) if policy is None else policy.mode is Mode.REPORT
    record.repairs = opening
    note_call(record, call, policy)
    key = contract.attempt_key(call.conversation, call.tool, policy)
    return Case(call, policy, lane, services, record, key, call, report_only, opening)
