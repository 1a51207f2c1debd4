"""Decides about one call: `judge_call` asks the pure core, and the store about containers.

Judging, repairing and explaining take longer the larger the arguments are. A child process of `offload` (`Elsewhere`)
judges calls that would keep others waiting. Such a call has large arguments that cost much to check (`decide_here`), or
a tool whose listed schema is expensive to compile (`ToolPolicy.listed`).

Strict reading costs a microsecond for each value, and the repair of a text several. So a child also reads texts of many
values that the quick reader does not take. It says how to read them again without its checks (`KnownText`).

A call that exceeds its deadline or its memory in a child is refused at once and reaches no tool.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from proxy.call.context import CallContext
from proxy.call.jobs import (
    describe_policy,
    examine_schema,
    read_decision,
    read_examined,
    read_known_text,
    read_text,
    write_text_job,
)
from proxy.call.outcome import count_expansion
from proxy.core.contract import container
from proxy.core.contract.policy import ListedSchema, ToolPolicy
from proxy.core.decide import complete_decision, decide, decide_accepted, forward_as_sent, prepare
from proxy.core.explain.explain import explain_unknown_tool
from proxy.core.json import fast_json
from proxy.core.json.jsontext import TextLimits, dumps
from proxy.core.json.strictreader import KnownText
from proxy.core.model import codes
from proxy.core.model.value_class import value_class
from proxy.core.model.values import CheckedCall, Decision, Document, Failure, Forward, Reject, ToolCall, Violation
from proxy.core.model.work import ON_EVENT_LOOP, CallBudget, call_budget
from proxy.interfaces import ExaminedTools
from proxy.offload.pool import GaveUp, Limit, OffloadPool, Shared


@value_class
class Judged:
    """A decision, and the event around a container: one of `container.EVENTS`, or ''."""

    decision: Decision
    container_event: str = ""


def judge_call(context: CallContext) -> Judged | Callable[[], Coroutine[Any, Any, Judged]]:
    """Returns the result of `decide`, once the tool is known and its container (if any) was expanded. It is the
    decision, or the function that makes it in a task if something has to be waited for."""
    policy = context.policy
    if policy is None:
        failure = explain_unknown_tool(context.call, context.call_route.tools, context.call_route.unknown.servers)
        refused = Reject(failure)
        decision = forward_as_sent(context.call, refused) if context.report_only else refused
        return Judged(decision, "dotted" if failure.container is not None else "")
    is_plain = policy.member_of is None and policy.container is None and is_ready(policy)
    if is_plain and (here := decide_here(context.call, policy)) is not None:
        return Judged(here)
    return partial(_judge_slowly, context, policy, tried=is_plain)


def forward_unjudged(context: CallContext, error: Exception) -> Judged:
    """Forwards a report-only call as it came, although a defect of this software kept it from a decision. Raises the
    defect for any other call."""
    if not context.report_only:
        raise error
    context.services.report_error(context.record.request_id, error)
    return Judged(forward_as_sent(context.call, Reject(Failure(codes.INTERNAL_ERROR, codes.INTERNAL_ERROR.meaning))))


async def _judge_slowly(context: CallContext, policy: ToolPolicy, *, tried: bool) -> Judged:
    """The decision on a call that may have to wait: for the store, for code to be written, or for a child process."""
    if policy.member_of is not None and not context.report_only:
        key = container.make_expansion_key(context.call.conversation, policy.member_of.name)
        early = container.check_expanded(policy, await context.services.store.count_taken(key, enough=1) > 0)
        if early is not None:  # a function of a container that was not expanded
            return Judged(Reject(early), "not_expanded")
    decision = await _decide(context, context.call, policy, tried=tried)
    if isinstance(decision, Reject) and decision.failure.container is not None:
        return await _judge_misuse(context, policy, decision.failure)
    return Judged(decision)


async def _decide(context: CallContext, call: ToolCall, policy: ToolPolicy, *, tried: bool = False) -> Decision:
    """Returns the result of `decide`; of a call that would delay others, from a child process. `tried`: it would."""
    if not is_ready(policy):  # a first call; other calls go on while its code is written
        await asyncio.to_thread(prepare, policy)
    elsewhere = context.services.elsewhere
    return decide(call, policy) if elsewhere is None else await elsewhere.decide(call, policy, tried=tried)


async def _judge_misuse(context: CallContext, policy: ToolPolicy, failure: Failure) -> Judged:
    """Refuses or expands a misused container, or judges the call of one of its functions in its place."""
    seen_before = await context.services.store.look(context.key) is not None
    match container.expand_or_dispatch(context.call, failure, seen_before):
        case container.Expand(call):
            await count_expansion(context, failure)
            return Judged(await _decide(context, call, policy), "auto_expanded")
        case container.Dispatch(call) as dispatch:
            function = context.call_route.tools.get(call.tool)
            if function is None:
                return Judged(Reject(container.ask_for_two_calls(failure)), "refused")
            decision = await _decide(context, call, function)
            if isinstance(decision, Forward):
                return Judged(decision, "dispatched")
            return Judged(Reject(container.make_inner_failure(decision.failure, dispatch, failure.sent)), "refused")
        case None:
            return Judged(Reject(await _advise_call(context, failure)), "refused")


async def _advise_call(context: CallContext, failure: Failure) -> Failure:
    """The misuse of a container with what the function that was meant says of the arguments."""
    call = container.make_function_call(context.call, failure)
    function = context.call_route.tools.get(call.tool) if call is not None else None
    if call is None or function is None:
        return failure
    return container.advise_call(failure, await _decide(context, call, function), function.feedback)


# Another validator judges one in `SAMPLE_OF_FIRST` forwarded calls of a tool until it has judged `FIRST`, then one in
# `SAMPLE_OF_LATER`. If the validators read a schema differently, the first calls show it. Judging costs a call again.
FIRST: Final = 10
SAMPLE_OF_FIRST: Final = 100
SAMPLE_OF_LATER: Final = 1000


def sample_call(context: CallContext, checked: CheckedCall) -> None:
    """Shows the second judge some of the calls that are sent, while they go (docs/engine.md)."""
    policy, services = context.policy, context.services
    if services.sampled is None or policy is None or policy.check is None or not checked.enforced:
        return
    chance = services.pacing.chance()
    if chance * SAMPLE_OF_FIRST >= 1:
        return
    counts = policy.check.schemas.memos.setdefault("sampled calls", {})
    taken: int = counts.get(policy.tool, 0)
    if taken >= FIRST and chance * SAMPLE_OF_LATER >= 1:
        return
    counts[policy.tool] = taken + 1
    services.sampled(context.record.route, checked, policy)


# Arguments of so many bytes are judged, repaired and explained here, whatever they hold: 50 ms on a large schema.
LIGHT: Final = 8 * 1024
# The event loop's process asks the schema about arguments of up to so many bytes, and decides if it accepts them.
MODEST: Final = 16 * 1024
# Large arguments with so many commas hold few values: a long text, a file. The schema is checked here first.
FEW: Final = 4_000
# The most commas, times the parts of the schema, of a call that is checked here: to list as many errors takes 40 ms.
LOOKS: Final = 60_000
# The most CPU seconds for judging one call, the compilation of its schema included if the child has to do that.
CALL_SECONDS: Final = 5.0
# Seconds of the clock that a call waits for a child and its verdict: CPU time passes slowly on a busy machine.
PATIENCE: Final = 30.0
# The most that compiling a schema may cost the event loop's process: CPU seconds in all, seconds of one pattern (which
# cannot be interrupted), bytes kept. Real tools: 0.01 s, 0.001 s, 0.1 MB.
MOST_SECONDS: Final = 0.2
MOST_PATTERN_SECONDS: Final = 0.02
MOST_BYTES: Final = 16 * 1024 * 1024
# A child first reads texts of more bytes with more commas and brackets than these: to repair them takes 50 ms.
LONG: Final = 32 * 1024
RICH: Final = 8_000
# The quick reader tries such a text here first if it has at most so many bytes, which takes 10 ms.
QUICK: Final = 256 * 1024
# Keywords that make a verdict cost more than a look at each value.
_DEAR: Final = (
    "pattern", "patternProperties", "propertyNames", "uniqueItems", "format", "contains", "not", "if", "anyOf", "oneOf",
    "unevaluatedProperties", "unevaluatedItems", "dependentSchemas", "$ref", "$dynamicRef", "$recursiveRef",
)  # fmt: skip
_READ: Final = f"proxy.call.jobs:{read_text.__name__}"
_DECIDE: Final = "proxy.call.jobs:decide_call"
_EXAMINE: Final = f"proxy.call.jobs:{examine_schema.__name__}"
# Described policies that are kept: those of the tools that large calls come for.
_KEPT: Final = 64

_TOO_MUCH: Final = Violation(
    codes.CONSTRAINT,
    (),
    "The arguments take more time or memory to be checked than one call may take",
    hint="Send less in one call.",
)


class Elsewhere:
    """Judges calls and examines schemas in child processes. Schemas that servers list have a separate pool (`foreign`):
    no server keeps the operator's own tools waiting."""

    def __init__(self, pool: OffloadPool | None = None, foreign: OffloadPool | None = None) -> None:
        self._pool = pool or OffloadPool()
        self._foreign = foreign or OffloadPool()
        self._examining: dict[tuple[int, str], asyncio.Future[None]] = {}
        self._described: OrderedDict[int, tuple[ToolPolicy, Shared]] = OrderedDict()

    async def read(self, text: bytes, limits: TextLimits, repairs: frozenset[str]) -> bytes | Failure:
        """The same bytes, which can now be read at little cost; or why they cannot be read now."""
        if not is_rich(text):
            return text
        if len(text) <= QUICK and (known := fast_json.mark(text, limits)) is not text:
            return known
        job = write_text_job(text, limits, repairs)
        ended = await self._pool.run(_READ, job, seconds=CALL_SECONDS, patience=PATIENCE)
        if isinstance(ended, GaveUp):
            return _given_up(ended).failure
        return read_known_text(ended.result, text, limits, repairs)

    async def decide(self, call: ToolCall, policy: ToolPolicy, *, tried: bool = False) -> Decision:
        """The decision on a call. `tried`: `decide_here` has none."""
        document = call.arguments
        if not isinstance(document, Document):
            return decide(call, policy)
        if not tried and (here := decide_here(call, policy)) is not None:
            return here
        pool = self._pool if policy.listed is None else self._foreign
        ended = await pool.run(_DECIDE, document.text, self._describe(policy), seconds=CALL_SECONDS, patience=PATIENCE)
        if isinstance(ended, GaveUp):
            return complete_decision(call, policy, _given_up(ended))
        return complete_decision(call, policy, read_decision(ended.result, call, document))

    async def ask(self, job: str, payload: bytes, policy: ToolPolicy) -> bytes | None:
        """Returns the result of a job (`module:function`) on bytes and a described policy; None if it is too much."""
        ended = await self._pool.run(job, payload, self._describe(policy), seconds=CALL_SECONDS, patience=PATIENCE)
        return None if isinstance(ended, GaveUp) else ended.result

    async def examine(self, tools: ExaminedTools, name: str) -> None:
        """Finds out what a listed tool's schema costs before it is compiled here; once for all that ask at a time."""
        schema = tools.find_unexamined(name)
        if schema is None:
            return
        key = (id(tools), name)
        under_way = self._examining.get(key)
        if under_way is None:
            under_way = self._examining[key] = asyncio.ensure_future(self._examine(tools, name, schema))
            under_way.add_done_callback(lambda _: self._examining.pop(key, None))
        await asyncio.shield(under_way)

    async def _examine(self, tools: ExaminedTools, name: str, schema: ListedSchema) -> None:
        question = dumps(
            {"schema": schema.schema, "formats": schema.formats.as_json(), "rules": sorted(tools.rules_of(name))}
        )
        ended = await self._foreign.run(_EXAMINE, question, seconds=tools.wait, patience=max(PATIENCE, tools.wait))
        if isinstance(ended, GaveUp):
            if ended.limit in (Limit.DEADLINE, Limit.MEMORY, Limit.CRASH):
                tools.settle(name, bad=f"compiling it takes more than {tools.wait:g} s of CPU time, or too much memory")
            return
        bad, seconds, size, pattern = read_examined(ended.result)
        expensive = seconds > MOST_SECONDS or size > MOST_BYTES or pattern > MOST_PATTERN_SECONDS
        tools.settle(name, bad=bad, expensive=expensive)

    async def close(self) -> None:
        await self._pool.close()
        await self._foreign.close()

    def _describe(self, policy: ToolPolicy) -> Shared:
        known = self._described.get(id(policy))
        if known is None or known[0] is not policy:
            known = self._described[id(policy)] = (policy, Shared(describe_policy(policy)))
            if len(self._described) > _KEPT:
                self._described.popitem(last=False)
        return known[1]


def is_rich(text: bytes) -> bool:
    """Returns whether reading a text may take so long that others would wait for it."""
    return len(text) > LONG and sum([_count(text, byte) for byte in (b",", b"[", b"{")]) > RICH


def _count(text: bytes, byte: bytes) -> int:
    return len(text) - len(text.replace(byte, b""))  # `count` looks at each byte, and takes ten times as long


def is_ready(policy: ToolPolicy) -> bool:
    """Returns whether the code that judges a tool (`core.decide.prepare`) exists already."""
    return (policy.check is None or bool(policy.repair.rules) in policy.check.prepared) and (
        policy.answer is None or policy.answer.check.ready
    )


def decide_here(call: ToolCall, policy: ToolPolicy) -> Decision | None:
    """Returns the decision on a call that is small, has few values for its schema, or needs no validation. The schema
    must accept a larger call at little cost. None: other calls would wait too long, so a child has to decide."""
    document, check = call.arguments, policy.check
    if policy.listed is not None:
        return None
    text = document.text if isinstance(document, Document) else b""
    decide_light: Callable[[ToolCall, ToolPolicy], Decision | None] = decide
    is_known = type(text) is KnownText and text.accepted_by is check
    if len(text) > LIGHT and check is not None and policy.container is None and not is_known:
        commas, is_plain = _count(text, b","), check.schemas.mentioned.isdisjoint(_DEAR)
        is_cheap = is_plain and commas * len(check.schemas.nodes()) <= LOOKS
        if not is_cheap and len(text) > MODEST and (commas > FEW or not is_plain):
            return None
        decide_light = decide if is_cheap and commas <= FEW and len(text) <= LONG else decide_accepted
    budget = CallBudget(ON_EVENT_LOOP)
    token = call_budget.set(budget)  # as `share_work` does, which costs each call more
    try:
        decision = decide_light(call, policy)
    finally:
        call_budget.reset(token)
    return decision if budget.left > 0 or not isinstance(document, Document) else None


def _given_up(ended: GaveUp) -> Reject:
    killed = ended.limit is Limit.CRASH and ended.detail.startswith("exit")  # by the kernel, at its limit of CPU time
    if killed or ended.limit in (Limit.DEADLINE, Limit.MEMORY):
        return Reject(Failure(codes.INVALID_ARGUMENTS, codes.INVALID_ARGUMENTS.meaning, (_TOO_MUCH,)))
    if ended.limit is Limit.CRASH:
        return Reject(Failure(codes.INTERNAL_ERROR, codes.INTERNAL_ERROR.meaning))
    return Reject(Failure(codes.OVERLOADED, "Too many large calls are being checked."))
