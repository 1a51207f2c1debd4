"""The answers to one request that names tools. Judges their calls, and asks the model again if they cannot be repaired.

ModelExchange.judge_whole   the calls of an answer in one piece
             .judge_stream  those of a streamed answer, as they come
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from proxy.adapters.ladder import find_conversation
from proxy.call_record import CallRecord
from proxy.core.json.jsontext import dumps, parse
from proxy.core.model import codes
from proxy.core.model.value_class import value_class
from proxy.core.model.values import Conversation, Headers, JsonValue, Repair, ToolResult, UpstreamFault, UpstreamReply
from proxy.extensions.chat.adapters import write_message
from proxy.extensions.chat.config import ModelSettings
from proxy.extensions.chat.core.events import write_error_event
from proxy.extensions.chat.core.found_calls import FoundCall, NewCall, list_places, make_call_id
from proxy.extensions.chat.core.model_request import Api, ModelRequest, is_cut_off
from proxy.extensions.chat.core.text_watch import TextWatch
from proxy.extensions.chat.core.whole_bodies import ReadAnswer, rebuild_answer
from proxy.extensions.chat.server.asking_again import (
    FinalAnswer,
    JudgedAnswer,
    LostAnswer,
    Spending,
    ask_until_right,
    explain_call,
    write_results,
)
from proxy.extensions.chat.server.call_judge import CallJudge, JudgedCall
from proxy.extensions.chat.server.judged_stream import JudgedStream, StreamSteps
from proxy.extensions.chat.server.large_bodies import LargeBodies
from proxy.interfaces import UpstreamRequest
from proxy.plugin import ReplayedBody, gather_body
from proxy.server.bound_route import RouteRequest
from proxy.server.http.body import is_json
from proxy.server.http.framing import Response
from proxy.server.http.responses import answer_failure, make_refusal
from proxy.upstream import ReplyBroken
from proxy.upstream.faults import close_body

if TYPE_CHECKING:
    from proxy.plugin import ListedRequest

# --- the bytes of a model server's answers ----------------------------------------------------------------------------
# Fields that are wrong for an answer that may change, and one that is wrong for a changed one.
_OF_THE_BYTES = frozenset({"content-length", "content-digest", "repr-digest", "digest", "content-md5"})
_OF_THE_VERSION = "etag"


def is_plain(reply: UpstreamReply) -> bool:
    """Returns whether an answer is a success, and not compressed."""
    return reply.status // 100 == 2 and reply.header("content-encoding") in ("", "identity")


def keep_true(headers: Headers, *, is_changed: bool = True) -> Headers:
    """The headers that are right for another body, too, or for one that may still change."""
    wrong = _OF_THE_BYTES | {_OF_THE_VERSION} if is_changed else _OF_THE_BYTES
    return tuple((name, value) for name, value in headers if name.lower() not in wrong)


def make_headers_again(headers: Headers, body: bytes) -> Headers:
    """The headers of another question. It gets its own idempotency key: to the first key the server would repeat
    its first answer, or refuse the other body."""

    def derive(key: str) -> str:
        return hashlib.sha256(key.encode("utf-8", "surrogateescape") + b"\0" + body).hexdigest()

    return tuple(
        (name, derive(value) if name.lower() == "idempotency-key" else value) for name, value in keep_true(headers)
    )


async def stream_on(first: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """A body whose first piece has been read."""
    try:
        yield first
        async for piece in rest:
            yield piece
    finally:
        await rest.aclose()


def find_reason(reply: UpstreamReply, limit: int) -> str:
    """Returns why a gathered answer is relayed unread; '' if it is read."""
    if isinstance(reply.body, bytes):
        return "too_long" if len(reply.body) > limit else ""
    return "cut" if isinstance(reply.body, ReplayedBody) and reply.body.is_broken else "too_long"


# --- the answers to one request that names tools ----------------------------------------------------------------------
UNREAD: Final = "The model server's answer could not be read, and this route refuses calls that were not validated."


@value_class
class ModelExchange:
    """One request and its answers. `note` receives the answer for the client, `count_unread` the reason of an unread
    one. `note_leak` receives the tool of a call that stays in a text (None: nothing looks for one)."""

    listed: ListedRequest
    request: ModelRequest
    settings: ModelSettings
    judge: CallJudge
    large: LargeBodies
    note: Callable[[FinalAnswer], None]
    count_unread: Callable[[str], None]
    note_leak: Callable[[str], None] | None = None

    async def ask(self) -> UpstreamReply | UpstreamFault:
        """The model server's answer to the original request."""
        listed = self.listed
        upstream = listed.services.upstreams[listed.call_route.binding.route.upstream]
        return await listed.relay(_make_plain(listed.call_route), None, upstream, listed.record)

    @property
    def _conversation(self) -> Conversation:
        return find_conversation(self.listed.call_route.raw, self.listed.call_route.binding.route.shape.ladder)

    # --- an answer in one piece ---------------------------------------------------------------------------------------
    async def judge_whole(self, reply: UpstreamReply) -> tuple[UpstreamReply, tuple[Repair, ...]] | Response:
        """The answer for the client, and the repairs in it. If its calls cannot be repaired, the proxy asks the model
        again. In mode `refuse`, an error response for calls that stay wrong."""
        first = await self._read_answer(reply)
        if isinstance(first, UpstreamReply):
            return (first, ()) if self.settings.mode == "pass" else await self.refuse_unread(first)
        found = await ask_until_right(
            first, self.request, self.settings, self._write_question, self._ask_again, self._write_usage
        )
        self.note(found)
        headers = reply.headers if found.answer.written is first.text else keep_true(reply.headers)
        if self.settings.retries and (found.answer.calls or found.spent.answers > 1):
            headers = (*headers, ("Tool-Attempts", str(found.spent.answers)))
        if (failed := found.answer.failed) is not None and failed.failure is not None:
            if self.settings.mode == "refuse":
                return self._refuse_answer(failed)
            headers = (*headers, ("Tool-Error", failed.failure.code.name))
        return UpstreamReply(reply.status, headers, found.answer.written), found.answer.repairs

    async def _ask_again(self, body: bytes) -> JudgedAnswer | LostAnswer:
        """The answer to another question."""
        reply = await self._relay_again(body)
        if reply is None:
            return LostAnswer()
        is_readable = is_plain(reply) and is_json(reply.header("content-type"))
        found = await self._read_answer(reply) if is_readable else reply
        if isinstance(found, UpstreamReply):
            return await self._lose(found)
        return found if found.read.is_answer else LostAnswer(found.read.usage)

    async def _write_question(self, answer: JudgedAnswer, results: list[tuple[str, str]]) -> bytes | None:
        read = answer.read
        return await self.large.write_question(
            self.listed, self.request, read.value, read.calls, results, is_cut=read.is_cut
        )

    async def _write_usage(self, body: bytes, usage: JsonValue) -> bytes:
        return await self.large.change_answer(self.listed, body, {("usage",): dumps(usage)})

    async def _lose(self, reply: UpstreamReply) -> LostAnswer:
        """Ends an answer that cannot replace the one before."""
        is_coded = reply.header("content-encoding") not in ("", "identity")
        if not is_coded and is_json(reply.header("content-type")):
            reply = await gather_body(reply, self.settings.max_answer)
        value = parse(reply.body) if isinstance(reply.body, bytes) else None
        await close_body(reply)
        return LostAnswer(value.get("usage") if isinstance(value, dict) else None)

    async def _read_answer(self, reply: UpstreamReply) -> JudgedAnswer | UpstreamReply:
        """An answer with its calls judged; the answer as it came where it cannot be read."""
        api, listed = self.request.api, self.listed
        reply = await gather_body(reply, self.settings.max_answer)
        body = reply.body if isinstance(reply.body, bytes) else b""
        why = find_reason(reply, self.settings.max_answer)
        read = None if why else await self.large.read_answer(listed, api, body)
        if read is None:
            self.count_unread(why or "no_json")
            return reply
        if read.calls:
            judged = await self._judge_calls(read.calls)
            places = list_places(change for each in judged if (change := each.change) is not None)
            return JudgedAnswer(
                body, read, judged, await self.large.change_answer(listed, body, places) if places else body
            )
        text = read.text
        found = None if text is None else await self._find_in_text(text.text, body)
        if text is None or found is None:
            return JudgedAnswer(body, read, [], body)
        before, written = found
        made = [NewCall(each.found.call_id, each.tool, each.arguments) for each in written]
        changed = await self.large.write_calls(listed, api, body, text, before, made)
        return JudgedAnswer(body, read, written, changed)

    # --- a streamed answer --------------------------------------------------------------------------------------------
    async def judge_stream(self, reply: UpstreamReply) -> tuple[UpstreamReply, tuple[Repair, ...]] | Response:
        """The streamed answer, and the repairs that are known before its first byte. In mode `refuse`, an error
        response where its calls are wrong before that."""
        stream = self._make_stream(reply, Spending(), self.request.size)
        body = stream.read()
        try:
            first = await anext(body, b"")
        except ReplyBroken as broken:
            if stream.refused is None:
                return replace(reply, body=ReplayedBody([], reply, broken)), ()
            first = b""
        if stream.refused is not None:
            return self._refuse_answer(stream.refused)
        repairs = tuple(repair for each in stream.judged for repair in each.repairs)
        headers = keep_true(reply.headers, is_changed=bool(repairs))
        return UpstreamReply(reply.status, headers, stream_on(first, body)), repairs

    def _make_stream(self, reply: UpstreamReply, before: Spending, size: int) -> JudgedStream:
        """The body of an answer: `before` is the cost of the answers before it, `size` the length of its question."""
        settings, api = self.settings, self.request.api
        may_ask = before.answers < settings.retries and settings.retry_deadline > 0
        steps = StreamSteps(
            self._judge_calls,
            self._find_in_stream,
            TextWatch(takes_objects=settings.text_calls == "json")
            if settings.text_calls != "off" or self.note_leak
            else None,
            settings.text_calls != "off",
            partial(self._note_stream, before),
            partial(self._ask_stream, before, size) if may_ask and self.request.is_single else None,
            settings.retry_deadline,
            partial(_write_error, api, self.listed.record) if settings.mode == "refuse" else None,
        )
        usage = before.usage if isinstance(before.usage, dict) else {}
        return JudgedStream(api, reply, steps, settings.max_answer, usage if before.answers else None)

    async def _ask_stream(
        self, before: Spending, size: int, calls: list[JudgedCall], usage: dict[str, JsonValue], events: list[bytes]
    ) -> JudgedStream | LostAnswer:
        """The next answer, streamed like the first; a lost one without an answer, or without tokens left. `events` are
        those of the answer before it."""
        call_bytes = sum(len(call.found.name.encode()) + len(call.found.text) for call in calls)
        spent = before.add(calls, usage, size + call_bytes)
        if not spent.may_go_on(self.settings):
            return LostAnswer()
        results = write_results(calls, spent.answers, self.settings.retries)
        found = [call.found for call in calls]
        turn = rebuild_answer(self.request.api, found, events)
        body = await self.large.write_question(
            self.listed, self.request, turn, found, results, is_cut=is_cut_off(self.request.api, turn)
        )
        if body is None:
            return LostAnswer()
        if (reply := await self._relay_again(body)) is None:
            return LostAnswer()
        media_type = reply.header("content-type").lower()
        if not is_plain(reply) or not media_type.startswith("text/event-stream"):
            return await self._lose(reply)
        return self._make_stream(reply, spent, len(body))

    def _note_stream(
        self,
        before: Spending,
        judged: list[JudgedCall],
        usage: dict[str, JsonValue],
        lost: dict[str, JsonValue],
        unread: str,
    ) -> None:
        if unread:
            self.count_unread(unread)
        spent = before.add(judged, usage, 0).add_lost(lost)
        read = ReadAnswer([call.found for call in judged], None, usage, is_answer=True)
        self.note(FinalAnswer(JudgedAnswer(b"", read, judged), spent))

    async def _find_in_stream(self, text: str) -> list[JudgedCall] | None:
        """The valid calls that the end of a streamed text is."""
        found = await self._find_in_text(text, self.listed.record.request_id.encode())
        return None if found is None else found[1]

    # --- both ---------------------------------------------------------------------------------------------------------
    async def _find_in_text(self, text: str, seed: bytes) -> tuple[str, list[JudgedCall]] | None:
        """The valid calls that a text is, and the text before them. `seed` makes their ids."""
        if self.settings.text_calls == "off":
            self._look_for_leak(text)
        if (found := self.judge.find_in_text(text, self.settings.text_calls)) is None:
            return None
        ids = [make_call_id(self.request.api, seed, at) for at in range(len(found.calls))]
        calls = [FoundCall(each, call.name, call.arguments) for each, call in zip(ids, found.calls, strict=True)]
        judged = await self.judge.judge_text(self.request, calls, self._conversation)
        return None if judged is None else (found.before, judged)

    def _look_for_leak(self, text: str) -> None:
        """Notes a call of a tool of the request that stays in a text."""
        found = self.judge.find_in_text(text, "leaked") if self.note_leak is not None else None
        if found is not None and self.note_leak is not None and found.calls[0].name in self.request.tools.tools:
            self.note_leak(found.calls[0].name)

    async def _judge_calls(self, calls: list[FoundCall]) -> list[JudgedCall]:
        return await self.judge.judge(self.request, calls, self._conversation)

    async def _relay_again(self, body: bytes) -> UpstreamReply | None:
        """The answer to another request with the headers of the first; None where there is none."""
        listed = self.listed
        upstream = listed.services.upstreams[listed.call_route.binding.route.upstream]
        made = _make_plain(listed.call_route)
        again = replace(made, headers=make_headers_again(made.headers, body), body=body)
        reply = await listed.relay(again, None, upstream, listed.record)
        return None if isinstance(reply, UpstreamFault) else reply

    async def refuse_unread(self, reply: UpstreamReply) -> Response:
        """The response in place of an answer that cannot be read."""
        await close_body(reply)
        return self._refuse_answer("no_json")

    def _refuse_answer(self, failed: JudgedCall | str) -> Response:
        """The response in place of an answer whose calls are wrong, or unread for a reason."""
        call_route = self.listed.call_route
        result = _make_result(failed, self.listed.record)
        return answer_failure(call_route.binding, call_route.raw, result, self.listed.record)


def _write_error(api: Api, record: CallRecord, failed: JudgedCall | str, after: bytes) -> bytes:
    """The event that ends a stream whose calls are wrong or unread, behind the last event that has gone out."""
    result = _make_result(failed, record)
    return write_error_event(api, result.failure.code.name, write_message(result), after)


def _make_result(failed: JudgedCall | str, record: CallRecord) -> ToolResult:
    """The result in place of an answer with a wrong or an unread call: 502, because the server made the call."""
    if isinstance(failed, str):
        return make_refusal(codes.UPSTREAM_BAD_ANSWER, UNREAD, record)
    result = explain_call(failed)
    return replace(result, failure=replace(result.failure, status=502))


def _make_plain(call_route: RouteRequest) -> UpstreamRequest:
    """The outgoing request, which asks for an answer without a content coding."""
    made = call_route.make_passthrough()
    headers = tuple((name, value) for name, value in made.headers if name.lower() != "accept-encoding")
    return replace(made, headers=headers)
