"""The request that a handler gets: the client's own, with the checked arguments as its body."""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from multidict import CIMultiDict, CIMultiDictProxy

from proxy.interfaces import UpstreamRequest

# Written anew, or of no use between two parts of one process.
_DROPPED: Final = frozenset({"host", "content-length", "transfer-encoding", "accept-encoding", "content-encoding"})


class CheckedRequest(web.Request):
    """A request whose body was checked. The application's `on_response_prepare` hears of the answer once, when it goes
    to the client, and not when it is caught here."""

    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        pass


def checked_request(original: web.Request, sent: UpstreamRequest, writer: AbstractStreamWriter) -> web.Request:
    """The client's request as it would have gone to an upstream: `sent` has its headers and its body.

    Path, query, match and what other middlewares have put into the request are the original's. What the handler answers
    is written to `writer`.
    """
    headers = CIMultiDict((name, value) for name, value in sent.headers if name.lower() not in _DROPPED)
    if (host := original.headers.get("Host")) is not None:
        headers["Host"] = host
    headers["Content-Length"] = str(len(sent.body))
    message = RawRequestMessage(
        original.method,
        original.raw_path,
        original.version,
        CIMultiDictProxy(headers),
        tuple((name.encode(), value.encode("utf-8", "surrogateescape")) for name, value in headers.items()),
        False,  # whether the connection ends with it is for the answer to the client to say
        None,
        False,
        False,
        original.rel_url,
    )
    loop = asyncio.get_running_loop()
    body = StreamReader(original.protocol, len(sent.body) + 1, loop=loop)
    body.feed_data(sent.body)
    body.feed_eof()
    made = CheckedRequest(
        message,
        body,
        original.protocol,
        writer,
        original.task,
        loop,
        client_max_size=original.client_max_size,
        state=dict(original),
    )
    made._match_info = original.match_info  # `clone` of aiohttp does the same; there is no public way
    return made
