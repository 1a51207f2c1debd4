"""Puts what tells the webhook of escalations among the services of calls."""

from __future__ import annotations

from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit

from proxy.config.model import Config
from proxy.core.model.values import Headers, JsonValue, ToolResult, UpstreamFault
from proxy.extensions.escalation.delivery import Delivery, Post, make_notice
from proxy.extensions.escalation.escalation_section import OnEscalation
from proxy.extensions.outgoing.outgoing_client import OutgoingClient, post_json
from proxy.interfaces import CallRecord, Services
from proxy.telemetry.logs import Log
from proxy.telemetry.metrics import Metrics
from proxy.upstream import UpstreamSettings

# How long one post may take, in seconds.
_POST: Final = 10.0
# How long the end of the process waits for notices that are not yet delivered, in seconds.
_NOTICES: Final = 2.0


class Escalations:
    """Tells the webhook of the config that is served.

    Notices that still wait when the webhook changes go to the new one; without one they are said to be lost."""

    def __init__(self, _services: Services, log: Log, _metrics: Metrics) -> None:
        self._log = log
        self._told: OnEscalation | None = None
        self._delivery: Delivery | None = None

    def extend(self, config: Config, services: Services) -> Services:
        """The services that tell of escalations, where the config wants that."""
        wanted: OnEscalation | None = config.sections.get("on_escalation")
        if wanted is None:
            if self._delivery is not None:
                self._delivery.give_up()
            return services
        if self._delivery is None:
            post = _webhook(wanted.webhook)
            self._delivery = Delivery(post, wanted.secret, services.clock, services.pacing, self._note_end)
        elif wanted != self._told:
            self._delivery.aim(_webhook(wanted.webhook), wanted.secret)
        self._told = wanted
        delivery, wall = self._delivery, services.clock.wall

        def tell(result: ToolResult, record: CallRecord) -> None:
            delivery.put(make_notice(result, record.route, record.request_id, wall()))

        return replace(services, escalated=tell)

    async def close(self, seconds: float = _NOTICES) -> None:
        """Returns when what is queued was told, or after so many seconds."""
        if self._delivery is not None:
            await self._delivery.wait_settled(seconds)

    def _note_end(self, message_id: str, what: str, status: int) -> None:
        level = "info" if what == "delivered" else "warning"
        self._log.event("Escalation notice", level, id=message_id, result=what, status=status)


def _webhook(url: str) -> Post:
    """Posts to a URL. No redirect is followed: where a notice may go is the operator's to say."""
    parts = urlsplit(url)
    client = OutgoingClient(UpstreamSettings("on_escalation", f"{parts.scheme}://{parts.netloc}"))
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

    async def post(notice: JsonValue, headers: Headers) -> int:
        reply = await post_json(client, target, notice, headers=headers, seconds=_POST)
        return 0 if isinstance(reply, UpstreamFault) else reply.status

    return post
