"""The plugin `recording`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from proxy.plugin import AddedPage, AddsPages, AddsVerbs, ObservesCalls, Verb

if TYPE_CHECKING:
    from proxy.config.context import Context
    from proxy.config.files.source import Files
    from proxy.extensions.recording.record_section import RecordConfig
    from proxy.extensions.recording.recorder import Recorder
    from proxy.interfaces import Clock, Pacing
    from proxy.plugin import Upstreams
    from proxy.server.admin.page import Page, PageRequest
    from proxy.server.lifecycle import Serving
    from proxy.telemetry.logs import Log
    from proxy.telemetry.metric_table import MetricRow
    from proxy.telemetry.metrics import Metrics


class RecordingPlugin(AddsVerbs, AddsPages, ObservesCalls):
    """Records calls to a file and judges them again by another config."""

    name = "recording"
    adds = "calls recorded to a file, and validated again by another config: `record`, `replay`, `diff`"
    uses = ("second_judge",)
    verbs = ("replay", "diff")
    sections = ("record",)
    pages: ClassVar = {"/-/trial": AddedPage("POST", is_harmless=True)}

    def list_metrics(self) -> Sequence[MetricRow]:
        from proxy.extensions.recording.recorder import METRICS

        return METRICS

    def load_verb(self, verb: str) -> Verb:
        from proxy.extensions.recording.cli import diff, replay

        return diff if verb == "diff" else replay

    def read_section(self, key: str, context: Context, files: Files, upstreams: Upstreams) -> RecordConfig | None:
        from proxy.extensions.recording.record_section import read_record

        return read_record(context, files, upstreams)

    async def answer_page(self, path: str, serving: Serving, question: PageRequest) -> Page:
        from proxy.extensions.recording.schema_comparison import make_comparison_page

        return await make_comparison_page(serving, question)

    def make_observer(self, clock: Clock, pacing: Pacing, metrics: Metrics, log: Log) -> Recorder:
        from proxy.extensions.recording.recorder import make_recorder

        return make_recorder(clock, pacing, metrics, log)
