"""Judges the calls of one answer by the tools of its request: `decide` treats each like any call.

Tools are compiled once per schema and route, with the bounds of listed schemas (core/contract/listed_tool.py). A call
of a tool whose schema cannot be used is not judged, and passes as it is.
"""

from __future__ import annotations

import asyncio
from dataclasses import field, replace
from typing import Final, Literal

from proxy.call.judging import is_ready
from proxy.core.contract.policy import BroughtTools, ToolPolicy
from proxy.core.json.jsontext import read_document
from proxy.core.model.value_class import value_class
from proxy.core.model.values import CheckedCall, Conversation, Document, Failure, Forward, JsonProblem, Repair, ToolCall
from proxy.core.rules.rules import TEXT_RULES
from proxy.extensions.chat.core.found_calls import CallChange, FoundCall, find_tool_name
from proxy.extensions.chat.core.model_request import ModelRequest
from proxy.extensions.chat.core.text_watch import FoundText, TextWatch, find_lone_call, find_text_calls
from proxy.extensions.mcp.core.listed_tools import LearnedTools, LearnPolicy, Policies
from proxy.interfaces import JudgesElsewhere
from proxy.plugin import explain_unknown_tool, prepare

# The repair of a call's name.
RENAMED: Final = "tool_name"
ENCODED: Final = "arguments_text"
WRITTEN: Final = "text_call"


@value_class
class JudgedCall:
    """One judged call. Exactly one of `checked` and `failure` is set; neither is where the tool's schema cannot be
    used, and `unusable` says why. `tool` is the tool's own name, or the called one if there is no such tool."""

    found: FoundCall
    call: ToolCall
    tool: str
    policy: ToolPolicy | None = None
    checked: CheckedCall | None = None
    failure: Failure | None = None
    repairs: tuple[Repair, ...] = field(default=())
    unusable: str = ""

    @property
    def arguments(self) -> bytes:
        """The arguments for the client."""
        return self.found.text if self.checked is None else self.checked.arguments

    @property
    def change(self) -> CallChange | None:
        """The change to write; None where the call stays as it came."""
        if self.checked is None or not self.repairs:
            return None
        name = self.tool if self.tool != self.found.name else ""
        rewritten = self.checked.arguments != self.found.text or self.found.was_plain
        return CallChange(self.found, name, self.checked.arguments if rewritten else None)


class CallJudge:
    """Judges calls on one route. Belongs to one event loop."""

    def __init__(self, brought: BroughtTools, elsewhere: JudgesElsewhere) -> None:
        self._rules = rules = LearnPolicy(brought.template, formats=brought.formats)
        self._policies = Policies()
        self._elsewhere = elsewhere
        self._text_repairs = TEXT_RULES & rules.template.repair.rules

    async def judge(
        self, request: ModelRequest, calls: list[FoundCall], conversation: Conversation
    ) -> list[JudgedCall]:
        """The judged calls, in their order."""
        tools = LearnedTools(request.tools, self._rules, self._policies, careful=True)
        judged = []
        for found in calls:
            judged.append(await self._judge_call(tools, found, conversation))
            await asyncio.sleep(0)  # many calls leave a turn to other requests
        return judged

    async def _judge_call(self, tools: LearnedTools, found: FoundCall, conversation: Conversation) -> JudgedCall:
        text = await self._elsewhere.read(found.text, self._rules.template.text, self._text_repairs)
        if isinstance(text, Failure):  # reading it takes too much
            unread = ToolCall(found.name, Document(b"", None), found.call_id or "call", conversation)
            return JudgedCall(found, unread, found.name, failure=text)
        call = self._read_call(found, text, conversation)
        name = find_tool_name(found.name, tools.listing.tools, self._rules.template.repair.rules)
        if name is None:
            return JudgedCall(found, call, found.name, failure=explain_unknown_tool(call, tools))
        call = replace(call, tool=name)
        await self._elsewhere.examine(tools, name)
        policy = tools.get(name)
        if policy is None:
            return JudgedCall(found, call, name, unusable=tools.bad.get(name, "it cannot be used"))
        if not is_ready(policy):
            await asyncio.to_thread(prepare, policy)
        decision = await self._elsewhere.decide(call, policy)
        if not isinstance(decision, Forward):
            return JudgedCall(found, call, name, policy, failure=decision.failure)
        made = [Repair(RENAMED, ())] if name != found.name else []
        made += [Repair(ENCODED, ())] if found.was_plain and self._rules.template.repair.rules else []
        return JudgedCall(found, call, name, policy, decision.checked, repairs=(*made, *decision.checked.repairs))

    async def judge_text(
        self, request: ModelRequest, calls: list[FoundCall], conversation: Conversation
    ) -> list[JudgedCall] | None:
        """The judged calls of a text; None unless the request lets the model make them, and each names a tool and is
        valid."""
        if not request.may_call([call.name for call in calls]):
            return None
        judged = await self.judge(request, calls, conversation)
        if any(each.checked is None or each.tool != each.found.name for each in judged):
            return None
        return [replace(each, repairs=(Repair(WRITTEN, ()), *each.repairs)) for each in judged]

    def find_in_text(self, text: str, which: Literal["off", "leaked", "json"]) -> FoundText | None:
        """The calls in a text, of the kinds that `text_calls` names."""
        watch = TextWatch(takes_objects=which == "json")
        watch.feed(text)
        if which == "off" or watch.start is None:
            return None
        find = find_lone_call if text.startswith("{", watch.start) else find_text_calls
        return find(text, watch.start, self.read_text)

    def read_text(self, text: bytes) -> Document | JsonProblem:
        """Reads a JSON text with the repairs of the route's level."""
        return read_document(text, self._rules.template.text, self._text_repairs)

    def _read_call(self, found: FoundCall, text: bytes, conversation: Conversation) -> ToolCall:
        document = self.read_text(text) if text.strip() else Document(b"", None)
        raw = text if isinstance(document, JsonProblem) else b""
        return ToolCall(found.name, document, found.call_id or "call", conversation, raw)
