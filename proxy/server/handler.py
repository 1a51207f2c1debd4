"""The shared parts of all requests: the served routes, the observers, and the requests under way.

A request keeps the snapshot of the routes with which it began, so that a reload never changes the rules under it. Every
request ends in one `CallRecord`, which the observers get.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any, Final, Protocol

from proxy.adapters.ladder import read_trace_id
from proxy.call.context import record_end, record_response, record_settled, record_trace
from proxy.call_record import CallRecord, Ending, Trace
from proxy.core.contract.spellings import Unclear
from proxy.core.model.value_class import value_class
from proxy.core.model.values import Fields, HttpReply, RawRequest
from proxy.interfaces import CallAccess, Observer, Services, StateStore, ToolTexts
from proxy.routing import LeftOutOperation, Match, MethodNotAllowed, Route, RouteTable
from proxy.server.bound_route import RouteBinding
from proxy.server.http.body import MemoryBudget
from proxy.server.http.framing import Response
from proxy.server.http.headers import Hop
from proxy.server.http.request_head import BadRequest, split_target
from proxy.server.http.responses import answer_unrouted
from proxy.server.listed_routes import ListedRoutes

# Paths at which the proxy says something of itself (RFC 8615).
_WELL_KNOWN: Final = "/.well-known/"
# Targets that are remembered with where they lead, and their characters.
_MOST_TARGETS: Final = 1024
_LONGEST_TARGET: Final = 256

# A request's `traceparent` and `tracestate` -> its trace.
BeginTrace = Callable[[str | None, str | None], Trace]
# Answers a GET at a path that a plugin serves. It gets the request, its fields, the routes that the caller may use,
# each with the calls allowed there, and the state store.
Usable = Sequence[tuple[Route, CallAccess | None]]
AnswerPath = Callable[[RawRequest, Fields, Callable[[], Awaitable[Usable]], StateStore], Awaitable[HttpReply]]


@value_class
class Snapshot:
    """The routes of one config, what their calls need, and the hash of that config. `answers`: what plugins answer
    at paths that no route takes; `texts`: what MCP clients read of tools."""

    table: RouteTable
    bindings: Mapping[str, RouteBinding]
    services: Services
    digest: str
    answers: Mapping[str, AnswerPath] = field(default_factory=dict)
    texts: ToolTexts | None = None
    known: dict[tuple[str, str], Target] = field(default_factory=dict)

    def read_target(self, method: str, target: str) -> Target:
        """Returns what the routes find for a method and target. `known` keeps the latest short targets with a route."""
        path, query = split_target(target)
        if path in self.answers and path.startswith(_WELL_KNOWN):  # no route takes the place of what we say of us
            return Target(path, query, is_ours=True)
        match = self.table.match(method, path)
        if not isinstance(match, Match):
            return Target(path, query, why_not=match)
        found = Target(path, query, self.bindings[match.route.key], match.params)
        if len(target) <= _LONGEST_TARGET:
            if len(self.known) >= _MOST_TARGETS:
                self.known.clear()
            self.known[method, target] = found
        return found


@value_class
class Target:
    """The target of a request, read by one snapshot: its path and query, the `binding` of its route with the path's
    parameters, or `why_not` if no route takes it. `is_ours`: a plugin answers there, whatever routes there are."""

    path: str
    query: str
    binding: RouteBinding | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    why_not: MethodNotAllowed | Unclear | LeftOutOperation | None = None
    is_ours: bool = False


class RunningRequest(Protocol):
    """A request that has not ended (`RequestCycle`). `ended` is its end, if somebody waits for it."""

    record: CallRecord
    ended: asyncio.Future[None] | None

    def find_end(self) -> asyncio.Future[Any]:
        """Returns the future of the request's end."""

    def stop(self) -> None:
        """Ends it because the proxy does."""


class Handler:
    """The shared parts of all requests. `snapshot` and `observers` may be exchanged at any time; `under_way` are the
    requests that have not ended, and `memory` bounds their bodies. `fast`: a request may begin, and end, without a
    task; `counted_fast` counts those that ended so.

    While `draining`, every answer ends its connection. Once `closing`, nothing new is begun: each request is answered
    that the proxy restarts. When `stopping`, so is each one under way.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        observers: Sequence[Observer],
        hop: Hop,
        fresh_id: Callable[[], str],
        report_error: Callable[[str, BaseException], None],
        hosts: frozenset[str],
        begin_trace: BeginTrace | None,
        listed: ListedRoutes,
        room: int,
    ) -> None:
        self.snapshot = snapshot
        self.observers = observers
        self.hop = hop
        self.fresh_id = fresh_id
        self.report_error = report_error
        self.hosts = hosts
        self.listed = listed
        self.memory = MemoryBudget(room)
        self.now = snapshot.services.clock.now
        self.draining = self.closing = self.stopping = False
        self.fast = True
        self.counted_fast = 0
        self.under_way: set[RunningRequest] = set()
        self.begin_trace = begin_trace

    @property
    def inflight(self) -> int:
        """Returns the number of requests under way."""
        return len(self.under_way)

    def exchange(self, snapshot: Snapshot) -> frozenset[asyncio.Future[Any]]:
        """Serves another snapshot from here on; gives the requests under way, which keep the one they began with."""
        self.snapshot = snapshot
        return self._list_running()

    def _list_running(self) -> frozenset[asyncio.Future[Any]]:
        return frozenset([cycle.find_end() for cycle in self.under_way])

    def refuse_head(self, why: BadRequest) -> Response:
        """The response to a request whose head is not valid HTTP. Counted like any other."""
        record = CallRecord(self.fresh_id(), "", started=self.now())
        response = answer_unrouted(why.code, why.message, record, status=why.status)
        record_response(record, response.status, len(response.payload))
        record_end(record, self.now())
        self.tell(record)
        return response

    async def wait_settled(self) -> None:
        """Waits for the requests that are under way now; later ones are not waited for."""
        if under_way := self._list_running():
            await asyncio.wait(under_way)

    async def idle(self) -> None:
        """Returns when no request is under way."""
        while under_way := self._list_running():
            await asyncio.wait(under_way)

    async def abandon(self) -> None:
        """Ends what is still under way: each client hears that the proxy restarts."""
        self.stopping = True
        for cycle in tuple(self.under_way):
            cycle.stop()
        await self.idle()

    def place(self, record: CallRecord, parent: str | None, state: str | None) -> None:
        """Puts a request into its trace, which only the log names if no spans are made."""
        trace = None if self.begin_trace is None else self.begin_trace(parent, state)
        record_trace(record, (read_trace_id(parent) or "") if trace is None else trace.trace_id, trace)

    def finish(self, cycle: RunningRequest) -> None:
        """Ends a request. Tells the observers, once its record is complete."""
        self.under_way.discard(cycle)
        if (settling := cycle.record.settling) is None:
            self.tell(cycle.record)
        else:  # the answer need not wait for the store
            settling.add_done_callback(partial(self._tell_settled, cycle.record))
        if cycle.ended is not None and not cycle.ended.done():
            cycle.ended.set_result(None)

    def _tell_settled(self, record: CallRecord, settled: Ending) -> None:
        """Reports a request that is over, and the episode that its answer has ended."""
        record_settled(record, settled)
        self.tell(record)

    def tell(self, record: CallRecord) -> None:
        """Tells the observers of a request that is over. Reports their exceptions: a request may end while the
        connection to a tool is read."""
        for observer in self.observers:
            try:
                observer.finished(record)
            except Exception as error:  # noqa: BLE001 - the border: it may be code of a plugin
                self.report_error(record.request_id, error)
