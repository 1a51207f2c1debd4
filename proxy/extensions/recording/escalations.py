"""Reads `on_escalation`, a webhook that receives a notice of each escalation, and adds it to the services of calls."""

from __future__ import annotations

import asyncio
import binascii
import hmac
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field, replace
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlsplit

from proxy.call_record import CallRecord
from proxy.config.keys.kinds import WORD, ConfigKey, mapping
from proxy.config.model import Config, UpstreamConfig
from proxy.core.contract.attempts import hash_conversation
from proxy.core.envelope.parts import sanitise_arguments
from proxy.core.envelope.view import summarize_escalation
from proxy.core.json.jsontext import dumps
from proxy.core.model.value_class import value_class
from proxy.core.model.values import Headers, JsonValue, ToolResult, UpstreamFault
from proxy.interfaces import Clock, Pacing, Services
from proxy.plugin import Context, Files, Log, Metrics, OutgoingClient, post_json, split_url, write_feedback
from proxy.upstream import UpstreamSettings

# --- each escalation goes to a webhook --------------------------------------------------------------------------------
# Each escalation goes to a webhook, signed, without any call waiting for it.
#
#     `make_notice`: the notice for a human: the model's answer in parts (Acode FR-041..FR-044), as one JSON value.
#     `Delivery`: a bounded queue, which one task posts in order, with retries.
#     `sign_headers`: the signature that proves the sender to the receiver (https://www.standardwebhooks.com).
#
# A call that escalates only puts its notice into the queue. A notice that is not delivered is logged as lost: the queue
# is full, the process ends, or the config no longer names a webhook. If the config names another webhook, queued
# notices go there (`aim`). A post is tried again after 1, 5, 30 and 120 seconds unless the receiver accepted it (2xx)
# or refused it (4xx other than 408, 425 and 429). Each try is signed again under the same `webhook-id`, by which a
# receiver knows it again.

# Posts a notice as `dumps` writes it, with these headers; gives the answer's status, or 0. Raises nothing.
Post = Callable[[JsonValue, Headers], Awaitable[int]]
# Reports the end of a notice: its id, `delivered`, `refused`, `given_up`, `queue_full` or `lost`, and the last status.
ReportEnd = Callable[[str, str, int], None]

PAUSES: Final = (1.0, 5.0, 30.0, 120.0)
MOST_WAITING: Final = 256
_MAY_BE_TAKEN_LATER: Final = frozenset({0, 408, 425, 429})
_PREFIX = "whsec_"
EVENT: Final = "tool_call.escalated"


class Delivery:
    """Posts notices one after the other, the first of the queue until its end is known."""

    def __init__(self, post: Post, secret: str, clock: Clock, pacing: Pacing, report_end: ReportEnd) -> None:
        self._post = post
        self._key = read_key(secret)
        self._clock = clock
        self._pacing = pacing
        self._report_end = report_end
        self._queue: deque[tuple[str, JsonValue]] = deque()
        self._status = 0  # the last answer to the first of the queue
        self._task: asyncio.Task[None] | None = None

    def aim(self, post: Post, secret: str) -> None:
        """Posts to another receiver from the next try on."""
        self._post, self._key = post, read_key(secret)

    def put(self, notice: JsonValue) -> None:
        """Queues a notice; waits for nothing."""
        message_id = f"msg_{self._pacing.fresh_key()}"
        if len(self._queue) >= MOST_WAITING:
            self._report_end(message_id, "queue_full", 0)
            return
        self._queue.append((message_id, notice))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def wait_settled(self, seconds: float) -> None:
        """Waits until the queue is empty, at most so many seconds; then posts no more."""
        task = self._task
        if task is not None:
            await asyncio.wait((task,), timeout=seconds)
            self.give_up()
            await asyncio.gather(task, return_exceptions=True)

    def give_up(self) -> None:
        """Drops the queue and reports its notices as lost."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        while self._queue:
            message_id, _ = self._queue.popleft()
            self._report_end(message_id, "lost", self._status)
            self._status = 0

    async def _work(self) -> None:
        while self._queue:
            message_id, notice = self._queue[0]
            taken = await self._deliver(message_id, notice)
            self._queue.popleft()
            self._report_end(message_id, taken, self._status)
            self._status = 0

    async def _deliver(self, message_id: str, notice: JsonValue) -> str:
        body = dumps(notice)
        for pause in (*PAUSES, None):
            headers = sign_headers(self._key, message_id, self._clock.wall(), body)
            self._status = status = await self._post(notice, headers)
            if 200 <= status < 300:
                return "delivered"
            if status < 500 and status not in _MAY_BE_TAKEN_LATER:
                return "refused"
            if pause is not None:
                await self._pacing.sleep(pause * (0.5 + self._pacing.chance()))
        return "given_up"


def read_key(secret: str) -> bytes:
    """Returns the bytes of a secret: base64 behind `whsec_`, otherwise the text itself."""
    if secret.startswith(_PREFIX):
        try:
            return b64decode(secret.removeprefix(_PREFIX), validate=True)
        except binascii.Error:
            pass
    return secret.encode()


def sign_headers(key: bytes, message_id: str, wall: float, body: bytes) -> Headers:
    """`webhook-id`, `webhook-timestamp` and `webhook-signature` of a body; `wall` in Unix seconds."""
    timestamp = str(int(wall))
    signed = hmac.digest(key, f"{message_id}.{timestamp}.".encode() + body, "sha256")
    return (
        ("webhook-id", message_id),
        ("webhook-timestamp", timestamp),
        ("webhook-signature", "v1," + b64encode(signed).decode()),
    )


def make_notice(result: ToolResult, route: str, request_id: str, wall: float) -> JsonValue:
    """One escalation as a JSON value. `wall` in Unix seconds. Arguments are sanitised as they are for the model; the
    conversation is its hash, as `/-/attempts` shows it."""
    attempt = result.attempt
    return {
        "type": EVENT,
        "timestamp": datetime.fromtimestamp(wall, UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "data": {
            "summary": summarize_escalation(result) if result.escalated else result.failure.message,
            "status": "blocked",
            "tool": result.call.tool,
            "route": route,
            "conversation": hash_conversation(result.call.conversation),
            "identified_by": result.call.conversation.rung.value,
            "tool_call_id": result.call.call_id,
            "request_id": request_id,
            "attempts": attempt.number if attempt else None,
            "max_attempts": attempt.limit if attempt else None,
            "history": list(result.history),
            "original_call": {"tool": result.call.tool, "arguments": sanitise_arguments(result)},
            "content": write_feedback(result),
        },
    }


# --- reads `on_escalation` --------------------------------------------------------------------------------------------
# How long one post may take, in seconds.
_POST: Final = 10.0
# How long the end of the process waits for notices that are not yet delivered, in seconds.
_NOTICES: Final = 2.0


@value_class
class OnEscalation:
    """The webhook that receives escalations: its URL, and the secret that signs the messages."""

    webhook: str = field(default="", repr=False)
    secret: str = field(default="", repr=False)


_ON_ESCALATION: Final = mapping(
    OnEscalation,
    ConfigKey("webhook", WORD, "The URL.", default=None),
    ConfigKey("secret", WORD, "The HMAC-SHA256 key: a text, or base64 behind `whsec_`.", default=None),
    required=["webhook", "secret"],
)
ON_ESCALATION: Final = ConfigKey(
    "on_escalation",
    _ON_ESCALATION,
    "Tells a human of each escalation: one signed POST (Standard Webhooks), retried with backoff; no call waits "
    "(docs/contract.md).",
)


def read_on_escalation(context: Context, _files: Files, _upstreams: Mapping[str, UpstreamConfig]) -> OnEscalation:
    """Reads the webhook for escalations."""
    made: OnEscalation = _ON_ESCALATION.read(context.mapping("on_escalation"))
    parts = split_url(made.webhook)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        context.mistake(
            ("on_escalation", "webhook"), "no http or https URL", "such as https://ops.example.org/hooks/tools"
        )
    if not made.secret:
        context.mistake(("on_escalation", "secret"), "the secret is empty", "such as ${ESCALATION_SECRET}")
    return made


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
