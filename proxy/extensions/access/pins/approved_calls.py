"""Refuses calls of operations whose definitions the operator has not approved."""

from __future__ import annotations

from proxy.core.contract.listed_tool import Hints, refuse_unapproved
from proxy.core.model.value_class import value_class
from proxy.core.model.values import CheckedCall, Failure, ToolCall
from proxy.interfaces import CallAccess


@value_class
class WithheldTools:
    """The operations of a route with other definitions than approved. `hides`: they are not shown, either."""

    tools: frozenset[str]
    hides: bool


@value_class
class ApprovedCalls:
    """Implements `CallAccess`: calls of approved operations, as far as `others` allow them (None: all)."""

    withheld: WithheldTools
    others: CallAccess | None

    @property
    def scope(self) -> str:
        """The scope of `others`."""
        return "" if self.others is None else self.others.scope

    def may_see(self, tool: str, hints: Hints | None = None) -> bool:
        """Whether a tool is shown; a changed one only where it is not hidden."""
        hidden = self.withheld.hides and tool in self.withheld.tools
        return not hidden and (self.others is None or self.others.may_see(tool, hints))

    def refuse_tool(self, tool: str, hints: Hints | None = None) -> Failure | None:
        """The failure where no call of a tool is allowed; that of `others` comes first."""
        if self.others is not None and (refused := self.others.refuse_tool(tool, hints)) is not None:
            return refused
        return refuse_unapproved(tool) if tool in self.withheld.tools else None

    def refuse_call(self, checked: CheckedCall, hints: Hints | None = None) -> Failure | None:
        """The failure of a call that is not allowed."""
        if checked.call.tool in self.withheld.tools:
            return self.refuse_tool(checked.call.tool)
        return None if self.others is None else self.others.refuse_call(checked, hints)

    def refuse_answer(self, call: ToolCall, hints: Hints | None = None) -> Failure | None:
        """The failure where a hook may not answer in place of the tool."""
        if call.tool in self.withheld.tools:
            return self.refuse_tool(call.tool)
        return None if self.others is None else self.others.refuse_answer(call, hints)
