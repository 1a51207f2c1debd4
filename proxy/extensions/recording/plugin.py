"""The plugin `recording`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from proxy.plugin import AddedPage, AddsPages, AddsVerbs, ExtendsCalls, ObservesCalls, Verb

if TYPE_CHECKING:
    from proxy.config.keys.kinds import Kind
    from proxy.extensions.recording.escalations import Escalations
    from proxy.extensions.recording.otlp import Traces
    from proxy.extensions.recording.recorder import Recorder
    from proxy.interfaces import Clock, Pacing, Services
    from proxy.plugin import Context, Files, Log, MetricRow, Metrics, Page, PageRequest, Serving, Upstreams


class RecordingPlugin(AddsVerbs, AddsPages, ExtendsCalls, ObservesCalls):
    """Writes what happened to calls: to a file for another validation, to a webhook, to a collector of traces."""

    name = "recording"
    adds = "calls recorded to a file: `record`, `replay`, `diff`; a webhook for escalations, and traces"
    uses = ("second_judge",)
    verbs = ("replay", "diff")
    traces = True
    sections = ("record", "on_escalation")
    pages: ClassVar = {"/-/trial": AddedPage("POST", is_harmless=True)}

    def list_metrics(self) -> Sequence[MetricRow]:
        from proxy.extensions.recording import recorder, tracing

        return (*recorder.METRICS, *tracing.METRICS)

    def load_verb(self, verb: str) -> Verb:
        from proxy.extensions.recording.cli import diff, replay

        return diff if verb == "diff" else replay

    def declare_keys(self) -> Mapping[str, Kind]:
        from proxy.config.keys.kinds import mapping
        from proxy.extensions.recording.escalations import ON_ESCALATION
        from proxy.extensions.recording.recorder import RECORD

        return {"": mapping(None, RECORD, ON_ESCALATION)}

    def read_section(self, key: str, context: Context, files: Files, upstreams: Upstreams) -> object:
        from proxy.extensions.recording.escalations import read_on_escalation

        if key == "record":
            return super().read_section(key, context, files, upstreams)
        return read_on_escalation(context, files, upstreams)

    def make_services(self, services: Services, log: Log, metrics: Metrics) -> Escalations:
        from proxy.extensions.recording.escalations import Escalations

        return Escalations(services, log, metrics)

    async def answer_page(self, path: str, serving: Serving, question: PageRequest) -> Page:
        from proxy.extensions.recording.comparing import make_comparison_page

        return await make_comparison_page(serving, question)

    def make_observer(self, clock: Clock, pacing: Pacing, metrics: Metrics, log: Log) -> Recorder:
        from proxy.extensions.recording.recorder import make_recorder

        return make_recorder(clock, pacing, metrics, log)

    def make_tracer(self, environ: Mapping[str, str], log: Log, metrics: Metrics, clock: Clock) -> Traces | None:
        from proxy.extensions.recording.tracing import make_tracer

        return make_tracer(environ, log, metrics, clock)

    def find_missing(self) -> str:
        from proxy.extensions.recording.tracing import find_missing

        return find_missing()
