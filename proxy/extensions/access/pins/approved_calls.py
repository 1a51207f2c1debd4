"""Refuses calls of operations that are not defined as the operator has approved them."""

from __future__ import annotations

from proxy.core.contract.definitions import Hints, refuse_unapproved
from proxy.core.model.value_class import value_class
from proxy.core.model.values import CheckedCall, Failure, ToolCall
from proxy.extensions.access.audit import Audit
from proxy.extensions.access.core.access_rules import Identity
from proxy.interfaces import CallAccess


@value_class
class WithheldTools:
    """The operations of a route that are not as approved. `hides`: they are not shown either."""

    tools: frozenset[str]
    hides: bool


@value_class
class ApprovedCalls:
    """Implements `CallAccess`: calls of approved operations, as far as `others` allow them (None: all)."""

    route: str
    caller: Identity
    withheld: WithheldTools
    audit: Audit
    others: CallAccess | None

    @property
    def scope(self) -> str:
        """What the caller may see beside approved operations."""
        return "" if self.others is None else self.others.scope

    def may_see(self, tool: str, hints: Hints | None = None) -> bool:
        """Whether a tool is shown: a changed one is, where it is only refused."""
        hidden = self.withheld.hides and tool in self.withheld.tools
        return not hidden and (self.others is None or self.others.may_see(tool, hints))

    def refuse_tool(self, tool: str, hints: Hints | None = None) -> Failure | None:
        """Why no call of a tool is allowed. What a caller may not call anyway is refused to it as ever."""
        if self.others is not None and (refused := self.others.refuse_tool(tool, hints)) is not None:
            return refused
        if tool not in self.withheld.tools:
            return None
        self.audit.write(self.route, self.caller, "", tool, "not approved")
        return refuse_unapproved(tool)

    def refuse_call(self, checked: CheckedCall, hints: Hints | None = None) -> Failure | None:
        """Why a call is not sent."""
        if checked.call.tool in self.withheld.tools:
            return self.refuse_tool(checked.call.tool)
        return None if self.others is None else self.others.refuse_call(checked, hints)

    def refuse_answer(self, call: ToolCall, hints: Hints | None = None) -> Failure | None:
        """Why nothing answers a call in the place of its tool."""
        if call.tool in self.withheld.tools:
            return self.refuse_tool(call.tool)
        return None if self.others is None else self.others.refuse_answer(call, hints)
