"""The interface for authors of hooks: the base class `Hook`, and the values that go in and out. Public and stable.

All values are frozen, and arguments are read from their text each time: a hook that changes them changes nothing
outside of itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from proxy.core.json.jsontext import parse
from proxy.core.model.values import Headers, JsonProblem, JsonValue


@dataclass(frozen=True, slots=True)
class Call:
    """A call as the client made it, or as hooks before this one changed it.

    `conversation` is a hash that identifies its conversation, `token` the name of its bearer token ('' if the route
    requires none). `headers` are the client's, with names in lower case; `body` is the JSON of the arguments as bytes.
    """

    route: str
    tool: str
    call_id: str
    request_id: str
    token: str
    conversation: str = field(repr=False)
    headers: Headers = field(repr=False)
    body: bytes = field(repr=False)

    @property
    def text(self) -> str:
        """The JSON of the arguments; bytes that are not UTF-8 are replaced."""
        return self.body.decode("utf-8", "replace")

    @property
    def arguments(self) -> JsonValue:
        """The arguments as a fresh copy; None if the text is not JSON. Numbers with a fraction or an exponent are
        floats, or `jiter.LosslessFloat`s where a float would be written with other digits; `float(number)` converts
        those for calculating."""
        value = parse(self.body)
        return None if isinstance(value, JsonProblem) else value

    def header(self, name: str) -> str | None:
        """The first value of a header, or None."""
        return next((value for key, value in self.headers if key == name.lower()), None)


@dataclass(frozen=True, slots=True)
class Change:
    """Forwards the call with these arguments, which are checked like any others."""

    arguments: JsonValue = field(repr=False)


@dataclass(frozen=True, slots=True)
class Refuse:
    """The call ends here. The model reads `message` and `hint`, so they say what it should do instead.

    `status` is the HTTP status; `retryable` says whether another call can succeed. The model loses no attempt.
    """

    message: str
    hint: str = ""
    status: int = 403
    retryable: bool = False
    details: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """The call is answered here, with this JSON value instead of the tool's answer."""

    value: JsonValue = field(repr=False)
    status: int = 200


@dataclass(frozen=True, slots=True)
class Broken:
    """One broken schema keyword: its code (VAL-002), its place as a JSON Pointer, and what is wrong there."""

    code: str
    path: str
    message: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision about a call. `code` is '' for a call that continues; on a report-only route it says why the call
    would have been refused. `repairs` holds (rule, JSON Pointer)."""

    forwarded: bool
    code: str = ""
    broken: tuple[Broken, ...] = ()
    repairs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request that is about to go upstream. `headers` are those that will be sent, with names in lower case."""

    upstream: str
    method: str
    target: str
    headers: Headers = field(repr=False)


@dataclass(frozen=True, slots=True)
class Result:
    """A copy of the tool's answer: `status`, `headers` with names in lower case, and `body`, its bytes without their
    content coding. `whole` is False if the body is a stream or longer than 1 MiB: then `body` is empty."""

    status: int
    headers: Headers = field(repr=False)
    body: bytes = field(repr=False)
    whole: bool = True

    @property
    def text(self) -> str:
        """The body as text; bytes that are not UTF-8 are replaced."""
        return self.body.decode("utf-8", "replace")

    @property
    def value(self) -> JsonValue:
        """Returns the answer as a fresh copy; None if it is not JSON."""
        value = parse(self.body)
        return None if isinstance(value, JsonProblem) else value


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a call: `outcome` as in the log (delivered, repaired, refused, answered, tool_error, withheld,
    upstream_error, client_gone), the HTTP `status` (0 without a client), the error `code` or ''. `attempt` is its
    number (0 if none counted) of `max_attempts`; `seconds` is its duration. `history` of an escalation has one line for
    each attempt, without values."""

    outcome: str
    status: int
    code: str
    attempt: int
    max_attempts: int
    seconds: float
    history: tuple[str, ...] = ()


class Hook:
    """The base class of hooks: override the points you need, as `async def`. Other points cost nothing."""

    async def before_decision(self, call: Call) -> Change | Refuse | Answer | None:
        """Runs before a call is checked. None lets the call go on; `Refuse` and `Answer` end it here."""

    async def after_decision(self, call: Call, verdict: Verdict) -> None:
        """Runs after the decision and before the call is sent. Cannot change anything."""

    async def before_forward(self, call: Call, request: Outgoing) -> Mapping[str, str | None] | None:
        """Runs before a checked call is sent. Gives headers to set (name -> value) or to remove (name -> None).

        `call` has the arguments as they are sent. Headers that frame or describe the body cannot be changed.
        """

    async def after_answer(self, call: Call, result: Result) -> Answer | None:
        """Runs when the tool has answered with success. None hands the answer on as it is; `Answer` takes its place.

        `call` has the arguments that were sent. The new answer is checked against the tool's `response_schema`.
        """

    async def after_outcome(self, call: Call, ending: Ending) -> None:
        """Runs when the answer is about to go out. Cannot change anything."""


# The points in the order in which a call passes them.
POINTS = ("before_decision", "after_decision", "before_forward", "after_answer", "after_outcome")
