"""The plugin `correction`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from proxy.plugin import AddsVerbs, ExtendsCalls, ObservesCalls, Verb

if TYPE_CHECKING:
    from proxy.config.keys.kinds import Kind
    from proxy.extensions.correction.correctors import CorrectionMetrics, Corrections
    from proxy.interfaces import Clock, Pacing, Services
    from proxy.plugin import Context, Files, Log, MetricRow, Metrics, RouteEntry, Upstreams


class CorrectionPlugin(AddsVerbs, ExtendsCalls, ObservesCalls):
    """Asks a model for a better call than one that failed."""

    name = "correction"
    adds = "a model that corrects failed calls, `evaluate`, and sample tools: `demo`"
    verbs = ("demo", "evaluate")
    sections = ("correction",)
    policy_keys = ("correct",)
    tool_keys = ("correct",)
    call_keys = ("correct",)
    secrets = (("correction", "body", "**"),)
    other_names: ClassVar = {
        "GoMind": {
            "validation_feedback_enabled": "`correct: {validation_feedback: on}`",
            "max_validation_retries": "`correct: {max_attempts: 2}`",
            "GOMIND_AGENT_MAX_RETRIES": "`resend: {max: 3}` (the same call), `correct: {max_attempts: 2}` (a corrected "
            "one), `attempts: {max: 3}` (the model's own tries)",
            "GOMIND_AGENT_USE_AI_CORRECTION": "`correct: {validation_feedback: on}`",
            "GOMIND_SEMANTIC_RETRY_ENABLED": "`correct: {semantic_retry: on}`",
            "GOMIND_SEMANTIC_RETRY_MAX_ATTEMPTS": "`correct: {max_attempts: 2}`",
            "GOMIND_SEMANTIC_RETRY_INDEPENDENT_STEPS": "`correct: {independent_steps: on}`",
            "GOMIND_LLM_DEBUG_ENABLED": "`correction: {debug: {file: corrections.jsonl}}`",
        }
    }

    def declare_keys(self) -> Mapping[str, Kind]:
        from proxy.extensions.correction.correction_section import KEYS

        return KEYS

    def list_metrics(self) -> Sequence[MetricRow]:
        from proxy.extensions.correction.correctors import METRICS

        return METRICS

    def load_verb(self, verb: str) -> Verb:
        from proxy.extensions.correction.cli import demo, evaluate

        return demo if verb == "demo" else evaluate

    def read_section(self, key: str, context: Context, files: Files, upstreams: Upstreams) -> object:
        from proxy.extensions.correction.correction_section import read_correction

        return read_correction(context, files, upstreams)

    def check_keys(self, context: Context, routes: tuple[RouteEntry, ...]) -> None:
        from proxy.extensions.correction.correction_section import check_correct

        check_correct(context, routes)

    def make_services(self, services: Services, log: Log, metrics: Metrics) -> Corrections:
        from proxy.extensions.correction.correctors import Corrections

        return Corrections(services, log, metrics)

    def make_observer(self, clock: Clock, pacing: Pacing, metrics: Metrics, log: Log) -> CorrectionMetrics:
        from proxy.extensions.correction.correctors import CorrectionMetrics

        return CorrectionMetrics(clock, pacing, metrics, log)
