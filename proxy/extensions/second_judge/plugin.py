"""The plugin `second_judge`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from proxy.plugin import ExtendsCalls, ExtendsVerbs

if TYPE_CHECKING:
    import argparse

    from proxy.config.keys.kinds import Kind
    from proxy.config.model import Config
    from proxy.core.contract.policy import ToolPolicy
    from proxy.extensions.second_judge.second_judges import SecondJudges
    from proxy.interfaces import Services
    from proxy.plugin import (
        CheckedCall,
        CheckFlag,
        CheckReport,
        CommandParser,
        FlagFinding,
        Loaded,
        Log,
        MetricRow,
        Metrics,
    )

_JUDGED: Final = (
    "Calls that jsonschema or fastjsonschema judge too (docs/engine.md). `sampled`: a few of those forwarded, "
    "alongside; disagreement is logged, counted and alerted. `always`: every call before it goes, and one not "
    "confirmed is refused; `off`: none."
)
_SECOND_OPINION: Final = """
--second-opinion validates values with the proxy, and with jsonschema or fastjsonschema (docs/engine.md). The values are
examples and defaults in each tool's schema, and values made from it. It prints each value on which the two differ.
"""


class SecondJudgePlugin(ExtendsCalls, ExtendsVerbs):
    """Has accepted calls judged by jsonschema and fastjsonschema too."""

    name = "second_judge"
    adds = "checks of accepted calls by jsonschema and fastjsonschema: of samples, or of all before they are sent"
    sections = ("second_judge",)
    always = True

    def declare_keys(self) -> Mapping[str, Kind]:
        from proxy.config.keys.kinds import ConfigKey, choice, mapping

        judged = ConfigKey("second_judge", choice("off", "sampled", "always"), _JUDGED, default="sampled")
        return {"": mapping(None, judged)}

    def list_metrics(self) -> Sequence[MetricRow]:
        from proxy.extensions.second_judge.second_judges import METRICS

        return METRICS

    def add_check_flags(self, parser: CommandParser) -> None:
        what = "also validate examples of every tool with jsonschema or fastjsonschema, and list the differences"
        parser.add_argument("--second-opinion", action="store_true", help=what)
        parser.epilog = f"{parser.epilog}{_SECOND_OPINION}"

    def list_check_flags(self) -> Mapping[str, CheckFlag]:
        from proxy.plugin import CheckFlag

        what = "Two validators judge a value by a tool's schema differently."
        return {"second-opinion": CheckFlag("differences", "second-opinion", what, _compare_judges)}

    def make_services(self, services: Services, log: Log, metrics: Metrics) -> LateJudges:
        return LateJudges(log, metrics)


class LateJudges:
    """Makes the judges for the first config that says whom they judge, or otherwise for the first sampled call."""

    def __init__(self, log: Log, metrics: Metrics) -> None:
        self._world = (log, metrics)
        self._made: SecondJudges | None = None

    def extend(self, config: Config, services: Services) -> Services:
        """The services that ask about every call, some calls or none, as the config says."""
        if self._made is None and "second_judge" not in config.sections:
            return replace(services, sampled=self._sample)
        return self._find().extend(config, services)

    async def close(self) -> None:
        """Ends the child processes."""
        if self._made is not None:
            await self._made.close()

    def _sample(self, route: str, checked: CheckedCall, policy: ToolPolicy) -> None:
        self._find().sample(route, checked, policy)

    def _find(self) -> SecondJudges:
        if self._made is None:
            from proxy.extensions.second_judge.second_judges import SecondJudges

            self._made = SecondJudges(*self._world)
        return self._made


def _compare_judges(_report: CheckReport, loaded: Loaded, _args: argparse.Namespace) -> list[FlagFinding]:
    from proxy.extensions.second_judge.cli import compare_judges

    return compare_judges(loaded)
