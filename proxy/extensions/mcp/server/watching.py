"""Watches answers while they pass to the client. Nothing is changed or delayed.

A `Watch` receives each piece of a body and its end. It keeps a bounded number of bytes and ignores a longer body.

`ResultVerdict` reads whether a tool's result is an error. A call whose result has `isError` does not end the attempts
of its tool and does not use a slot of a call cap. The result is known only after it has passed, so `LateStore` delays
the end of the episode, and the return of the slot, until `settle`.

`watch_promise` checks a structured result against the tool's `outputSchema` if the config asks for it, and notes the
outcome in the record. A result with `isError` need not match the schema (specification, "Tool Result").
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from proxy.call.context import record_answer, record_ending, record_late_error
from proxy.call_record import CallRecord, Ending
from proxy.core.json.jsontext import dumps
from proxy.core.model import codes
from proxy.core.model.values import ABSENT, Failure, JsonValue, UpstreamReply
from proxy.core.tool_errors.classify import show_words
from proxy.core.tool_errors.complaints import read_complaints
from proxy.extensions.mcp.adapters.mcplist import MAX_LIST, find_answer
from proxy.extensions.mcp.server.lists.asking import Asking
from proxy.extensions.mcp.server.lists.learner import decode_body
from proxy.extensions.mcp.server.lists.reading import Catalogue
from proxy.interfaces import Episode, StateStore
from proxy.plugin import Check
from proxy.upstream.faults import close_stream

# "notifications/tools/list_changed" as JSON may write it: some writers escape every slash.
LIST_CHANGED: Final = re.compile(rb"notifications\\?/tools\\?/list_changed"), (b"list_changed",)
# A listed tool that its server does not know: as a JSON-RPC error, or in the words of the Python and TypeScript SDKs.
UNKNOWN_TOOL: Final = (
    re.compile(rb'"code"\s*:\s*-3260[12]\b|"text"\s*:\s*"(?:Unknown tool|MCP error -32602: Tool )'),
    (b"-3260", b"Unknown tool"),
)
# Bytes kept from the piece before, so that a match is found across two pieces. Longer than any match.
_OVERLAP: Final = 64


class Watch(Protocol):
    """Receives a body while it passes."""

    def feed(self, data: bytes) -> None:
        """Takes a piece of the body."""

    def end(self) -> None:
        """Notes that the body has ended."""


class WatchedStream:
    """Reports each match of a pattern in a body. A match must be short: at most `_OVERLAP` bytes. Each has one of the
    `signs`, which are found much faster."""

    def __init__(self, sought: tuple[re.Pattern[bytes], tuple[bytes, ...]], tell: Callable[[], None]) -> None:
        self._pattern, self._signs = sought
        self._tell = tell
        self._tail = b""

    def feed(self, data: bytes) -> None:
        """Searches a piece, and the place where it meets the one before."""
        seen = self._tail + data if self._tail else data
        found = any(sign in seen for sign in self._signs) and self._pattern.search(seen) is not None
        self._tail = b"" if found else seen[-_OVERLAP:]
        if found:
            self._tell()

    def end(self) -> None:
        """Does nothing: every match is reported already."""


class WatchedBody:
    """Implements `Watch`: gathers a body of at most `limit` bytes and hands it on at its end."""

    def __init__(self, read: Callable[[bytes], None], limit: int = MAX_LIST) -> None:
        self._read = read
        self._limit = limit
        self._parts: list[bytes] | None = []
        self._size = 0

    def feed(self, data: bytes) -> None:
        if self._parts is None:
            return
        self._size += len(data)
        self._parts.append(data)
        if self._size > self._limit:
            self._parts = None

    def end(self) -> None:
        if self._parts is not None:
            self._read(b"".join(self._parts))


def watch_answer(reply: UpstreamReply, *watches: Watch) -> UpstreamReply:
    """The same answer, watched by `watches`. They are given a body in memory at once."""
    if not isinstance(reply.body, bytes):
        return replace(reply, body=_Watched(reply.body, watches))
    body = decode_body(reply, reply.body)
    for watch in watches if body is not None else ():
        watch.feed(body or b"")
        watch.end()
    return reply


class _Watched:
    """A stream with watches. Has the methods that the stream of an answer needs: iteration and `aclose`."""

    def __init__(self, body: AsyncIterator[bytes], watches: tuple[Watch, ...]) -> None:
        self._body = body
        self._watches = watches

    def __aiter__(self) -> _Watched:
        return self

    async def __anext__(self) -> bytes:
        try:
            data = await anext(self._body)
        except StopAsyncIteration:
            self._end()
            raise
        for watch in self._watches:
            watch.feed(data)
        return data

    async def aclose(self) -> None:
        """Closes the stream early. Clients leave after the last event, so the body counts as ended."""
        self._end()
        await close_stream(self._body)

    def _end(self) -> None:
        watches, self._watches = self._watches, ()
        for watch in watches:
            watch.end()


# --- whether a result is an error -------------------------------------------------------------------------------------
# The longest result that is searched for an error, in bytes. Errors are short.
_LONGEST: Final = 256 * 1024
# The longest error that is searched for complaints about arguments, in bytes.
_LONG: Final = 64 * 1024
_SAYS_SO: Final = re.compile(rb'"isError"\s*:\s*true')
_INVALID: Final = 400  # an HTTP status of a refusal; the text of an MCP error is read as if it came with this status
# The longest result that is checked against an `outputSchema`, in bytes.
_LONGEST_PROMISE: Final = 1024 * 1024


class LateStore:
    """The store as one call sees it. `clear` only reads the episode; `settle` ends it if the tool has succeeded. All
    other methods are the store's own."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._cleared = ""
        self._keys: set[str] = set()
        self._slot = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def is_known(self, key: str) -> bool:
        """Returns whether the store knows a key; from the second time on, True. So a delivery names its episode to
        `clear`, and `settle` knows which one to end."""
        is_first = key not in self._keys
        self._keys.add(key)
        return not is_first or self._store.is_known(key)

    async def clear(self, key: str, forget: bool = False) -> Episode | Ending | None:  # noqa: ARG002 - a delivery forgets nothing
        """Returns the episode that the delivery will end, and does not end it yet."""
        self._cleared = key
        return await self._store.look(key, if_known=True) if self._store.is_known(key) else None

    async def reserve(self, key: str, limit: int, ttl: float) -> int | None:
        count = await self._store.reserve(key, limit, ttl)
        if count is not None and "/cap/" in key:  # `caps.reservation` writes the keys of call caps so
            self._slot = key
        return count

    async def release(self, key: str) -> None:
        self._slot = "" if key == self._slot else self._slot
        await self._store.release(key)

    async def settle(self, record: CallRecord, *, failed: bool) -> None:
        """Ends the episode after the call's result has passed. If the tool `failed`, the episode continues and the slot
        of the call cap is given back."""
        if failed and self._slot:
            await self._store.release(self._slot)
        elif self._cleared and not failed:
            is_known = self._store.is_known(self._cleared)
            if is_known and (ended := await self._store.clear(self._cleared)) is not None:
                record_ending(record, ended)


@dataclass(slots=True)
class ResultVerdict:
    """Implements `Watch` for the answer to a call. At its end an error of the tool is noted in the record; `settle`
    then updates the store and passes the error to `count`."""

    _request_id: JsonValue
    _check: Check | None
    _sent: JsonValue
    _record: CallRecord
    _store: LateStore
    _count: Callable[[Failure], Awaitable[None]]
    _parts: list[bytes] = field(default_factory=list)
    _size: int = 0
    _failure: Failure | None = None
    _is_settled: bool = False

    def feed(self, data: bytes) -> None:
        """Keeps a piece while all pieces together have at most `_LONGEST` bytes."""
        self._size += len(data)
        if self._size <= _LONGEST:
            self._parts.append(data)

    def end(self) -> None:
        self._failure = self._read()

    async def settle(self) -> None:
        """Updates the store with the result, once."""
        if not self._is_settled:
            self._is_settled = True
            await self._store.settle(self._record, failed=self._failure is not None)
            if self._failure is not None and self._record.outcome == "tool_error":
                await self._count(self._failure)

    def _read(self) -> Failure | None:
        """The failure that the tool reports, which is also written into the record; None without one."""
        body = b"".join(self._parts) if self._size <= _LONGEST else b""
        failure = read_result_failure(body, self._request_id, self._check, self._sent)
        if failure is not None:
            is_refusal = failure.code is codes.UPSTREAM_REJECTED_ARGUMENTS
            record_late_error(self._record, failure if is_refusal else None)
        return failure


def read_result_failure(body: bytes, request_id: JsonValue, check: Check | None, sent: JsonValue) -> Failure | None:
    """Returns the failure in a result with `isError`, or None for every other answer.

    Only a complaint about the arguments has the code of a refusal, because the same call would be refused again.
    """
    if b'"isError"' not in body or len(body) > _LONGEST or _SAYS_SO.search(body) is None:
        return None
    kind = "application/json" if body.lstrip()[:1] == b"{" else "text/event-stream"
    answer = find_answer(kind, body, request_id)
    result = answer.get("result") if answer is not None else None
    if not isinstance(result, dict) or result.get("isError") is not True:
        return None
    text = dumps(answer)
    found = read_complaints(_INVALID, "application/json", text, check, sent, None) if len(text) < _LONG else None
    words = (found.words if found is not None else "") or show_words(_join_texts(result), check, sent)
    own_words = {"original_error": words} if words else {}
    if found is None:
        return Failure(codes.INVALID_REQUEST, codes.INVALID_REQUEST.meaning, details=own_words)
    refused = codes.UPSTREAM_REJECTED_ARGUMENTS
    has_own_words = found.words and not found.violations
    message = f"{refused.meaning.rstrip('.')}: {found.words}" if has_own_words else refused.meaning
    details = {"upstream_status": str(_INVALID), **own_words}
    return Failure(
        refused, message, found.violations, details=details, status=_INVALID, sent=sent, type_related=found.type_related
    )


def _join_texts(result: dict[str, JsonValue]) -> str:
    """The texts of a result on one line."""
    content = result.get("content")
    parts = [part.get("text") for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return " ".join(" ".join(part for part in parts if isinstance(part, str)).split())


def watch_promise(catalogue: Catalogue | None, asking: Asking, record: CallRecord) -> WatchedBody | None:
    """Returns a watch that notes in the record whether the result matches the tool's `outputSchema`. Returns None if
    the tool has no such schema or the config does not ask for the check."""
    if catalogue is None or not asking.rules.output_check:
        return None
    check = catalogue.tools.output_check(record.tool)
    if check is None:
        return None
    record_answer(record, "unread")

    def read(body: bytes) -> None:
        kind = "text/event-stream" if body.lstrip()[:1] != b"{" else "application/json"
        answer = find_answer(kind, body, asking.message.id)
        record_answer(record, "unread" if answer is None else _name_promise(answer.get("result"), check))

    return WatchedBody(read, _LONGEST_PROMISE)


def _name_promise(result: JsonValue, check: Check) -> str:
    """Returns the value of `CallRecord.answer` for a result; '' where the result need not match the schema."""
    if not isinstance(result, dict) or result.get("isError") is True or result.get("resultType") == "input_required":
        return ""
    structured = result.get("structuredContent", ABSENT)
    return "unread" if structured is ABSENT else "passed" if check.accepts(structured) else "broken"
