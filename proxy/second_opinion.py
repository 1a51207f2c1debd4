"""Asks the second judge about checked calls, in a child process, within a bound.

    sampled   one forwarded call in a hundred of a tool's first thousand with a schema, then one in a thousand, beside
              the call: nothing waits for it
    always    every call before it goes: one that the second judge refuses, or says nothing about in time, is not sent

A child that exceeds its time or memory is killed (`proxy/offload`). What the second judge cannot tell, because it does
not know a keyword as we read it, is not an objection. Only calls that the generated code has accepted are asked about,
so in a disagreement the second judge is always the one that refuses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from proxy.core.check.validation import Check
from proxy.core.contract.policy import ToolPolicy
from proxy.core.model import codes
from proxy.core.model.values import CheckedCall, Failure
from proxy.core.schema.formats import Formats
from proxy.core.second_judge.question import JOB, Opinion, SecondVerdict, make_question, unpack_opinion
from proxy.offload.pool import MIB, Done, OffloadPool, Shared

# One forwarded call in so many is asked about: of the first `FIRST` calls of a tool with a schema, and of all later
# ones. What the two judges read differently in a schema shows early; each question costs the child as much as a call.
FIRST: Final = 1000
SAMPLE_OF_FIRST: Final = 100
SAMPLE_OF_LATER: Final = 1000
# How long an answer may take, the start of a child included, and how much memory a child may use.
SECONDS: Final = 2.0
MEMORY: Final = 256 * MIB
# Sampled calls that may wait for an answer at a time; one more is not asked about.
MAX_SAMPLED: Final = 4

# What came of a question: the values of the metric's label (telemetry/metric_table.py).
AGREED: Final = "agreed"
DISAGREED: Final = "disagreed"
CANNOT_TELL: Final = "cannot_tell"
GAVE_UP: Final = "gave_up"


class SecondOpinion:
    """Implements `interfaces.SecondJudge`. `chance` gives a number of at least 0 and below 1; `report` gets every
    question: the route, the policy, what came of it, and the opinion."""

    def __init__(
        self,
        pool: OffloadPool,
        *,
        asks_first: bool,
        chance: Callable[[], float],
        report: Callable[[str, ToolPolicy, str, Opinion], None],
        seconds: float = SECONDS,
    ) -> None:
        self.asks_first: Final = asks_first
        self._pool = pool
        self._chance = chance
        self._report = report
        self._seconds = seconds
        self._asking: set[asyncio.Task[Failure | None]] = set()

    def sample(self, route: str, checked: CheckedCall, policy: ToolPolicy) -> None:
        """Asks about some of the calls, and does not wait for the answer."""
        if policy.check is None or not checked.enforced:
            return
        counts = policy.check.schemas.memos.setdefault("second_judge_calls", {})
        before: int = counts.get(policy.tool, 0)
        if before < FIRST:
            counts[policy.tool] = before + 1
        one_in = SAMPLE_OF_FIRST if before < FIRST else SAMPLE_OF_LATER
        if self._chance() * one_in < 1 and len(self._asking) < MAX_SAMPLED:
            task = asyncio.create_task(self.confirm(route, checked, policy))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

    async def confirm(self, route: str, checked: CheckedCall, policy: ToolPolicy) -> Failure | None:
        """Asks about a call. None where the second judge accepts it or cannot tell; else why it should not be sent."""
        if policy.check is None or not checked.enforced:
            return None
        text = checked.arguments or b"null"
        answer = await self._pool.run(JOB, text, share_question(policy.check), seconds=self._seconds)
        if not isinstance(answer, Done):
            self._report(route, policy, GAVE_UP, Opinion(SecondVerdict.CANNOT_TELL, reason=answer.limit.value))
            return Failure(codes.NOT_CONFIRMED, codes.NOT_CONFIRMED.meaning)
        opinion = unpack_opinion(answer.result)
        if opinion.verdict is SecondVerdict.INVALID:
            self._report(route, policy, DISAGREED, opinion)
            return Failure(codes.NOT_CONFIRMED, codes.NOT_CONFIRMED.meaning)
        self._report(route, policy, AGREED if opinion.verdict is SecondVerdict.VALID else CANNOT_TELL, opinion)
        return None

    async def wait_settled(self) -> None:
        """Waits for the answers that nobody else waits for."""
        if self._asking:
            await asyncio.wait(self._asking)

    async def close(self) -> None:
        """Ends the child and forgets the questions under way."""
        await self._pool.close()
        await self.wait_settled()


def share_question(check: Check) -> Shared:
    """The schema of a tool as a question, made once."""
    kept: dict[Formats, Shared] = check.schemas.memos.setdefault("second judge", {})
    if check.formats not in kept:
        kept[check.formats] = Shared(make_question(check.schemas, formats=check.formats))
    return kept[check.formats]
