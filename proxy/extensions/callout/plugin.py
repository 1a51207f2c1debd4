"""The plugin `callout`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from proxy.plugin import ExtendsCalls

if TYPE_CHECKING:
    from proxy.config.keys.kinds import Kind
    from proxy.config.model import Config, RouteEntry
    from proxy.core.model.values import CheckedCall, Headers, JsonValue
    from proxy.extensions.callout.callout_section import CalloutSettings
    from proxy.extensions.callout.callouts import Callouts
    from proxy.plugin import CallRecord, Context, Files, Log, MetricRow, Metrics, Services, Upstreams


class CalloutPlugin(ExtendsCalls):
    """Asks HTTP services about calls and answers."""

    name = "callout"
    adds = "HTTP services in any language that allow, refuse or replace calls, and mask or refuse answers"
    sections = ("callout",)

    def declare_keys(self) -> Mapping[str, Kind]:
        from proxy.extensions.callout.callout_section import KEYS

        return KEYS

    def list_metrics(self) -> Sequence[MetricRow]:
        from proxy.extensions.callout.callout_client import METRICS

        return METRICS

    def read_section(self, key: str, context: Context, files: Files, upstreams: Upstreams) -> Sequence[CalloutSettings]:
        from proxy.extensions.callout.callout_section import read_callouts

        return read_callouts(context, upstreams)

    def check_keys(self, context: Context, routes: tuple[RouteEntry, ...]) -> None:
        from proxy.extensions.callout.callout_section import check_callouts

        check_callouts(context, routes)

    def summarize(self, config: Config) -> list[str]:
        from proxy.extensions.callout.callout_section import write_summary

        return write_summary(config)

    def make_services(self, services: Services, log: Log, metrics: Metrics) -> Callouts:
        from proxy.extensions.callout.callouts import Callouts

        return Callouts(services, log, metrics)

    def preview_call(self, config: Config, entry: CallRecord, sent: Headers, call: CheckedCall) -> dict[str, JsonValue]:
        from proxy.extensions.callout.callout_messages import show_call
        from proxy.extensions.callout.callouts import preview_questions

        return preview_questions(config, show_call(entry, sent), call)
