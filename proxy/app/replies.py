"""Answers on their way to the client: the tool's own, ours as JSON, and streams. Nothing is decided here.

Every answer carries `X-Request-ID`. An answer of ours says in `Proxy-Status` (RFC 9209) what the upstream had to do
with it. A stream is written as it comes, with the client's pace as back-pressure; if it breaks off, so does the
client's connection, because a clean end would claim that the answer was whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Final

from proxy.app.headers import reply_headers
from proxy.app.http1.answer import SERVER, Answer
from proxy.app.http1.request import Request
from proxy.app.lane import Way
from proxy.core.classify import fault_failure
from proxy.core.codes import ErrorCode
from proxy.core.envelope import render
from proxy.core.envelope.headers import correction_headers, repair_headers, warning_headers
from proxy.core.model import (
    Conversation,
    Delivered,
    Document,
    Executed,
    Failure,
    HttpReply,
    RawRequest,
    Rung,
    ToolCall,
    ToolResult,
    UpstreamFault,
    UpstreamReply,
)
from proxy.interfaces import CallRecord
from proxy.upstream import ReplyBroken
from proxy.upstream.stream import close_body

NAME: Final = SERVER
_SERVER: Final = ("Server", NAME)


def ours(reply: HttpReply, record: CallRecord, extra: tuple[tuple[str, str], ...] = ()) -> Answer:
    """An answer of our own. Notes status and size in the record."""
    headers = [
        *reply.headers,
        *extra,
        _SERVER,
        ("X-Request-ID", record.request_id),
        ("X-Content-Type-Options", "nosniff"),
    ]
    if status := _proxy_status(record):
        headers.append(("Proxy-Status", status))
    record.status, record.response_bytes = reply.status, len(reply.body)
    return Answer(reply.status, headers, reply.body)


def _proxy_status(record: CallRecord) -> str:
    if record.upstream_error:
        return f"{NAME}; error={record.upstream_error}"
    return f"{NAME}; received-status={record.upstream_status}" if record.upstream_status else ""


def refusal(code: ErrorCode, message: str, record: CallRecord, status: int | None = None) -> ToolResult:
    """The result for a request that is no call at all: it has no tool, no conversation and no attempts."""
    record.outcome, record.code = "refused", code.name
    nobody = ToolCall("", Document(b"", None), record.request_id, Conversation("", Rung.ADDRESS))
    return ToolResult(nobody, Failure(code, message or code.meaning, status=status))


def refused(code: ErrorCode, message: str, record: CallRecord, accept: str = "", status: int | None = None) -> Answer:
    """The answer to a request that belongs to no route."""
    return ours(render(refusal(code, message, record, status), "auto", "category", accept), record)


def cut_short(code: ErrorCode, record: CallRecord, accept: str) -> Answer:
    """The answer to a request that this process could not bring to its end. Where it was on its way to the upstream,
    its tool may have run, and nobody should call it twice without knowing."""
    result = refusal(code, "", record)
    if record.upstream:
        result = replace(result, failure=replace(result.failure, details={"executed": str(Executed.UNKNOWN)}))
    return ours(render(result, "auto", "category", accept), record)


def refused_on(way: Way, raw: RawRequest, result: ToolResult, record: CallRecord) -> Answer:
    """A failure in the format of its route."""
    accept = raw.header("accept") or ""
    return ours(way.adapter.encode(result, way.route.envelope, way.route.error_status, accept, raw), record)


def faulty(way: Way, raw: RawRequest, fault: UpstreamFault, record: CallRecord) -> Answer:
    """The answer to a relayed request whose upstream gave none."""
    failure = fault_failure(fault)
    result = replace(refusal(failure.code, "", record), failure=failure)
    record.outcome, record.upstream_error = "upstream_error", fault.token
    return refused_on(way, raw, result, record)


async def deliver(delivered: Delivered, request: Request, record: CallRecord, closing: bool) -> Answer | None:
    """The tool's answer as it goes to the client; a stream is written here to its end, and then there is none any more.
    `closing`: the connection ends with this answer."""
    reply = delivered.reply
    record.status = reply.status
    headers = reply_headers(reply.headers)
    if delivered.repairs or delivered.corrections or delivered.warnings:
        headers += repair_headers(delivered.repairs)
        headers += correction_headers(delivered.corrections)
        headers += warning_headers(delivered.warnings)
    headers.append(("X-Request-ID", record.request_id))
    if request.cors:  # what the upstream says of pages is its own view, without our routes
        headers = [(name, value) for name, value in headers if not name.lower().startswith("access-control-")]
    if request.method == "HEAD":
        headers += [(name, value) for name, value in reply.headers if name.lower() == "content-length"]
    if isinstance(reply.body, bytes):
        record.response_bytes = len(reply.body)
        return Answer(reply.status, headers, reply.body)
    await _stream(reply, reply.body, [*headers, *request.cors], request, record, closing)
    return None


async def _stream(
    reply: UpstreamReply,
    body: AsyncIterator[bytes],
    headers: Sequence[tuple[str, str]],
    request: Request,
    record: CallRecord,
    closing: bool,
) -> None:
    length = next((value for name, value in reply.headers if name.lower() == "content-length"), "")
    try:
        stream = request.begin(reply.status, headers, int(length) if length.isdecimal() else None, closes=closing)
        async for chunk in body:
            record.response_bytes += len(chunk)
            await stream.write(chunk)
        await stream.end()
    except ConnectionResetError as error:  # the client has gone, and its cancellation is still on the way
        raise asyncio.CancelledError from error
    except ReplyBroken as broken:
        record.outcome, record.upstream_error = "upstream_error", broken.fault.token
        request.abort()
    finally:
        await close_body(reply)
