"""Requests to the server that publishes a description, bounded in size and time.

No redirect is followed: the answer is where the description is, or the message says where it may be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from proxy.config.files.source import MAX_FILE_BYTES
from proxy.core.model.values import Headers, UpstreamFault
from proxy.importing.harvest import ImportProblem
from proxy.interfaces import UpstreamRequest
from proxy.outgoing import TOO_LARGE, OutgoingClient
from proxy.upstream import UpstreamSettings

_NAME: Final = "source"  # in the requests to it, nowhere else
TIMEOUT: Final = 30.0  # seconds until the head of an answer, and between two pieces of it


@dataclass(frozen=True, slots=True)
class FetchedAnswer:
    """What came back. `headers` have lower-case names; of a repeated one the last."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    @property
    def media_type(self) -> str:
        """The content type without its parameters, in lower case."""
        return _media_type(self.headers.get("content-type", ""))


# The media type and what has come of a body so far -> whether it will do.
Enough = Callable[[str, bytes], bool]


class FetchSite:
    """One server. `fetch` asks it; `extra` headers go with every request. Raises ImportProblem for a URL that is none,
    http or https."""

    def __init__(self, url: str, extra: Headers = ()) -> None:
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        try:
            self._client = OutgoingClient(UpstreamSettings(_NAME, origin, idle_timeout=TIMEOUT, connections=4))
        except ValueError:
            hint = "http://host:port/path; secrets go into --header"
            raise ImportProblem("this is no http or https URL", hint) from None
        self._extra = extra
        self.shown = _shown(url)
        self.target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

    async def fetch(
        self, method: str, headers: Headers = (), body: bytes = b"", enough: Enough = lambda _media_type, _body: False
    ) -> FetchedAnswer:
        """One exchange at the URL. `enough`: whether a body, by its media type, has all that is wanted of a stream that
        may go on; asked at the end of a line. Raises ImportProblem where no whole answer comes."""
        request = UpstreamRequest(_NAME, method, self.target, (*headers, *self._extra), body, TIMEOUT)
        reply = await self._client.fetch(
            request,
            MAX_FILE_BYTES,
            lambda content_type, whole: whole.endswith(b"\n") and enough(_media_type(content_type), bytes(whole)),
        )
        if isinstance(reply, UpstreamFault):
            if reply.token == TOO_LARGE.token:
                raise ImportProblem(f"{self.shown}: the answer is larger than {MAX_FILE_BYTES // 1024**2} MiB")
            raise ImportProblem(f"{self.shown}: {_words(reply)}", "is it running, and is this its address?")
        return FetchedAnswer(reply.status, {name.lower(): value for name, value in reply.headers}, reply.body)


async def fetch_description(url: str, extra: Headers = ()) -> bytes:
    """The bytes of a published description. Raises ImportProblem."""
    server = FetchSite(url, extra)
    answer = await server.fetch("GET", (("accept", "application/json, application/yaml;q=0.9, */*;q=0.5"),))
    if answer.status == 200:
        return answer.body
    raise ImportProblem(f"{server.shown} answers {answer.status}", _advice(answer))


def _advice(answer: FetchedAnswer) -> str:
    if 300 <= answer.status < 400 and "location" in answer.headers:
        return f"it says to look at {_shown(answer.headers['location'])}"
    if answer.status in (401, 403):
        return "it wants to know who asks: --header 'Authorization: Bearer ...'"
    return "FastAPI and mcpo publish theirs at /openapi.json"


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _words(fault: UpstreamFault) -> str:
    """What went wrong, without the name that an upstream has in a config: here is none."""
    return fault.message.removeprefix(f"upstream '{_NAME}': ")


def _shown(url: str) -> str:
    """A URL for messages: without its query, which may hold a secret."""
    return url.partition("?")[0]
