"""A call that runs without a task, from the bytes of its request to those of its response. Worth 15 % of a clean call.

`FastCall` drives the same stages as `Handler.handle`: they are plain functions as far as nothing has to wait, and run
while the connection reads. Where something has to wait, aiohttp's own task goes on with the call from there:

    note_answer   the tool has answered: a whole success is written, anything else handed over
    hand_over     by the connection too: when more bytes come, or its client sends no more
    resume        the task's part: the stages that wait
    cancel        the client has gone before a task had the call
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol

from aiohttp.web_response import StreamResponse

from proxy.call.fast_start import SentCall, WaitingCall
from proxy.core.envelope.headers import make_repair_headers
from proxy.core.model.values import Delivered, Fields, Headers, Outcome
from proxy.interfaces import CallRecord
from proxy.server.bound_route import RouteRequest
from proxy.server.http.framing import KnownHeads, Response, write_response
from proxy.server.http.request_head import ParsedRequest
from proxy.server.http.responses import make_delivery_headers

if TYPE_CHECKING:
    from aiohttp import web

_known: Final = KnownHeads()
Answered = Response | Coroutine[Any, Any, StreamResponse]


class FastClient(Protocol):
    """The connection of a call."""

    def can_answer(self) -> bool:
        """Whether a response may be written now, and another request may follow it."""

    def answer(self, data: bytes) -> None:
        """Writes the response and ends the call."""

    def hand_over(self) -> None:
        """Lets a task go on with the call."""


class FastHandler(Protocol):
    """Who knows the stages and is told of the end. While `draining`, every response ends its connection."""

    draining: bool

    def now(self) -> float:
        """Seconds on the monotonic clock."""

    def resume(self, call: FastCall, request: web.BaseRequest) -> Coroutine[Any, Any, web.StreamResponse]:
        """The response to a call that goes on in a task."""

    def end(self, call: FastCall) -> None:
        """Notes that a call ended without a task."""


class FastCall:
    """One call. `call` is what became of it in the first stages, `call_route` the request on its route, as far as they
    came; where they found no call, or a body that has to be waited for, `follow` gives the response in a task.

    Nothing that it holds leads back to it once it has ended: a cycle for each call would be left to the collector."""

    __slots__ = (
        "_client",
        "_ended",
        "_handler",
        "call",
        "call_route",
        "fields",
        "follow",
        "outcome",
        "record",
        "request",
    )

    def __init__(
        self, handler: FastHandler, client: FastClient, request: ParsedRequest, fields: Fields, record: CallRecord
    ) -> None:
        self._handler = handler
        self._client = client
        self._ended: asyncio.Future[None] | None = None
        self.request = request
        self.fields = fields
        self.record = record
        self.call_route: RouteRequest | None = None
        self.call: SentCall | WaitingCall | None = None
        self.outcome: Delivered | None = None
        self.follow: Callable[[web.BaseRequest], Answered] | None = None

    @property
    def is_sent(self) -> bool:
        """Whether the tool has the call, and its answer needs no task yet."""
        return isinstance(self.call, SentCall)

    def note_answer(self) -> None:
        """Writes the tool's answer, if that waits for nothing; else a task does."""
        try:
            data = self._write_answer()
        except Exception as error:  # noqa: BLE001 - the task has the border for it
            self.fail(error)
            data = None
        if data is None:
            self._client.hand_over()
            return
        self._release()
        self._client.answer(data)  # first, so that the client waits for nothing that is written down of its call
        self._handler.end(self)
        self.note_end()

    def _write_answer(self) -> bytes | None:
        if not isinstance(self.call, SentCall) or self.call_route is None:
            return None
        self.outcome = delivered = self.call.deliver()
        if delivered is None or self._handler.draining or not self._client.can_answer():
            return None
        if not isinstance(body := delivered.reply.body, bytes):
            return None
        started = self._handler.now()
        try:
            data = self._write(delivered, body, self.call_route.cors)
        except ValueError:  # a control character: the task refuses it
            return None
        record = self.record
        record.response_bytes, record.ended = len(body), self._handler.now()
        record.stages["answer"] = record.ended - started
        return data

    def _write(self, delivered: Delivered, body: bytes, cors: Headers) -> bytes:
        reply, method, record = delivered.reply, self.request.method, self.record
        told = cors or delivered.corrections or delivered.warnings or delivered.attempt
        plain = method == "POST" and not told
        repairs = make_repair_headers(delivered.repairs) if plain else ()
        if plain and (data := _known.write(reply.status, reply.headers, record.request_id, body, repairs)) is not None:
            record.status = reply.status
            return data
        fields = make_delivery_headers(delivered, method, cors, record)
        data = write_response(reply.status, [*fields, *cors], body, method, 1, keep_alive=True)
        if plain:
            _known.learn(reply.status, reply.headers, fields[: -1 - len(repairs)])
        return data

    async def wait(self) -> Outcome:
        """The outcome of the call, which may be there already."""
        if self.outcome is not None:
            return self.outcome
        if self.call is None:
            raise RuntimeError("the first stages of the call have not run")
        return await self.call.wait()

    def resume(self, request: web.BaseRequest) -> Coroutine[Any, Any, web.StreamResponse]:
        """The response, in the task of the connection."""
        return self._handler.resume(self, request)

    def fail(self, error: Exception) -> None:
        """Notes an error of the stages, which the task reports."""

        def follow(_: web.BaseRequest) -> Response:
            raise error

        self._release()
        self.follow = follow

    def hand_over(self) -> None:
        """Lets a task go on with the call."""
        self._client.hand_over()

    def cancel(self) -> None:
        """Ends a call whose client has gone."""
        self.abort()
        self.record.outcome = "client_gone"
        self._handler.end(self)
        self.note_end()

    def abort(self) -> None:
        """Ends what is under way for the call."""
        self._release()
        if self.call is not None and self.outcome is None:
            self.call.abort()

    def _release(self) -> None:
        if self.call_route is not None:
            self.call_route.memory.release()

    def find_end(self) -> asyncio.Future[None]:
        """What is done when the call has ended."""
        if self._ended is None:
            self._ended = asyncio.get_running_loop().create_future()
        return self._ended

    def note_end(self) -> None:
        """Tells those who wait for the end."""
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)
