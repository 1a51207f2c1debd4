"""`ModelCorrector`: one correction, from a failure to its result.

    correct           while a layer may be asked: propose a call, run it, record the result
      _propose          layer 3, and where that finds nothing, layer 4
        _ask              budgets, the prompt, the endpoint, the verdict
        _apply_verdict    the call that a verdict asks for, if it may be made

Nothing here decides whether a call may go to its tool: each proposal is checked like every call. The record says what
happened, and holds no argument value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from proxy.call.jobs import describe_violation, read_shared_policy, read_violation
from proxy.call.judging import LIGHT
from proxy.core.contract.policy import ToolPolicy
from proxy.core.display.secrets import mask_credentials
from proxy.core.json.jsontext import TRUSTED, dumps, format_pointer, join_frame, parse, split_frame
from proxy.core.model.values import (
    CheckedCall,
    Delivered,
    Document,
    Failure,
    JsonProblem,
    JsonValue,
    Repair,
    ToolCall,
    UpstreamReply,
    Violation,
)
from proxy.core.model.work import find_budget, share_work
from proxy.core.tool_errors.backoff import compute_pause
from proxy.extensions.correction import questions, verdicts
from proxy.extensions.correction import trajectory as changes
from proxy.extensions.correction.core.failing_places import find_failing_places, list_failed, list_failing_places
from proxy.extensions.correction.core.settings import CorrectionSettings, Scope, find_policy
from proxy.extensions.correction.core.words import BudgetKind, CorrectionQuestion, Layer, QuestionOutcome
from proxy.extensions.correction.endpoint import Budgets, Endpoint, EndpointAnswer
from proxy.extensions.correction.questions import find_forms
from proxy.extensions.correction.record import CorrectionRecorder, DebugLog
from proxy.extensions.correction.rules import Action, asks, may_go_again, may_have_run
from proxy.extensions.correction.trajectory import GatheredStream, Trajectories, Trajectory
from proxy.extensions.correction.verdicts import ModelVerdict, Unusable, Usage
from proxy.interfaces import CallRoute, FailedCall, JudgesElsewhere, Services, TryCall

# --- finds the places that a correction may change in a child process -------------------------------------------------
_JOB: Final = "proxy.extensions.correction.corrector:find_failing"


async def find_failing_elsewhere(
    elsewhere: JudgesElsewhere | None, call: ToolCall, policy: ToolPolicy, failure: Failure
) -> list[tuple[str, ...]]:
    """The places of a call's arguments that a correction may change; of large arguments, where finding them takes too
    much, those that failed."""
    document, failed = call.arguments, list_failed(failure)
    if elsewhere is None or policy.check is None or not failed or not isinstance(document, Document):
        return find_failing_places(call, policy, failure)
    if len(document.text) <= LIGHT:
        return find_failing_places(call, policy, failure)
    payload = write_failing_job(document.text, document.value, failure.violations)
    result = await elsewhere.ask(_JOB, payload, policy)
    return failed if result is None else read_failing(result)


def find_failing(payload: bytes, shared: bytes) -> bytes:
    """The places that fail in the arguments in `payload` (see `write_failing_job`) by a described policy, as JSON."""
    head, text = split_frame(payload)
    policy = read_shared_policy(shared)
    value = parse(text, TRUSTED)
    if policy.check is None or isinstance(value, JsonProblem):
        raise ValueError("arguments that were judged")
    violations = [read_violation(entry, lambda: value) for entry in head["violations"]]
    with share_work(find_budget(value)):
        return dumps([list(place) for place in list_failing_places(policy.check, value, violations)])


def write_failing_job(text: bytes, value: JsonValue, violations: Sequence[Violation]) -> bytes:
    """The payload of `find_failing`: the arguments and their violations."""
    return join_frame({"violations": [describe_violation(violation, value) for violation in violations]}, text)


def read_failing(result: bytes) -> list[tuple[str, ...]]:
    """The places that `find_failing` names."""
    places: Any = parse(result, TRUSTED)
    return [tuple(place) for place in places]


# --- `ModelCorrector` -------------------------------------------------------------------------------------------------
# The most bytes of JSON for one character of a prompt.
_ESCAPED: Final = 6
# The most places outside the scope that a note to the model names.
_NAMED: Final = 5
# The next layer runs only after these outcomes.
_NEXT_LAYER: Final = frozenset({QuestionOutcome.CANNOT_FIX, QuestionOutcome.UNUSABLE, QuestionOutcome.OUT_OF_SCOPE})


@dataclass(slots=True)
class _Run:
    """The state of one correction. `call` and `failure` are the latest; `due` is its deadline on the monotonic clock;
    `note` tells the model the mistake in its last answer."""

    call: ToolCall
    failure: Failure
    failed: FailedCall
    trajectory: Trajectory
    query: str
    due: float
    recorder: CorrectionRecorder
    note: str = ""
    exhausted: set[Layer] = field(default_factory=set)

    @property
    def independent(self) -> bool:
        return not self.trajectory.steps

    @property
    def arguments(self) -> JsonValue:
        """The latest arguments; {} for an absent body, None where they cannot be read."""
        document = self.call.arguments
        return ({} if document.text == b"" else document.value) if isinstance(document, Document) else None

    @property
    def size(self) -> int:
        document = self.call.arguments
        return len(document.text) if isinstance(document, Document) else 0

    def show_arguments(self) -> JsonValue:
        """The latest arguments without secrets."""
        return changes.hide_secrets(self.arguments, self.failed.policy.feedback)


class ModelCorrector:
    """Implements `Corrector` over a chat endpoint. `services` are those of the snapshot it belongs to. `report`
    receives a defect of the proxy (the request's id and the exception), which costs the caller nothing; `warn` receives
    a budget that is used up."""

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

    def is_on(self, policy: ToolPolicy) -> bool:
        """Returns whether calls of a tool may be corrected."""
        return find_policy(policy).on

    def asks_again(self, policy: ToolPolicy) -> bool:
        """Returns whether to ask again about arguments that failed before: new results may be remembered."""
        return find_policy(policy).trajectory

    def note_delivery(
        self, checked: CheckedCall, reply: UpstreamReply, policy: ToolPolicy, call_route: CallRoute
    ) -> UpstreamReply:
        """Remembers a tool's whole answer for layer 4, if its policy wants that. A defect here must not cost a caller
        its answer."""
        if not find_policy(policy).trajectory:
            return reply

        def remember(body: bytes) -> None:
            try:
                whole = replace(reply, body=body)
                self._trajectories.add(
                    checked,
                    whole,
                    call_route.find_user_query(self._settings.query),
                    self._settings.trajectory,
                    policy.feedback,
                )
            except Exception as error:  # noqa: BLE001 - see above
                self._report("", error)

        if not isinstance(reply.body, bytes):
            return replace(reply, body=GatheredStream(reply.body, remember))
        remember(reply.body)
        return reply

    async def correct(self, failed: FailedCall, try_call: TryCall) -> Delivered | Failure | None:
        """Returns the result of a corrected call; None if the first failure remains."""
        run: _Run | None = None
        policy = find_policy(failed.policy)
        for _ in range(self._settings.max_corrections):
            try:
                run = run or self._begin(failed)
                proposal = await self._propose(run)
            except Exception as error:  # noqa: BLE001 - a defect here must not cost a caller its answer
                self._report(failed.record.request_id, error)
                return None
            if proposal is None:
                return None
            result = await try_call(proposal)
            delivered = isinstance(result, Delivered) and not result.failed
            run.recorder.note_result(proposal, delivered)
            if isinstance(result, Delivered):
                return result if delivered or result.reply.status >= 500 else None
            if may_have_run(result):
                return result
            run.call, run.failure = proposal, result
            if run.note and policy.semantic_retry:  # layer 4 may change what layer 3 may not
                run.exhausted.add(Layer.VALIDATION_FEEDBACK)
        return None

    def _begin(self, failed: FailedCall) -> _Run:
        policy, now = find_policy(failed.policy), self._services.clock.now
        known = self._trajectories.find(failed.call.conversation) if policy.trajectory else Trajectory()
        query = failed.call_route.find_user_query(self._settings.query) if policy.trajectory else ""
        recorder = CorrectionRecorder(failed.record, now)
        due = now() + self._settings.deadline
        return _Run(failed.call, failed.failure, failed, known, query or known.query, due, recorder)

    async def _propose(self, run: _Run) -> ToolCall | None:
        """The call to try next, or None."""
        for layer in Layer:
            while self._may_ask(run, layer):
                found = await self._ask(run, layer)
                if isinstance(found, ToolCall):
                    return found
                if found is QuestionOutcome.OUT_OF_SCOPE:
                    continue  # once more: the note names the mistake
                if found not in _NEXT_LAYER:
                    return None
                run.exhausted.add(layer)
        return None

    def _may_ask(self, run: _Run, layer: Layer) -> bool:
        policy = run.failed.policy
        readable = isinstance(run.call.arguments, Document)  # changes cannot be compared with unreadable arguments
        again = layer not in run.exhausted and run.recorder.count(layer) < find_policy(policy).max_attempts
        return readable and again and asks(layer, run.failure, policy, run.independent)

    # --- one question -------------------------------------------------------------------------------------------------
    async def _ask(self, run: _Run, layer: Layer) -> ToolCall | QuestionOutcome:
        if self._services.clock.now() >= run.due:
            return QuestionOutcome.TIMEOUT
        if run.size > _ESCAPED * questions.LONGEST_ARGUMENTS:
            return QuestionOutcome.TOO_LONG
        shown = questions.write_json(run.show_arguments())
        if len(shown) > questions.LONGEST_ARGUMENTS:
            return QuestionOutcome.TOO_LONG
        if not await self._endpoint.enter(run.due - self._services.clock.now()):
            return self._skip(run, layer, QuestionOutcome.BUSY)
        try:
            spent = await self._budgets.take(run.call.conversation, len(run.failed.record.questions))
            if spent is not None:
                return self._skip(run, layer, QuestionOutcome.BUDGET, spent)
            run.recorder.note_start(layer, run.call, run.failure, run.independent)
            return await self._read_answer(run, layer, self._write_question(run, layer, shown))
        finally:
            self._endpoint.leave()

    def _skip(self, run: _Run, layer: Layer, why: QuestionOutcome, spent: BudgetKind | None = None) -> QuestionOutcome:
        run.recorder.note_skipped(CorrectionQuestion(layer, why, 0.0, run.independent, spent))
        return why

    def _write_question(self, run: _Run, layer: Layer, shown: str) -> list[dict[str, str]]:
        values = {
            "arguments": shown,
            "attempt": str(len(run.failed.record.questions) + 1),
            "query": questions.describe_wish(run.query),
            "trajectory": run.trajectory.write_json() if run.trajectory.steps else "none",
        }
        prompt = self._settings.prompts.get(layer) or questions.load_prompt(layer)
        return questions.write_messages(prompt, run.call, run.failure, run.failed.policy, values, run.note)

    async def _read_answer(self, run: _Run, layer: Layer, messages: list[dict[str, str]]) -> ToolCall | QuestionOutcome:
        now = self._services.clock.now
        started = now()
        forms = find_forms(layer, run.failed.policy)
        answer = await self._endpoint.ask(messages, forms, min(run.due - started, self._settings.timeout))
        seconds, body = now() - started, answer.body
        verdict = verdicts.read_verdict(body, layer) if isinstance(body, bytes) else None
        usage = verdicts.read_usage(body) if isinstance(body, bytes) else Usage()
        await self._budgets.spend_tokens(usage.prompt + usage.completion)
        proposal: ToolCall | QuestionOutcome
        if isinstance(verdict, ModelVerdict):
            proposal = await self._apply_verdict(run, layer, verdict)
        else:
            proposal = body if isinstance(body, QuestionOutcome) else QuestionOutcome.UNUSABLE
        outcome = QuestionOutcome.DELIVERED if isinstance(proposal, ToolCall) else proposal
        question = CorrectionQuestion(
            layer, outcome, seconds, run.independent, None, usage.prompt, usage.completion, answer.format, started
        )  # fmt: skip
        read = verdict if isinstance(verdict, ModelVerdict) else None
        run.recorder.note_answer(run.call, question, read, _count_changes(proposal, layer))
        if self._debug is not None:
            await self._debug.add(self._make_entry(run, question, messages, answer, verdict))
        return proposal

    def _make_entry(
        self,
        run: _Run,
        question: CorrectionQuestion,
        messages: list[dict[str, str]],
        answer: EndpointAnswer,
        verdict: object,
    ) -> dict[str, JsonValue]:
        return {
            "at": round(self._services.clock.wall(), 3),
            "site": question.layer.value,
            "correlation_id": run.failed.record.request_id,
            "tool": run.call.tool,
            "call_id": run.call.call_id,
            "model": self._settings.model,
            "messages": [dict(message) for message in messages],
            "format": answer.format.value,
            "answer": mask_credentials(answer.body.decode("utf-8", "replace"))
            if isinstance(answer.body, bytes)
            else None,
            "outcome": question.outcome.value,
            "unusable": verdict.value if isinstance(verdict, Unusable) else None,
            "tokens": question.prompt_tokens + question.completion_tokens,
            "milliseconds": round(question.seconds * 1000),
        }

    # --- from a verdict to a call -------------------------------------------------------------------------------------
    async def _apply_verdict(self, run: _Run, layer: Layer, verdict: ModelVerdict) -> ToolCall | QuestionOutcome:
        match verdict.action:
            case Action.CHANGE:
                return await self._change_arguments(run, layer, verdict)
            case Action.AGAIN:
                return await self._repeat_call(run, wait=False)
            case Action.BACK_OFF:
                return await self._repeat_call(run, wait=True)
            case Action.STOP:
                return QuestionOutcome.CANNOT_FIX

    async def _change_arguments(self, run: _Run, layer: Layer, verdict: ModelVerdict) -> ToolCall | QuestionOutcome:
        shown, before = run.show_arguments(), run.arguments
        proposed = verdict.whole if verdict.whole is not None else changes.lay_over(shown, verdict.changes)
        after = changes.restore_secrets(proposed, shown, before)
        paths, run.note = changes.find_changes(before, after), ""
        if not paths:
            return await self._repeat_call(run, wait=False)
        if find_policy(run.failed.policy).scope_of(layer) is Scope.FAILING:
            failing = await find_failing_elsewhere(self._services.elsewhere, run.call, run.failed.policy, run.failure)
            if beyond := changes.find_out_of_scope(paths, failing):
                run.note = _name_beyond([format_pointer(path) for path in beyond])
                after = changes.keep_in_scope(before, after, failing)
                paths = changes.find_changes(before, after)
        if not paths:
            return QuestionOutcome.OUT_OF_SCOPE
        if any(changes.holds_mask(after, path) for path in paths):
            return QuestionOutcome.UNUSABLE
        document = run.call.arguments
        repairs = document.repairs if isinstance(document, Document) else ()
        made = tuple(Repair(layer.value, path) for path in paths)
        return replace(run.call, arguments=Document(dumps(after), after, (*repairs, *made)), raw=b"")

    async def _repeat_call(self, run: _Run, *, wait: bool) -> ToolCall | QuestionOutcome:
        """The same call once more, where the rules of resends allow it."""
        record, policy, services = run.failed.record, run.failed.policy, self._services
        upstream = services.upstreams.get(record.upstream)
        if not may_go_again(run.failure, policy, len(record.resends)) or upstream is None:
            return QuestionOutcome.CANNOT_FIX
        if not upstream.grants_resend():
            return QuestionOutcome.CANNOT_FIX
        if wait:
            await services.pacing.sleep(compute_pause(policy.resend, 0, services.pacing.chance()))
        return run.call


def _count_changes(proposal: ToolCall | QuestionOutcome, layer: Layer) -> int:
    """Returns how many places a proposal changes."""
    if isinstance(proposal, QuestionOutcome) or not isinstance(proposal.arguments, Document):
        return 0
    return sum(repair.rule == layer.value for repair in proposal.arguments.repairs)


def _name_beyond(places: list[str]) -> str:
    named = ", ".join(places[:_NAMED]) + (" and more" if len(places) > _NAMED else "")
    return f"\n\nYour last answer also changed {named}, which had not failed: repeat everything there as it is."
