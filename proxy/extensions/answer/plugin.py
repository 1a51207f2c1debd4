"""The plugin `answer`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from proxy.plugin import ExtendsCalls

if TYPE_CHECKING:
    from proxy.config.keys.kinds import Kind
    from proxy.extensions.answer.answer_filters import AnswerFilters
    from proxy.plugin import Context, Finding, Log, MetricRow, Metrics, Services, WrittenRoute


class AnswerPlugin(ExtendsCalls):
    """Bounds, masks and validates what tools answer."""

    name = "answer"
    adds = "bounds, masks and schemas for what tools answer"
    policy_keys = ("answer",)
    tool_keys = ("answer",)

    def declare_keys(self) -> Mapping[str, Kind]:
        from proxy.extensions.answer.answer_section import KEYS

        return KEYS

    def list_metrics(self) -> Sequence[MetricRow]:
        from proxy.extensions.answer.answer_filters import METRICS

        return METRICS

    def check_route(self, context: Context, route: WrittenRoute) -> Iterator[Finding]:
        from proxy.extensions.answer.answer_section import check_answer_route

        return check_answer_route(route)

    def make_services(self, services: Services, log: Log, metrics: Metrics) -> AnswerFilters:
        from proxy.extensions.answer.answer_filters import AnswerFilters

        return AnswerFilters(metrics)
