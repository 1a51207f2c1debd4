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

from proxy.app.http1.request import Request, Upload, UploadBrokenError
from proxy.core import codes
from proxy.core.codes import ErrorCode
from proxy.core.contentcoding import Undecodable, decode, is_coded, is_known
from proxy.core.model import Fields, RawRequest

# RFC 6839 section 3.1; one media type, as RFC 9110 section 8.3.1 has it, and no list of them.
_OTHER_JSON: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9a-z]+/[!#$%&'*+\-.^_`|~0-9a-z]+\+json")


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


def at_hand(request: Request, limit: int) -> bytes | None:
    """The body of a call, where all of it has come with its head, and nothing has to be asked, undone or refused. That
    is how nearly all calls come; None sends the others to `read_body`, which has the same rules and more patience."""
    if request.length == 0:
        return b""
    whole, headers = request.whole, request.headers
    if whole is None or len(whole) > limit or headers.get("content-encoding") or headers.get("expect") is not None:
        return None
    return whole if is_json(headers.get("content-type") or "") else None


async def read_body(request: Request, limit: int, timeout: float) -> Body | Unread:  # noqa: ASYNC109 - of the whole body
    """Reads the body of a call. `limit` in bytes, as sent and as decoded; `timeout` in seconds."""
    if request.length == 0:
        return Body(b"")
    coding = _coding(request)
    unfit = _unfit(request, coding, limit)
    if unfit is not None:
        return unfit
    request.say_continue()
    data = await read_whole(request, limit, timeout)
    if isinstance(data, Unread):
        return data
    return _decoded(data, coding, limit) if coding and is_coded(coding) else Body(data)


async def read_whole(request: Request, limit: int, timeout: float) -> bytes | Unread:  # noqa: ASYNC109 - as above
    """The body as it was sent, unless it is longer than `limit` bytes, comes too slowly or is badly framed."""
    data: bytes | None = request.whole
    if request.upload is not None:
        try:
            async with asyncio.timeout(timeout):
                data = await _read(request.upload, limit)
        except TimeoutError:
            return _LATE
        except UploadBrokenError:
            return _BADLY_FRAMED
    return _too_large(limit) if data is None or len(data) > limit else data


class BodyBrokenError(Exception):
    """A streamed body ended early, and the client is to blame: `why` is what it hears."""

    def __init__(self, why: Unread) -> None:
        super().__init__(why.message)
        self.why = why


async def stream_body(request: Request, idle_timeout: float) -> AsyncIterator[bytes]:
    """The body of a passthrough request as it comes. Raises BodyBrokenError, so that no upstream takes a part for the
    whole. `idle_timeout` is the longest wait for the next bytes, in seconds."""
    if request.whole:
        yield request.whole
    while request.upload is not None:
        try:
            async with asyncio.timeout(idle_timeout):
                chunk = await request.upload.read()
        except TimeoutError:
            raise BodyBrokenError(_LATE) from None
        except UploadBrokenError:
            raise BodyBrokenError(_BADLY_FRAMED) from None
        if not chunk:
            return
        yield chunk


def with_body(raw: RawRequest, body: Body) -> RawRequest:
    """The request with its body; a coding that was taken off is no longer claimed."""
    headers = raw.headers
    if body.decoded:
        headers = Fields(field for field in headers if field[0] != "content-encoding")
    return RawRequest(raw.method, raw.path, raw.query, headers, body.data, raw.params, raw.peer)


def unmet_expectation(request: Request) -> Unread | None:
    """Why an `Expect` header cannot be met; None where there is none or it asks for `100-continue`."""
    expected = request.headers.get("expect")
    if expected is None or expected.lower() == "100-continue":
        return None
    return Unread(codes.EXPECTATION_FAILED, codes.EXPECTATION_FAILED.meaning)


def _unfit(request: Request, coding: str, limit: int) -> Unread | None:
    """What the head alone says against the body."""
    media_type = request.headers.get("content-type") or ""
    if not is_json(media_type):
        sent = f"not as {media_type.partition(';')[0].strip()[:60]!r}" if media_type else "and say so"
        return Unread(codes.UNSUPPORTED_MEDIA_TYPE, f"Arguments must come as JSON in UTF-8, {sent}.")
    if coding and not is_known(coding):
        return Unread(codes.UNSUPPORTED_MEDIA_TYPE, "The body's content coding is not known: send it plain or as gzip.")
    return _too_large(limit) if request.announced > limit else None


def _coding(request: Request) -> str:
    """The content coding; of several lines all, which is a coding that nobody knows (RFC 9110 section 5.3)."""
    if request.headers.get("content-encoding") is None:
        return ""
    return ", ".join(value for name, value in request.headers if name == "content-encoding")


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


async def _read(upload: Upload, limit: int) -> bytes | None:
    """The whole body, or None as soon as it is longer than `limit`."""
    read = await upload.read()
    while len(read) <= limit:
        chunk = await upload.read()
        if not chunk:
            return read
        read += chunk
    return None


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
