"""The `CallContext` holds what every stage of a call knows: `open_context` makes it, and `make_delivered` ends it.

A stage returns a `CheckedCall`, which may be sent, or a `PendingFailure`, which the store has not counted. A correction
may still find a better call, and the model reads of the failure only if none is found.

The functions at the end write what the stages return into the `CallRecord`, also of a request that is not a call. Two
other files change a record: `upstream/sending.py` notes its sends, and `telemetry/logs.py` keeps the log's `line`. Each
stage notes its own time (`stages`).
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Mapping, Sequence
from dataclasses import field, fields, replace
from typing import Final

from proxy.call_record import AccessNote, CallRecord, Ending, Event, ModelQuestion, ReplacedAnswer, Trace
from proxy.core.contract import attempts as contract
from proxy.core.contract import container, refusals, toolname
from proxy.core.contract.policy import Mode, ToolPolicy, UnknownTool
from proxy.core.display.secrets import MASK, repeats_value
from proxy.core.model import codes
from proxy.core.model.value_class import set_later
from proxy.core.model.values import (
    Attempt,
    CheckedCall,
    Delivered,
    Document,
    Episode,
    Failure,
    FeedbackLimits,
    Repair,
    Rung,
    ToolCall,
    ToolResult,
    UpstreamReply,
    Violation,
    value_class,
)
from proxy.core.rules.rules import CORRECTIONS
from proxy.core.tool_errors.answers import wrap_answer
from proxy.interfaces import CallRoute, HookNotes, Hooks, Services
from proxy.upstream.sending import Answer

_ADDRESS: Final = Rung.ADDRESS
_REPORT: Final = Mode.REPORT  # CPython 3.11 takes longer to look up a member of an enum than to call a function
_MODES: Final = {mode: mode.value for mode in Mode}  # a member's `value` is two function calls there
_USUAL_LIMITS: Final = FeedbackLimits()
# Stages that wait for others: the client, the operator's own code, and the model endpoint with what it led to.
_WAITED_FOR: Final = ("read", "stream", "hooks", "correction")
# Fields of a record that a correction keeps although it found no better call.
_KEPT: Final = frozenset({"events", "questions", "stages", "trace", "sent"})


@value_class
class CallContext:
    """One call under way. `policy` is None for an unknown tool. `opening` are the repairs made before anything was
    judged. The retry contract knows the call by `key` and `digest`: those of the call as it `came`, whatever becomes
    of `call`. `seen`: the attempts that this process knew of when it came. A report-only call is only counted."""

    call: ToolCall
    policy: ToolPolicy | None
    call_route: CallRoute
    services: Services
    record: CallRecord
    report_only: bool
    came: ToolCall
    key: str
    hooks: Hooks | None = None
    opening: tuple[Repair, ...] = ()
    seen: int = 0
    _digest: str = field(default="", repr=False, compare=False)

    @property
    def counted_by(self) -> ToolPolicy | UnknownTool:
        """Returns what its failures are counted by."""
        return self.call_route.unknown if self.policy is None else self.policy

    @property
    def digest(self) -> str:
        """The hash of the arguments as they came, computed on first use: a clean call may never need it."""
        if not self._digest:
            set_later(self, "_digest", contract.hash_call(self.came, self.counted_by))
        return self._digest

    @property
    def counts_tool_errors(self) -> bool:
        """Returns whether the tool's own errors are remembered: not for a conversation without an id."""
        return self.policy is not None and self.came.conversation.rung is not _ADDRESS

    def has_failed_before(self) -> bool:
        """Returns whether earlier failures may matter to the call: `recall_failures` need not be awaited where this is
        False. With a store in memory it is False in every conversation that has not failed with this tool."""
        store, counts = self.services.store, self.policy is not None and self.came.conversation.rung is not _ADDRESS
        return store.is_known(self.key) or (counts and store.is_known(self.key + refusals.TOOL_ERRORS))


@value_class
class PendingFailure:
    """The reason why a call got no answer. `outcome` is the `CallRecord`'s word for it. `answered` is a success that
    complains of arguments, and its call: it is forwarded unchanged unless a correction finds a better call."""

    failure: Failure
    outcome: str
    repairs: tuple[Repair, ...] = ()
    answered: tuple[CheckedCall, UpstreamReply] | None = None


def open_context(call: ToolCall, call_route: CallRoute, services: Services, record: CallRecord) -> CallContext:
    """Finds the call's policy, under its name or under the known name that it means (`toolname`)."""
    opening: tuple[Repair, ...] = ()
    policy = call_route.tools.get(call.tool)
    known = toolname.find_known_name(call.tool, call_route.tools) if policy is None else None
    if known is not None:
        name, rule = known
        policy, opening = call_route.tools[name], (Repair(rule, ()),)
        call = call if policy.mode is _REPORT else replace(call, tool=name)
    report_only = call_route.can_forward_unknown(call.tool) if policy is None else policy.mode is _REPORT
    counted_by, conversation = call_route.unknown if policy is None else policy, call.conversation
    digest = contract.hash_call(call, counted_by) if conversation.rung is _ADDRESS else ""
    key = contract.make_attempt_key(conversation, call.tool, counted_by, digest)
    hooks = None if services.hooks is None else services.hooks(call_route, record)
    return CallContext(call, policy, call_route, services, record, report_only, call, key, hooks, opening, 0, digest)


def make_delivered(
    context: CallContext,
    checked: CheckedCall,
    reply: UpstreamReply,
    tool: ToolPolicy | None,
    ended: Episode | Ending | None = None,
    event: str = "",
) -> Delivered:
    """The outcome of a call whose tool has answered. `ended`: the episode that it ends; `event`: its container's."""
    record = context.record
    repairs, corrections = record.repairs, record.corrections
    outcome = "corrected" if corrections else "repaired" if repairs else "delivered"
    attempt = None
    if isinstance(ended, Episode) and ended.count:
        attempt = Attempt(ended.count + 1, context.counted_by.attempts.max_attempts)
    is_misuse = record.container_event == "auto_expanded"
    warnings = (container.LEFT_OUT, *checked.warnings) if is_misuse else checked.warnings
    limits = _USUAL_LIMITS if tool is None else tool.feedback
    record_delivery(record, outcome if checked.enforced else "delivered", ended, event)
    if not checked.enforced:
        return Delivered(reply, (), warnings, attempt=attempt, limits=limits)
    if tool is not None and context.services.corrector is not None:
        reply = context.services.corrector.note_delivery(checked, reply, tool, context.call_route)
    if tool is not None and tool.wrap_success:
        reply = wrap_answer(reply, warnings, tool.feedback)
    return Delivered(reply, repairs, warnings, corrections=corrections, attempt=attempt, limits=limits)


# --- the record ------------------------------------------------------------------------------------------------------
def record_route(record: CallRecord, route: str, access: AccessNote | None = None) -> None:
    """Records the route of a request, and who sent the request if the route asks that."""
    record.route, record.access = route, access


def record_trace(record: CallRecord, trace_id: str, trace: Trace | None) -> None:
    """Records the trace of a request, which is only its id if no spans are made."""
    record.trace_id, record.trace = trace_id, trace


def record_body(record: CallRecord, size: int, now: float) -> None:
    """Records that the body of a request has been read."""
    record.stages["read"], record.request_bytes = now - record.started, size


def add_notes(record: CallRecord, notes: Mapping[str, str]) -> None:
    """Adds what a plugin shows of a request beside the fields that every record has."""
    record.notes = {**record.notes, **notes}


def record_call(
    record: CallRecord, call: ToolCall, policy: ToolPolicy | None, repairs: tuple[Repair, ...], mode: Mode | None = None
) -> None:
    """Records the caller, the tool, the policy, and the repairs made so far. `mode`: if it is not the policy's."""
    record.tool, record.call_id, record.conversation_rung = call.tool, call.call_id, call.conversation.rung
    record.call, record.policy, record.repairs = call, policy, repairs
    if policy is not None:
        mode, record.schema_id = mode or policy.mode, policy.schema_id
        record.container = policy.container.name if policy.container is not None else ""
    if mode is not None:
        record.mode = _MODES[mode]


def record_approval(context: CallContext, checked: CheckedCall, event: str = "") -> None:
    """Records a call that may be sent, with the proxy's repairs and a model's corrections. `event` is the one around
    its container, of `container.EVENTS`, or ''."""
    record, repairs = context.record, context.opening + checked.repairs
    corrections: tuple[Repair, ...] = ()
    if checked.repairs:
        corrections = tuple(made for made in repairs if made.rule in CORRECTIONS)
        repairs = tuple(made for made in repairs if made.rule not in CORRECTIONS) if corrections else repairs
    record.container_event = event or record.container_event
    record.corrections = corrections
    record_forward(record, checked, checked.would, repairs)


def record_forward(
    record: CallRecord, checked: CheckedCall | None, would: Failure | None, repairs: tuple[Repair, ...]
) -> None:
    """Records the findings on a call that is forwarded: in report mode with why it `would` be refused."""
    record.checked, record.repairs, record.would_refuse = checked, repairs, would is not None
    record.violations, record.code = () if checked is None else checked.warnings, ""
    if would is not None:
        record.violations, record.code = would.violations, would.code.name


def record_refusal(context: CallContext, event: str) -> None:
    """Records a refusal; the reason is recorded with the result."""
    context.record.container_event = event or context.record.container_event
    context.record.repairs = context.opening


def record_hooks(record: CallRecord, notes: HookNotes) -> None:
    """Records what became of the hooks of a call."""
    if notes.seconds:
        record.stages["hooks"] = notes.seconds
    record.hook_failures = notes.failures
    if notes.answered_by:
        add_notes(record, {"hook": notes.answered_by})
    if notes.refused_by and record.code in (codes.CALL_NOT_ALLOWED.name, codes.HOOK_FAILED.name):
        add_notes(record, {"refused_by": notes.refused_by})


def record_answer(record: CallRecord, verdict: str, violations: tuple[Violation, ...] = ()) -> None:
    """Records the result of checking the tool's answer."""
    record.answer, record.answer_violations = verdict, violations


def record_delivery(record: CallRecord, outcome: str, ended: Episode | Ending | None = None, event: str = "") -> None:
    """Records a delivery. `ended`: the episode that it ended, now or later; `event`: that of its container."""
    record.outcome = outcome
    record.container_event = record.container_event or event
    if ended is not None:
        record_ending(record, ended)


def record_ending(record: CallRecord, ended: Episode | Ending) -> None:
    """Records the episode that a delivery ended, or the future that will know it."""
    if isinstance(ended, Future):
        record.settling = ended
    else:
        record.corrected_after = ended.count


def record_settled(record: CallRecord, settled: Ending) -> None:
    """Records the episode that a delivery has ended."""
    episode = None if settled.cancelled() else settled.result()
    record.corrected_after = episode.count if episode is not None else 0


def record_tool_error(record: CallRecord, failure: Failure) -> None:
    """Records that the tool's own error goes to the client unchanged."""
    record.outcome, record.code = "tool_error", _name_code(record, failure)


def record_late_error(record: CallRecord, refused: Failure | None) -> None:
    """Records the tool's own error in an answer that has passed. `refused`: it, where it refuses the arguments."""
    record.corrected_after = 0
    if record.outcome == "withheld":  # the error is the proxy's own, in the place of the answer
        return
    record.outcome, record.code = "tool_error", ""
    if refused is not None:
        record.code, record.violations = refused.code.name, refused.violations


def record_result(record: CallRecord, result: ToolResult, outcome: str) -> None:
    """Records the answer that the model reads for a failed call."""
    record_failure(record, result.failure, outcome)
    record.result, record.repeated = result, result.repeated
    if result.attempt is not None:
        record.attempt, record.max_attempts = result.attempt.number, result.attempt.limit


def record_failure(record: CallRecord, failure: Failure, outcome: str) -> None:
    """Records why a call failed."""
    record.outcome, record.code, record.violations = outcome, _name_code(record, failure), failure.violations


def record_escalation(record: CallRecord) -> None:
    """Records that this call is the escalation of its conversation, which a human hears of once."""
    record.escalated = True


def record_fault(record: CallRecord, token: str, *, unsent: bool = False) -> None:
    """Records that an upstream gave no answer, or broke it off. `unsent`: it got nothing."""
    record.outcome, record.upstream_error, record.sent = "upstream_error", token, record.sent and not unsent


def record_no_call(record: CallRecord, code: str, call_id: str = "") -> None:
    """Records the refusal of a request that is not a call, or of a call that nothing can be judged by (`call_id`)."""
    record.outcome, record.code, record.call_id = "refused", code, call_id or record.call_id


def record_passthrough(
    record: CallRecord, upstream: str = "", reply: Answer | None = None, seconds: float = 0.0, received: int = 0,
    since: float = 0.0,
) -> None:  # fmt: skip
    """Records that a request is passed on to `upstream` ('': it is answered here) `since` then, with the bytes of a
    body `received` first. Once `upstream` has answered, also records its `reply` and the time that it took."""
    record.outcome, record.code, record.upstream = "passthrough", "", upstream
    record.sent = upstream != ""
    record.upstream_seconds, record.sending_since = seconds or record.upstream_seconds, since
    record.request_bytes += received
    if isinstance(reply, UpstreamReply):
        record.upstream_status = reply.status


def record_response(record: CallRecord, status: int, sent: int, received: int = 0) -> None:
    """Records a response, and the bytes of bodies that went to the client and came from it since its request."""
    record.status, record.response_bytes = status, sent
    record.request_bytes += received


def record_end(record: CallRecord, ended: float, *, has_left: bool = False) -> None:
    """Records when a request ended, how much of its time was the proxy's own, and whether its client has gone."""
    record.outcome = "client_gone" if has_left else record.outcome
    if record.sending_since:
        record.upstream_seconds += ended - record.sending_since
    others, stages = record.upstream_seconds, record.stages
    for stage in _WAITED_FOR:
        if stage in stages:
            others += stages[stage]
    record.ended, stages["total"] = ended, ended - record.started - others


def _name_code(record: CallRecord, failure: Failure) -> str:
    """The code of a failure; that of a tool's own without what the tool was sent."""
    name, call = failure.code.name, record.call
    if name in codes.ERROR_CODES or call is None or not isinstance(call.arguments, Document):
        return name
    return MASK if repeats_value(name, call.arguments.value) else name


def record_correction(record: CallRecord, before: CallRecord, seconds: float, *, found: bool) -> None:
    """Records the time spent on corrections. If no better call was `found`, the rest is as `before`."""
    if not found:
        for name in (entry.name for entry in fields(record) if entry.name not in _KEPT):
            setattr(record, name, getattr(before, name))
    record.stages["correction"] = seconds


def record_questions(record: CallRecord, questions: Sequence[ModelQuestion], *events: Event) -> None:
    """Records what a model was asked about the call so far, and the events of its span that tell of it."""
    record.questions, record.events = tuple(questions), (*record.events, *events)


def record_replaced(record: CallRecord, replaced: Sequence[ReplacedAnswer]) -> None:
    """Records the answers of a model that others took the place of."""
    record.replaced = replaced
