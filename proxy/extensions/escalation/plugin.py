"""The plugin `escalation`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.plugin import ExtendsCalls

if TYPE_CHECKING:
    from proxy.config.context import Context
    from proxy.config.files.source import Files
    from proxy.extensions.escalation.escalation_section import OnEscalation
    from proxy.extensions.escalation.escalations import Escalations
    from proxy.interfaces import Services
    from proxy.plugin import Upstreams
    from proxy.telemetry.logs import Log
    from proxy.telemetry.metrics import Metrics


class EscalationPlugin(ExtendsCalls):
    """Sends each escalation to a webhook."""

    name = "escalation"
    adds = "a webhook that receives each escalation, signed and without delaying a call"
    sections = ("on_escalation",)

    def read_section(self, key: str, context: Context, files: Files, upstreams: Upstreams) -> OnEscalation:
        from proxy.extensions.escalation.escalation_section import read_on_escalation

        return read_on_escalation(context, files, upstreams)

    def make_services(self, services: Services, log: Log, metrics: Metrics) -> Escalations:
        from proxy.extensions.escalation.escalations import Escalations

        return Escalations(services, log, metrics)
