"""Reading a request's body: every check that needs no byte of it comes first, then it is read within its bound.

`100 Continue` is sent only when the route, the method, the content type, the coding and the announced size are all
right (RFC 9110 section 10.1.1). So a client with a large body hears of its mistake before it sends it.

The bodies under way share a memory: those being read, and those being judged or forwarded. Each holds its share from
its first byte to the end of its request: what its bytes take, times what judging them takes beside. A body whose length
is announced takes its share before it is read; one that comes in chunks, as it grows. A body without others is always
read: `limits.body` bounds it. The only body is always read: `limits.body` bounds it.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aiohttp.http import HttpVersion11
from aiohttp.web_protocol import RequestPayloadError

from proxy.core.json.contentcoding import Undecodable, decode, is_coded, is_known
from proxy.core.model import codes
from proxy.core.model.fields import FieldNames
from proxy.core.model.values import Fields, RawRequest
from proxy.routing import Route
from proxy.server.http.request_head import BadRequest, RequestHead, make_fields

if TYPE_CHECKING:
    from aiohttp import web

# RFC 6839 section 3.1; one media type, as RFC 9110 section 8.3.1 has it, and no list of them.
_OTHER_JSON: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9a-z]+/[!#$%&'*+\-.^_`|~0-9a-z]+\+json")


_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
# The errors of a body that broke off or is not framed as HTTP wants it.
BROKEN: Final = (RequestPayloadError, ConnectionError)
# The longest time for a body in seconds, if the route's calls have no limit.
_LONGEST_UPLOAD: Final = 300.0
_LATE: Final = BadRequest(codes.BAD_REQUEST, "The body did not arrive in time.", 408)
_FINELY_CHUNKED: Final = BadRequest(codes.BAD_REQUEST, "The body comes in too many small chunks. Send larger chunks.")
_BADLY_FRAMED: Final = BadRequest(codes.BAD_REQUEST, "The body broke off or is not framed as HTTP wants it.")


# Bytes of memory for each byte of a body: the text and its copies here, and the values that a child reads out of it.
# A megabyte of small values takes about 24 MB in both processes.
JUDGED: Final = 24
# The same for a body that is only forwarded.
RELAYED: Final = 3
# Bodies up to so many bytes are judged in place, one after the other: only their text is kept.
SMALL: Final = 8 * 1024

FULL: Final = BadRequest(codes.OVERLOADED, "Too much is being read and checked at once.")


class MemoryBudget:
    """The memory of all bodies together, in bytes. A `room` of 0 bounds nothing."""

    __slots__ = ("held", "room")

    def __init__(self, room: int) -> None:
        self.room = room
        self.held = 0


class BodyMemory:
    """The share of one body in the budget. `each`: bytes of memory for one byte of it."""

    __slots__ = ("_budget", "_each", "_held")

    def __init__(self, budget: MemoryBudget, each: int) -> None:
        self._budget = budget
        self._each = each
        self._held = 0

    def reach(self, length: int) -> bool:
        """Takes the memory that a body of `length` bytes needs, less its present share; False if too little is left."""
        budget, wanted = self._budget, length if length <= SMALL else length * self._each
        more = wanted - self._held
        if more > 0:
            if budget.held + more > budget.room > 0 and budget.held != self._held:  # others hold some too
                return False
            budget.held += more
            self._held = wanted
        return True

    def release(self) -> None:
        """Releases the share."""
        self._budget.held -= self._held
        self._held = 0


# --- reading ----------------------------------------------------------------------------------------------------------
def take_body(request: RequestHead, fields: Fields, limit: int, memory: BodyMemory) -> bytes | None:
    """Returns the body of a call without a task; None if `read_body`, which has the same rules, has to wait for it,
    decode it or reject it. Nearly all calls need none of these. aiohttp keeps the body, too."""
    if not request.body_exists:
        return b""
    content = request.content
    if content.total_bytes > limit:
        return None
    if fields.get("content-encoding") or fields.get("expect") is not None:
        return None
    if not is_json(fields.get("content-type") or "") or not memory.reach(content.total_bytes):
        return None
    return b"".join(content._buffer)


async def read_body(
    request: web.BaseRequest, raw: RawRequest, memory: BodyMemory, route: Route
) -> RawRequest | BadRequest:
    """The request `raw` of a call with its body, read within the bytes and the seconds that its route gives it, as sent
    and as decoded. `memory` takes what it needs. Plain text will do for a final output (a route of kind `validate`)."""
    fields = raw.headers
    if not request.body_exists:
        return raw
    # Several lines are joined (RFC 9110 section 5.3), which makes an unknown coding.
    coding, limit = ", ".join(value for name, value in fields if name == "content-encoding"), route.max_body
    unfit = _unfit(fields, coding, limit, route.form, takes_text=route.kind == "validate")
    if unfit is not None:
        return unfit
    if not memory.reach(read_content_length(fields)):
        return FULL
    await say_continue(request, fields)
    data = await read_whole(request, limit, route.timeout, memory)
    if isinstance(data, BadRequest):
        return data
    if not (coding and is_coded(coding)):
        return replace(raw, body=data)
    match decode(data, coding, limit):
        case bytes() as plain if memory.reach(len(plain)):  # the coding is no longer claimed
            rest = [field for field in fields if field[0] != "content-encoding"]
            names = FieldNames(fields.names.spellings.get(name, name) for name, _ in rest)
            return replace(raw, headers=make_fields(names, [value for _, value in rest]), body=plain)
        case bytes():
            return FULL
        case Undecodable.TOO_LARGE:
            return _too_large(limit)
        case Undecodable.BROKEN | Undecodable.UNKNOWN:
            return BadRequest(codes.BAD_REQUEST, "The body's content coding is broken.")


async def read_whole(
    request: web.BaseRequest,
    limit: int,
    timeout: float,  # noqa: ASYNC109 - of the whole body
    memory: BodyMemory | None = None,
) -> bytes | BadRequest:
    """The body as sent, unless it is longer than `limit` bytes or `memory` (if given) allows, slow or badly framed."""
    if memory is not None and not memory.reach(request.content_length or 0):
        return FULL
    try:
        async with asyncio.timeout(_limit(timeout)):
            data = await request.content.readany()
            while len(data) <= limit:
                if getattr(request.protocol, "finely_chunked", None) is request.content:
                    return _FINELY_CHUNKED
                if memory is not None and not memory.reach(len(data)):
                    return FULL
                chunk = await request.content.readany()
                if not chunk:
                    return data
                data += chunk
    except TimeoutError:
        return _LATE
    except BROKEN:
        return _BADLY_FRAMED
    return _too_large(limit)


def _limit(seconds: float) -> float:
    """Returns how long a client may take to send a body, in seconds: also a route whose tools have all the time."""
    return seconds if math.isfinite(seconds) else _LONGEST_UPLOAD


def read_content_length(fields: Fields) -> int:
    """Returns how long a body is by its own account, in bytes; 0 where it does not say."""
    length = fields.get("content-length")
    return int(length) if length else 0


async def say_continue(request: web.BaseRequest, fields: Fields) -> None:
    """Tells a client that waits to send its body (RFC 9110 section 10.1.1). An interim response begins nothing."""
    if fields.get("expect") is not None and request.version == HttpVersion11:
        with suppress(ConnectionError):  # the client has gone, and its cancellation is on the way
            await request.writer.write(_CONTINUE)
            request.writer.output_size = 0


class BodyBrokenError(Exception):
    """A streamed body ended early, and the client is to blame: `why` is what it hears."""

    def __init__(self, why: BadRequest) -> None:
        super().__init__(why.message)
        self.why = why


async def stream_body(request: web.BaseRequest, idle_timeout: float) -> AsyncIterator[bytes]:
    """The body of a passthrough request as it comes. Raises BodyBrokenError, so that no upstream takes a part for the
    whole. `idle_timeout` is the longest wait for the next bytes, in seconds."""
    while True:
        try:
            async with asyncio.timeout(_limit(idle_timeout)):
                chunk = await request.content.readany()
        except TimeoutError:
            raise BodyBrokenError(_LATE) from None
        except BROKEN:
            raise BodyBrokenError(_BADLY_FRAMED) from None
        if not chunk:
            return
        yield chunk


def _unfit(fields: Fields, coding: str, limit: int, form: str, *, takes_text: bool) -> BadRequest | None:
    """Returns the reason in the head to refuse the body."""
    media_type = fields.get("content-type") or ""
    if takes_text and _TEXT.fullmatch(media_type.strip().lower()):
        media_type = "application/json"
    if form and _read_media_type(media_type) != form:
        return BadRequest(codes.UNSUPPORTED_MEDIA_TYPE, f"Arguments must come as {form} in UTF-8, and say so.")
    if not form and not is_json(media_type):
        plain = media_type.partition(";")[0].strip()
        shown = media_type.strip() if is_json(plain) else plain  # it is the charset that does not fit
        sent = f"not as {shown[:60]!r}" if media_type else "and say so"
        return BadRequest(codes.UNSUPPORTED_MEDIA_TYPE, f"Arguments must come as JSON in UTF-8, {sent}.")
    if coding and not is_known(coding):
        return BadRequest(
            codes.UNSUPPORTED_MEDIA_TYPE, "The body's content coding is not known: send it plain or as gzip."
        )
    return _too_large(limit) if read_content_length(fields) > limit else None


# Plain text or Markdown in UTF-8, or in a charset that is not named.
_TEXT: Final = re.compile(r"text/(?:plain|markdown)(?:\s*;\s*charset\s*=\s*\"?utf-?8\"?)?")


def is_json(content_type: str) -> bool:
    """Returns whether a Content-Type is JSON in UTF-8: `application/json` or `*/*+json`, charset utf-8 or none.

    A charset counts however it is spelt (`charset = utf-7`, `charset*=`): some readers are as lenient.
    """
    if content_type == "application/json":
        return True
    media_type = _read_media_type(content_type)
    return media_type == "application/json" or _OTHER_JSON.fullmatch(media_type) is not None


def _read_media_type(content_type: str) -> str:
    """The media type of a Content-Type, in lower case; '' where its charset is another than UTF-8."""
    media_type, *parameters = (part.strip().lower() for part in content_type.split(";"))
    pairs = [(name.strip(), value.strip(' \t"')) for name, _, value in (item.partition("=") for item in parameters)]
    in_utf8 = all(value in ("utf-8", "utf8") for name, value in pairs if name.startswith("charset"))
    return media_type if in_utf8 else ""


def _too_large(limit: int) -> BadRequest:
    return BadRequest(codes.BODY_TOO_LARGE, f"The body is larger than the {limit} bytes this route takes.")


# --- the memory that the bodies under way may take together -----------------------------------------------------------
# Half of what the memory limit of the control group leaves free at start; without a limit, half of what this machine's
# quarter leaves. Several workers divide it.

# The room if the system does not say how much memory there is.
_UNKNOWN: Final = 256 * 1024 * 1024
# A limit beyond this is none: the kernel's own word for it is a number near 2**63.
_NO_LIMIT: Final = 1 << 50


def find_room(workers: int, root: Path = Path("/")) -> int:
    """The room of one of so many workers, by what the system says. `root`: where `proc` and `sys` are."""
    free = _find_free_of_group(root)
    if free is None:
        total = _read_table(root / "proc/meminfo").get("MemTotal:", 0) * 1024
        own = _read_table(root / "proc/self/status").get("VmRSS:", 0) * 1024
        free = max(0, total // 4 - own) if total else _UNKNOWN * 2
    return max(1, free // 2 // workers)


def _find_free_of_group(root: Path) -> int | None:
    """Returns what the narrowest memory limit above this process leaves free; None without one."""
    found = []
    for line in _read_lines(root / "proc/self/cgroup"):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            base, limit, usage, cache = root / "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            base = root / "sys/fs/cgroup/memory"
            limit, usage, cache = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
        else:
            continue
        # In a container the path may be the host's, and the container's own files are at the base.
        steps = [step for step in path.split("/") if step not in ("", "..")]
        for depth in range(len(steps), -1, -1):
            group = base.joinpath(*steps[:depth])
            bound, used = _read_number(group / limit), _read_number(group / usage)
            if bound is not None and used is not None and bound < _NO_LIMIT:
                cached = _read_table(group / "memory.stat").get(cache, 0)  # the kernel gives these pages up first
                found.append(max(0, bound - max(0, used - cached)))
    return min(found) if found else None


def _read_table(path: Path) -> dict[str, int]:
    """The lines `name number` of a file."""
    rows = (line.split() for line in _read_lines(path))
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdecimal()}


def _read_number(path: Path) -> int | None:
    lines = _read_lines(path)
    return int(lines[0]) if lines and lines[0].isdecimal() else None


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []
