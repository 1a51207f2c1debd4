"""Asks the second judge about checked calls, in a child process, within a bound.

    sampled   of a tool with a schema, one forwarded call in a hundred until ten were judged, then one in a thousand
              (`sample_call` of call/judging.py); no call waits
    always    every call before it goes: one that the second judge refuses, or says nothing about in time, is not sent

A child that exceeds its time or memory is killed (`proxy/offload`). If the second judge does not know a keyword as we
read it, it cannot tell, which is not an objection. Only calls that the generated code has accepted reach it, so in a
disagreement the second judge is always the one that refuses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from proxy.config.model import Config
from proxy.core.contract.policy import ToolPolicy
from proxy.core.model import codes
from proxy.core.model.values import CheckedCall, Failure
from proxy.core.schema.formats import Formats
from proxy.extensions.second_judge.core.question import JOB, Opinion, SecondVerdict, make_question, unpack_opinion
from proxy.interfaces import Services
from proxy.offload.pool import MIB, Done, OffloadPool, Shared
from proxy.plugin import OTHER, Check, Label, Log, MetricRow, Metrics

# How long an answer may take, the start of a child included, and how much memory a child may use.
SECONDS: Final = 2.0
MEMORY: Final = 256 * MIB
# Sampled calls that may wait for an answer at a time; one more is not asked about.
MAX_SAMPLED: Final = 4

# The outcomes of a question: the values of the metric's label.
AGREED: Final = "agreed"
DISAGREED: Final = "disagreed"
CANNOT_TELL: Final = "cannot_tell"
GAVE_UP: Final = "gave_up"
OPINIONS: Final = MetricRow(
    "toolproxy_second_opinions_total",
    "counter",
    "Calls sent to the second judge ([engine.md](engine.md)).",
    ("route", "tool", "outcome"),
    {
        "outcome": Label(
            "The result; `disagreed`: it rejects an accepted call; `gave_up`: no answer.",
            (AGREED, DISAGREED, CANNOT_TELL, GAVE_UP),
        )
    },
)
METRICS: Final = (OPINIONS,)


class SecondJudges:
    """Implements `ServiceExtender` (server/setup/added.py). No child process starts before the first question."""

    def __init__(self, log: Log, metrics: Metrics) -> None:
        self._log = log
        self._metrics = metrics
        self._counts = metrics.add_counter(OPINIONS).series
        self._before = SecondJudge(OffloadPool(size=2, memory=MEMORY), self._report)
        self._beside = SecondJudge(OffloadPool(size=1, memory=MEMORY), self._report)

    def extend(self, config: Config, services: Services) -> Services:
        """The services that ask about every call, some calls or none, as the config says."""
        match config.sections.get("second_judge", "sampled"):
            case "sampled":
                return replace(services, sampled=self.sample)
            case "always":
                return replace(services, sampled=None, confirm=self._before.confirm)
            case _:
                return replace(services, sampled=None)

    def sample(self, route: str, checked: CheckedCall, policy: ToolPolicy) -> None:
        """Asks about a call while it goes."""
        self._beside.sample(route, checked, policy)

    async def close(self) -> None:
        """Ends the child processes."""
        await self._before.close()
        await self._beside.close()

    def _report(self, route: str, policy: ToolPolicy, outcome: str, opinion: Opinion) -> None:
        """Counts an opinion. The log names the schema and the place in it, and no value."""
        tool = policy.tool if self._metrics.knows(route, policy.tool) else OTHER
        self._counts[route or OTHER, tool, outcome] += 1
        fields = {"route": route, "tool": policy.tool, "schema": policy.schema_id}
        if outcome == DISAGREED:
            self._log.event("Second judge disagrees", "error", **fields, judge=opinion.judge, place=opinion.place)
        elif outcome == GAVE_UP:
            self._log.event("Second judge gave up", "warning", **fields, reason=opinion.reason)


class SecondJudge:
    """Asks in the child processes of a pool. `report` gets every question: the route, the policy, what came of it, and
    the opinion."""

    def __init__(
        self, pool: OffloadPool, report: Callable[[str, ToolPolicy, str, Opinion], None], *, seconds: float = SECONDS
    ) -> None:
        self._pool = pool
        self._report = report
        self._seconds = seconds
        self._asking: set[asyncio.Task[Failure | None]] = set()

    def sample(self, route: str, checked: CheckedCall, policy: ToolPolicy) -> None:
        """Asks about a call, and does not wait for the answer."""
        if len(self._asking) < MAX_SAMPLED:
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
