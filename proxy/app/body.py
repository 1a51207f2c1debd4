"""Reading a request's body: every check that needs no byte of it comes first, then it is read within its bound.

`100 Continue` is sent only when the route, the method, the content type, the coding and the announced size are all
right (RFC 9110 section 10.1.1), so that a client with a large body hears of its mistake before it sends it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from aiohttp import web
from aiohttp.web_protocol import RequestPayloadError

from proxy.core import codes
from proxy.core.codes import ErrorCode
from proxy.core.contentcoding import Undecodable, decode, is_coded, is_known
from proxy.core.model import RawRequest

# RFC 6839 section 3.1; one media type, as RFC 9110 section 8.3.1 has it, and no list of them.
_OTHER_JSON: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9a-z]+/[!#$%&'*+\-.^_`|~0-9a-z]+\+json")
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Unread:
    """Why a body was not read: the code to answer with, and what is wrong in words. `status` overrides the code's."""

    code: ErrorCode
    message: str
    status: int | None = None


_LATE: Final = Unread(codes.BAD_REQUEST, "The body did not arrive in time.", 408)
_BADLY_FRAMED: Final = Unread(codes.BAD_REQUEST, "The body broke off or is not framed as HTTP wants it.")


@dataclass(frozen=True, slots=True)
class Body:
    """A body as read. `decoded` says that a content coding was taken off, so its header must not go on."""

    data: bytes
    decoded: bool = False


async def read_body(request: web.BaseRequest, limit: int, timeout: float) -> Body | Unread:  # noqa: ASYNC109 - of the whole body
    """Reads the body of a call. `limit` in bytes, as sent and as decoded; `timeout` in seconds."""
    announced = request.headers.get("Content-Length")
    if not has_body(request):
        return Body(b"")
    coding = _coding(request)
    unfit = _unfit(request, coding, limit, int(announced) if announced is not None else 0)
    if unfit is not None:
        return unfit
    await send_continue(request)
    data = await read_whole(request, limit, timeout)
    if isinstance(data, Unread):
        return data
    return _decoded(data, coding, limit) if coding and is_coded(coding) else Body(data)


async def read_whole(request: web.BaseRequest, limit: int, timeout: float) -> bytes | Unread:  # noqa: ASYNC109 - as above
    """The body as it was sent, unless it is longer than `limit` bytes, comes too slowly or is badly framed."""
    content = request.content
    if content.is_eof() and content.exception() is None:  # all of it came with the head: nothing to wait for
        whole = content.read_nowait()
        return whole if len(whole) <= limit else _too_large(limit)
    try:
        async with asyncio.timeout(timeout):
            data = await _read(request, limit)
    except TimeoutError:
        return _LATE
    except RequestPayloadError:
        return _BADLY_FRAMED
    return _too_large(limit) if data is None else data


class BodyBrokenError(Exception):
    """A streamed body ended early, and the client is to blame: `why` is what it hears."""

    def __init__(self, why: Unread) -> None:
        super().__init__(why.message)
        self.why = why


async def stream_body(request: web.BaseRequest, idle_timeout: float) -> AsyncIterator[bytes]:
    """The body of a passthrough request as it comes. Raises BodyBrokenError, so that no upstream takes a part for the
    whole. `idle_timeout` is the longest wait for the next bytes, in seconds."""
    while True:
        try:
            async with asyncio.timeout(idle_timeout):
                chunk = await request.content.readany()
        except TimeoutError:
            raise BodyBrokenError(_LATE) from None
        except RequestPayloadError:
            raise BodyBrokenError(_BADLY_FRAMED) from None
        if not chunk:
            return
        yield chunk


def with_body(raw: RawRequest, body: Body) -> RawRequest:
    """The request with its body; a coding that was taken off is no longer claimed."""
    headers = raw.headers
    if body.decoded:
        headers = tuple(field for field in headers if field[0] != "content-encoding")
    return RawRequest(raw.method, raw.path, raw.query, headers, body.data, raw.params, raw.peer)


def unmet_expectation(request: web.BaseRequest) -> Unread | None:
    """Why an `Expect` header cannot be met; None where there is none or it asks for `100-continue`."""
    expected = request.headers.get("Expect")
    if expected is None or expected.strip().lower() == "100-continue":
        return None
    return Unread(codes.EXPECTATION_FAILED, codes.EXPECTATION_FAILED.meaning)


async def send_continue(request: web.BaseRequest) -> None:
    """Tells a waiting client to go on with its body."""
    if "Expect" in request.headers and request.version >= (1, 1):
        await request.writer.write(_CONTINUE)
        request.writer.output_size = 0  # the interim answer is no part of the answer


def has_body(request: web.BaseRequest) -> bool:
    """Whether a request has a body, or says so: one that broke off at once has one too."""
    return request.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in request.headers


def _unfit(request: web.BaseRequest, coding: str, limit: int, announced: int) -> Unread | None:
    """What the head alone says against the body."""
    media_type = request.headers.get("Content-Type", "")
    if not is_json(media_type):
        sent = f"not as {media_type.partition(';')[0].strip()[:60]!r}" if media_type else "and say so"
        return Unread(codes.UNSUPPORTED_MEDIA_TYPE, f"Arguments must come as JSON in UTF-8, {sent}.")
    if coding and not is_known(coding):
        return Unread(codes.UNSUPPORTED_MEDIA_TYPE, "The body's content coding is not known: send it plain or as gzip.")
    return _too_large(limit) if announced > limit else None


def _coding(request: web.BaseRequest) -> str:
    """The content coding; of several lines all, which is a coding that nobody knows (RFC 9110 section 5.3)."""
    return ", ".join(request.headers.getall("Content-Encoding", ()))


def is_json(content_type: str) -> bool:
    """Whether a Content-Type is JSON in UTF-8: `application/json` or `*/*+json`, charset utf-8 or none.

    A charset counts however it is spelt (`charset = utf-7`, `charset*=`): some readers are as lenient.
    """
    if content_type == "application/json":
        return True
    media_type, *parameters = (part.strip().lower() for part in content_type.split(";"))
    if media_type != "application/json" and not _OTHER_JSON.fullmatch(media_type):
        return False
    pairs = [(name.strip(), value.strip(' \t"')) for name, _, value in (item.partition("=") for item in parameters)]
    return all(value in ("utf-8", "utf8") for name, value in pairs if name.startswith("charset"))


async def _read(request: web.BaseRequest, limit: int) -> bytes | None:
    """The whole body, or None as soon as it is longer than `limit`."""
    read = await request.content.readany()
    while True:
        if len(read) > limit:
            return None
        chunk = await request.content.readany()
        if not chunk:
            return read
        read += chunk


def _decoded(data: bytes, coding: str, limit: int) -> Body | Unread:
    match decode(data, coding, limit):
        case bytes() as plain:
            return Body(plain, decoded=True)
        case Undecodable.TOO_LARGE:
            return _too_large(limit)
        case Undecodable.BROKEN | Undecodable.UNKNOWN:
            return Unread(codes.BAD_REQUEST, "The body's content coding is broken.")


def _too_large(limit: int) -> Unread:
    return Unread(codes.BODY_TOO_LARGE, f"The body is larger than the {limit} bytes this route takes.")
