"""Filters the answers of tools that have the key `answer`, as `interfaces.AnswerFilter` and as a service of calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from typing import Final

from proxy.call.context import add_notes, record_answer, record_failure
from proxy.call.outcome import name_unshown
from proxy.call_record import CallRecord
from proxy.config.model import Config
from proxy.core.contract.policy import Mode, ToolPolicy
from proxy.core.contract.toolname import list_root_properties
from proxy.core.json.jsontext import dumps
from proxy.core.model import codes
from proxy.core.model.values import CheckedCall, Failure, JsonValue, ToolResult, UpstreamReply
from proxy.core.tool_errors.classify import make_fault_failure, make_unfit_failure
from proxy.driver import IN_TASK
from proxy.extensions.answer.core.answer_rules import AnswerRules
from proxy.extensions.answer.core.bodies import Filtered, FilterTask, filter_body, find_kind
from proxy.extensions.answer.core.results import filter_message, is_answer
from proxy.extensions.answer.core.shortening import NoteWriter
from proxy.extensions.answer.filtered_events import EventChange, FilteredEvents, read_answer
from proxy.interfaces import CallRoute, Services, UpstreamRequest
from proxy.plugin import OTHER, Label, MetricRow, Metrics, write_feedback
from proxy.upstream.faults import ReplyBroken

# --- metrics ----------------------------------------------------------------------------------------------------------
CHANGES: Final = ("masked", "cut", "too_large", "unread", "broken")
COUNTED: Final = MetricRow(
    "toolproxy_answer_changes_total", "counter",
    "Answers that `answer:` changed or withheld.", ("route", "tool", "change"),
    {"change": Label(
        "The change: `masked` or `cut`; withheld as `too_large` or `unread`, or because it is `broken`.",
        CHANGES,
    )},
)  # fmt: skip
METRICS: Final = (COUNTED,)


KEY: Final = "answer"
# Bytes read beyond the bound, so that a credential that crosses it is recognized.
_BEYOND: Final = 4096
# The most bytes read of an answer that may be cut. Most MCP servers write `structuredContent` last, and clients reject
# a result without it.
_TO_CUT: Final = 2 * 1024 * 1024
# Larger texts are filtered in a thread, so that other calls go on.
_SMALL: Final = 32 * 1024
_EVENTS: Final = "text/event-stream"
_UNREAD: Final = "The tool ran, but its answer cannot be read, so the operator's rules for answers cannot be applied."


class AnswerFilters:
    """Implements `ServiceExtender` and `AnswerFilter`."""

    def __init__(self, metrics: Metrics) -> None:
        self._knows = metrics.knows
        self._counted = metrics.add_counter(COUNTED).series

    def extend(self, config: Config, services: Services) -> Services:
        """The services with this filter, if a tool of the config has the key."""
        is_used = any(KEY in policy.added for route in config.routes for policy in route.list_policies())
        return replace(services, answers=(*services.answers, self)) if is_used else services

    async def close(self) -> None:
        """Has nothing to end."""

    def is_on(self, tool: ToolPolicy) -> bool:
        """Returns whether the tool has the key."""
        return KEY in tool.added

    def prepare(self, request: UpstreamRequest, call_route: CallRoute) -> UpstreamRequest:
        """The request without the content codings that cannot be read here; events must not be coded at all."""
        accepted = [value for name, value in request.headers if name == "accept-encoding"]
        if not accepted:
            return request
        takes_gzip = any("gzip" in value.lower() for value in accepted) and call_route.make_message({}) is None
        kept = tuple(field for field in request.headers if field[0] != "accept-encoding")
        return replace(request, headers=(*kept, ("accept-encoding", "gzip" if takes_gzip else "identity")))

    async def filter(
        self, checked: CheckedCall, reply: UpstreamReply, tool: ToolPolicy, call_route: CallRoute, record: CallRecord
    ) -> UpstreamReply | Failure:
        """The answer as the tool's rules want it, or why it is withheld."""
        rules: AnswerRules = tool.added[KEY]
        is_short = isinstance(reply.body, bytes) and len(reply.body) <= rules.max_bytes
        if is_short and not rules.masks and not rules.schema and not reply.header("content-encoding"):
            return reply
        await IN_TASK
        call = _FilteredCall(checked, tool, call_route, record, partial(self._count, record))
        return await call.filter(reply)

    def _count(self, record: CallRecord, change: str) -> None:
        tool = record.tool if self._knows(record.route, record.tool) else OTHER
        self._counted[record.route or OTHER, tool, change] += 1


class _FilteredCall:
    """Filters the answer to one call."""

    def __init__(
        self,
        checked: CheckedCall,
        tool: ToolPolicy,
        call_route: CallRoute,
        record: CallRecord,
        count: Callable[[str], None],
    ) -> None:
        self._checked, self._call_route, self._record, self._count = checked, call_route, record, count
        self._rules: AnswerRules = tool.added[KEY]
        if tool.mode is Mode.REPORT and self._rules.schema == "enforce":
            self._rules = replace(self._rules, schema="report")  # a report-only route withholds nothing for its schema
        properties = () if tool.check is None else list_root_properties(tool.check)
        self._notes = NoteWriter.of(tool.tool, self._rules.max_bytes, properties, changes=tool.changes)
        self._task = FilterTask(self._rules, self._notes, call_route.find_answer_check(tool.tool))
        self._has_messages = call_route.make_message({}) is not None
        beyond = self._rules.max_bytes + _BEYOND
        self._most = max(beyond, _TO_CUT) if self._rules.cuts else beyond
        self._size = 0
        self._withheld: Failure | None = None

    async def filter(self, reply: UpstreamReply) -> UpstreamReply | Failure:
        """The answer, or why it is withheld."""
        media_type, _, parameters = reply.header("content-type").partition(";")
        media_type = media_type.strip().lower()
        if media_type == _EVENTS and not reply.header("content-encoding"):
            return await self._filter_events(reply)
        try:
            read = await read_answer(reply, self._most)
        except ReplyBroken as broken:
            return make_fault_failure(broken.fault)
        if read.text is None:
            self._count("unread")
            return self._refuse(Filtered(withheld="unread"))
        task = self._task if 200 <= reply.status < 300 else replace(self._task, check=None)
        if self._has_messages and find_kind(media_type) != "text" and read.text:
            work = partial(filter_message, read.text, task, self._call_route.make_message, is_whole=read.is_whole)
        else:
            charset = _find_charset(parameters)
            work = partial(filter_body, read.text, media_type, charset, task, is_whole=read.is_whole)
        filtered = await _run(work, len(read.text))
        self._note(filtered)
        if filtered.withheld:
            return self._refuse(filtered)
        if filtered.body is None:
            return replace(reply, body=read.raw)
        return reply.with_body(filtered.body)

    def _note(self, filtered: Filtered) -> None:
        """Counts and records what becomes of an answer."""
        withheld = {"large": "too_large", "unread": "unread", "schema": "broken"}.get(filtered.withheld, "")
        flags = (("masked", filtered.is_masked), ("cut", filtered.is_cut), (withheld, bool(withheld)))
        changes = [change for change, is_so in flags if is_so]
        for change in changes:
            self._count(change)
        if changes:
            add_notes(self._record, {"answer.changes": " ".join(changes)})
        if filtered.verdict:
            verdict = "refused" if filtered.withheld == "schema" else filtered.verdict
            record_answer(self._record, verdict, filtered.broken)

    def _refuse(self, filtered: Filtered) -> Failure:
        """Returns why an answer is withheld, for the model."""
        if filtered.withheld == "schema":
            return make_unfit_failure(filtered.broken)
        details = {"executed": "yes"}
        if filtered.withheld == "unread":
            return Failure(codes.UPSTREAM_UNFIT_ANSWER, _UNREAD, details=details)
        most = self._rules.max_bytes
        message = f"The tool ran, but its answer is longer than {most:,} bytes, so it was not handed on."
        details["max_answer_bytes"] = str(most)
        hint = self._notes.write_advice()
        return Failure(codes.ANSWER_TOO_LARGE, message, hint=hint, details=details, retryable=not self._notes.changes)

    # --- streams of events --------------------------------------------------------------------------------------------
    async def _filter_events(self, reply: UpstreamReply) -> UpstreamReply | Failure:
        change = self._change_message if self._has_messages else self._change_event
        if not isinstance(reply.body, bytes):
            return replace(reply, body=FilteredEvents(reply.body, self._most, change))
        shown = b"".join([event async for event in FilteredEvents(_give(reply.body), self._most, change)])
        if self._withheld is not None:
            return self._withheld
        return reply if shown == reply.body else reply.with_body(shown)

    async def _change_message(self, data: bytes, is_whole: bool, _size: int) -> EventChange:
        """Returns what becomes of a message of an MCP server."""
        if not is_whole and not is_answer(data):  # a notification that is too large
            self._count("too_large")
            return EventChange(is_dropped=True)
        make_message = self._call_route.make_message
        filtered = await _run(partial(filter_message, data, self._task, make_message, is_whole=is_whole), len(data))
        if filtered.withheld and is_whole and not is_answer(data):
            self._count("too_large" if filtered.withheld == "large" else "unread")
            return EventChange(is_dropped=True)
        self._note(filtered)
        if not filtered.withheld:
            return EventChange(filtered.body, ends=not is_whole)
        failure = self._refuse(filtered)
        record_failure(self._record, failure, name_unshown(failure))
        self._withheld = failure
        text = write_feedback(ToolResult(self._checked.call, failure))
        content: list[JsonValue] = [{"type": "text", "text": text}]
        return EventChange(dumps(make_message({"content": content, "isError": True})), ends=True)

    async def _change_event(self, data: bytes, is_whole: bool, size: int) -> EventChange:
        """Returns what becomes of an event of an HTTP service. All events together may take `max_bytes`."""
        self._size += size
        if not is_whole or self._size > self._rules.max_bytes:
            self._note(Filtered(is_cut=True))
            return EventChange(dumps(self._notes.write([])), ends=True)
        task = replace(self._task, check=None)
        filtered = await _run(partial(filter_body, data, "text/plain", "", task, is_whole=True), len(data))
        if not filtered.withheld:
            if filtered.is_masked:
                self._count("masked")
            return EventChange(filtered.body)
        self._note(filtered)
        return EventChange(dumps(self._refuse(filtered).message), ends=True)


async def _run(work: Callable[[], Filtered], size: int) -> Filtered:
    return work() if size <= _SMALL else await asyncio.to_thread(work)


async def _give(body: bytes) -> AsyncIterator[bytes]:
    yield body


def _find_charset(parameters: str) -> str:
    """The charset among the parameters of a Content-Type, '' without one."""
    pairs = (part.strip().partition("=") for part in parameters.split(";"))
    return next((value.strip('" ') for name, _, value in pairs if name.lower() == "charset"), "")
