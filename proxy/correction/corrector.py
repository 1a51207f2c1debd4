"""`ModelCorrector`: the story of one correction, from a failure to what came of it.

    correct       while there is somebody to ask: propose a call, let the story try it, mark what came of it
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

from proxy.core.backoff import pause
from proxy.core.contract import conversation_hash
from proxy.core.correction import Asked, CorrectionSettings, Layer, Scope
from proxy.core.jsontext import dumps, format_pointer
from proxy.core.model import CheckedCall, Delivered, Document, Failure, JsonValue, Repair, ToolCall, UpstreamReply
from proxy.core.policy import ToolPolicy
from proxy.core.secrets import mask
from proxy.correction import changes, prompting, verdicts
from proxy.correction.debug import DebugLog
from proxy.correction.endpoint import Endpoint
from proxy.correction.marks import Marks
from proxy.correction.rules import Action, asks, failing_places, may_go_again, may_have_run
from proxy.correction.trajectory import Trajectories, Trajectory
from proxy.correction.verdicts import Unusable, Verdict
from proxy.interfaces import Lane, Question, Services, Stumble, TryCall

# How long a conversation's questions are counted after its last one; an hour; in seconds.
_CONVERSATION: Final = 86_400.0
_HOUR: Final = 3600.0
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

    def shown(self) -> JsonValue:
        return changes.shown(self.arguments, self.stumble.policy.feedback)


class ModelCorrector:
    """Implements `Corrector` over a chat endpoint. `services` are those of the snapshot it belongs to; `report` is
    told of a mistake of ours, which costs the caller nothing: the id of the request and the exception."""

    def __init__(
        self,
        settings: CorrectionSettings,
        endpoint: Endpoint,
        trajectories: Trajectories,
        services: Services,
        debug: DebugLog | None,
        report: Callable[[str, BaseException], None],
    ) -> None:
        self._settings = settings
        self._endpoint = endpoint
        self._trajectories = trajectories
        self._services = services
        self._debug = debug
        self._report = report

    def delivered(self, checked: CheckedCall, reply: UpstreamReply, policy: ToolPolicy, lane: Lane) -> None:
        """Remembers what a tool gave, for layer 4. A mistake of ours must not cost a caller its answer."""
        try:
            self._trajectories.add(checked, reply, lane.wish(), self._settings.trajectory, policy.feedback)
        except Exception as error:  # noqa: BLE001 - as it says
            self._report("", error)

    async def correct(self, stumble: Stumble, try_call: TryCall) -> Delivered | Failure | None:
        """What came of a better call; None leaves the caller with the failure it had."""
        run: _Run | None = None
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
            run.call, run.failure, run.note = proposal, result, ""
        return None

    def _begin(self, stumble: Stumble) -> _Run:
        policy, now = stumble.policy.correction, self._services.clock.now
        known = self._trajectories.of(stumble.call.conversation) if policy.trajectory else Trajectory()
        query = stumble.lane.wish() if policy.trajectory else ""
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
        shown = prompting.as_text(run.shown())
        if len(shown) > prompting.LONGEST_ARGUMENTS:
            return Asked.TOO_LONG
        if not self._endpoint.enter():
            return self._unasked(run, layer, Asked.BUSY)
        try:
            if await self._over_budget(run):
                return self._unasked(run, layer, Asked.BUDGET)
            run.marks.started(layer, run.call, run.failure, run.independent)
            return await self._answered(run, layer, self._question(run, layer, shown))
        finally:
            self._endpoint.leave()

    def _unasked(self, run: _Run, layer: Layer, why: Asked) -> Asked:
        run.marks.skipped(Question(layer, why, 0.0, run.independent))
        return why

    def _question(self, run: _Run, layer: Layer, shown: str) -> list[dict[str, str]]:
        told = {
            "arguments": shown,
            "attempt": str(len(run.stumble.record.questions) + 1),
            "query": prompting.wish(run.query),
            "trajectory": run.trajectory.told() if run.trajectory.steps else "none",
        }
        prompt = self._settings.prompts.get(layer) or prompting.bundled(layer)
        return prompting.conversation(prompt, run.call, run.failure, run.stumble.policy, told, run.note)

    async def _answered(self, run: _Run, layer: Layer, asked: list[dict[str, str]]) -> ToolCall | Asked:
        now = self._services.clock.now
        started = now()
        answer = await self._endpoint.ask(asked, min(run.due - started, self._settings.timeout))
        seconds = now() - started
        verdict = verdicts.read(answer, layer) if isinstance(answer, bytes) else None
        meant: ToolCall | Asked
        if isinstance(verdict, Verdict):
            meant = await self._meant(run, layer, verdict)
        else:
            meant = answer if isinstance(answer, Asked) else Asked.UNUSABLE
        outcome = Asked.DELIVERED if isinstance(meant, ToolCall) else meant
        question = Question(layer, outcome, seconds, run.independent)
        read = verdict if isinstance(verdict, Verdict) else None
        run.marks.answered(run.call, question, read, _parameters(meant, layer))
        if self._debug is not None:
            await self._debug.add(self._entry(run, question, asked, answer, verdict))
        return meant

    def _entry(
        self, run: _Run, question: Question, asked: list[dict[str, str]], answer: bytes | Asked, verdict: object
    ) -> dict[str, JsonValue]:
        return {
            "at": round(self._services.clock.wall(), 3),
            "site": question.layer.value,
            "correlation_id": run.stumble.record.request_id,
            "tool": run.call.tool,
            "call_id": run.call.call_id,
            "model": self._settings.model,
            "messages": [dict(message) for message in asked],
            "answer": mask(answer.decode("utf-8", "replace")) if isinstance(answer, bytes) else None,
            "outcome": question.outcome.value,
            "unusable": verdict.value if isinstance(verdict, Unusable) else None,
            "milliseconds": round(question.seconds * 1000),
        }

    async def _over_budget(self, run: _Run) -> bool:
        """Takes a question out of every budget, unless one is used up; then no other loses one."""
        budget, store = self._settings.budget, self._services.store
        if len(run.stumble.record.questions) >= budget.per_call:
            return True
        conversation = f"{conversation_hash(run.call.conversation)}/corrections"
        hour = f"corrections/{int(self._services.clock.wall() // _HOUR)}"
        if await store.reserve(conversation, budget.per_conversation, _CONVERSATION) is None:
            return True
        if await store.reserve(hour, budget.per_hour, _HOUR) is None:
            await store.release(conversation)
            return True
        return False

    # --- what a verdict means -----------------------------------------------------------------------------------------
    async def _meant(self, run: _Run, layer: Layer, verdict: Verdict) -> ToolCall | Asked:
        match verdict.action:
            case Action.CHANGE:
                return await self._changed(run, layer, verdict)
            case Action.AGAIN:
                return await self._same(run, wait=False)
            case Action.BACK_OFF:
                return await self._same(run, wait=True)
            case Action.STOP:
                return Asked.CANNOT_FIX

    async def _changed(self, run: _Run, layer: Layer, verdict: Verdict) -> ToolCall | Asked:
        shown, before = run.shown(), run.arguments
        wanted = verdict.whole if verdict.whole is not None else changes.laid_over(shown, verdict.changes)
        after = changes.restored(wanted, shown, before)
        paths = changes.changed(before, after)
        if not paths:
            return await self._same(run, wait=False)
        if any(changes.holds_mask(after, path) for path in paths):
            return Asked.UNUSABLE
        if run.stumble.policy.correction.scope is Scope.FAILING:
            failing = failing_places(run.failure, run.stumble.policy, before)
            if beyond := changes.out_of_scope(paths, failing):
                run.note = _told_off([format_pointer(path) for path in beyond])
                return Asked.OUT_OF_SCOPE
        document = run.call.arguments
        repairs = document.repairs if isinstance(document, Document) else ()
        made = tuple(Repair(layer.value, path) for path in paths)
        return replace(run.call, arguments=Document(dumps(after), after, (*repairs, *made)), raw=b"")

    async def _same(self, run: _Run, *, wait: bool) -> ToolCall | Asked:
        """The same payload once more, where the rules of resends let it."""
        record, policy, services = run.stumble.record, run.stumble.policy, self._services
        upstream = services.upstreams.get(record.upstream)
        if not may_go_again(run.failure, policy, len(record.resends)) or upstream is None:
            return Asked.CANNOT_FIX
        if not upstream.grants_resend():
            return Asked.CANNOT_FIX
        if wait:
            await services.pacing.sleep(pause(policy.resend, 0, services.pacing.chance()))
        return run.call


def _parameters(meant: ToolCall | Asked, layer: Layer) -> int:
    """How many places a proposal changes."""
    if isinstance(meant, Asked) or not isinstance(meant.arguments, Document):
        return 0
    return sum(repair.rule == layer.value for repair in meant.arguments.repairs)


def _told_off(places: list[str]) -> str:
    named = ", ".join(places[:_NAMED]) + (" and more" if len(places) > _NAMED else "")
    return f"\n\nYour last answer also changed {named}, which had not failed: repeat everything there as it is."
