"""What the operator decided for one tool, compiled and immutable: how its calls are judged, repaired and answered.

`config/` writes these values, `decide`, the retry contract and the envelope read them. Every default stands here,
once; `config/model.py` takes its defaults from these classes and the docs page of defaults is generated from them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from proxy.core.accepted import Leftover, leftover
from proxy.core.correction import CorrectionPolicy
from proxy.core.jsontext import TextLimits
from proxy.core.model import Container
from proxy.core.model import FeedbackLimits as FeedbackLimits
from proxy.core.validation import Check


class Mode(StrEnum):
    """`enforce` refuses what is invalid; `report` forwards the client's bytes and counts what it would have done."""

    ENFORCE = "enforce"
    REPORT = "report"


class UnknownKeys(StrEnum):
    """What happens to keys the schema does not name: as the schema says, reported, or refused (Acode strict mode)."""

    SCHEMA = "schema"
    WARN = "warn"
    REFUSE = "refuse"


class Block(StrEnum):
    """After the last attempt: `soft` still forwards a valid call, `hard` refuses every further one."""

    SOFT = "soft"
    HARD = "hard"


@dataclass(frozen=True, slots=True)
class RepairPolicy:
    """Which repair rules (by name) may be used, and the keys that `drop_unknown` may remove."""

    rules: frozenset[str] = frozenset()
    drop_keys: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class AttemptsPolicy:
    """The retry contract of one tool (Acode FR-036..FR-045). Times in seconds."""

    max_attempts: int = 3
    ttl: float = 1800.0
    address_ttl: float = 300.0
    block: Block = Block.SOFT


@dataclass(frozen=True, slots=True)
class CallCap:
    """How often a conversation may call one tool successfully (Compozy gap 2). `limit` None: as often as it likes.

    `ttl` in seconds: how long a conversation's count is remembered after its last call.
    """

    limit: int | None = None
    ttl: float = 86_400.0


class UpstreamErrors(StrEnum):
    """A tool's own error: explained to the model as ours are, or handed on untouched (contract section 7).

    `outages` explains only that the service is overloaded or broken: where the client's protocol gives statuses a
    meaning (credentials, sessions), all others have to arrive.
    """

    EXPLAIN = "explain"
    PASSTHROUGH = "passthrough"
    OUTAGES = "outages"

    def hands_on(self, status: int) -> bool:
        """Whether an error of this HTTP status goes to the client as it is."""
        return self is UpstreamErrors.PASSTHROUGH or (self is UpstreamErrors.OUTAGES and status != 429 and status < 500)


@dataclass(frozen=True, slots=True)
class ResendPolicy:
    """When the same payload may be sent to the upstream again (contract section 7). Times in seconds.

    `deadline` is for all sends of one call together, None: the time one may take. `backoff` bounds the wait before the
    first resend, doubled each time up to `max_backoff`. `idempotent`: calling the tool twice does what calling it once
    does. `key_header`: the header (lower case) by which the upstream recognises a call it has seen, '' for none;
    `mint_key` sets it where the client does not. `on_retry_after`: 429 and 503 are waited for where they say how long.
    """

    max_resends: int = 2
    backoff: float = 0.025
    max_backoff: float = 0.25
    deadline: float | None = None
    on_retry_after: bool = False
    idempotent: bool = False
    key_header: str = ""
    mint_key: bool = False


@dataclass(frozen=True, slots=True)
class AnswerPolicy:
    """What a tool may answer. `enforce`: another answer is refused, else it is counted and handed on."""

    check: Check
    enforce: bool = False


@dataclass(frozen=True, slots=True)
class ToolPolicy:
    """Everything that decides one tool's calls. `check` is None where the operator wrote `validation: off`.

    `fingerprint` is a hash of the whole policy: what was refused under one policy is judged anew under another.
    `schema_id` is a hash of the schema alone, for logs. `container` is set for a tool that is a container, `member_of`
    for a function of one that wants to be expanded first (`require_expansion`). `wrap_success`: a JSON answer goes to
    the client as `{success: true, data: ...}` (GoMind's `ToolResponse`). `correction`: whether a model may correct its
    calls. `answer`: what the tool may answer, None for anything. `finalising`: nothing is called, a model's final
    output is checked (Compozy gap 5).
    """

    tool: str
    check: Check | None
    fingerprint: str
    schema_id: str = ""
    description: str = ""
    mode: Mode = Mode.ENFORCE
    unknown_keys: UnknownKeys = UnknownKeys.SCHEMA
    repair: RepairPolicy = field(default_factory=RepairPolicy)
    text: TextLimits = field(default_factory=TextLimits)
    feedback: FeedbackLimits = field(default_factory=FeedbackLimits)
    attempts: AttemptsPolicy = field(default_factory=AttemptsPolicy)
    cap: CallCap = field(default_factory=CallCap)
    container: Container | None = None
    member_of: Container | None = None
    resend: ResendPolicy = field(default_factory=ResendPolicy)
    upstream_errors: UpstreamErrors = UpstreamErrors.EXPLAIN
    wrap_success: bool = False
    correction: CorrectionPolicy = field(default_factory=CorrectionPolicy)
    answer: AnswerPolicy | None = None
    finalising: bool = False
    _leftover: Leftover | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def at_once(self) -> bool:
        """Whether a call is judged at once: no container is involved, of which the store would know something, and all
        code is written."""
        return self.container is None and self.member_of is None and self.ready

    @property
    def leftover(self) -> Leftover:
        """What is left to do or to say where the schema accepts: found out at the first call, or by `prepare`."""
        found = self._leftover
        if found is None:
            found = Leftover((), False) if self.check is None else leftover(self.check.schemas, self.repair.rules)
            object.__setattr__(self, "_leftover", found)  # worked out twice by two threads it is the same
        return found

    @property
    def ready(self) -> bool:
        """Whether the code is written that judges and repairs this tool's calls, and judges its answers."""
        answer = self.answer
        return (self.check is None or self.check.ready(self.repair.rules)) and (
            answer is None or answer.check.ready(frozenset())
        )

    def prepare(self) -> None:
        """Writes that code, which takes milliseconds, for a very large schema a second: for a thread."""
        if self.check is not None:
            self.check.prepare(self.repair.rules)
            _ = self.leftover
        if self.answer is not None:
            self.answer.check.prepare(frozenset())
