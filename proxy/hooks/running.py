"""The chain of hooks: runs them one after the other in the config's order, and confines the failures of each.

A hook fails when it exceeds its time, raises, or gives a value that the point does not accept. Its policy then decides:
`ignore` is forwarded as if the hook had given nothing, `refuse` ends the call (HOOK_FAILED) unless the tool has already
run. Each hook runs in its own task, so that it can neither cancel a call nor hold one up by refusing to be cancelled.
Code that never awaits cannot be interrupted.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.metadata import entry_points
from operator import attrgetter
from typing import Any, Final

from proxy.call_record import CallRecord, HookFailure
from proxy.core.contract.attempts import hash_name
from proxy.core.contract.policy import ToolPolicy
from proxy.core.json.contentcoding import decode, is_coded
from proxy.core.json.jsontext import dumps, format_pointer, parse
from proxy.core.model import codes
from proxy.core.model.value_class import value_class
from proxy.core.model.values import (
    CheckedCall,
    Decision,
    Document,
    Failure,
    Forward,
    Headers,
    JsonProblem,
    JsonValue,
    Outcome,
    Reject,
    Repair,
    ToolCall,
    ToolResult,
    UpstreamReply,
)
from proxy.core.rules.rules import HOOK
from proxy.hooks.api import POINTS, Answer, Broken, Call, Change, Ending, Hook, Outgoing, Refuse, Result, Verdict
from proxy.interfaces import CallRoute, HookNotes, Hooks, UpstreamRequest
from proxy.plugin import SpeaksProtocol
from proxy.plugins import find_plugins

# --- finds the hooks that a config names ------------------------------------------------------------------------------
# Finds the hooks that a config names: `module:attribute`, or the name of an entry point of `GROUP`.
#
# A hook is a subclass of `Hook`, which is created with the config's `settings` as keyword arguments, or a ready
# instance in a module. Every mistake is reported in one sentence. The operator's code runs here, so any exception from
# it is caught.

GROUP: Final = "toolcall_proxy.hooks"


@value_class
class HookLoadError:
    """The reason why a hook cannot be used, and a remedy."""

    message: str
    hint: str = ""


@value_class
class LoadedHook:
    """A hook that is ready to run. `timeout` is in seconds per point; `strict`: a failing hook refuses its call."""

    name: str
    hook: Hook
    timeout: float
    strict: bool

    def listens(self, point: str) -> bool:
        """Returns whether the hook overrides a point."""
        return getattr(type(self.hook), point) is not getattr(Hook, point)


def find_hook(use: str) -> Hook | type[Hook] | HookLoadError:
    """The hook or the class of hooks that `use` names; nothing is created."""
    try:
        if ":" in use:
            module, path = use.split(":", 1)
            found: Any = attrgetter(path)(import_module(module))
        else:
            installed = {entry.name: entry for entry in entry_points(group=GROUP)}
            if use not in installed:
                known = f"installed: {', '.join(sorted(installed))}" if installed else "none is installed"
                hint = f"write `module:Class`, or install a package with an entry point in {GROUP} ({known})"
                return HookLoadError(f"no hook is installed under the name {use!r}", hint)
            found = installed[use].load()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code: importing it runs it
        hint = "write `module:Class`" if isinstance(error, AttributeError | ValueError) else ""
        if isinstance(error, ModuleNotFoundError):
            hint = "the module has to be installed, or its folder be in PYTHONPATH"
        return HookLoadError(f"{use!r} cannot be loaded ({_name_error(error)})", hint)
    cls = found if isinstance(found, type) else type(found)
    if not issubclass(cls, Hook):
        return HookLoadError(f"{use!r} is not a hook", "write a class that inherits from `proxy.hooks.Hook`")
    if not any(getattr(cls, point) is not getattr(Hook, point) for point in POINTS):
        return HookLoadError(f"{use!r} has none of a hook's methods", f"define one of: {', '.join(POINTS)}")
    for point in POINTS:
        if not inspect.iscoroutinefunction(getattr(cls, point)):
            return HookLoadError(f"`{point}` of {use!r} is not a coroutine", f"write `async def {point}`")
    return found  # type: ignore[no-any-return]  # a Hook or a class of hooks by now


def load_hook(
    use: str, settings: Mapping[str, JsonValue], timeout: float, *, strict: bool
) -> LoadedHook | HookLoadError:
    """A hook created with its settings, or why it cannot be used."""
    found = find_hook(use)
    if isinstance(found, HookLoadError):
        return found
    if isinstance(found, Hook):
        if settings:
            message = f"{use!r} is an instance already and takes no settings"
            return HookLoadError(message, "name the class, or drop `settings`")
        return LoadedHook(use, found, timeout, strict)
    try:
        return LoadedHook(use, found(**settings), timeout, strict)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code
        message = f"{use!r} cannot be instantiated ({_name_error(error)})"
        return HookLoadError(message, "its `settings` are its keyword arguments")


def _name_error(error: BaseException) -> str:
    """The kind of an exception, with its message only where Python itself wrote it: others may quote a setting."""
    kind = type(error).__name__
    return f"{kind}: {error}" if isinstance(error, ImportError | AttributeError | SyntaxError) else kind


# --- the chain of hooks -----------------------------------------------------------------------------------------------
# RFC 9110 sections 5.1 and 5.5: a token, and a value without line breaks and NUL.
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
# Headers that frame the message or say how to read its body. With other values the upstream could read another body
# than the checked one (RFC 9110 sections 7.6.1 and 8; RFC 9112 section 6).
_NOT_TO_TOUCH: Final = frozenset(
    ["connection", "content-encoding", "content-length", "content-type", "expect", "host", "keep-alive",
     "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"]
)  # fmt: skip

# The longest answer that hooks see, in bytes.
_LONGEST_RESULT: Final = 1024 * 1024
_NO_REPLY: Final = (("Content-Type", "application/json"),)
# Interprets a hook's answer; a text is the reason why it is not acceptable.
Read = Callable[[object], Any]
# The answer of a hook that failed.
FAILED: Final = object()


class HookChain:
    """The hooks of a config. `report` receives each failure, with its exception if any; `now` is a monotonic clock."""

    def __init__(
        self,
        hooks: Sequence[LoadedHook],
        report: Callable[[HookFailure, BaseException | None], None],
        now: Callable[[], float],
    ) -> None:
        self.at = {point: tuple(hook for hook in hooks if hook.listens(point)) for point in POINTS}
        self.report = report
        self.now = now
        # Overdue tasks that still run; the event loop itself keeps no reference to them.
        self.left: set[asyncio.Task[Any]] = set()

    def begin(self, call_route: CallRoute, record: CallRecord) -> CallHooks:
        """The hooks as they run around one call."""
        return CallHooks(self, call_route, record)


class CallHooks:
    """Implements `Hooks`."""

    def __init__(self, chain: HookChain, call_route: CallRoute, record: CallRecord) -> None:
        self.notes = HookNotes()
        self._chain = chain
        self._call_route = call_route
        self._record = record

    async def before_decision(self, call: ToolCall) -> ToolCall | UpstreamReply | Failure:
        for hook in self._chain.at["before_decision"]:
            read = partial(_read_change, call, self._call_route.tools.get(call.tool))
            made = await self._ask(hook, "before_decision", self._show_call(call), read=read)
            if made is FAILED and hook.strict:
                return _make_failure()
            if isinstance(made, UpstreamReply | Failure):
                self.notes.answered_by = hook.name
                self.notes.refused_by = hook.name if isinstance(made, Failure) else ""
                return made
            call = made if isinstance(made, ToolCall) else call
        return call

    async def after_decision(self, call: ToolCall, decision: Decision) -> Decision:
        if isinstance(decision, Forward):
            repairs = tuple((repair.rule, format_pointer(repair.path)) for repair in decision.checked.repairs)
            verdict = Verdict(True, *_show_failure(decision.checked.would), repairs)
        else:
            verdict = Verdict(False, *_show_failure(decision.failure))
        for hook in self._chain.at["after_decision"]:
            failed = await self._ask(hook, "after_decision", self._show_call(call), verdict) is FAILED
            if failed and hook.strict:
                return Reject(_make_failure()) if isinstance(decision, Forward) else decision
        return decision

    async def before_forward(self, checked: CheckedCall, request: UpstreamRequest) -> UpstreamRequest | Failure:
        for hook in self._chain.at["before_forward"]:
            outgoing = Outgoing(request.upstream, request.method, request.target, tuple(request.headers))
            read, call = partial(_change_headers, request.headers), self._show_call(checked.call, checked.arguments)
            headers = await self._ask(hook, "before_forward", call, outgoing, read=read)
            if headers is FAILED and hook.strict:
                return _make_failure()
            request = replace(request, headers=headers) if isinstance(headers, tuple) else request
        return request

    async def after_answer(self, checked: CheckedCall, reply: UpstreamReply) -> UpstreamReply | Failure:
        for hook in self._chain.at["after_answer"]:
            call = self._show_call(checked.call, checked.arguments)
            made = await self._ask(hook, "after_answer", call, _show_result(reply), read=_read_answer)
            if made is FAILED and hook.strict:  # a filter that fails lets nothing through
                return replace(_make_failure(), retryable=False, details={"executed": "yes"})
            if isinstance(made, UpstreamReply):  # the next hook sees what this one left
                self.notes.answered_by = hook.name
                reply = made
        return reply

    async def after_outcome(self, call: ToolCall, outcome: Outcome | None) -> None:
        for hook in self._chain.at["after_outcome"]:
            ending = _show_ending(outcome, self._record, self._chain.now() - self._record.started)
            await self._ask(hook, "after_outcome", self._show_call(call), ending)

    def _show_call(self, call: ToolCall, text: bytes | None = None) -> Call:
        """A call as hooks see it. Headers are a plain tuple, because a hook could write to the index of `Fields`."""
        sent, record = call.arguments.text if isinstance(call.arguments, Document) else call.raw, self._record
        return Call(
            record.route, call.tool, call.call_id, record.request_id, record.notes.get("client.token", ""),
            hash_name(call.conversation), tuple(self._call_route.headers), sent if text is None else text,
        )  # fmt: skip

    async def _ask(self, hook: LoadedHook, point: str, *shown: object, read: Read | None = None) -> Any:
        """Returns the result of `read` for a hook's answer; None if the hook says nothing, or changes nothing at this
        point. FAILED if that result is a text (why the answer is not acceptable) or no answer came in time."""
        now = self._chain.now
        started = now()
        task = asyncio.ensure_future(_await_quietly(getattr(hook.hook, point)(*shown)))
        try:
            await asyncio.wait({task}, timeout=hook.timeout)
        finally:
            task.cancel()  # has no effect on a finished task
            self.notes.seconds += now() - started
        if not task.done():
            self._chain.left.add(task)
            task.add_done_callback(self._chain.left.discard)
            return self._fail(hook, point, "timeout")
        if task.cancelled():
            return self._fail(hook, point, "cancelled")
        answer = task.result()
        if isinstance(answer, BaseException):
            return self._fail(hook, point, "exception", answer)
        made = None if answer is None or read is None else read(answer)
        return self._fail(hook, point, made) if isinstance(made, str) else made

    def _fail(self, hook: LoadedHook, point: str, reason: str, error: BaseException | None = None) -> object:
        failure = HookFailure(hook.name, point, reason)
        self.notes.failures = (*self.notes.failures, failure)
        self._chain.report(failure, error)
        if hook.strict:
            self.notes.refused_by = self.notes.refused_by or hook.name
        return FAILED


async def _await_quietly(answer: Any) -> Any:
    """Awaits the answer, and gives an exception as a value: SystemExit within a task would end the process."""
    try:
        return await answer
    except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code: its failure is not the call's
        return error


# --- what hooks are shown ---------------------------------------------------------------------------------------------
def _show_failure(failure: Failure | None) -> tuple[str, tuple[Broken, ...]]:
    if failure is None:
        return "", ()
    broken = (Broken(each.code.name, format_pointer(each.path), each.message) for each in failure.violations)
    return failure.code.name, tuple(broken)


def _show_result(reply: UpstreamReply) -> Result:
    """A copy of an answer without its content coding; for a stream or a long body only the head."""
    headers = tuple((name.lower(), value) for name, value in reply.headers)
    body, coding = reply.body, next((value for name, value in headers if name == "content-encoding"), "")
    text = decode(body, coding, _LONGEST_RESULT) if isinstance(body, bytes) and is_coded(coding) else body
    if not isinstance(text, bytes) or len(text) > _LONGEST_RESULT:
        return Result(reply.status, headers, b"", whole=False)
    return Result(reply.status, headers, text)


def _show_ending(outcome: Outcome | None, record: CallRecord, seconds: float) -> Ending:
    if outcome is None:
        return Ending("client_gone", 0, "", 0, 0, seconds)
    status = outcome.failure.http_status if isinstance(outcome, ToolResult) else outcome.reply.status
    history = outcome.history if isinstance(outcome, ToolResult) else ()
    return Ending(record.outcome, status, record.code, record.attempt, record.max_attempts, seconds, history)


# --- what hooks say ---------------------------------------------------------------------------------------------------
def _read_change(call: ToolCall, policy: ToolPolicy | None, answer: object) -> ToolCall | UpstreamReply | Failure | str:
    """Interprets an answer at `before_decision`; a text is the reason why it is not acceptable. Arguments have a
    client's bound."""
    try:
        match answer:
            case Change(value) if isinstance(call.arguments, Document):  # unreadable arguments cannot be replaced
                text = dumps(value)
                if policy is not None and len(text) > policy.max_body:
                    return "wrong_answer"
                made = parse(text)  # so that the hook shares no object with the call
                if not isinstance(made, JsonProblem):
                    repairs = (*call.arguments.repairs, Repair(HOOK, ()))
                    return replace(call, arguments=Document(text, made, repairs))
            case Answer(value, status) if 200 <= status <= 599:
                return UpstreamReply(status, _NO_REPLY, dumps(value))
            case Refuse(message, hint, status, retryable, details) if 400 <= status <= 599:
                texts = {str(key): str(value) for key, value in details.items()}
                return Failure(
                    codes.CALL_NOT_ALLOWED, str(message), hint=str(hint), details=texts, status=status,
                    retryable=bool(retryable),
                )  # fmt: skip
    except (TypeError, ValueError, AttributeError, RecursionError):  # neither JSON nor a mapping
        pass
    return "wrong_answer"


def _read_answer(answer: object) -> UpstreamReply | str:
    """Interprets an answer at `after_answer`; a text is the reason why it is not acceptable."""
    try:
        if isinstance(answer, Answer) and 200 <= answer.status <= 599:
            return UpstreamReply(answer.status, _NO_REPLY, dumps(answer.value))
    except (TypeError, ValueError, RecursionError):  # no JSON
        pass
    return "wrong_answer"


def _change_headers(headers: Headers, answer: object) -> Headers | str:
    """The headers with a hook's changes; a text is the reason why these are not acceptable."""
    if not isinstance(answer, Mapping):
        return "wrong_answer"
    changes: dict[str, str | None] = {}
    for name, value in answer.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            return "wrong_header"
        repeating = [each.header_prefix for each in find_plugins(SpeaksProtocol) if each.header_prefix]
        if name.lower() in _NOT_TO_TOUCH or name.lower().startswith(tuple(repeating)):
            return "wrong_header"
        if value is not None and not (isinstance(value, str) and _VALUE.fullmatch(value)):
            return "wrong_header"
        changes[name.lower()] = value
    kept = tuple(pair for pair in headers if pair[0] not in changes)
    return kept + tuple((name, value) for name, value in changes.items() if value is not None)


def _make_failure() -> Failure:
    return Failure(codes.HOOK_FAILED, codes.HOOK_FAILED.meaning)


class FollowingHooks:
    """Hooks that a plugin adds. They pass on the results of `first`, the hooks of the config if there are any. A plugin
    overrides the points that it needs, and puts its hooks into `Services.hooks`."""

    def __init__(self, first: Hooks | None) -> None:
        self.notes = HookNotes() if first is None else first.notes
        self._first = first

    async def before_decision(self, call: ToolCall) -> ToolCall | UpstreamReply | Failure:
        return call if self._first is None else await self._first.before_decision(call)

    async def after_decision(self, call: ToolCall, decision: Decision) -> Decision:
        return decision if self._first is None else await self._first.after_decision(call, decision)

    async def before_forward(self, checked: CheckedCall, request: UpstreamRequest) -> UpstreamRequest | Failure:
        return request if self._first is None else await self._first.before_forward(checked, request)

    async def after_answer(self, checked: CheckedCall, reply: UpstreamReply) -> UpstreamReply | Failure:
        return reply if self._first is None else await self._first.after_answer(checked, reply)

    async def after_outcome(self, call: ToolCall, outcome: Outcome | None) -> None:
        if self._first is not None:
            await self._first.after_outcome(call, outcome)
