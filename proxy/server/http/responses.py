"""Answers on their way to the client: the tool's own, ours as JSON, and streams. Nothing is decided here.

Every answer carries `X-Request-ID`, or `Tool-Request-ID` beside that of a model server. An answer of ours says in
`Proxy-Status` (RFC 9209) what the upstream had to do with it. A stream is written as it comes, with the client's pace
as back-pressure. If it breaks off, so does the client's connection, because a clean end would claim that the answer was
whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from proxy.call.context import record_fault, record_no_call, record_response
from proxy.call_record import CallRecord
from proxy.core.envelope import render_failure
from proxy.core.envelope.parts import make_repair_headers, make_warning_headers
from proxy.core.model.codes import ErrorCode
from proxy.core.model.values import (
    Conversation,
    Delivered,
    Document,
    Executed,
    Failure,
    Headers,
    HttpReply,
    RawRequest,
    Rung,
    ToolCall,
    ToolResult,
    UpstreamFault,
)
from proxy.core.tool_errors.classify import make_fault_failure
from proxy.driver import IN_TASK
from proxy.server.bound_route import RouteBinding, RouteRequest
from proxy.server.http.framing import SERVER, KnownHeads, Response, ResponseStream
from proxy.server.http.headers import make_reply_headers
from proxy.upstream import ReplyBroken
from proxy.upstream.faults import close_body

if TYPE_CHECKING:
    from aiohttp import web


def make_response(reply: HttpReply, record: CallRecord, extra: Headers = ()) -> Response:
    """Makes a response of the proxy's own."""
    headers = [
        *reply.headers,
        *extra,
        ("Server", SERVER),
        ("X-Request-ID", record.request_id),
        ("X-Content-Type-Options", "nosniff"),
    ]
    if record.upstream_error:
        headers.append(("Proxy-Status", f"{SERVER}; error={record.upstream_error}"))
    elif record.upstream_status:
        headers.append(("Proxy-Status", f"{SERVER}; received-status={record.upstream_status}"))
    return Response(reply.status, headers, reply.body)


def make_refusal(code: ErrorCode, message: str, record: CallRecord, status: int | None = None) -> ToolResult:
    """The result for a request that is not a call: it has no tool, no conversation and no attempts."""
    record_no_call(record, code.name)
    no_call = ToolCall("", Document(b"", None), record.request_id, Conversation("", Rung.ADDRESS))
    return ToolResult(no_call, Failure(code, message or code.meaning, status=status))


def answer_unrouted(
    code: ErrorCode, message: str, record: CallRecord, accept: str = "", status: int | None = None
) -> Response:
    """The answer to a request that belongs to no route."""
    return make_response(
        render_failure(make_refusal(code, message, record, status), "auto", "category", accept), record
    )


def cut_short(code: ErrorCode, record: CallRecord, accept: str, call_route: RouteRequest | None) -> Response:
    """The response to a request that the end of the proxy or an internal error ended, in the format of its route. If
    the request was already being sent, its tool may have run, and the text says so."""
    result = make_refusal(code, "", record)
    if record.upstream:
        result = replace(result, failure=replace(result.failure, details={"executed": str(Executed.UNKNOWN)}))
    if call_route is not None:
        with suppress(Exception):  # the format may be what failed
            named = result if record.call is None else replace(result, call=record.call)
            return answer_failure(call_route.binding, call_route.raw, named, record)
    return make_response(render_failure(result, "auto", "category", accept), record)


def answer_failure(binding: RouteBinding, raw: RawRequest, result: ToolResult, record: CallRecord) -> Response:
    """A failure in the format of its route."""
    route = binding.route
    accept = raw.header("accept") or ""
    return make_response(
        binding.adapter.encode(result, route.envelope, route.error_status, accept, raw, route.detail), record
    )


def answer_fault(binding: RouteBinding, raw: RawRequest, fault: UpstreamFault, record: CallRecord) -> Response:
    """The answer to a relayed request whose upstream gave none."""
    failure = make_fault_failure(fault)
    result = replace(make_refusal(failure.code, "", record), failure=failure)
    record_fault(record, fault.token, unsent=fault.executed is Executed.NO)
    return answer_failure(binding, raw, result, record)


def answer_call(delivered: Delivered, body: bytes, method: str, cors: Headers, record: CallRecord) -> Response:
    """The response to a call whose tool's answer is there as a whole. `cors` are the fields by which a page may read
    it. Tools repeat their heads, so the latest ones are known."""
    reply = delivered.reply
    plain = method == "POST" and body and not (cors or delivered.corrections or delivered.warnings or delivered.attempt)
    if plain and not delivered.keeps_request_id:
        known = _known_heads.find(reply.status, reply.headers)
        if known is not None:
            added = make_repair_headers(delivered.repairs) if delivered.repairs else ()
            return Response(reply.status, [*added, ("X-Request-ID", record.request_id)], body, known=known)
        fields = make_delivery_headers(replace(delivered, repairs=()), method, cors, record.request_id)
        _known_heads.learn(reply.status, reply.headers, fields[:-1])
    return Response(reply.status, make_delivery_headers(delivered, method, cors, record.request_id), body)


_known_heads: Final = KnownHeads()


async def deliver(
    delivered: Delivered, find_request: Callable[[], web.BaseRequest], cors: Headers, record: CallRecord, closing: bool
) -> web.StreamResponse:
    """Writes the stream of a tool's answer to its end. `cors` are the fields by which a page may read it;
    `closing`: the connection ends with this answer."""
    reply, body = delivered.reply, cast("AsyncIterator[bytes]", delivered.reply.body)
    headers = make_delivery_headers(delivered, record.method, cors, record.request_id)
    length = reply.header("content-length")
    stream = ResponseStream(
        reply.status, [*headers, *cors], int(length) if length.isdecimal() else None, closes=closing
    )
    try:
        await IN_TASK
        await stream.prepare(find_request())
        async for chunk in body:
            await stream.write(chunk)
        await stream.write_eof()
    except ConnectionError as error:  # the client has gone, and its cancellation is still on the way
        raise asyncio.CancelledError from error
    except ReplyBroken as broken:
        record_fault(record, broken.fault.token)
        stream.abort()
    finally:
        record_response(record, reply.status, stream.size)
        await close_body(reply)
    return stream


def make_delivery_headers(delivered: Delivered, method: str, cors: Headers, request_id: str) -> list[tuple[str, str]]:
    """The fields of the tool's answer as it goes to the client."""
    reply = delivered.reply
    headers = make_reply_headers(reply.headers)
    if delivered.repairs or delivered.corrections or delivered.warnings:
        headers += make_repair_headers(delivered.repairs)
        headers += make_repair_headers(delivered.corrections, "Tool-Corrections")
        headers += make_warning_headers(delivered.warnings, delivered.limits)
    if delivered.attempt is not None:
        headers.append(("Tool-Attempt", str(delivered.attempt)))
    if delivered.keeps_request_id:
        headers += [(name, value) for name, value in reply.headers if name.lower() == "x-request-id"]
    headers.append(("Tool-Request-ID" if delivered.keeps_request_id else "X-Request-ID", request_id))
    if cors:  # what the upstream says of pages is its own view, without our routes
        headers = [(name, value) for name, value in headers if not name.lower().startswith("access-control-")]
    if method == "HEAD":
        headers += [(name, value) for name, value in reply.headers if name.lower() == "content-length"]
    return headers
