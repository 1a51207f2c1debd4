"""Requests to the server that publishes a description: over the proxy's own connections, bounded in size and time.

No redirect is followed: the answer is where the description is, or the message says where it may be.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import urlsplit

from proxy.config.source import MAX_FILE_BYTES
from proxy.core.model import Headers, UpstreamFault
from proxy.importing.harvest import ImportProblem
from proxy.interfaces import UpstreamRequest
from proxy.upstream import ReplyBroken, UpstreamSettings
from proxy.upstream.http1 import Http1Upstream
from proxy.upstream.stream import close_body

_NAME: Final = "source"  # in the requests to it, nowhere else
TIMEOUT: Final = 30.0  # seconds until the head of an answer, and between two pieces of it


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. `headers` have lower-case names; of a repeated one the last."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    @property
    def media_type(self) -> str:
        """The content type without its parameters, in lower case."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


# The media type and what has come of a body so far -> whether it will do.
Enough = Callable[[str, bytes], bool]


class Site:
    """One server. `fetch` asks it; `extra` headers go with every request."""

    def __init__(self, url: str, upstream: Http1Upstream, extra: Headers) -> None:
        self._upstream = upstream
        self._extra = extra
        self.shown = _shown(url)
        parts = urlsplit(url)
        self.target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

    async def fetch(
        self, method: str, headers: Headers = (), body: bytes = b"", enough: Enough = lambda _media_type, _body: False
    ) -> Answer:
        """One exchange at the URL. `enough`: whether a body, by its media type, has all that is wanted of a stream that
        may go on. Raises ImportProblem where no whole answer comes."""
        request = UpstreamRequest(_NAME, method, self.target, (*headers, *self._extra), body, TIMEOUT)
        reply = await self._upstream.relay(request, None)
        if isinstance(reply, UpstreamFault):
            raise ImportProblem(f"{self.shown}: {_words(reply)}", "is it running, and is this its address?")
        answer = Answer(reply.status, {name.lower(): value for name, value in reply.headers}, b"")
        whole = bytearray()
        try:
            async for piece in _pieces(reply.body):
                whole += piece
                if len(whole) > MAX_FILE_BYTES:
                    raise ImportProblem(f"{self.shown}: the answer is larger than {MAX_FILE_BYTES // 1024**2} MiB")
                if piece.endswith(b"\n") and enough(answer.media_type, bytes(whole)):
                    break
        except ReplyBroken as broken:
            raise ImportProblem(f"{self.shown}: {_words(broken.fault)}") from None
        finally:
            await close_body(reply)
        return replace(answer, body=bytes(whole))


async def _pieces(body: bytes | AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if isinstance(body, bytes):
        yield body
        return
    async for piece in body:
        yield piece


@asynccontextmanager
async def site(url: str, extra: Headers = ()) -> AsyncIterator[Site]:
    """The server of a URL, http or https. `extra` are headers to send, such as authorization. Raises ImportProblem for
    a URL that is none."""
    parts = urlsplit(url)
    try:
        upstream = Http1Upstream(
            UpstreamSettings(_NAME, f"{parts.scheme}://{parts.netloc}", idle_timeout=TIMEOUT, connections=4)
        )
    except ValueError:
        raise ImportProblem("this is no http or https URL", "http://host:port/path; secrets go into --header") from None
    try:
        yield Site(url, upstream, extra)
    finally:
        await upstream.close()


async def fetch_description(url: str, extra: Headers = ()) -> bytes:
    """The bytes of a published description. Raises ImportProblem."""
    async with site(url, extra) as server:
        answer = await server.fetch("GET", (("accept", "application/json, application/yaml;q=0.9, */*;q=0.5"),))
    if answer.status == 200:
        return answer.body
    raise ImportProblem(f"{server.shown} answers {answer.status}", _advice(answer))


def _advice(answer: Answer) -> str:
    if 300 <= answer.status < 400 and "location" in answer.headers:
        return f"it says to look at {_shown(answer.headers['location'])}"
    if answer.status in (401, 403):
        return "it wants to know who asks: --header 'Authorization: Bearer ...'"
    return "FastAPI and mcpo publish theirs at /openapi.json"


def _words(fault: UpstreamFault) -> str:
    """What went wrong, without the name that an upstream has in a config: here is none."""
    return fault.message.removeprefix(f"upstream '{_NAME}': ")


def _shown(url: str) -> str:
    """A URL for messages: without its query, which may hold a secret."""
    return url.partition("?")[0]
