"""The needs of a call in the outside world, as Protocols. One contract suite each, under tests/contract.

Nothing here depends on an implementation: `state/`, `upstream/` and `telemetry/` implement these, `server/` wires them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from proxy.call_record import AccessNote, CallRecord, Ending, HookFailure
from proxy.core.check.validation import Check
from proxy.core.contract.listed_tool import Hints
from proxy.core.contract.policy import ListedSchema, ListRules, ToolPolicy, ToolServer, UnknownTool
from proxy.core.json.jsontext import TextLimits
from proxy.core.model.codes import ErrorCode
from proxy.core.model.fields import NO_NAMES, FieldNames
from proxy.core.model.value_class import value_class
from proxy.core.model.values import (
    CheckedCall,
    Decision,
    Delivered,
    Episode,
    FailedAttempt,
    Failure,
    FailureRecorded,
    Headers,
    JsonValue,
    Outcome,
    ToolCall,
    ToolResult,
    UpstreamFault,
    UpstreamReply,
)
from proxy.driver import Signal

__all__ = ["Episode", "FailedAttempt", "FailureRecorded"]


class Clock(Protocol):
    """Time comes in through the door (habit 8)."""

    def now(self) -> float:
        """Seconds on a monotonic clock; only differences mean something."""

    def wall(self) -> float:
        """Seconds since the Unix epoch."""


class Pacing(Protocol):
    """Waiting, chance, and a name for each call: the needs of sending again."""

    async def sleep(self, seconds: float) -> None:
        """Waits. Needs no task."""

    def chance(self) -> float:
        """A number of at least 0 and below 1, each as likely as any other."""

    def fresh_key(self) -> str:
        """A value for an idempotency key that nobody has used before."""


# --- upstream -------------------------------------------------------------------------------------------------------
@value_class
class UpstreamRequest:
    """The request for a checked call or a passthrough request: everything but the arguments.

    `target` is the origin-form path with query; `headers` are end-to-end headers only (lower case, no hop-by-hop,
    no content-length, no host); `body` is the complete body to send. `resend`: the very same was sent before.
    `silence` is the longest silence within a streamed answer, in seconds; None: the upstream's. `client_names`:
    those of the client's headers, which go out as it wrote them, in place of the lower-case ones. `is_from_root`:
    the path of the upstream's URL does not go before `target`, which holds it already (RFC 8615). `passed_on` is called
    once the whole request has been handed to the service. `answer_only`: nothing that comes before an MCP server's
    answer is read, because the proxy itself asks.
    """

    upstream: str
    method: str
    target: str
    headers: Headers = field(repr=False)
    body: bytes = field(repr=False)
    timeout: float
    resend: bool = False
    silence: float | None = None
    client_names: FieldNames = field(default=NO_NAMES, repr=False, compare=False)
    is_from_root: bool = False
    passed_on: Callable[[], None] | None = field(default=None, repr=False, compare=False)
    answer_only: bool = False


class Upstream(Protocol):
    """Sends requests to one named upstream's URL. Maps every exception of its client to an `UpstreamFault`."""

    async def send(self, checked: CheckedCall, request: UpstreamRequest) -> UpstreamReply | UpstreamFault:
        """Sends a checked call once and gives the answer. Cancelling the caller cancels the upstream request."""

    async def relay(self, request: UpstreamRequest, body: AsyncIterator[bytes] | None) -> UpstreamReply | UpstreamFault:
        """Sends what is not a call (a passthrough route), streaming both ways.

        If `body` is None, `request.body` is sent. The timeout restarts with each piece of an upload; an exception of
        `body` itself comes out unchanged.
        """

    async def close(self) -> None:
        """Closes all connections."""


class StartedExchange(Protocol):
    """A checked call that has been sent, and whose answer nobody waits for yet."""

    @property
    def ready(self) -> Signal:
        """Set once the answer is there, begins to stream, or has failed."""

    def take(self) -> UpstreamReply | UpstreamFault:
        """The answer, as `Upstream.send` gives it. Called once, when it is ready."""

    def abort(self) -> None:
        """Ends an exchange that is not ready: nobody waits for its answer."""


@runtime_checkable
class StartsExchanges(Protocol):
    """An upstream that can send a checked call at once."""

    def start(self, checked: CheckedCall, request: UpstreamRequest) -> StartedExchange | None:
        """Sends a checked call; None if something would have to be waited for first, and nothing was sent."""


@runtime_checkable
class CountsConnections(Protocol):
    """An upstream that keeps connections in a pool."""

    def count_connections(self) -> tuple[int, int, int]:
        """Returns the number of connections that are open or being opened, of idle ones, and of those that may be
        open."""


@runtime_checkable
class JoinsServers(Protocol):
    """An upstream that is several servers."""

    def list_servers(self) -> tuple[ToolServer, ...]:
        """The servers, with the prefix of each one's names, and why one is out of reach."""


class GuardedUpstream(Upstream, Protocol):
    """An upstream with a guard in front: it refuses at once what the guard does not let through."""

    def list_servers(self) -> tuple[ToolServer, ...]:
        """As `JoinsServers`; none for a single server."""

    def grants_resend(self) -> bool:
        """Takes one resend out of the upstream's budget; False where there is none left."""

    def start(self, checked: CheckedCall, request: UpstreamRequest) -> StartedExchange | None:
        """As `StartsExchanges`; None if the guard would have to be asked."""

    async def guard(
        self, request: UpstreamRequest, send: Callable[[UpstreamRequest], Awaitable[UpstreamReply | UpstreamFault]]
    ) -> UpstreamReply | UpstreamFault:
        """Lets somebody else send what is not a call, unless the guard refuses it."""


# --- state ----------------------------------------------------------------------------------------------------------
@value_class
class Rate:
    """A key under which calls may come one in `interval` microseconds, `burst` of them at once. The part before the
    first '/' of a key is the same in all keys of one call."""

    key: str
    interval: int
    burst: int


@value_class
class RateExceeded:
    """Which of the rates (counted from 0) has to be waited for the longest, and how many microseconds."""

    index: int
    wait: int


class StateStore(Protocol):
    """Remembers episodes and counts. Each method is atomic; keys expire `ttl` seconds after their last change.

    No method raises: a shared store that is out of reach is replaced by the knowledge of this process. A method that
    waits for others awaits `IN_TASK` first (`proxy/driver.py`).
    """

    def is_known(self, key: str) -> bool:
        """Returns whether anything may be remembered under a key, of attempts or of counts, here or in a shared store.

        Waits for nothing. If it returns False, `look` and `clear` would give None and `count_taken` 0, so none of them
        need be awaited."""

    async def look(self, key: str, if_known: bool = False) -> Episode | None:
        """The running episode of an attempt key, or None.

        `if_known`: only a key of which this process has counted or seen an attempt is worth waiting for a shared store,
        so that a clean call waits for nothing. Other keys, and those of ended episodes, give None at once; what other
        processes began becomes known here soon after.
        """

    async def fail(self, key: str, attempt: FailedAttempt, ttl: float) -> FailureRecorded:
        """Adds a failed call to the episode, by the rules of `core.contract.attempts.add`."""

    async def clear(self, key: str, forget: bool = False) -> Episode | Ending | None:
        """Ends the episode (the call was delivered); gives what it was, or None. How often the refused arguments failed
        is remembered on until the episode's time is over, unless the store is to `forget` that as well.

        While a shared store has not answered yet whether other processes began one, it gives a future instead: the
        answer to the client need not wait for it.
        """

    async def list_episodes(self) -> Sequence[tuple[str, Episode]]:
        """All running episodes, for the operator."""

    async def reserve(self, key: str, limit: int, ttl: float) -> int | None:
        """Counts one more under a key, such as a call under its cap; gives the count, or None at the limit."""

    async def release(self, key: str) -> None:
        """Counts one less (the call was not delivered)."""

    async def count_taken(self, key: str, enough: int | None = None) -> int:
        """The count of a key. Looking counts nothing and prolongs nothing.

        `enough`: where this process knows of at least so many, a shared store is not asked, and what this process
        knows is the answer.
        """

    async def take_rates(self, rates: Sequence[Rate]) -> RateExceeded | None:
        """Counts one call under each of the keys, unless it comes too early for one of them: then under none."""

    async def close(self) -> None:
        """Releases what the store holds."""


@runtime_checkable
class ConnectedStore(StateStore, Protocol):
    """A store on a server. The proxy opens it before the first call."""

    async def open(self) -> None:
        """Connects to the server. A server out of reach does not hold up the start."""


# --- telemetry ------------------------------------------------------------------------------------------------------
class CallLimiter(Protocol):
    """Refuses calls beyond the `limits` of their tool, as a plugin adds them."""

    async def admit(
        self, checked: CheckedCall, limits: Mapping[str, Any], call_route: CallRoute
    ) -> Failure | Callable[[], None] | None:
        """Counts a call that would be sent. `limits`: key -> what its plugin read. Returns why the call is refused,
        what to call once it has ended, or None. Waits only for a shared store."""


class Observer(Protocol):
    """Gets each finished request: metrics, logs and traces each implement it."""

    def finished(self, record: CallRecord) -> None:
        """Takes one finished record. Must not raise."""


# --- tools ----------------------------------------------------------------------------------------------------------
class ToolTexts(Protocol):
    """Texts on tools that agents read before they call, and their place for MCP clients: after the server's own
    `instructions`, or after each tool's own description."""

    @property
    def place(self) -> Literal["instructions", "descriptions"]:
        """Which of the two places."""

    @property
    def max_chars(self) -> int:
        """The most characters of all texts together."""

    def write_instructions(self, tools: Mapping[str, ToolPolicy]) -> str:
        """The text about all of these tools."""

    def write_description(self, policy: ToolPolicy) -> str:
        """The text about one tool."""


class LearnedLists(Protocol):
    """One route's knowledge of the tools that its server lists."""

    def get_latest(self, rules: ListRules) -> Mapping[str, ToolPolicy]:
        """The tools of the list that was last used; where nothing was learned, those of the config."""


# --- access ---------------------------------------------------------------------------------------------------------
@value_class
class AccessDenied:
    """The reason why a request is refused; `headers` belong to the answer, `note` is for the audit."""

    code: ErrorCode
    message: str
    headers: Headers = ()
    note: AccessNote | None = field(default=None, repr=False, compare=False)


class CallAccess(Protocol):
    """The calls that one caller may make on one route. Only this object knows the caller's claims. `hints`: the
    annotations by the server that lists a tool; None for a tool that no server lists."""

    @property
    def scope(self) -> str:
        """Equal for callers who may see the same tools."""

    def may_see(self, tool: str, hints: Hints | None = None) -> bool:
        """Returns whether a tool of this name is shown to the caller."""

    def refuse_tool(self, tool: str, hints: Hints | None = None) -> Failure | None:
        """Returns why the caller may not call a tool, whatever the arguments; None if some may be allowed."""

    def refuse_call(self, checked: CheckedCall, hints: Hints | None = None) -> Failure | None:
        """Returns why a call is not sent in its final form; None if it is."""

    def refuse_answer(self, call: ToolCall, hints: Hints | None = None) -> Failure | None:
        """Returns why a hook may not answer a call in place of its tool; None if it may."""


@value_class
class Admitted:
    """A request that is admitted: the name of its token, '' without one, and the CORS fields of its answer. `calls` are
    those that its caller may make (None: any). `caller` is proven by a token: equal for one caller, '' for nobody.
    `note` is for the audit."""

    token: str = ""
    cors: Headers = ()
    calls: CallAccess | None = field(default=None, repr=False)
    caller: str = field(default="", repr=False)
    note: AccessNote | None = field(default=None, repr=False, compare=False)


# Gives the names in a client's certificate, each with its kind: `CN:name`, `DNS:host`, `URI:spiffe://...`.
Certificate = Callable[[], frozenset[str]]

# The admission of a request or its refusal; a request whose token's keys have to be fetched waits.
Admission = Admitted | AccessDenied | Awaitable[Admitted | AccessDenied]


class RouteAccess(Protocol):
    """Admits the requests of one route before their bodies are read."""

    def admit(self, headers: Headers, token: str | AccessDenied, certificate: Certificate) -> Admission:
        """Returns whether a request is admitted. `token`: the name of the static token that came, '' if the route knows
        none, or why none is known. `certificate` gives the names in the client's certificate."""


# --- one call -------------------------------------------------------------------------------------------------------
# The places in which clients may state the user's wish, each (kind, name).
QuerySources = tuple[tuple[str, str], ...]


class CallRoute(Protocol):
    """The route of a call: which tools it knows, and how a checked call goes out."""

    @property
    def tools(self) -> Mapping[str, ToolPolicy]:
        """The policy of every tool that may be called."""

    @property
    def unknown(self) -> UnknownTool:
        """The treatment of calls of all other tools."""

    @property
    def calls(self) -> CallAccess | None:
        """The calls that the caller may make; None: any."""

    def refuse_hidden(self, tool: str) -> Failure | None:
        """Returns why a tool of the route that is hidden from the caller is not called; None for every other name."""

    @property
    def headers(self) -> Headers:
        """The client's own headers, names in lower case."""

    @property
    def peer(self) -> str:
        """The client's address."""

    @property
    def caller(self) -> str:
        """The caller, if a token proves it (`Admitted`); otherwise ''."""

    def find_user_query(self, sources: QuerySources) -> str:
        """Returns the user's wish in the client's words, from the first of the sources that holds something; '' if none
        does (GoMind's user query)."""

    def can_forward_unknown(self, tool: str) -> bool:
        """Returns whether a call of a tool that is not among `tools` is forwarded unchanged: on a report-only route."""

    def request(self, checked: CheckedCall) -> UpstreamRequest | None:
        """Returns the request for a checked call; None if the proxy itself answers with the checked arguments."""

    def find_complaint(self, checked: CheckedCall, reply: UpstreamReply) -> Failure | None:
        """Returns the complaint about the arguments of a tool that answered with success (MCP `isError`); None without
        one, or if the answer is still a stream."""

    def find_answer_check(self, tool: str) -> Check | None:
        """The schema that a tool's answers have to match, as the config or its server states it; None without one."""

    def make_message(self, result: dict[str, JsonValue]) -> dict[str, JsonValue] | None:
        """The message that answers the call with a result; None if the protocol has no messages around its answers."""


@dataclass(slots=True)
class HookNotes:
    """Notes on the hooks of one call: the `seconds` that they have taken so far, and the `failures` of some of them.
    `answered_by` is the latest that replaced an answer, and `refused_by` the one that ended the call."""

    seconds: float = 0.0
    failures: tuple[HookFailure, ...] = ()
    answered_by: str = ""
    refused_by: str = ""


class Hooks(Protocol):
    """The operator's own code around one call (docs/hooks.md). No method raises, whatever a hook does; each is bounded
    in time. A Failure ends the call. Hooks of plugins follow those of the config and share their `notes`
    (`FollowingHooks`)."""

    @property
    def notes(self) -> HookNotes:
        """The notes on this call."""

    async def before_decision(self, call: ToolCall) -> ToolCall | UpstreamReply | Failure:
        """The call to judge, which may have other arguments than it came with; or the answer in its place."""

    async def after_decision(self, call: ToolCall, decision: Decision) -> Decision:
        """The decision that counts: the given one, a refusal, or what `decide` says of other arguments."""

    async def before_forward(self, checked: CheckedCall, request: UpstreamRequest) -> UpstreamRequest | Failure:
        """The request to send: the same but for its headers."""

    async def after_answer(self, checked: CheckedCall, reply: UpstreamReply) -> UpstreamReply | Failure:
        """The answer to hand on: the tool's own, or another one in its place."""

    async def after_outcome(self, call: ToolCall, outcome: Outcome | None) -> None:
        """Gets what became of the call; None where its client has gone."""


class AnswerFilter(Protocol):
    """Changes or withholds the answers of tools, after hooks and the tool's `response_schema`. A plugin makes it."""

    def is_on(self, tool: ToolPolicy) -> bool:
        """Returns whether it filters the answers of a tool. Calls of all other tools only call this."""

    def prepare(self, request: UpstreamRequest, call_route: CallRoute) -> UpstreamRequest:
        """The request to send, such as without the content codings that the filter cannot read."""

    async def filter(
        self, checked: CheckedCall, reply: UpstreamReply, tool: ToolPolicy, call_route: CallRoute, record: CallRecord
    ) -> UpstreamReply | Failure:
        """The answer to hand on, or why it is withheld. It closes a body that it does not hand on, and awaits `IN_TASK`
        (`proxy/driver.py`) before anything that needs a task."""


@value_class
class FailedCall:
    """A call that failed and may be corrected: the client's own, what became of it, and where it came from."""

    call: ToolCall
    failure: Failure
    policy: ToolPolicy
    call_route: CallRoute
    record: CallRecord


# Judges and sends a call in the place of the one that failed.
TryCall = Callable[[ToolCall], Awaitable[Delivered | Failure]]


class Corrector(Protocol):
    """Layers 3 and 4 (GoMind): asks a model for a better call than one that failed."""

    def is_on(self, policy: ToolPolicy) -> bool:
        """Returns whether calls of a tool may be corrected."""

    def asks_again(self, policy: ToolPolicy) -> bool:
        """Returns whether to ask about arguments that failed before in the episode: it has new knowledge since."""

    async def correct(self, failed: FailedCall, try_call: TryCall) -> Delivered | Failure | None:
        """Returns the result of a better call; a Failure only if that call may have run. None: nothing, so the caller
        gets the failure it had. Bounds its own time, and raises only what `try_call` raises."""

    def note_delivery(
        self, checked: CheckedCall, reply: UpstreamReply, policy: ToolPolicy, call_route: CallRoute
    ) -> UpstreamReply:
        """Gets a call that was delivered, to remember what it gave where the policy wants that. Gives the same
        answer; one that streams is remembered when it has passed."""


@runtime_checkable
class ExaminedTools(Protocol):
    """Tools with schemas from outside, which are compiled here once a child process has found out what that costs."""

    @property
    def wait(self) -> float:
        """Returns how long a call waits for facts about its tool, in seconds."""

    def rules_of(self, name: str) -> frozenset[str]:
        """The repair rules of a tool."""

    def find_unexamined(self, name: str) -> ListedSchema | None:
        """Returns the schema of a tool that has not been examined yet; None if no examination is needed."""

    def settle(self, name: str, *, bad: str = "", expensive: bool = False) -> None:
        """Records what examining a schema showed: it cannot be used, is too expensive to compile here, or neither."""


class JudgesElsewhere(Protocol):
    """Reads and judges in child processes what would keep other calls waiting (call/judging.py)."""

    async def read(self, text: bytes, limits: TextLimits, repairs: frozenset[str]) -> bytes | Failure:
        """A text that can be read at little cost, or why it cannot be read now."""

    async def decide(self, call: ToolCall, policy: ToolPolicy, *, tried: bool = False) -> Decision:
        """Returns the result of `decide` for a call, however long that takes within its bounds."""

    async def ask(self, job: str, payload: bytes, policy: ToolPolicy) -> bytes | None:
        """Returns the result of a job (`module:function`) on bytes and a described policy (call/jobs.py) in a child
        process; None if it takes too much."""

    async def examine(self, tools: ExaminedTools, name: str) -> None:
        """Finds out what a listed tool's schema costs before it is compiled in this process."""


@value_class
class Services:
    """The outside world, wired by the app: `upstreams` by name, `extra_lines` of tools' own formatters. `escalated` is
    called for each escalation once, and waits for nothing. `hooks` begins those of a call, None if its route has none.
    `access` is by the keys of the routes that identify callers.

    `sampled` is called for some of the forwarded calls, with the route's name, and waits for nothing. `confirm` is
    called for every accepted call, and gives the reason why it is not sent after all, or None. `answers` filter tools'
    answers, one after the other. `report_error` logs a defect of this software."""

    store: StateStore
    clock: Clock
    upstreams: Mapping[str, GuardedUpstream]
    pacing: Pacing
    extra_lines: Callable[[str, Failure], tuple[str, ...]] | None = None
    corrector: Corrector | None = None
    hooks: Callable[[CallRoute, CallRecord], Hooks | None] | None = None
    elsewhere: JudgesElsewhere | None = None
    sampled: Callable[[str, CheckedCall, ToolPolicy], None] | None = None
    confirm: Callable[[str, CheckedCall, ToolPolicy], Awaitable[Failure | None]] | None = None
    limiter: CallLimiter | None = None
    escalated: Callable[[ToolResult, CallRecord], None] = lambda result, record: None  # noqa: ARG005
    access: Mapping[str, RouteAccess] = field(default_factory=dict)
    answers: tuple[AnswerFilter, ...] = ()
    report_error: Callable[[str, BaseException], None] = lambda request_id, error: None  # noqa: ARG005
