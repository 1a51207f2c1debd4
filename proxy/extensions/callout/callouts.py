"""Asks the services of the config around each call: `Callouts` makes the hooks that do so, `CalloutHooks` runs them.

The question follows the decision. So a service sees the arguments that the tool gets, repairs included, and gets no
question about rejected calls. Replaced arguments go back to `decide`, and a call that it rejects is not sent.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from proxy.call.context import add_notes
from proxy.call_record import CallRecord
from proxy.config.model import Config
from proxy.core.json.jsontext import TRUSTED, dumps, parse
from proxy.core.model import codes
from proxy.core.model.values import (
    CheckedCall,
    Decision,
    Document,
    Failure,
    Forward,
    JsonProblem,
    JsonValue,
    Outcome,
    Reject,
    Repair,
    ToolCall,
    UpstreamReply,
)
from proxy.core.rules.rules import HOOK
from proxy.extensions.callout.callout_client import COUNTED, SECONDS, CalloutClient, CalloutFailure, CalloutFault
from proxy.extensions.callout.callout_messages import (
    CalloutAnswer,
    ShownAnswer,
    ShownCall,
    mask_answer,
    prepare_answers,
    read_shown,
    show_call,
    write_question,
)
from proxy.extensions.callout.callout_section import CalloutPoint, CalloutSettings, find_callouts, group_by_route
from proxy.interfaces import CallRoute, Hooks, Services
from proxy.plugin import FollowingHooks, Log, Metrics, ReplayedBody, decide, gather_body

# Answers of more bytes are read in a thread, so that other calls do not wait.
_LONG: Final = 32 * 1024
_FAILED: Final = "A call-out of the operator failed, and without it no call is let through."
_FAILED_AFTER: Final = "A call-out of the operator failed, and without it no answer is handed on."
_INVALID: Final = (
    "A call-out of the operator changed the arguments to some that the tool does not take: the call was not sent."
)

_BEFORE: Final = CalloutPoint.BEFORE
_AFTER: Final = CalloutPoint.AFTER
_NOT_SHOWN: Final = CalloutFailure(CalloutFault.NOT_SHOWN, "longer than `max_shown`, broken off, or in a coding")
_NO_PLACE: Final = CalloutFailure(CalloutFault.WRONG_ANSWER, "masks a place that the answer does not have")


class Callouts:
    """Implements `ServiceExtender`. Each config has its own clients."""

    def __init__(self, services: Services, log: Log, metrics: Metrics) -> None:
        self._services = services
        self._log = log
        self._count_sent = metrics.count_sent
        self._counted = metrics.add_counter(COUNTED).series
        self._seconds = metrics.add_histogram(SECONDS)

    def extend(self, config: Config, services: Services) -> Services:
        """The services whose hooks ask the call-outs of the config, if it has some."""
        settings = find_callouts(config)
        if not settings:
            return services
        prepare_answers()
        clients = {
            each.name: CalloutClient(each, services.upstreams[each.upstream], self._count_sent) for each in settings
        }
        by_route = {
            route: tuple(clients[each.name] for each in chosen) for route, chosen in group_by_route(config).items()
        }
        first = services.hooks

        def begin(call_route: CallRoute, record: CallRecord) -> Hooks | None:
            before, chosen = None if first is None else first(call_route, record), by_route.get(record.route)
            return before if chosen is None else CalloutHooks(before, self, services, call_route, record, chosen)

        return replace(services, hooks=begin)

    async def close(self) -> None:
        """Does nothing: nothing is queued."""

    def note(self, settings: CalloutSettings, point: CalloutPoint, answer: CalloutAnswer | CalloutFailure) -> None:
        """Counts the answer of a service."""
        outcome = answer.action if isinstance(answer, CalloutAnswer) else answer.fault.value
        self._counted[settings.name, point.value, outcome] += 1

    def note_seconds(self, settings: CalloutSettings, point: CalloutPoint, seconds: float) -> None:
        """Counts how long a call waited for one answer."""
        self._seconds.observe(seconds, (settings.name, point.value))

    def log_failure(
        self, settings: CalloutSettings, point: CalloutPoint, failure: CalloutFailure, record: CallRecord
    ) -> None:
        """Logs that a service failed, with nothing of the call or of an answer."""
        self._log.event(
            "Call-out failed", "warning", callout=settings.name, point=point.value, reason=failure.fault.value,
            detail=failure.detail, on_failure=settings.on_failure, request_id=record.request_id,
        )  # fmt: skip


class CalloutHooks(FollowingHooks):
    """The call-outs around one call. They have the last word on what is sent and on what is handed on."""

    def __init__(
        self,
        first: Hooks | None,
        callouts: Callouts,
        services: Services,
        call_route: CallRoute,
        record: CallRecord,
        clients: tuple[CalloutClient, ...],
    ) -> None:
        super().__init__(first)
        self._callouts = callouts
        self._services = services
        self._call_route = call_route
        self._record = record
        self._clients = clients
        self._decisions: tuple[str, ...] = ()

    # --- before a call ------------------------------------------------------------------------------------------------
    async def after_decision(self, call: ToolCall, decision: Decision) -> Decision:
        for client in self._clients:
            if isinstance(decision, Forward) and client.settings.covers(_BEFORE, decision.checked.call.tool):
                decision = await self._review(client, decision)
        return await super().after_decision(call, decision)

    async def _review(self, client: CalloutClient, decision: Forward) -> Decision:
        """Asks one service about an accepted call, and returns the decision that follows."""
        checked, answer = decision.checked, await self._ask(client, _BEFORE, decision.checked)
        replaced: Forward | None = None
        # A report-only call stays as it came.
        if isinstance(answer, CalloutAnswer) and answer.action == "replace" and checked.enforced:
            replaced = await self._decide_again(checked, answer.arguments)
            answer = answer if replaced is not None else CalloutFailure(CalloutFault.INVALID_ARGUMENTS)
        self._note(client, _BEFORE, answer)
        if isinstance(answer, CalloutAnswer):
            return Reject(_refuse(answer)) if answer.action == "refuse" else replaced or decision
        if answer.fault is CalloutFault.INVALID_ARGUMENTS:  # also if it fails open: it wanted another call
            return Reject(Failure(codes.HOOK_FAILED, _INVALID, retryable=False))
        return decision if client.settings.fails_open else Reject(Failure(codes.HOOK_FAILED, _FAILED))

    async def _decide_again(self, checked: CheckedCall, arguments: JsonValue) -> Forward | None:
        """The call with other arguments, if the tool takes them: `decide` judges them like a client's."""
        policy = self._call_route.tools.get(checked.call.tool)
        text = dumps(arguments)
        if policy is None or len(text) > policy.max_body:
            return None
        value = parse(text)
        if isinstance(value, JsonProblem):
            return None
        document = Document(text, value, (*checked.repairs, Repair(HOOK, ())))
        call, elsewhere = replace(checked.call, arguments=document, raw=b""), self._services.elsewhere
        decision = decide(call, policy) if elsewhere is None else await elsewhere.decide(call, policy)
        return decision if isinstance(decision, Forward) else None

    # --- after an answer ----------------------------------------------------------------------------------------------
    async def after_answer(self, checked: CheckedCall, reply: UpstreamReply) -> UpstreamReply | Failure:
        found = await super().after_answer(checked, reply)
        clients = [client for client in self._clients if client.settings.covers(_AFTER, checked.call.tool)]
        if isinstance(found, Failure) or not clients:
            return found
        whole = await gather_body(found, max(client.settings.max_shown for client in clients))
        for client in clients:
            made = await self._examine(client, checked, whole)
            if isinstance(made, Failure):
                return made
            whole = made
        if isinstance(found.body, bytes) or not isinstance(whole.body, bytes) or whole.headers is not found.headers:
            return whole
        return replace(whole, body=ReplayedBody([whole.body], whole, None))  # a stream stays one

    async def _examine(
        self, client: CalloutClient, checked: CheckedCall, reply: UpstreamReply
    ) -> UpstreamReply | Failure:
        """Asks one service about an answer of a tool, and returns what is handed on."""
        limit, masked = client.settings.max_shown, None
        is_long = isinstance(reply.body, bytes) and len(reply.body) > _LONG
        shown = await asyncio.to_thread(read_shown, reply, limit) if is_long else read_shown(reply, limit)
        answer = _NOT_SHOWN if shown is None else await self._ask(client, _AFTER, checked, shown)
        if isinstance(answer, CalloutAnswer) and answer.action == "mask":
            masked = None if shown is None else mask_answer(reply, shown, answer.paths)
            answer = _NO_PLACE if masked is None else answer
        self._note(client, _AFTER, answer)
        if isinstance(answer, CalloutAnswer):
            refused = replace(_refuse(answer), details={"executed": "yes"}) if answer.action == "refuse" else None
            return refused or masked or reply
        if client.settings.fails_open:
            return reply
        return Failure(codes.HOOK_FAILED, _FAILED_AFTER, details={"executed": "yes"}, retryable=False)

    async def after_outcome(self, call: ToolCall, outcome: Outcome | None) -> None:
        if self._decisions:
            add_notes(self._record, {"callout": ", ".join(self._decisions)})
        await super().after_outcome(call, outcome)

    # --- both ---------------------------------------------------------------------------------------------------------
    async def _ask(
        self, client: CalloutClient, point: CalloutPoint, checked: CheckedCall, answer: ShownAnswer | None = None
    ) -> CalloutAnswer | CalloutFailure:
        now, shown = self._services.clock.now, show_call(self._record, self._call_route.headers)
        started = now()
        try:
            return await client.ask(write_question(client.settings, point, shown, checked, answer), point)
        finally:
            self.notes.seconds += now() - started
            self._callouts.note_seconds(client.settings, point, now() - started)

    def _note(self, client: CalloutClient, point: CalloutPoint, answer: CalloutAnswer | CalloutFailure) -> None:
        """Counts the answer of a service, and logs it: a failure, the fields `callout` and `refused_by`."""
        settings, action = client.settings, ""
        self._callouts.note(settings, point, answer)
        if isinstance(answer, CalloutAnswer):
            action = answer.action
        else:
            self._callouts.log_failure(settings, point, answer, self._record)
            if answer.fault is CalloutFault.INVALID_ARGUMENTS or not settings.fails_open:
                action = answer.fault.value
        if action in ("", "allow", "pass"):
            return
        self._decisions = (*self._decisions, f"{settings.name} {action}")
        if action not in ("replace", "mask"):
            self.notes.refused_by = settings.name


def _refuse(answer: CalloutAnswer) -> Failure:
    return Failure(codes.CALL_NOT_ALLOWED, answer.message, hint=answer.hint, retryable=answer.retryable)


# --- the verb `validate` ----------------------------------------------------------------------------------------------
def preview_questions(config: Config, shown: ShownCall, checked: CheckedCall) -> dict[str, JsonValue]:
    """Returns the question to each service about a call, and the services that would get one about its answer."""
    found: list[JsonValue] = []
    for settings in group_by_route(config).get(shown.route, ()):
        about: dict[str, JsonValue] = {"name": settings.name, "upstream": settings.upstream, "path": settings.path}
        if settings.covers(_BEFORE, checked.call.tool):
            question = parse(write_question(settings, _BEFORE, shown, checked), TRUSTED)
            found.append({**about, "event": _BEFORE.value, "question": question})
        if settings.covers(_AFTER, checked.call.tool):
            found.append({**about, "event": _AFTER.value})
    return {"callout": found} if found else {}
