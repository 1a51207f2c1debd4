"""`ModelCorrector`: the story of one correction, from a failure to what came of it.

    correct       while there is somebody to ask: propose a call, let the call run with it, mark what came of it
      _propose      layer 3, and where that has nothing, layer 4
        _ask          budgets, the prompt, the endpoint, the verdict
        _meant        the call that a verdict means, if it may be made

Nothing here decides whether a call may go to its tool: the story judges each proposal as it judges every call. What is
written down is what happened, never a value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from proxy.core.contract.correction import Asked, BudgetKind, CorrectionSettings, Layer, Scope
from proxy.core.contract.policy import ToolPolicy
from proxy.core.display.secrets import mask_credentials
from proxy.core.explain.explain import find_failing_places
from proxy.core.json.jsontext import dumps, format_pointer
from proxy.core.model.values import (
    CheckedCall,
    Delivered,
    Document,
    Failure,
    JsonValue,
    Repair,
    ToolCall,
    UpstreamReply,
)
from proxy.core.tool_errors.backoff import compute_pause
from proxy.correction import changes, prompting, verdicts
from proxy.correction.budgets import Budgets
from proxy.correction.debug import DebugLog
from proxy.correction.endpoint import Answered, Endpoint
from proxy.correction.marks import Marks
from proxy.correction.rules import Action, asks, may_go_again, may_have_run
from proxy.correction.structured import find_forms
from proxy.correction.trajectory import GatheredStream, Trajectories, Trajectory
from proxy.correction.verdicts import ModelVerdict, Unusable, Usage
from proxy.interfaces import CallRoute, CorrectionQuestion, Services, Stumble, TryCall

# The most bytes that JSON needs for one character, which a prompt shows as itself.
_ESCAPED: Final = 6
# Of the changed places that had not failed, so many are named to the model.
_NAMED: Final = 5
# After these the next layer may still know something; after all others nobody is asked any more.
_NEXT_LAYER: Final = frozenset({Asked.CANNOT_FIX, Asked.UNUSABLE, Asked.OUT_OF_SCOPE})


@dataclass(slots=True)
class _Run:
    """One call on its way to a better one. `call` and `failure` are the latest; `due` on the monotonic clock."""

    call: ToolCall
    failure: Failure
    stumble: Stumble
    trajectory: Trajectory
    query: str
    due: float
    marks: Marks
    note: str = ""
    exhausted: set[Layer] = field(default_factory=set)

    @property
    def independent(self) -> bool:
        return not self.trajectory.steps

    @property
    def arguments(self) -> JsonValue:
        """The latest arguments; no body at all counts as none."""
        document = self.call.arguments
        return ({} if document.text == b"" else document.value) if isinstance(document, Document) else None

    @property
    def size(self) -> int:
        document = self.call.arguments
        return len(document.text) if isinstance(document, Document) else 0

    def shown(self) -> JsonValue:
        return changes.hide_secrets(self.arguments, self.stumble.policy.feedback)


class ModelCorrector:
    """Implements `Corrector` over a chat endpoint. `services` are those of the snapshot it belongs to; `report` is
    told of a mistake of ours, which costs the caller nothing: the id of the request and the exception; `warn` of a
    budget that is used up."""

    def __init__(
        self,
        settings: CorrectionSettings,
        endpoint: Endpoint,
        trajectories: Trajectories,
        services: Services,
        debug: DebugLog | None,
        report: Callable[[str, BaseException], None],
        warn: Callable[[BudgetKind], None],
    ) -> None:
        self._settings = settings
        self._endpoint = endpoint
        self._trajectories = trajectories
        self._services = services
        self._debug = debug
        self._report = report
        self._budgets = Budgets(settings.budget, services, warn)

    def note_delivery(
        self, checked: CheckedCall, reply: UpstreamReply, policy: ToolPolicy, call_route: CallRoute
    ) -> UpstreamReply:
        """Remembers what a tool gave, for layer 4, when all of it has come. A mistake of ours must not cost a caller
        its answer."""

        def remember(body: bytes) -> None:
            try:
                whole = replace(reply, body=body)
                self._trajectories.add(
                    checked, whole, call_route.find_user_query(), self._settings.trajectory, policy.feedback
                )
            except Exception as error:  # noqa: BLE001 - as it says
                self._report("", error)

        if not isinstance(reply.body, bytes):
            return replace(reply, body=GatheredStream(reply.body, remember))
        remember(reply.body)
        return reply

    async def correct(self, stumble: Stumble, try_call: TryCall) -> Delivered | Failure | None:
        """What came of a better call; None leaves the caller with the failure it had."""
        run: _Run | None = None
        policy = stumble.policy.correction
        for _ in range(self._settings.max_corrections):
            try:
                run = run or self._begin(stumble)
                proposal = await self._propose(run)
            except Exception as error:  # noqa: BLE001 - a mistake of ours must not cost a caller the answer it had
                self._report(stumble.record.request_id, error)
                return None
            if proposal is None:
                return None
            result = await try_call(proposal)
            delivered = isinstance(result, Delivered) and not result.failed
            run.marks.tried(proposal, delivered)
            if isinstance(result, Delivered):
                return result if delivered or result.reply.status >= 500 else None
            if may_have_run(result):
                return result
            run.call, run.failure = proposal, result
            if run.note and policy.semantic_retry:  # layer 4 may change what layer 3 may not
                run.exhausted.add(Layer.VALIDATION_FEEDBACK)
        return None

    def _begin(self, stumble: Stumble) -> _Run:
        policy, now = stumble.policy.correction, self._services.clock.now
        known = self._trajectories.of(stumble.call.conversation) if policy.trajectory else Trajectory()
        query = stumble.call_route.find_user_query() if policy.trajectory else ""
        marks = Marks(stumble.record, now)
        due = now() + self._settings.deadline
        return _Run(stumble.call, stumble.failure, stumble, known, query or known.query, due, marks)

    async def _propose(self, run: _Run) -> ToolCall | None:
        """The call to try next, None where nobody knows of one."""
        for layer in Layer:
            while self._may_ask(run, layer):
                found = await self._ask(run, layer)
                if isinstance(found, ToolCall):
                    return found
                if found is Asked.OUT_OF_SCOPE:
                    continue  # once more: the note says what was wrong with it
                if found not in _NEXT_LAYER:
                    return None
                run.exhausted.add(layer)
        return None

    def _may_ask(self, run: _Run, layer: Layer) -> bool:
        policy = run.stumble.policy
        readable = isinstance(
            run.call.arguments, Document
        )  # what cannot be read leaves nothing to hold changes against
        again = layer not in run.exhausted and run.marks.count(layer) < policy.correction.max_attempts
        return readable and again and asks(layer, run.failure, policy, run.independent)

    # --- one question -------------------------------------------------------------------------------------------------
    async def _ask(self, run: _Run, layer: Layer) -> ToolCall | Asked:
        if self._services.clock.now() >= run.due:
            return Asked.TIMEOUT
        if run.size > _ESCAPED * prompting.LONGEST_ARGUMENTS:
            return Asked.TOO_LONG
        shown = prompting.write_json(run.shown())
        if len(shown) > prompting.LONGEST_ARGUMENTS:
            return Asked.TOO_LONG
        if not await self._endpoint.enter(run.due - self._services.clock.now()):
            return self._unasked(run, layer, Asked.BUSY)
        try:
            spent = await self._budgets.take(run.call.conversation, len(run.stumble.record.questions))
            if spent is not None:
                return self._unasked(run, layer, Asked.BUDGET, spent)
            run.marks.started(layer, run.call, run.failure, run.independent)
            return await self._answered(run, layer, self._question(run, layer, shown))
        finally:
            self._endpoint.leave()

    def _unasked(self, run: _Run, layer: Layer, why: Asked, spent: BudgetKind | None = None) -> Asked:
        run.marks.skipped(CorrectionQuestion(layer, why, 0.0, run.independent, spent))
        return why

    def _question(self, run: _Run, layer: Layer, shown: str) -> list[dict[str, str]]:
        told = {
            "arguments": shown,
            "attempt": str(len(run.stumble.record.questions) + 1),
            "query": prompting.describe_wish(run.query),
            "trajectory": run.trajectory.told() if run.trajectory.steps else "none",
        }
        prompt = self._settings.prompts.get(layer) or prompting.load_prompt(layer)
        return prompting.write_messages(prompt, run.call, run.failure, run.stumble.policy, told, run.note)

    async def _answered(self, run: _Run, layer: Layer, asked: list[dict[str, str]]) -> ToolCall | Asked:
        now = self._services.clock.now
        started = now()
        forms = find_forms(layer, run.stumble.policy)
        answer = await self._endpoint.ask(asked, forms, min(run.due - started, self._settings.timeout))
        seconds, body = now() - started, answer.body
        verdict = verdicts.read(body, layer) if isinstance(body, bytes) else None
        usage = verdicts.usage_of(body) if isinstance(body, bytes) else Usage()
        await self._budgets.spend_tokens(usage.prompt + usage.completion)
        meant: ToolCall | Asked
        if isinstance(verdict, ModelVerdict):
            meant = await self._meant(run, layer, verdict)
        else:
            meant = body if isinstance(body, Asked) else Asked.UNUSABLE
        outcome = Asked.DELIVERED if isinstance(meant, ToolCall) else meant
        question = CorrectionQuestion(
            layer, outcome, seconds, run.independent, None, usage.prompt, usage.completion, answer.format
        )  # fmt: skip
        read = verdict if isinstance(verdict, ModelVerdict) else None
        run.marks.answered(run.call, question, read, _parameters(meant, layer))
        if self._debug is not None:
            await self._debug.add(self._entry(run, question, asked, answer, verdict))
        return meant

    def _entry(
        self, run: _Run, question: CorrectionQuestion, asked: list[dict[str, str]], answer: Answered, verdict: object
    ) -> dict[str, JsonValue]:
        return {
            "at": round(self._services.clock.wall(), 3),
            "site": question.layer.value,
            "correlation_id": run.stumble.record.request_id,
            "tool": run.call.tool,
            "call_id": run.call.call_id,
            "model": self._settings.model,
            "messages": [dict(message) for message in asked],
            "format": answer.format.value,
            "answer": mask_credentials(answer.body.decode("utf-8", "replace"))
            if isinstance(answer.body, bytes)
            else None,
            "outcome": question.outcome.value,
            "unusable": verdict.value if isinstance(verdict, Unusable) else None,
            "tokens": question.prompt_tokens + question.completion_tokens,
            "milliseconds": round(question.seconds * 1000),
        }

    # --- what a verdict means -----------------------------------------------------------------------------------------
    async def _meant(self, run: _Run, layer: Layer, verdict: ModelVerdict) -> ToolCall | Asked:
        match verdict.action:
            case Action.CHANGE:
                return await self._changed(run, layer, verdict)
            case Action.AGAIN:
                return await self._same(run, wait=False)
            case Action.BACK_OFF:
                return await self._same(run, wait=True)
            case Action.STOP:
                return Asked.CANNOT_FIX

    async def _changed(self, run: _Run, layer: Layer, verdict: ModelVerdict) -> ToolCall | Asked:
        shown, before = run.shown(), run.arguments
        wanted = verdict.whole if verdict.whole is not None else changes.lay_over(shown, verdict.changes)
        after = changes.restore_secrets(wanted, shown, before)
        paths, run.note = changes.find_changes(before, after), ""
        if not paths:
            return await self._same(run, wait=False)
        if run.stumble.policy.correction.scope_of(layer) is Scope.FAILING:
            failing = await self._find_failing(run.call, run.stumble.policy, run.failure)
            if beyond := changes.find_out_of_scope(paths, failing):
                run.note = _name_beyond([format_pointer(path) for path in beyond])
                after = changes.kept_in_scope(before, after, failing)
                paths = changes.find_changes(before, after)
        if not paths:
            return Asked.OUT_OF_SCOPE
        if any(changes.holds_mask(after, path) for path in paths):
            return Asked.UNUSABLE
        document = run.call.arguments
        repairs = document.repairs if isinstance(document, Document) else ()
        made = tuple(Repair(layer.value, path) for path in paths)
        return replace(run.call, arguments=Document(dumps(after), after, (*repairs, *made)), raw=b"")

    async def _find_failing(self, call: ToolCall, policy: ToolPolicy, failure: Failure) -> list[tuple[str, ...]]:
        elsewhere = self._services.elsewhere
        if elsewhere is None:
            return find_failing_places(call, policy, failure)
        return await elsewhere.find_failing(call, policy, failure)

    async def _same(self, run: _Run, *, wait: bool) -> ToolCall | Asked:
        """The same payload once more, where the rules of resends let it."""
        record, policy, services = run.stumble.record, run.stumble.policy, self._services
        upstream = services.upstreams.get(record.upstream)
        if not may_go_again(run.failure, policy, len(record.resends)) or upstream is None:
            return Asked.CANNOT_FIX
        if not upstream.grants_resend():
            return Asked.CANNOT_FIX
        if wait:
            await services.pacing.sleep(compute_pause(policy.resend, 0, services.pacing.chance()))
        return run.call


def _parameters(meant: ToolCall | Asked, layer: Layer) -> int:
    """How many places a proposal changes."""
    if isinstance(meant, Asked) or not isinstance(meant.arguments, Document):
        return 0
    return sum(repair.rule == layer.value for repair in meant.arguments.repairs)


def _name_beyond(places: list[str]) -> str:
    named = ", ".join(places[:_NAMED]) + (" and more" if len(places) > _NAMED else "")
    return f"\n\nYour last answer also changed {named}, which had not failed: repeat everything there as it is."
