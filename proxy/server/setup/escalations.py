"""Escalations as the config wants them: the webhook's queue outlives a reload, as long as its address stays."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from proxy.config.model import OnEscalation
from proxy.core.model.values import Headers, JsonValue, ToolResult, UpstreamFault
from proxy.interfaces import CallRecord, Services
from proxy.telemetry.logs import Log
from proxy.upstream.settings import UpstreamSettings

if TYPE_CHECKING:
    from proxy.escalation import Delivery, Post

# How long one post may take, in seconds.
_POST: Final = 10.0


class Escalations:
    """Tells the webhook of the config that is served. Its room is loaded for the first config that has one."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._told: OnEscalation | None = None
        self._delivery: Delivery | None = None

    def added(self, wanted: OnEscalation | None, services: Services) -> Services:
        """The services that tell of escalations, where the config wants that."""
        if wanted is None:
            return services
        from proxy.escalation import Delivery, make_notice

        if self._delivery is None or wanted != self._told:
            post = _webhook(wanted.webhook)
            self._delivery = Delivery(post, wanted.secret, services.clock, services.pacing, self._ended)
            self._told = wanted
        delivery, wall = self._delivery, services.clock.wall

        def escalated(result: ToolResult, record: CallRecord) -> None:
            delivery.put(make_notice(result, record.route, record.request_id, wall()))

        return replace(services, escalated=escalated)

    async def settled(self, seconds: float) -> None:
        """Returns when what is queued was told, or after so many seconds."""
        if self._delivery is not None:
            await self._delivery.settled(seconds)

    def _ended(self, message_id: str, what: str, status: int) -> None:
        level = "info" if what == "delivered" else "warning"
        self._log.event("Escalation notice", level, id=message_id, result=what, status=status)


def _webhook(url: str) -> Post:
    """Posts to a URL. No redirect is followed: where a notice may go is the operator's to say."""
    from proxy.outgoing import OutgoingClient, post_json

    parts = urlsplit(url)
    client = OutgoingClient(UpstreamSettings("on_escalation", f"{parts.scheme}://{parts.netloc}"))
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

    async def post(notice: JsonValue, headers: Headers) -> int:
        reply = await post_json(client, target, notice, headers=headers, seconds=_POST)
        return 0 if isinstance(reply, UpstreamFault) else reply.status

    return post
