"""Each escalation goes to a webhook, signed, without any call waiting for it.

    make_notice    the notice for a human: the model's answer in parts (Acode FR-041..FR-044), as one JSON value
    Delivery       a bounded queue, which one task posts in order, with retries
    sign_headers   the signature by which the receiver knows who sent it (https://www.standardwebhooks.com)

A call that escalates only puts its notice into the queue. A notice that is not delivered is logged as lost: the queue
is full, the process ends, or the config no longer names a webhook. Where the config names another webhook, queued
notices go there (`aim`). A post is tried again after 1, 5, 30 and 120 seconds unless the receiver accepted it (2xx) or
refused it (4xx other than 408, 425 and 429). Each try is signed anew under the same `webhook-id`, by which a receiver
knows it again.
"""

from __future__ import annotations

import asyncio
import binascii
import hmac
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

from proxy.core.contract.attempts import hash_conversation
from proxy.core.envelope.feedback import write_feedback
from proxy.core.envelope.parts import sanitise_arguments
from proxy.core.envelope.view import summarize_escalation
from proxy.core.json.jsontext import dumps
from proxy.core.model.values import Headers, JsonValue, ToolResult
from proxy.interfaces import Clock, Pacing

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
    """The bytes a secret stands for: base64 behind `whsec_`, else the text itself."""
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
