"""The plugin `second_judge`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from proxy.plugin import CheckFlag, ExtendsVerbs, SamplesCalls

if TYPE_CHECKING:
    import argparse

    from proxy.cli.check_formats import CheckReport
    from proxy.config.context import Context
    from proxy.config.files.source import Files
    from proxy.config.load import Loaded
    from proxy.extensions.second_judge.second_judges import SecondJudges
    from proxy.interfaces import Services
    from proxy.plugin import Upstreams
    from proxy.telemetry.logs import Log
    from proxy.telemetry.metric_table import MetricRow
    from proxy.telemetry.metrics import Metrics


class SecondJudgePlugin(SamplesCalls, ExtendsVerbs):
    """Has accepted calls judged by jsonschema and fastjsonschema too."""

    name = "second_judge"
    adds = "checks of accepted calls by jsonschema and fastjsonschema: of samples, or of all before they are sent"
    sections = ("second_judge",)

    def list_metrics(self) -> Sequence[MetricRow]:
        from proxy.extensions.second_judge.second_judges import METRICS

        return METRICS

    def list_check_flags(self) -> Mapping[str, CheckFlag]:
        return {"second-opinion": _compare_judges}

    def read_section(self, key: str, context: Context, files: Files, upstreams: Upstreams) -> str:
        from proxy.config.files.secrets import reveal

        return reveal(context.structure.entry(key))

    def make_services(self, services: Services, log: Log, metrics: Metrics) -> SecondJudges:
        from proxy.extensions.second_judge.second_judges import SecondJudges

        return SecondJudges(services, log, metrics)


def _compare_judges(report: CheckReport, loaded: Loaded, args: argparse.Namespace) -> int:
    from proxy.extensions.second_judge.cli import compare_judges

    return compare_judges(report, loaded, args)
