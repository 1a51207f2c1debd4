"""One JSON value to one address, and whether it was taken: what a webhook needs."""

from __future__ import annotations

import asyncio
from typing import Final

from proxy.core.json.jsontext import dumps
from proxy.core.model.values import Headers, JsonValue, UpstreamFault
from proxy.interfaces import UpstreamRequest
from proxy.outgoing.session import TOO_MUCH, OutgoingClient, WholeReply
from proxy.upstream.faults import RESPONSE_TIMEOUT

# In bytes.
MAX_POSTED: Final = 1024 * 1024
MAX_ANSWER: Final = 64 * 1024

_HEADERS: Final = (
    ("content-type", "application/json"),
    ("accept-encoding", "identity"),
    ("user-agent", "toolcall-proxy"),
)


async def post_json(
    client: OutgoingClient, target: str, value: JsonValue, *, headers: Headers = (), seconds: float = 5.0
) -> WholeReply | UpstreamFault:
    """Posts a value to a path of the client's server and gives the answer, whatever its status.

    `seconds` is the time for all of it, connection and answer included. A value of more than MAX_POSTED bytes is not
    sent; an answer of more than MAX_ANSWER bytes is a fault. Nothing is sent twice. `headers` have lower-case names and
    go before ours.
    """
    own = {name for name, _ in headers}
    fields = (*(pair for pair in _HEADERS if pair[0] not in own), *headers)
    request = UpstreamRequest(client.name, "POST", target, fields, dumps(value), seconds)
    if len(request.body) > MAX_POSTED:
        return TOO_MUCH.of(client.name)
    try:
        async with asyncio.timeout(seconds):
            return await client.fetch(request, MAX_ANSWER)
    except TimeoutError:
        return RESPONSE_TIMEOUT.of(client.name)
