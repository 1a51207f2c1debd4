"""What the story needs from the outside world, as Protocols (floor 1). One contract suite each, under tests/contract.

Nothing here knows how it is done: `state/`, `upstream/` and `telemetry/` implement these, `app.py` wires them.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from proxy.core.backoff import Denied, Reason
from proxy.core.correction import Asked, Layer
from proxy.core.model import (
    CheckedCall,
    Decision,
    Delivered,
    Episode,
    FailedAttempt,
    Failure,
    FailureRecorded,
    Headers,
    Outcome,
    Repair,
    Rung,
    ToolCall,
    UpstreamFault,
    UpstreamReply,
    Violation,
)

__all__ = [
    "Ahead",
    "CallRecord",
    "Clock",
    "Episode",
    "Event",
    "FailedAttempt",
    "FailureRecorded",
    "GuardedUpstream",
    "Observer",
    "Pacing",
    "StateStore",
    "Upstream",
    "UpstreamRequest",
]
from proxy.core.noun import noun
from proxy.core.policy import ToolPolicy


class Clock(Protocol):
    """Time comes in through the door (habit 8)."""

    def now(self) -> float:
        """Seconds on a monotonic clock; only differences mean something."""

    def wall(self) -> float:
        """Seconds since the Unix epoch."""


class Pacing(Protocol):
    """What sending again needs of the world: waiting, chance, and a name for each call."""

    async def sleep(self, seconds: float) -> None:
        """Waits."""

    def chance(self) -> float:
        """A number of at least 0 and below 1, each as likely as any other."""

    def fresh_key(self) -> str:
        """A value for an idempotency key that nobody has used before."""


# --- upstream -------------------------------------------------------------------------------------------------------
@noun
class UpstreamRequest:
    """How a checked call or a passthrough request goes out: everything but the arguments.

    `target` is the origin-form path with query; `headers` are end-to-end headers only (lower case, no hop-by-hop,
    no content-length, no host); `body` is the complete body to send. `resend`: the very same was sent before.
    `silence` is the longest silence within a streamed answer, in seconds; None: the upstream's.
    """

    upstream: str
    method: str
    target: str
    headers: Headers = field(repr=False)
    body: bytes = field(repr=False)
    timeout: float
    resend: bool = False
    silence: float | None = None


class Upstream(Protocol):
    """Sends requests to one named upstream's URL. Maps every exception of its client to an `UpstreamFault`."""

    async def send(self, checked: CheckedCall, request: UpstreamRequest) -> UpstreamReply | UpstreamFault:
        """Sends a checked call once and gives the answer. Cancelling the caller cancels the upstream request."""

    async def relay(self, request: UpstreamRequest, body: AsyncIterator[bytes] | None) -> UpstreamReply | UpstreamFault:
        """Sends what is not a call (a passthrough route), streaming both ways.

        `request.body` is sent where `body` is None. The timeout starts anew with each piece of an upload; an exception
        of `body` itself comes out unchanged.
        """

    async def close(self) -> None:
        """Closes all connections."""


class GuardedUpstream(Upstream, Protocol):
    """An upstream with a guard in front: it refuses at once what the guard does not let through."""

    def grants_resend(self) -> bool:
        """Takes one resend out of the upstream's budget; False where there is none left."""


# --- state ----------------------------------------------------------------------------------------------------------
# An episode (or that there is none) that becomes known while other things go on. It never fails.
Ahead = Future[Episode | None]


class StateStore(Protocol):
    """Remembers episodes and call counts. Each method is atomic; keys expire `ttl` seconds after their last change.

    No method raises: a store shared by several replicas goes on with what this process knows when it is out of reach.
    """

    async def open(self) -> None:
        """Gets ready before the first call. A store out of reach does not hold up the start."""

    @property
    def shared(self) -> bool:
        """Whether episodes may begin and end in other processes too. If not, `knows` tells all there is to tell."""

    def is_idle(self) -> bool:
        """Whether no episode runs at all: then there is nothing to know, to look for or to clear, whatever the key.
        Asks nobody; never true of a shared store."""

    def knows(self, key: str) -> bool:
        """Whether this process has heard of a running episode of the key. Asks nobody, so it costs a call nothing.

        In one process alone this is exact. A shared store's may also be over (`look` tells), and one begun elsewhere
        may not have been heard of yet.
        """

    async def look(self, key: str) -> Episode | None:
        """The running episode of an attempt key, or None."""

    async def fail(self, key: str, attempt: FailedAttempt, ttl: float) -> FailureRecorded:
        """Adds a failed attempt, unless its digest is already in the episode."""

    async def clear(self, key: str) -> Episode | None:
        """Ends the episode (the call was delivered); gives what it was, or None."""

    def look_ahead(self, key: str) -> Ahead | None:
        """Begins to find out whether an episode runs, while the tool works: if one does, `knows` tells so from then on.
        None where `knows` tells already all there is to tell."""

    def clear_soon(self, key: str, ahead: Ahead | None = None) -> Ahead | None:
        """Ends an episode that this process does not know of, without making the answer wait: the future tells what it
        was. `ahead` is what `look_ahead` gave for this call. None where there is nothing to end."""

    async def reserve(self, key: str, limit: int, ttl: float) -> int | None:
        """Takes one of `limit` slots of a call cap; gives the slots now used, or None when all are."""

    async def release(self, key: str) -> None:
        """Gives a slot back (the call was not delivered)."""

    async def taken(self, key: str) -> int:
        """How many slots of a call cap are used now. Looking takes none and prolongs nothing."""

    async def mark(self, key: str, ttl: float) -> None:
        """Remembers a fact by its key, such as "this conversation has expanded this container"."""

    async def marked(self, key: str) -> bool:
        """Whether the fact is remembered. Looking does not prolong it."""

    async def episodes(self) -> Sequence[tuple[str, Episode]]:
        """All running episodes, for the operator."""

    async def close(self) -> None:
        """Releases what the store holds."""


# --- telemetry ------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened during a request, told with its span: `name` is one of the seeds' names, `at` seconds on
    the monotonic clock; `attributes` never hold an argument value."""

    name: str
    at: float
    attributes: Mapping[str, str | int | float | bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sent:
    """One request to an upstream, the first or a resend, as the span of a trace. Times on the monotonic clock, until
    the head of the answer; `status` 0 and an `error` (a proxy error type, or client_gone) where none came."""

    span_id: str
    method: str
    upstream: str
    started: float
    ended: float
    status: int = 0
    error: str = ""
    resend: bool = False


@dataclass(slots=True)
class Trace:
    """Where a request stands among those that led to it (W3C Trace Context), and what it led to itself.

    Ids as lower-case hexadecimal digits; `parent_id` is '' at the root. `flags` and `state` as in the two headers.
    """

    trace_id: str
    span_id: str
    parent_id: str
    flags: int
    state: str
    fresh_id: Callable[[], str]
    sent: list[Sent] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class HookFailure:
    """A hook that did not do its part: its name in the config, the point, and timeout, exception, cancelled,
    wrong_answer or wrong_header."""

    hook: str
    point: str
    reason: str


@dataclass(frozen=True, slots=True)
class Question:
    """One question to the model endpoint. `independent`: no earlier result of the conversation was known."""

    layer: Layer
    outcome: Asked
    seconds: float = 0.0
    independent: bool = True


@dataclass(slots=True)
class CallRecord:
    """Everything telemetry may know of one request, filled while the story runs; no argument value is ever in it.

    Times in seconds on the monotonic clock. `stages` maps a stage name (read, decide, upstream, answer) to its length.
    """

    request_id: str
    route: str
    method: str = ""
    tool: str = ""
    call_id: str = ""
    started: float = 0.0
    ended: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)
    mode: str = "enforce"
    schema_id: str = ""
    outcome: str = ""  # one of the values of the metric label `outcome` (telemetry/catalogue.py)
    code: str = ""
    status: int = 0
    repairs: Sequence[Repair] = ()
    violations: Sequence[Violation] = ()
    would_refuse: bool = False
    attempt: int = 0
    max_attempts: int = 0
    repeated: bool = False
    escalated: bool = False
    corrected_after: int = 0
    conversation_rung: Rung | None = None
    container: str = ""
    container_event: str = ""  # one of container.EVENTS, or ''
    upstream: str = ""
    upstream_status: int = 0
    upstream_error: str = ""
    upstream_seconds: float = 0.0
    resends: Sequence[Reason] = ()  # why the call was sent again, each time
    resend_denied: Denied | None = None  # why it was not sent once more although it might have been
    trace_id: str = ""
    trace: Trace | None = None  # where spans are made
    request_bytes: int = 0
    response_bytes: int = 0
    notes: Mapping[str, str] = field(default_factory=dict)
    hook_failures: Sequence[HookFailure] = ()
    answer: str = ""  # what the check of the tool's answer said: one of the values of the metric's label
    answer_violations: Sequence[Violation] = ()
    events: Sequence[Event] = ()
    questions: Sequence[Question] = ()  # to the model endpoint, by layers 3 and 4
    corrections: Sequence[Repair] = ()  # what a model changed in the call that was delivered: its layer, the place
    settling: Ahead | None = None  # tells `corrected_after` when the answer is already on its way


class Observer(Protocol):
    """Is told of each finished request: metrics, logs and traces each implement it."""

    def finished(self, record: CallRecord) -> None:
        """Takes one finished record. Must not raise."""


# --- one call -------------------------------------------------------------------------------------------------------
class Lane(Protocol):
    """The route of a call: which tools it knows, and how a checked call goes out."""

    @property
    def tools(self) -> Mapping[str, ToolPolicy]:
        """The policy of every tool that may be called."""

    @property
    def headers(self) -> Headers:
        """The client's own headers, names in lower case."""

    def wish(self) -> str:
        """What the user wants, in the client's words; '' where the client does not tell (GoMind's user query)."""

    def lets_through(self, tool: str) -> bool:
        """Whether a call of a tool that is not among `tools` goes on as it came: on a report-only route."""

    def request(self, checked: CheckedCall) -> UpstreamRequest | None:
        """What is sent for a checked call; None where the proxy itself answers with the checked arguments."""


class Hooks(Protocol):
    """The operator's own code around a call (docs/hooks.md). No method raises, whatever a hook does; each is bounded
    in time. A Failure ends the call."""

    async def before_decision(
        self, call: ToolCall, lane: Lane, record: CallRecord
    ) -> ToolCall | UpstreamReply | Failure:
        """The call to judge, which may have other arguments than it came with; or the answer in its place."""

    async def after_decision(
        self, call: ToolCall, decision: Decision, lane: Lane, record: CallRecord
    ) -> Failure | None:
        """Is told what was decided."""

    async def before_forward(
        self, checked: CheckedCall, request: UpstreamRequest, lane: Lane, record: CallRecord
    ) -> UpstreamRequest | Failure:
        """The request to send: the same but for its headers."""

    async def after_outcome(self, call: ToolCall, outcome: Outcome | None, lane: Lane, record: CallRecord) -> None:
        """Is told what became of the call; None where its client has gone."""


@dataclass(frozen=True, slots=True)
class Stumble:
    """A call that failed and may be corrected: the client's own, what became of it, and where it came from."""

    call: ToolCall
    failure: Failure
    policy: ToolPolicy
    lane: Lane
    record: CallRecord


# Judges and sends a call in the place of the one that failed.
TryCall = Callable[[ToolCall], Awaitable[Delivered | Failure]]


class Corrector(Protocol):
    """Layers 3 and 4 (GoMind): a model is asked for a better call than one that failed."""

    async def correct(self, stumble: Stumble, try_call: TryCall) -> Delivered | Failure | None:
        """What came of a better call; a Failure only where that call may have run. None: nothing, so the caller is
        told of the failure it had. Bounds its own time, and raises only what `try_call` raises."""

    def delivered(self, checked: CheckedCall, reply: UpstreamReply, policy: ToolPolicy, lane: Lane) -> None:
        """Is told of a call that was delivered, to remember what it gave where the policy wants that."""


@dataclass(frozen=True, slots=True)
class Services:
    """The outside world, wired by the app: `upstreams` by name, `extra_lines` of a tool's own formatter."""

    store: StateStore
    clock: Clock
    upstreams: Mapping[str, GuardedUpstream]
    pacing: Pacing
    extra_lines: Callable[[str, Failure], tuple[str, ...]] = lambda tool, failure: ()  # noqa: ARG005
    corrector: Corrector | None = None
    hooks: Hooks | None = None
