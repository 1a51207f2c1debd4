"""Requests to the server that publishes a description, bounded in size and time.

Redirects are not followed; the error message names the address they lead to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Final

from proxy.core.model.value_class import value_class
from proxy.core.model.values import Headers, UpstreamFault
from proxy.extensions.operations.importing.harvest import ImportProblem
from proxy.interfaces import UpstreamRequest
from proxy.plugin import MAX_FILE_BYTES, TOO_LARGE, OutgoingClient, split_url
from proxy.upstream import UpstreamSettings

_NAME: Final = "source"  # the upstream's name, which messages leave out
TIMEOUT: Final = 30.0  # seconds until the head of an answer, and between two pieces of its body
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


def is_url(source: str) -> bool:
    """Returns whether a source is a URL and not the path of a file."""
    return _URL.match(source) is not None


@value_class
class FetchedAnswer:
    """An answer. Header names are in lower case; a repeated header keeps its last value."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    @property
    def media_type(self) -> str:
        """The content type without its parameters, in lower case."""
        return _media_type(self.headers.get("content-type", ""))


# Decides from the media type and the body received so far whether reading may stop.
Enough = Callable[[str, bytes], bool]


class FetchSite:
    """One server. `extra` headers go with every request. Raises ImportProblem for anything but an http or https URL."""

    def __init__(self, url: str, extra: Headers = ()) -> None:
        parts = split_url(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        try:
            self._client = OutgoingClient(UpstreamSettings(_NAME, origin, idle_timeout=TIMEOUT, connections=4))
        except ValueError:
            hint = "http://host:port/path; secrets go into --header"
            raise ImportProblem("this is not an http or https URL", hint) from None
        self._extra = extra
        self.shown = hide_query(url)
        self.target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

    async def fetch(
        self, method: str, headers: Headers = (), body: bytes = b"", enough: Enough = lambda _media_type, _body: False
    ) -> FetchedAnswer:
        """One exchange at the URL. `enough` is called whenever the body so far ends with a line feed; if it gives True,
        the rest of the stream is not read. Raises ImportProblem if the answer does not arrive or is incomplete."""
        request = UpstreamRequest(_NAME, method, self.target, (*headers, *self._extra), body, TIMEOUT)
        reply = await self._client.fetch(
            request,
            MAX_FILE_BYTES,
            lambda content_type, whole: whole.endswith(b"\n") and enough(_media_type(content_type), bytes(whole)),
        )
        if isinstance(reply, UpstreamFault):
            if reply.token == TOO_LARGE.token:
                raise ImportProblem(f"{self.shown}: the answer is larger than {MAX_FILE_BYTES // 1024**2} MiB")
            why = reply.message.removeprefix(f"upstream '{_NAME}': ")  # the name means nothing outside of a config
            raise ImportProblem(f"{self.shown}: {why}", "is it running, and is this its address?")
        return FetchedAnswer(reply.status, {name.lower(): value for name, value in reply.headers}, reply.body)


async def fetch_description(url: str, extra: Headers = ()) -> bytes:
    """The bytes of a published description. Raises ImportProblem."""
    server = FetchSite(url, extra)
    answer = await server.fetch("GET", (("accept", "application/json, application/yaml;q=0.9, */*;q=0.5"),))
    if answer.status == 200:
        return answer.body
    raise ImportProblem(f"{server.shown} answers {answer.status}", _advise(answer))


def _advise(answer: FetchedAnswer) -> str:
    if 300 <= answer.status < 400 and "location" in answer.headers:
        return f"it says to look at {hide_query(answer.headers['location'])}"
    if answer.status in (401, 403):
        return "it wants to know who asks: --header 'Authorization: Bearer ...'"
    return "FastAPI and mcpo publish theirs at /openapi.json"


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def hide_query(url: str) -> str:
    """A URL for messages: without its query, which may hold a secret."""
    return url.partition("?")[0]
