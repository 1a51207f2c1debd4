"""The chain of hooks: asks them one after the other in the config's order, and keeps what goes wrong in one of them
from everything else.

Each answer has its time; a hook that takes longer, raises, or gives what no point takes has failed. Then its policy
counts: `ignore` goes on as if it had said nothing, `refuse` ends the call (HOOK_FAILED), unless the tool has run
already. A hook runs in a task of its own, so that it cannot cancel a call, nor hold one by not letting itself be
cancelled. Code that never awaits cannot be interrupted by anybody.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from proxy.core import codes
from proxy.core.jsontext import dumps, format_pointer, parse
from proxy.core.model import (
    CheckedCall,
    Decision,
    Document,
    Failure,
    Forward,
    Headers,
    JsonProblem,
    Outcome,
    Repair,
    ToolCall,
    ToolResult,
    UpstreamReply,
)
from proxy.core.rules import HOOK
from proxy.hooks.api import POINTS, Answer, Broken, Call, Change, Ending, Outgoing, Refuse, Verdict
from proxy.hooks.loading import LoadedHook
from proxy.interfaces import CallRecord, HookFailure, Lane, UpstreamRequest

# RFC 9110 section 5.1 and 5.5: a token, and a value without line breaks and NUL.
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
# What frames the message or says how its body is read: other values would let the upstream read another body than the
# one that was checked (RFC 9110 section 7.6.1, 8; RFC 9112 section 6).
_NOT_TO_TOUCH: Final = frozenset(
    ["connection", "content-encoding", "content-length", "content-type", "expect", "host", "keep-alive",
     "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"]
)  # fmt: skip

_NO_REPLY: Final = (("Content-Type", "application/json"),)


class _Failed:
    """Stands for the answer of a hook that gave none."""


FAILED: Final = _Failed()


class HookChain:
    """Implements the story's `Hooks`. `report` is told of each failure, with the exception if there was one; `now` is
    a monotonic clock."""

    def __init__(
        self,
        hooks: Sequence[LoadedHook],
        report: Callable[[HookFailure, BaseException | None], None],
        now: Callable[[], float],
    ) -> None:
        self._at = {point: tuple(hook for hook in hooks if hook.listens(point)) for point in POINTS}
        self._report = report
        self._now = now
        self._left: set[asyncio.Task[Any]] = set()  # overdue, and not ended yet: the loop itself holds none of them

    async def before_decision(
        self, call: ToolCall, lane: Lane, record: CallRecord
    ) -> ToolCall | UpstreamReply | Failure:
        """The call to judge, or the answer in its place."""
        for hook in self._at["before_decision"]:
            said = await self._ask(hook, "before_decision", record, _shown(call, lane, record))
            made = said if said is None or said is FAILED else _meant(call, said)
            if isinstance(made, str):
                made = self._fail(hook, "before_decision", made, record)
            if made is FAILED and hook.strict:
                return _broken_hook()
            if isinstance(made, UpstreamReply | Failure):
                record.notes = {**record.notes, "hook": hook.name}
                return made
            call = made if isinstance(made, ToolCall) else call
        return call

    async def after_decision(
        self, call: ToolCall, decision: Decision, lane: Lane, record: CallRecord
    ) -> Failure | None:
        """Tells what was decided; a Failure where a hook that must not fail did."""
        for hook in self._at["after_decision"]:
            said = await self._ask(hook, "after_decision", record, _shown(call, lane, record), _verdict(decision))
            if said is FAILED and hook.strict:
                return _broken_hook()
        return None

    async def before_forward(
        self, checked: CheckedCall, request: UpstreamRequest, lane: Lane, record: CallRecord
    ) -> UpstreamRequest | Failure:
        """The request with the headers that hooks want."""
        for hook in self._at["before_forward"]:
            call = _shown(checked.call, lane, record, checked.arguments)
            outgoing = Outgoing(request.upstream, request.method, request.target, tuple(request.headers))
            said = await self._ask(hook, "before_forward", record, call, outgoing)
            headers = said if said is None or said is FAILED else _headers(request.headers, said)
            if isinstance(headers, str):
                headers = self._fail(hook, "before_forward", headers, record)
            if headers is FAILED and hook.strict:
                return _broken_hook()
            request = replace(request, headers=headers) if isinstance(headers, tuple) else request
        return request

    async def after_outcome(self, call: ToolCall, outcome: Outcome | None, lane: Lane, record: CallRecord) -> None:
        """Tells what became of a call; `outcome` None where the client has gone."""
        for hook in self._at["after_outcome"]:
            ending = _ending(outcome, record, self._now() - record.started)
            await self._ask(hook, "after_outcome", record, _shown(call, lane, record), ending)

    async def _ask(self, hook: LoadedHook, point: str, record: CallRecord, *shown: object) -> Any:
        """What a hook says within its time, or FAILED."""
        started = self._now()
        task = asyncio.ensure_future(_quiet(getattr(hook.hook, point)(*shown)))
        try:
            await asyncio.wait({task}, timeout=hook.timeout)
        finally:
            task.cancel()  # of no effect on one that is done
            record.stages["hooks"] = record.stages.get("hooks", 0.0) + self._now() - started
        if not task.done():
            self._left.add(task)
            task.add_done_callback(self._left.discard)
            return self._fail(hook, point, "timeout", record)
        if task.cancelled():
            return self._fail(hook, point, "cancelled", record)
        said = task.result()
        return self._fail(hook, point, "exception", record, said) if isinstance(said, BaseException) else said

    def _fail(
        self, hook: LoadedHook, point: str, reason: str, record: CallRecord, error: BaseException | None = None
    ) -> _Failed:
        failure = HookFailure(hook.name, point, reason)
        record.hook_failures = (*record.hook_failures, failure)
        self._report(failure, error)
        return FAILED


async def _quiet(answer: Any) -> Any:
    """The answer, or the exception as a value: SystemExit in a task would end the process."""
    try:
        return await answer
    except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code: its failure is not the call's
        return error


# --- what hooks are shown ---------------------------------------------------------------------------------------------
# Headers are shown as a plain tuple: the index that `Fields` keep beside it could be written to.
def _shown(call: ToolCall, lane: Lane, record: CallRecord, text: bytes | None = None) -> Call:
    sent = call.arguments.text if isinstance(call.arguments, Document) else call.raw
    return Call(
        record.route, call.tool, call.call_id, record.request_id, record.notes.get("client.token", ""),
        call.conversation.key, tuple(lane.headers), sent if text is None else text,
    )  # fmt: skip


def _verdict(decision: Decision) -> Verdict:
    if isinstance(decision, Forward):
        checked = decision.checked
        repairs = tuple((repair.rule, format_pointer(repair.path)) for repair in checked.repairs)
        return Verdict(True, *_why(checked.would), repairs)
    return Verdict(False, *_why(decision.failure))


def _why(failure: Failure | None) -> tuple[str, tuple[Broken, ...]]:
    if failure is None:
        return "", ()
    broken = (Broken(each.code.name, format_pointer(each.path), each.message) for each in failure.violations)
    return failure.code.name, tuple(broken)


def _ending(outcome: Outcome | None, record: CallRecord, seconds: float) -> Ending:
    if outcome is None:
        return Ending("client_gone", 0, "", 0, 0, seconds)
    status = outcome.failure.http_status if isinstance(outcome, ToolResult) else outcome.reply.status
    return Ending(record.outcome, status, record.code, record.attempt, record.max_attempts, seconds)


# --- what hooks say ---------------------------------------------------------------------------------------------------
def _meant(call: ToolCall, said: object) -> ToolCall | UpstreamReply | Failure | str:
    """What an answer at `before_decision` means, or the reason why it is none."""
    try:
        match said:
            case Change(value):
                return _changed(call, dumps(value))
            case Answer(value, status) if 200 <= status <= 599:
                return UpstreamReply(status, _NO_REPLY, dumps(value))
            case Refuse(message, hint, status, retryable, details) if 400 <= status <= 599:
                told = {str(key): str(value) for key, value in details.items()}
                return Failure(
                    codes.CALL_NOT_ALLOWED, str(message), hint=str(hint), details=told, status=status,
                    retryable=bool(retryable),
                )  # fmt: skip
    except (TypeError, ValueError, AttributeError, RecursionError):  # no JSON, or no mapping
        return "wrong_answer"
    return "wrong_answer"


def _changed(call: ToolCall, text: bytes) -> ToolCall | str:
    """The call with other arguments: read from text, so that no hook keeps a hold on them."""
    value = parse(text)
    if isinstance(value, JsonProblem) or not isinstance(call.arguments, Document):
        return "wrong_answer"  # what could not be read has no place to put other arguments into
    repairs = (*call.arguments.repairs, Repair(HOOK, ()))
    return replace(call, arguments=Document(text, value, repairs))


def _headers(headers: Headers, said: object) -> Headers | str:
    """The headers with a hook's changes, or the reason why they are none."""
    if not isinstance(said, Mapping):
        return "wrong_answer"
    changes: dict[str, str | None] = {}
    for name, value in said.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name) or _is_fixed(name.lower()):
            return "wrong_header"
        if value is not None and not (isinstance(value, str) and _VALUE.fullmatch(value)):
            return "wrong_header"
        changes[name.lower()] = value
    kept = tuple(pair for pair in headers if pair[0] not in changes)
    return kept + tuple((name, value) for name, value in changes.items() if value is not None)


def _is_fixed(name: str) -> bool:
    """Whether a header (lower case) has to stay as it is; MCP repeats parts of the checked body in its own."""
    return name in _NOT_TO_TOUCH or name.startswith("mcp-")


def _broken_hook() -> Failure:
    return Failure(codes.HOOK_FAILED, codes.HOOK_FAILED.meaning)
