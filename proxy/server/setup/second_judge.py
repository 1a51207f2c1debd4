"""Wires the second judge: one pool of child processes, and what is logged and counted of its opinions."""

from __future__ import annotations

from collections.abc import Callable

from proxy.config.model import SecondJudging
from proxy.core.contract.policy import ToolPolicy
from proxy.core.second_judge.judge import Opinion
from proxy.interfaces import SecondJudge
from proxy.offload.pool import OffloadPool
from proxy.second_opinion import DISAGREED, GAVE_UP, MEMORY, SecondOpinion
from proxy.telemetry.logs import Log
from proxy.telemetry.metrics import Metrics


class SecondJudges:
    """The second judge in each of its two modes. No child process is there before the first question."""

    def __init__(self, chance: Callable[[], float], metrics: Metrics, log: Log) -> None:
        self._metrics = metrics
        self._log = log
        self._chance = chance
        self._made: dict[SecondJudging, SecondOpinion] = {}

    def of(self, mode: SecondJudging) -> SecondJudge | None:
        """The judge for a config; None where it says `off`."""
        if mode == "off":
            return None
        if mode not in self._made:
            pool = OffloadPool(size=2 if mode == "always" else 1, memory=MEMORY)
            self._made[mode] = SecondOpinion(
                pool, asks_first=mode == "always", chance=self._chance, report=self._report
            )
        return self._made[mode]

    async def close(self) -> None:
        """Ends the child processes."""
        for judge in self._made.values():
            await judge.close()

    def _report(self, route: str, policy: ToolPolicy, outcome: str, opinion: Opinion) -> None:
        """Counts an opinion. What is logged names the schema and the place in it, and no value."""
        self._metrics.second_opinion(route, policy.tool, outcome)
        told = {"route": route, "tool": policy.tool, "schema": policy.schema_id}
        if outcome == DISAGREED:
            self._log.event("Second judge disagrees", "error", **told, judge=opinion.judge, place=opinion.place)
        elif outcome == GAVE_UP:
            self._log.event("Second judge gave up", "warning", **told, reason=opinion.reason)
