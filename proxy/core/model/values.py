"""The frozen values that every room uses. A change makes a new value (`dataclasses.replace`).

Only `decide` makes a `CheckedCall` (tests/test_architecture.py), and `Upstream.send` takes nothing else than one, so an
unchecked call cannot be sent. Raw argument values are kept out of every `repr`, so that no traceback or log line can
show one (Acode FR-066). Values are a `@value_class` (value_class.py): frozen.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any, Final, Literal

from proxy.core.model.codes import ErrorCode, Severity, ViolationCode
from proxy.core.model.fields import Fields as Fields
from proxy.core.model.fields import Headers as Headers
from proxy.core.model.value_class import value_class as value_class

# A parsed JSON value: dict, list, str, int, bool or None. A number that is not a plain integer is a float, or a
# `jsontext.LosslessFloat` where a float would be written with other digits. Every reader tests the type anyway.
JsonValue = Any

# Steps from the root of a value to one place in it: object keys and array indexes (RFC 6901, unescaped).
Pointer = tuple[str | int, ...]


class Absent:
    """The type of `ABSENT`, which means a missing value (`None` is JSON null)."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent()


# --- what a client asks ---------------------------------------------------------------------------------------------
class Rung(StrEnum):
    """The source of a conversation's identity, best first (docs/contract.md)."""

    HEADER = "header"
    META = "meta"
    BODY = "body"
    TRACE = "trace"
    SESSION = "session"
    ADDRESS = "address"  # hash of authorization, user agent and address: several users may share it


@value_class
class Conversation:
    """Which conversation a call belongs to. On the rung `ADDRESS` several users may share it.

    `otherwise` is the conversation by the next rung, if this one may be new with each call (`TRACE`). `sent` says
    that `name` is what the client sent, which may be a session id or a credential."""

    name: str = field(repr=False)
    rung: Rung
    sent: bool = False
    otherwise: Conversation | None = None
    hash: str = field(default="", init=False, repr=False, compare=False)  # kept by `attempts.hash_conversation`


@value_class
class Repair:
    """One change made to the arguments: the rule's name and the place, never the value."""

    rule: str
    path: Pointer


@value_class
class Document:
    """JSON as it arrived: the exact bytes, the parsed value, and the text repairs that reading it took."""

    text: bytes = field(repr=False)
    value: JsonValue = field(repr=False)
    repairs: tuple[Repair, ...] = ()


@value_class
class JsonProblem:
    """The reason why a text is not acceptable JSON (VAL-004). Line and column count from 1; column counts bytes. `path`
    is the place of a number that JSON allows and no double holds."""

    reason: str
    line: int
    column: int
    truncated: bool = False
    path: Pointer | None = None


@value_class
class ToolCall:
    """A model's call of one tool. `arguments` is the document of the arguments, or why it is unreadable.

    `raw` is the unreadable text, b"" otherwise; it distinguishes one broken text from another. `params` (decoded) and
    `query` (as sent) belong to the request, where the request calls one tool. `resend_id` stays the same where a client
    sends a call once more, and differs for the model's next call; None: `call_id` does so, '': nothing does.
    `violations` is what was wrong with the request around its arguments."""

    tool: str
    arguments: Document | JsonProblem
    call_id: str
    conversation: Conversation
    raw: bytes = field(default=b"", repr=False)
    params: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    query: str = field(default="", repr=False)
    resend_id: str | None = None
    violations: tuple[Violation, ...] = field(default=(), repr=False)


@value_class
class RawRequest:
    """An HTTP request, read whole. Header names are lower case; `params` are the route's path parameters."""

    method: str
    path: str
    query: str
    headers: Fields = field(repr=False)
    body: bytes = field(repr=False)
    params: Mapping[str, str]
    peer: str

    def header(self, name: str) -> str | None:
        """The first value of the header `name` (lower case), or None."""
        return self.headers.get(name)


@value_class
class Passthrough:
    """A request that is not a call and is forwarded as it is."""


# --- what is wrong --------------------------------------------------------------------------------------------------
@value_class
class Violation:
    """One broken schema keyword at one place (Acode FR-002..FR-007).

    `value` is what was sent there (`ABSENT`: nothing); the code that shows it also sanitises it. `expected` and `hint`
    are sentences for the model. `sensitive`: the schema marks the value as secret (`writeOnly`, `format: password`,
    `x-sensitive`), and it is never shown. `keyword` is the broken keyword and `limit` its value, if the code does not
    say it. `quoted` is the part of the message (at its end) or of the hint that was written from sent values, '' for
    none. Every other word comes from the schema and from this proxy."""

    code: ViolationCode
    path: Pointer
    message: str
    expected: str = ""
    hint: str = ""
    severity: Severity = Severity.ERROR
    value: JsonValue = field(default=ABSENT, repr=False)
    sensitive: bool = False
    keyword: str = field(default="", compare=False)
    limit: JsonValue = field(default=None, repr=False, compare=False)
    quoted: str = field(default="", repr=False, compare=False)


@value_class
class Failure:
    """The reason why a call got no answer from its tool. Every wire format is made from this (docs/contract.md).

    `details` is a flat map, as GoMind clients decode it. `sent` holds the arguments as sent, `ABSENT` if unreadable,
    and `mended` what repairs made of them. `advice`, if it is known already: the tool's signature, an example, and
    whether the example is complete. `type_related`: the tool says that a value has the wrong type."""

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
    advice: tuple[tuple[str, ...], str, bool] | None = field(default=None, repr=False)
    type_related: bool = False
    mended: JsonValue = field(default=ABSENT, repr=False, compare=False)

    @property
    def http_status(self) -> int:
        """The status to answer with: the upstream's own where there is one, else the code's."""
        return self.code.status if self.status is None else self.status

    @property
    def may_retry(self) -> bool:
        """Returns whether another call by the model can succeed."""
        return self.code.retryable if self.retryable is None else self.retryable


@value_class
class Container:
    """A tool that only groups functions and takes no parameters (HPD). `source`: plugin, mcp, frontend or skill.

    `expand`: who answers the call without parameters. `auto_expand`: a call with parameters is refused (`off`), expands
    the container the first time (`expand`), or goes to the function it names (`dispatch`). `require_expansion`: the
    functions may be called only after the conversation has expanded the container."""

    name: str
    source: str = "plugin"
    functions: tuple[ContainerFunction, ...] = ()
    expand: Literal["upstream", "proxy"] = "upstream"
    auto_expand: Literal["off", "expand", "dispatch"] = "off"
    require_expansion: bool = False


@value_class
class ContainerFunction:
    """One function of a container, as shown when the proxy expands it."""

    name: str
    description: str = ""
    schema: Mapping[str, JsonValue] | None = None


@value_class
class ContainerMisuse:
    """A call of a container with parameters, `attempted`. `function` is the container's function that was most likely
    meant, '' if none was found, and `arguments` are those for it, without the key that named it."""

    container: Container
    attempted: JsonValue = field(repr=False)
    function: str = ""
    arguments: JsonValue = field(default=ABSENT, repr=False)


# --- what was decided -----------------------------------------------------------------------------------------------
@value_class
class CheckedCall:
    """A call that may be sent. Only `decide.decide` makes one, and nothing changes it.

    `arguments` are the bytes to send (the client's own unless something was repaired) and `value` is their meaning.
    `enforced` is False on report-only routes, which forward the client's bytes whatever the check found; `would` then
    holds the refusal that an enforced route would have answered."""

    call: ToolCall
    arguments: bytes = field(repr=False)
    value: JsonValue = field(repr=False)
    repairs: tuple[Repair, ...] = ()
    warnings: tuple[Violation, ...] = ()
    enforced: bool = True
    would: Failure | None = None


@value_class
class Forward:
    """The call may go to its tool."""

    checked: CheckedCall


@value_class
class Reject:
    """The call may not go to its tool."""

    failure: Failure


Decision = Forward | Reject


# --- what came back -------------------------------------------------------------------------------------------------
# Headers about the bytes of a body, which no longer hold for another one (RFC 9110 section 8, RFC 9530).
_OF_ITS_BYTES: Final = frozenset(
    ["content-length", "content-encoding", "etag", "accept-ranges", "content-md5", "digest", "content-digest",
     "repr-digest"]
)  # fmt: skip


@value_class
class UpstreamReply:
    """An upstream's answer. The body is whole, or a stream if it is large or endless (server-sent events)."""

    status: int
    headers: Headers = field(repr=False)
    body: bytes | AsyncIterator[bytes] = field(repr=False)

    def header(self, name: str) -> str:
        """The first value of the header `name` (lower case), or ''."""
        for each, value in self.headers:
            if len(each) == len(name) and each.lower() == name:  # most names have another length
                return value
        return ""

    def with_body(self, body: bytes) -> UpstreamReply:
        """Returns the answer with another body, without the headers about its old bytes."""
        headers = tuple([field for field in self.headers if field[0].lower() not in _OF_ITS_BYTES])
        return UpstreamReply(self.status, headers, body)


class Executed(StrEnum):
    """Says whether the tool may have run (docs/upstream.md)."""

    NO = "no"
    UNKNOWN = "unknown"


@value_class
class UpstreamFault:
    """The failure of an upstream to answer. `token` is the RFC 9209 error type, such as `connection_refused`;
    `retry_after`, where known, the seconds after which another try can succeed."""

    code: ErrorCode
    token: str
    executed: Executed
    message: str
    retry_after: int | None = None


@value_class
class FailedAttempt:
    """One failed call, as remembered: codes, paths, expectations and JSON types, never a value (docs/contract.md).

    `digest` is the hash of its arguments, `call` of its tool_call_id: a call with both equal is a client's resend.
    `seen` is how many attempts had been counted when the call arrived (None: all of them), until the call is recorded;
    `number` is then the attempt of the call."""

    digest: str
    lines: tuple[str, ...]
    call: str = ""
    seen: int | None = None
    number: int = 0


@value_class
class Episode:
    """The failed calls of one conversation with one tool, oldest first.

    `count` is the number of attempts: parallel calls of one turn are one. `failed` is the number of failed calls, with
    those that `attempts` no longer keeps. `digests` counts how often each of the latest refused arguments failed, the
    latest last; a delivered call ends everything but these counts."""

    count: int
    attempts: tuple[FailedAttempt, ...]
    digests: tuple[tuple[str, int], ...]
    failed: int = 0

    def times(self, digest: str) -> int:
        """Returns how often the arguments with this digest failed."""
        return next((times for known, times in self.digests if known == digest), 0)


@value_class
class FailureRecorded:
    """The result of recording a failure. `number` is the attempt that the call was. `repeated`: these arguments had
    been refused before. `resent`: it was a client's resend, so both are those of the call it repeats."""

    episode: Episode
    repeated: bool
    number: int = 0
    resent: bool = field(default=False, compare=False)


@value_class
class Attempt:
    """The attempt of a model with a tool: try `number` of `limit` (Acode FR-036, FR-049). Calls after the last try
    raise the number further."""

    number: int
    limit: int

    def __str__(self) -> str:
        return f"{min(self.number, self.limit)}/{self.limit}"


@value_class
class FeedbackLimits:
    """Bounds of the sentence that a model reads (Acode FR-025, FR-035, FR-052), and the roots for showing file paths.

    `max_chars` and `max_preview` count code points. `secret_names` are property names that the schema marks as secret,
    in addition to the names in `secrets.py`. `marks`: the sent arguments are shown with the errors written into them.
    """

    max_errors: int = 10
    max_chars: int = 2000
    max_preview: int = 100
    path_roots: tuple[str, ...] = ()
    marks: bool = False
    secret_names: frozenset[str] = frozenset()


@value_class
class Delivered:
    """The tool's answer, which goes back as it is. `failed`: it is an error that the route returns unchanged.

    `attempt`: its number, if earlier ones failed. `corrections` are the places that a model changed, each with
    its layer (docs/correction.md). `limits` bound what is shown of `warnings`. `keeps_request_id`: `X-Request-ID` is
    that of the upstream, for its support, and the proxy's own has another name."""

    reply: UpstreamReply
    repairs: tuple[Repair, ...] = ()
    warnings: tuple[Violation, ...] = ()
    failed: bool = False
    corrections: tuple[Repair, ...] = ()
    attempt: Attempt | None = None
    limits: FeedbackLimits = FeedbackLimits()
    keeps_request_id: bool = False


@value_class
class ToolResult:
    """A failure together with what the retry contract makes of it. Each adapter encodes it in its own format.

    `escalated`: this is the last attempt's answer, it says to stop in words and machine parts alike (Acode FR-045).
    `history` has one line for each attempt so far; `repeated` marks a byte-identical resend of refused arguments.
    `accepts` (in several sizes, longest first) and `example` are guidance for the model (an incomplete example shows
    only the shape). `extra` holds lines of a tool-specific formatter; `limits` bounds all of it. `finalising`: no tool
    was called, a final output was checked."""

    call: ToolCall
    failure: Failure
    attempt: Attempt | None = None
    escalated: bool = False
    repeated: bool = False
    history: tuple[str, ...] = ()
    accepts: tuple[str, ...] = ()
    example: str = ""
    example_complete: bool = True
    extra: tuple[str, ...] = ()
    repairs: tuple[Repair, ...] = ()
    limits: FeedbackLimits = field(default_factory=FeedbackLimits)
    finalising: bool = False


Outcome = Delivered | ToolResult


@value_class
class HttpReply:
    """A response that the proxy itself wrote, as it goes to the client. Header names have their usual spelling."""

    status: int
    headers: Headers
    body: bytes = field(repr=False)
