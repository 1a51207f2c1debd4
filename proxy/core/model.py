"""The nouns of the house: frozen values that every room hands on. A change makes a new value. Those of which every call
makes some are frozen for mypy alone (noun.py).

A `ToolCall` is what a client asked for; a `CheckedCall` is what may be sent upstream. The two types differ on
purpose: `decide` is the only place that makes a `CheckedCall` (tests/test_architecture.py), and `Upstream.send`
takes nothing else, so an unchecked call cannot be sent. Raw argument values are kept out of every `repr`, so that
no traceback or log line can show one (Acode FR-066).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Final, Literal

from proxy.core.codes import ErrorCode, Severity, ViolationCode
from proxy.core.fields import Fields as Fields
from proxy.core.fields import Headers as Headers
from proxy.core.noun import noun

# A parsed JSON value: dict, list, str, int, bool, None, or for a number that is not a plain integer a float, or
# `jsontext.LosslessFloat` where a float would be written with other digits. A recursive alias would say no more, since
# every reader tests the type anyway.
JsonValue = Any

# Steps from the root of a value to one place in it: object keys and array indexes (RFC 6901, unescaped).
Pointer = tuple[str | int, ...]


class Absent:
    """The type of `ABSENT`, which stands where a value is missing (`None` is JSON null)."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent()


# --- what a client asks ---------------------------------------------------------------------------------------------
class Rung(StrEnum):
    """Where a conversation's identity came from, best first (contract section 4)."""

    HEADER = "header"
    META = "meta"
    BODY = "body"
    TRACE = "trace"
    SESSION = "session"
    ADDRESS = "address"  # hash of authorization, user agent and address: several users may share it


@noun
class Conversation:
    """Which conversation a call belongs to; on the rung `ADDRESS` nothing is ever blocked.

    `key` is opaque and all that may be kept. Where `name` is what a client sent, it is no key yet (`sent`) but may be a
    session id or a credential: the key is its hash, worked out when somebody asks, which of a clean call nobody may.
    """

    name: str = field(repr=False)
    rung: Rung
    sent: bool = False

    @property
    def key(self) -> str:
        """What the conversation is known by: 32 hexadecimal digits where its name was sent."""
        if not self.sent:
            return self.name
        return blake2b(self.name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


@noun
class Repair:
    """One change made to the arguments: the rule's name and the place, never the value."""

    rule: str
    path: Pointer


@noun
class Document:
    """JSON as it arrived: the exact bytes, what they mean, and the text repairs it took to read them."""

    text: bytes = field(repr=False)
    value: JsonValue = field(repr=False)
    repairs: tuple[Repair, ...] = ()


@dataclass(frozen=True, slots=True)
class JsonProblem:
    """Why a text is not acceptable JSON (VAL-004). Line and column count from 1; column counts bytes."""

    reason: str
    line: int
    column: int
    truncated: bool = False


@noun
class ToolCall:
    """A model's call of one tool. `arguments` is the document of the arguments alone, or why it could not be read.

    `raw` is the text that could not be read, b"" otherwise: it tells one broken text from another.
    """

    tool: str
    arguments: Document | JsonProblem
    call_id: str
    conversation: Conversation
    raw: bytes = field(default=b"", repr=False)


@noun
class RawRequest:
    """An HTTP request, read whole. Header names are lower case; `params` are the route's path parameters."""

    method: str
    path: str
    query: str
    headers: Headers = field(repr=False)
    body: bytes = field(repr=False)
    params: Mapping[str, str]
    peer: str

    def header(self, name: str) -> str | None:
        """The first value of the header `name` (lower case), or None."""
        headers = self.headers
        return headers.by_name.get(name) if type(headers) is Fields else Fields(headers).get(name)


@dataclass(frozen=True, slots=True)
class Passthrough:
    """A request that is not a call and may go on as it is."""


# --- what is wrong --------------------------------------------------------------------------------------------------
@noun
class Violation:
    """One broken schema keyword at one place (Acode FR-002..FR-007).

    `value` is what was sent there (`ABSENT` where nothing was); it is sanitised by whoever shows it.
    `expected` and `hint` are sentences for the model, '' where there is nothing to say. `sensitive` says that the
    schema marks the value as secret (`writeOnly`, `format: password`, `x-sensitive`): it is then never shown.
    """

    code: ViolationCode
    path: Pointer
    message: str
    expected: str = ""
    hint: str = ""
    severity: Severity = Severity.ERROR
    value: JsonValue = field(default=ABSENT, repr=False)
    sensitive: bool = False


@noun
class Failure:
    """Why a call got no answer from its tool; every wire format is made from this (contract section 1).

    `details` is a flat map, as GoMind clients decode it. `sent` is the arguments as sent, `ABSENT` if unreadable.
    """

    code: ErrorCode
    message: str
    violations: tuple[Violation, ...] = ()
    hint: str = ""
    details: Mapping[str, str] = field(default_factory=dict)
    status: int | None = None
    retryable: bool | None = None
    sent: JsonValue = field(default=ABSENT, repr=False)
    container: ContainerMisuse | None = None
    headers: Headers = ()

    @property
    def http_status(self) -> int:
        """The status to answer with: the upstream's own where there is one, else the code's."""
        return self.code.status if self.status is None else self.status

    @property
    def may_retry(self) -> bool:
        """Whether another call by the model can succeed."""
        return self.code.retryable if self.retryable is None else self.retryable


@dataclass(frozen=True, slots=True)
class Container:
    """A tool that only groups functions and takes no parameters (HPD). `source`: plugin, mcp, frontend or skill.

    `expand` says who answers the call without parameters. `auto_expand` says what a call with parameters does: it is
    refused (`off`), expands the container the first time (`expand`), or goes to the function it names (`dispatch`).
    `require_expansion`: the container's functions may be called only after it was expanded in the conversation.
    """

    name: str
    source: str = "plugin"
    functions: tuple[ContainerFunction, ...] = ()
    expand: Literal["upstream", "proxy"] = "upstream"
    auto_expand: Literal["off", "expand", "dispatch"] = "off"
    require_expansion: bool = False


@dataclass(frozen=True, slots=True)
class ContainerFunction:
    """One function of a container, as shown when the proxy expands it."""

    name: str
    description: str = ""
    schema: Mapping[str, JsonValue] | None = None


@dataclass(frozen=True, slots=True)
class ContainerMisuse:
    """A container called with parameters: which one, and with what.

    `function` is the container's function that was most likely meant, '' where none is; `arguments` are what was sent
    for it, without the key that named it.
    """

    container: Container
    attempted: JsonValue = field(repr=False)
    function: str = ""
    arguments: JsonValue = field(default=ABSENT, repr=False)


# --- what was decided -----------------------------------------------------------------------------------------------
@noun
class CheckedCall:
    """A call that may be sent. Made by `decide.decide` alone.

    `arguments` are the bytes to send (the client's own unless something was repaired) and `value` their meaning.
    `enforced` is False on report-only routes, where the client's bytes go on whatever the check said; `would` then
    holds the refusal that an enforced route would have answered.
    """

    call: ToolCall
    arguments: bytes = field(repr=False)
    value: JsonValue = field(repr=False)
    repairs: tuple[Repair, ...] = ()
    warnings: tuple[Violation, ...] = ()
    enforced: bool = True
    would: Failure | None = None


@noun
class Forward:
    """The call may go to its tool."""

    checked: CheckedCall


@noun
class Reject:
    """The call may not go to its tool."""

    failure: Failure


Decision = Forward | Reject


# --- what came back -------------------------------------------------------------------------------------------------
@noun
class UpstreamReply:
    """An upstream's answer: the body whole, or a stream where it is large or endless (server-sent events)."""

    status: int
    headers: Headers = field(repr=False)
    body: bytes | AsyncIterator[bytes] = field(repr=False)


class Executed(StrEnum):
    """Whether the tool may have run (contract section 7)."""

    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class UpstreamFault:
    """No answer from the upstream. `token` is the RFC 9209 error type, such as `connection_refused`.

    `retry_after`: how many seconds to wait before the next try can succeed, where that is known.
    """

    code: ErrorCode
    token: str
    executed: Executed
    message: str
    retry_after: int | None = None


@noun
class FailedAttempt:
    """One wrong call, as remembered: codes, paths, expectations and JSON types, never a value (contract section 4)."""

    digest: str
    lines: tuple[str, ...]


@noun
class Episode:
    """The failed attempts of one conversation with one tool, oldest first. `count` includes attempts no longer kept.

    `digests` holds the hashes of the refused arguments, oldest first: a byte-identical resend counts once.
    `repeats` counts such resends.
    """

    count: int
    attempts: tuple[FailedAttempt, ...]
    digests: tuple[str, ...]
    repeats: int = 0


@noun
class FailureRecorded:
    """What recording a failure did. `repeated`: these arguments had been refused before and did not count again."""

    episode: Episode
    repeated: bool


@noun
class Attempt:
    """Where a model stands with a tool: try `number` of `limit` (Acode FR-036, FR-049)."""

    number: int
    limit: int


@noun
class Delivered:
    """The tool answered; the reply goes back as it is. `failed`: it is an error that the route hands on untouched.

    `corrections` are the places that a model changed, each with its layer (docs/correction.md).
    """

    reply: UpstreamReply
    repairs: tuple[Repair, ...] = ()
    warnings: tuple[Violation, ...] = ()
    failed: bool = False
    corrections: tuple[Repair, ...] = ()


@dataclass(frozen=True, slots=True)
class FeedbackLimits:
    """Bounds of the sentence a model reads (Acode FR-025, FR-035, FR-052) and the roots file paths are shown under.

    `max_chars` and `max_preview` count code points. `secret_names` are property names the schema marks as secret,
    beside those known by name (`secrets.py`). `marks`: the sent arguments are shown with the errors written in.
    """

    max_errors: int = 10
    max_chars: int = 2000
    max_preview: int = 100
    path_roots: tuple[str, ...] = ()
    marks: bool = False
    secret_names: frozenset[str] = frozenset()


@noun
class ToolResult:
    """A failure together with what the retry contract makes of it. Each adapter encodes it in its own format.

    `escalated`: this is the last attempt's answer, its text says to stop; `blocked` makes that binding (Acode FR-045;
    never on the rung `ADDRESS`). `history` has one line for each attempt so far; `repeated` marks a byte-identical
    resend of arguments that were refused before. `accepts` and `example` are guidance for the model (an example that
    is not complete shows the shape alone); `extra` holds lines of a tool-specific formatter; `limits` bounds all of it.
    `finalising`: no tool was called, a final output was checked.
    """

    call: ToolCall
    failure: Failure
    attempt: Attempt | None = None
    escalated: bool = False
    blocked: bool = False
    repeated: bool = False
    history: tuple[str, ...] = ()
    accepts: str = ""
    example: str = ""
    example_complete: bool = True
    extra: tuple[str, ...] = ()
    repairs: tuple[Repair, ...] = ()
    limits: FeedbackLimits = field(default_factory=FeedbackLimits)
    finalising: bool = False


Outcome = Delivered | ToolResult


@noun
class HttpReply:
    """An answer of our own, as it goes to the client. Header names in their usual spelling."""

    status: int
    headers: Headers
    body: bytes = field(repr=False)
