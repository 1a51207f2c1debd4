"""Reads `on_escalation`, a webhook that receives a notice of each escalation, and adds it to the services of calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Final
from urllib.parse import urlsplit

from proxy.config.context import Context
from proxy.config.files.secrets import reveal
from proxy.config.files.source import Files
from proxy.config.mistakes import split_url
from proxy.config.model import Config, UpstreamConfig
from proxy.core.model.value_class import value_class
from proxy.core.model.values import Headers, JsonValue, ToolResult, UpstreamFault
from proxy.extensions.recording.delivery import Delivery, Post, make_notice
from proxy.interfaces import CallRecord, Services
from proxy.telemetry.logs import Log
from proxy.telemetry.metrics import Metrics
from proxy.upstream import UpstreamSettings
from proxy.upstream.outgoing_client import OutgoingClient, post_json

# How long one post may take, in seconds.
_POST: Final = 10.0
# How long the end of the process waits for notices that are not yet delivered, in seconds.
_NOTICES: Final = 2.0


@value_class
class OnEscalation:
    """The webhook that receives escalations: its URL, and the secret that signs the messages."""

    webhook: str = field(repr=False)
    secret: str = field(repr=False)


def read_on_escalation(context: Context, _files: Files, _upstreams: Mapping[str, UpstreamConfig]) -> OnEscalation:
    """Reads the webhook for escalations."""
    written = context.mapping("on_escalation")
    url, secret = reveal(written.get("webhook", "")), reveal(written.get("secret", ""))
    parts = split_url(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        context.mistake(
            ("on_escalation", "webhook"), "no http or https URL", "such as https://ops.example.org/hooks/tools"
        )
    if not secret:
        context.mistake(("on_escalation", "secret"), "the secret is empty", "such as ${ESCALATION_SECRET}")
    return OnEscalation(url, secret)


class Escalations:
    """Posts to the webhook of the served config. Notices that wait when the webhook changes go to the new one."""

    def __init__(self, _services: Services, log: Log, _metrics: Metrics) -> None:
        self._log = log
        self._webhook: OnEscalation | None = None
        self._delivery: Delivery | None = None

    def extend(self, config: Config, services: Services) -> Services:
        """The services that post escalations, where the config names a webhook."""
        webhook: OnEscalation | None = config.sections.get("on_escalation")
        if webhook is None:
            if self._delivery is not None:
                self._delivery.give_up()
            return services
        if self._delivery is None:
            post = _make_post(webhook.webhook)
            self._delivery = Delivery(post, webhook.secret, services.clock, services.pacing, self._note_end)
        elif webhook != self._webhook:
            self._delivery.aim(_make_post(webhook.webhook), webhook.secret)
        self._webhook = webhook
        delivery, wall = self._delivery, services.clock.wall

        def post_notice(result: ToolResult, record: CallRecord) -> None:
            delivery.put(make_notice(result, record.route, record.request_id, wall()))

        return replace(services, escalated=post_notice)

    async def close(self, seconds: float = _NOTICES) -> None:
        """Waits until the queue is empty, at most so many seconds."""
        if self._delivery is not None:
            await self._delivery.wait_settled(seconds)

    def _note_end(self, message_id: str, what: str, status: int) -> None:
        level = "info" if what == "delivered" else "warning"
        self._log.event("Escalation notice", level, id=message_id, result=what, status=status)


def _make_post(url: str) -> Post:
    """Posts to a URL. Redirects are not followed: only the operator says where a notice may go."""
    parts = urlsplit(url)
    client = OutgoingClient(UpstreamSettings("on_escalation", f"{parts.scheme}://{parts.netloc}"))
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

    async def post(notice: JsonValue, headers: Headers) -> int:
        reply = await post_json(client, target, notice, headers=headers, seconds=_POST)
        return 0 if isinstance(reply, UpstreamFault) else reply.status

    return post
