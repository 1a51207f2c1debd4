"""Runs a call through the serving code with nothing behind it: no network, no tool, no memory between calls.

`validate` and `replay` use it. Like a route with `upstream: none`, the dry run answers an accepted call with the
arguments that would have been sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack

from proxy.adapters import ADAPTERS, find_adapter
from proxy.adapters.base import CallShape
from proxy.call.run import run_call
from proxy.call_record import CallRecord
from proxy.core.contract.policy import ToolPolicy
from proxy.core.json.jsontext import format_pointer, parse
from proxy.core.model.value_class import value_class
from proxy.core.model.values import (
    CheckedCall,
    Conversation,
    Delivered,
    Document,
    Failure,
    JsonValue,
    Passthrough,
    RawRequest,
    Repair,
    Rung,
    ToolCall,
    ToolResult,
)
from proxy.interfaces import Services
from proxy.routing.table import DryRoute
from proxy.state import make_store


class _NoTime:
    """A clock that always shows 0, and whose `sleep` returns at once."""

    def now(self) -> float:
        return 0.0

    def wall(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        """Returns without waiting."""

    def chance(self) -> float:
        return 0.0

    def fresh_key(self) -> str:
        return "dry-run"


@value_class
class ForwardedCall:
    """An accepted call: its arguments as they would be sent, the repairs, and the decision (None if it is no call)."""

    arguments: bytes
    repairs: tuple[Repair, ...]
    checked: CheckedCall | None = None


Verdict = ForwardedCall | ToolResult


class DryRun(ExitStack):
    """Decides calls one after the other, each as the first of its conversation. A context manager."""

    def __init__(self) -> None:
        super().__init__()
        self._runner = self.enter_context(asyncio.Runner())

    def judge(self, request: RawRequest, adapter: str, shape: CallShape, tools: Mapping[str, ToolPolicy]) -> Verdict:
        """The result of a request: accepted, or refused with an answer. Not for passthrough routes."""
        match find_adapter(adapter).decode(request, shape, "dry-run"):
            case ToolCall() as call:
                return self._runner.run(_judge_call(call, tools))
            case Failure() as failure:
                no_call = ToolCall("", Document(b"", None), "dry-run", Conversation("dry-run", Rung.HEADER))
                return ToolResult(no_call, failure)
            case Passthrough():
                return ForwardedCall(request.body, ())


async def _judge_call(call: ToolCall, tools: Mapping[str, ToolPolicy]) -> Verdict:
    clock = _NoTime()
    services = Services(make_store("memory", clock), clock, {}, clock)
    record = CallRecord("dry-run", "dry-run")
    outcome = await run_call(call, DryRoute(tools), services, record)
    if isinstance(outcome, Delivered):
        body = outcome.reply.body
        return ForwardedCall(body if isinstance(body, bytes) else b"", outcome.repairs, record.checked)
    return outcome


def read_answer(result: ToolResult) -> JsonValue:
    """The answer a client would get, in the default format (`tool_result`), as a JSON value."""
    return parse(ADAPTERS["plain"].encode(result, "tool_result", "category", detail="full").body)


def list_repairs(repairs: tuple[Repair, ...]) -> list[tuple[str, str]]:
    """Each repair as (rule, JSON Pointer)."""
    return [(repair.rule, format_pointer(repair.path)) for repair in repairs]
