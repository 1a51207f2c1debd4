"""What authors of hooks see: the base class `Hook` and the values it is given and gives back. Public; kept stable.

All values are frozen, and arguments are read anew from their text whenever they are asked for: what a hook does to
them changes nothing outside of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from proxy.core.jsontext import parse
from proxy.core.model import Headers, JsonProblem, JsonValue

__all__ = ["Answer", "Broken", "Call", "Change", "Ending", "Hook", "Outgoing", "Refuse", "Verdict"]


@dataclass(frozen=True, slots=True)
class Call:
    """A call as the client made it, or as hooks before this one changed it.

    `conversation` is a hash of what names its conversation, `token` the name of the bearer token it came with ('' where
    the route asks for none), `headers` are the client's own, names in lower case, `text` the JSON of the arguments.
    """

    route: str
    tool: str
    call_id: str
    request_id: str
    token: str
    conversation: str = field(repr=False)
    headers: Headers = field(repr=False)
    text: bytes = field(repr=False)

    @property
    def arguments(self) -> JsonValue:
        """The arguments as a fresh copy; None where the text is no JSON. Numbers with a fraction or an exponent are
        floats, or `jiter.LosslessFloat`s where a float would be written with other digits: `float(number)` makes one
        to reckon with."""
        value = parse(self.text)
        return None if isinstance(value, JsonProblem) else value

    def header(self, name: str) -> str | None:
        """The first value of a header, or None."""
        return next((value for key, value in self.headers if key == name.lower()), None)


@dataclass(frozen=True, slots=True)
class Change:
    """The call goes on with these arguments, which are judged like any others."""

    arguments: JsonValue = field(repr=False)


@dataclass(frozen=True, slots=True)
class Refuse:
    """The call ends here. `message` and `hint` are read by the model, so they say what it should do instead.

    `status` is the HTTP status; `retryable` whether another call can succeed. It costs the model no attempt.
    """

    message: str
    hint: str = ""
    status: int = 403
    retryable: bool = False
    details: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """The call is answered here, with a JSON value in place of the tool's."""

    value: JsonValue = field(repr=False)
    status: int = 200


@dataclass(frozen=True, slots=True)
class Broken:
    """One broken schema keyword: its code (VAL-002), the place as a JSON Pointer, and what is wrong there."""

    code: str
    path: str
    message: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was decided. `code` is '' for a call that goes on; on a report-only route, what would have been refused.
    `repairs` holds (rule, JSON Pointer)."""

    forwarded: bool
    code: str = ""
    broken: tuple[Broken, ...] = ()
    repairs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request that is about to go upstream. `headers` are those the client's became, names in lower case."""

    upstream: str
    method: str
    target: str
    headers: Headers = field(repr=False)


@dataclass(frozen=True, slots=True)
class Ending:
    """What became of a call: `outcome` as in the log (delivered, repaired, refused, answered, tool_error,
    upstream_error, client_gone), the HTTP status (0 where nobody was left to answer), the error code or '', which
    attempt it was of how many (0 where none counted), and how long it took in seconds."""

    outcome: str
    status: int
    code: str
    attempt: int
    max_attempts: int
    seconds: float


class Hook:
    """The base of every hook: override the points of interest, as `async def`. Of the others nothing is run."""

    async def before_decision(self, call: Call) -> Change | Refuse | Answer | None:
        """Before a call is judged. None lets it go on as it is; what is refused or answered here goes no further."""

    async def after_decision(self, call: Call, verdict: Verdict) -> None:
        """When a call was judged, and before it is sent. Nothing can be changed here."""

    async def before_forward(self, call: Call, request: Outgoing) -> Mapping[str, str | None] | None:
        """Before a checked call is sent: headers to set (name -> value) or to take away (name -> None).

        `call` has the arguments as they go out. Headers that frame or describe the body cannot be touched.
        """

    async def after_outcome(self, call: Call, ending: Ending) -> None:
        """When all is over and the answer is about to go out. Nothing can be changed here."""


# The points, in the order in which a call comes by them.
POINTS = ("before_decision", "after_decision", "before_forward", "after_outcome")
