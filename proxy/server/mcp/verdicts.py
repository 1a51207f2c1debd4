"""What a tool's result says of its call. The result itself goes on unchanged, whatever it says.

With `isError`, the call ends no attempts and takes no slot of a cap. A result is read when it has passed, so what a
delivery changes in the store waits for it: `LateStore` holds back the end of the episode and keeps the slot until
`settle` says what came of the call.

Where the operator asks for it, a structured result is checked against the tool's `outputSchema` and counted
(`watch_promise`). Errors promise nothing (specification, "Tool Result").
"""

from __future__ import annotations

import re
from asyncio import Future
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from proxy.adapters.mcplist import find_answer
from proxy.core.check.validation import Check
from proxy.core.json.jsontext import dumps
from proxy.core.model import codes
from proxy.core.model.values import ABSENT, Failure, JsonValue
from proxy.core.tool_errors.complaints import read_complaints
from proxy.interfaces import CallRecord, Ending, Episode, FailedAttempt, FailureRecorded, StateStore
from proxy.server.mcp.lists.asking import Asking
from proxy.server.mcp.lists.catalogue import Catalogue
from proxy.server.mcp.watching import WatchedBody

# The longest result that is looked into, in bytes: an error is short.
_LONGEST: Final = 256 * 1024
# The longest error that is held against the phrases of complaints about arguments.
_LONG: Final = 64 * 1024
_SAYS_SO: Final = re.compile(rb'"isError"\s*:\s*true')
_INVALID: Final = 400  # the status at which a complaint about arguments is looked for
# The longest result that is checked, in bytes.
_LONGEST_PROMISE: Final = 1024 * 1024


class LateStore(StateStore):
    """A store for one call. The episode that the call's delivery ends is only looked at until `settle`."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._cleared = ""
        self._slot = ""

    def is_idle(self) -> bool:
        """Never: what a delivery would end has to be known."""
        return False

    async def look(self, key: str, if_known: bool = False) -> Episode | None:
        """The store's answer."""
        return await self._store.look(key, if_known)

    async def fail(self, key: str, attempt: FailedAttempt, ttl: float) -> FailureRecorded:
        """The store's answer."""
        return await self._store.fail(key, attempt, ttl)

    async def clear(self, key: str, forget: bool = False) -> Episode | Ending | None:  # noqa: ARG002 - a delivery forgets nothing
        """Ends nothing yet, and gives the episode that the delivery will end."""
        self._cleared = key
        return await self._store.look(key, if_known=True)

    async def list_episodes(self) -> Sequence[tuple[str, Episode]]:
        """The store's answer."""
        return await self._store.list_episodes()

    async def reserve(self, key: str, limit: int, ttl: float) -> int | None:
        """Counts one more; of a call's cap it is remembered."""
        count = await self._store.reserve(key, limit, ttl)
        if count is not None and "/cap/" in key:  # as `caps.reservation` names it
            self._slot = key
        return count

    async def release(self, key: str) -> None:
        """Counts one less."""
        self._slot = "" if key == self._slot else self._slot
        await self._store.release(key)

    async def count_taken(self, key: str, enough: int | None = None) -> int:
        """The store's answer."""
        return await self._store.count_taken(key, enough)

    async def close(self) -> None:
        """Closes nothing: the store serves other calls."""

    async def settle(self, record: CallRecord, *, failed: bool) -> None:
        """The call's result has passed: the episode ends, or where the tool `failed` the slot is given back."""
        if failed:
            record.corrected_after = 0
            if self._slot:
                await self._store.release(self._slot)
            return
        if not self._cleared:
            return
        ended = await self._store.clear(self._cleared)
        if isinstance(ended, Future):
            record.settling = ended
        elif ended is not None:
            record.corrected_after = ended.count


class ResultVerdict:
    """Watches the answer to a call; at its end it notes in the record what the tool said. `count` remembers an error of
    the tool itself."""

    def __init__(
        self,
        request_id: JsonValue,
        check: Check | None,
        sent: JsonValue,
        record: CallRecord,
        store: LateStore,
        count: Callable[[Failure], Awaitable[None]],
    ) -> None:
        self._request_id = request_id
        self._check = check
        self._sent = sent
        self._record = record
        self._store = store
        self._count = count
        self._body: bytearray | None = bytearray()
        self._failure: Failure | None = None
        self._is_settled = False

    def feed(self, data: bytes) -> None:
        """Keeps a piece, as long as all of them are not too much."""
        if self._body is not None:
            self._body += data
            if len(self._body) > _LONGEST:
                self._body = None

    def end(self) -> None:
        """Reads what came."""
        self._failure = self._read()

    async def settle(self) -> None:
        """Tells the store, once."""
        if not self._is_settled:
            self._is_settled = True
            await self._store.settle(self._record, failed=self._failure is not None)
            if self._failure is not None:
                await self._count(self._failure)

    def _read(self) -> Failure | None:
        """What the tool says of a call that failed; the record then says so too."""
        failure = read_result_failure(bytes(self._body or b""), self._request_id, self._check, self._sent)
        if failure is not None:
            is_refusal = failure.code is codes.UPSTREAM_REJECTED_ARGUMENTS
            self._record.outcome, self._record.code = "tool_error", failure.code.name if is_refusal else ""
            self._record.violations = failure.violations if is_refusal else self._record.violations
        return failure


def read_result_failure(body: bytes, request_id: JsonValue, check: Check | None, sent: JsonValue) -> Failure | None:
    """What the tool says in a result with `isError`; None of every other answer. Only a complaint about arguments has
    the status of a refusal: the same call would be refused again."""
    if len(body) > _LONGEST or _SAYS_SO.search(body) is None:
        return None
    kind = "application/json" if body.lstrip()[:1] == b"{" else "text/event-stream"
    answer = find_answer(kind, body, request_id)
    result = answer.get("result") if answer is not None else None
    if not isinstance(result, dict) or result.get("isError") is not True:
        return None
    text = dumps(answer)
    found = read_complaints(_INVALID, "application/json", text, check, sent, None) if len(text) < _LONG else None
    if found is None:
        return Failure(codes.INVALID_REQUEST, codes.INVALID_REQUEST.meaning)
    refused = codes.UPSTREAM_REJECTED_ARGUMENTS
    said = found.words and not found.violations
    message = f"{refused.meaning.rstrip('.')}: {found.words}" if said else refused.meaning
    details = {"upstream_status": str(_INVALID), **({"original_error": found.words} if found.words else {})}
    return Failure(
        refused,
        message,
        found.violations,
        details=details,
        status=_INVALID,
        sent=sent,
        type_related=found.type_related,
    )


def watch_promise(catalogue: Catalogue | None, asking: Asking, record: CallRecord) -> WatchedBody | None:
    """A watch that notes in the record what becomes of a promise; None where there is none, or nobody asks."""
    if catalogue is None or not asking.rules.output_check:
        return None
    check = catalogue.tools.output_check(record.tool)
    if check is None:
        return None
    record.answer = "unread"

    def read(body: bytes) -> None:
        kind = "text/event-stream" if body.lstrip()[:1] != b"{" else "application/json"
        answer = find_answer(kind, body, asking.message.id)
        record.answer = _name_promise(answer.get("result"), check) if answer is not None else "unread"

    return WatchedBody(read, _LONGEST_PROMISE)


def _name_promise(result: JsonValue, check: Check) -> str:
    """One of the words of `CallRecord.answer`; '' where the result promises nothing."""
    if not isinstance(result, dict) or result.get("isError") is True or result.get("resultType") == "input_required":
        return ""
    structured = result.get("structuredContent", ABSENT)
    return "unread" if structured is ABSENT else "passed" if check.accepts(structured) else "broken"
