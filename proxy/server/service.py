"""The shared parts of a listener's connections: the answering of requests, and the time that connections wait."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from aiohttp.web_request import BaseRequest
from aiohttp.web_response import StreamResponse

from proxy.core.model.value_class import value_class
from proxy.server.http.framing import Response
from proxy.server.http.request_head import BadRequest

if TYPE_CHECKING:
    from aiohttp import web

# Answers a request. Raises CancelledError when the client has gone.
Handle = Callable[[BaseRequest], Awaitable[StreamResponse]]


class BegunRequest(Protocol):
    """A request that began without a task (`proxy/driver.py`)."""

    def resume(self, request: web.BaseRequest) -> Awaitable[StreamResponse]:
        """The response to the request, which continues in a task."""

    def cancel(self) -> None:
        """Ends the request: its client has gone."""


# Creates the response to bytes that are not valid HTTP, and to a request whose handler failed.
RefuseHead = Callable[[BadRequest], Response]


@value_class
class Timeouts:
    """The seconds that a connection waits: for the rest of a `head` that has begun, between two requests (`idle`), and
    for a client that does not read its response (`send`).

    `idle` is longer than load balancers keep their connections to us (Google's: 600 s). So they close first and never
    send a request on a connection that we are closing. Draining closes idle connections itself.
    """

    head: float = 15.0
    idle: float = 620.0
    send: float = 60.0
