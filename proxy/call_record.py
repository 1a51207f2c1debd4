"""The record of one request: everything that telemetry may know of it. `call/context.py` writes it."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from proxy.core.contract.policy import ToolPolicy
from proxy.core.model.value_class import value_class
from proxy.core.model.values import CheckedCall, Episode, JsonValue, Repair, Rung, ToolCall, ToolResult, Violation
from proxy.core.tool_errors.backoff import Reason, ResendDenied

# An ended episode, which only the shared store may know. It never fails.
Ending = Future[Episode | None]


@value_class
class Event:
    """Something that happened during a request, shown with its span: `name` is one of the seeds' names, `at` seconds on
    the monotonic clock; `attributes` never hold an argument value."""

    name: str
    at: float
    attributes: Mapping[str, str | int | float | bool] = field(default_factory=dict)


@value_class
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
    """The place of a request among those that led to it (W3C Trace Context), and the requests that it led to.

    Ids as lower-case hexadecimal digits; `parent_id` is '' at the root. `flags` and `state` as in the two headers.
    """

    trace_id: str
    span_id: str
    parent_id: str
    flags: int
    state: str
    fresh_id: Callable[[], str]
    sent: list[Sent] = field(default_factory=list)


@value_class
class HookFailure:
    """A hook that did not do its part: its name in the config, the point, and timeout, exception, cancelled,
    wrong_answer or wrong_header."""

    hook: str
    point: str
    reason: str


@dataclass(slots=True)
class AccessNote:
    """The audit's note on the sender of a request: `caller` are the fields that name it; `rule` is the rule of access
    that decided on its call last."""

    caller: Mapping[str, str]
    rule: str = ""


class ModelQuestion(Protocol):
    """One question to a model about a call, in the words of the extension that asked it."""

    def list_fields(self) -> Mapping[str, JsonValue]:
        """Returns its fields of the log line."""

    def describe_span(self) -> tuple[float, float, Mapping[str, str | int | bool], str] | None:
        """Returns its start and end, its span's attributes, and why it has no answer ('' if it has one); None if it was
        not sent."""


@value_class
class ReplacedAnswer:
    """A model's answer that another one replaced, because its calls were wrong. `calls` are these; each has a separate
    record with the text about it as `result`. `valid` is the text that the model read of those that were not wrong.
    `tokens` is the size of the question about all that, as its answer reports it."""

    calls: Sequence[CallRecord]
    valid: str
    tokens: int


@dataclass(slots=True)
class CallRecord:
    """Everything telemetry may know of one request, filled while the call runs.

    Times in seconds on the monotonic clock. `stages` maps a stage's name (read, decide, upstream, answer, ...) to its
    length.
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
    outcome: str = ""  # one of the values of the metric label `outcome` (telemetry/metric_table.py)
    code: str = ""
    status: int = 0
    repairs: tuple[Repair, ...] = ()
    violations: Sequence[Violation] = ()
    would_refuse: bool = False
    attempt: int = 0
    max_attempts: int = 0
    repeated: bool = False
    escalated: bool = False  # this call is the escalation itself, not a later one that is refused for it
    corrected_after: int = 0
    conversation_rung: Rung | None = None
    container: str = ""
    container_event: str = ""  # one of container.EVENTS, or ''
    upstream: str = ""
    upstream_status: int = 0
    upstream_error: str = ""
    upstream_seconds: float = 0.0
    sending_since: float = 0.0  # when the upstream got the request, as long as it has not answered
    sent: bool = False  # a service may have the call, or the request if it is not a call
    resends: tuple[Reason, ...] = ()  # why the call was sent again, each time
    resend_denied: ResendDenied | None = None  # why it was not sent once more although it might have been
    trace_id: str = ""
    trace: Trace | None = None  # where spans are made
    request_bytes: int = 0
    response_bytes: int = 0
    notes: Mapping[str, str] = field(default_factory=dict)
    hook_failures: Sequence[HookFailure] = ()
    answer: str = ""  # what the check of the tool's answer said: one of the values of the metric's label
    answer_violations: Sequence[Violation] = ()
    events: Sequence[Event] = ()
    questions: Sequence[ModelQuestion] = ()  # to the model endpoint, by layers 3 and 4
    corrections: tuple[Repair, ...] = ()  # a model's changes to the delivered call: layer and place
    settling: Ending | None = None  # tells `corrected_after` when the answer is already on its way
    # Observers describe, count and record these: the call, its policy, the arguments to send, and our answer. These
    # hold values, which no observer shows unless the operator asks for it.
    call: ToolCall | None = field(default=None, repr=False)
    policy: ToolPolicy | None = field(default=None, repr=False)
    checked: CheckedCall | None = field(default=None, repr=False)
    result: ToolResult | None = field(default=None, repr=False)
    replaced: Sequence[ReplacedAnswer] = field(default=(), repr=False)  # answers of the model before the call's
    access: AccessNote | None = field(default=None, repr=False)  # where the route asks who calls
    # The fields of its log line (telemetry/logs.py), which spans and kept calls show too; made once it has ended.
    line: dict[str, Any] | None = field(default=None, init=False, repr=False)
