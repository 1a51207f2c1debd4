"""The operator's decisions for one tool, compiled and immutable: how its calls are judged, repaired and answered.

`config/` writes these values, `decide`, the retry contract and the envelope read them. Every default is here,
once; `config/model.py` takes its defaults from these classes and the docs page of defaults is generated from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, field, fields, replace
from enum import StrEnum
from typing import Any, ClassVar, Protocol

from proxy.core.check.validation import Check
from proxy.core.contract.listed_tool import PinnedTools
from proxy.core.contract.request_rules import ChannelJudge, OperationRule
from proxy.core.json.jsontext import TextLimits
from proxy.core.model.value_class import set_later, share
from proxy.core.model.values import Container, JsonValue, value_class
from proxy.core.model.values import FeedbackLimits as FeedbackLimits
from proxy.core.rules.rules import ASSUMING, LEAVING_OUT, select_rules
from proxy.core.rules.style import begins_reading
from proxy.core.schema.formats import Formats


class Mode(StrEnum):
    """`enforce` refuses what is invalid; `report` forwards the client's bytes and counts what it would have done."""

    ENFORCE = "enforce"
    REPORT = "report"


class UnknownKeys(StrEnum):
    """The treatment of keys the schema does not name: as the schema says, reported, refused (Acode strict mode), or
    forwarded for the tool to judge even against the schema."""

    SCHEMA = "schema"
    WARN = "warn"
    REFUSE = "refuse"
    FORWARD = "forward"


class LeakedMarkup(StrEnum):
    """The treatment of a text with markup of the call itself: refused if that is sure, a warning, or nothing."""

    REFUSE = "refuse"
    WARN = "warn"
    OFF = "off"


class Block(StrEnum):
    """After the last attempt: `soft` still forwards a valid call, `hard` refuses every further one."""

    SOFT = "soft"
    HARD = "hard"


class NullOptional(StrEnum):
    """The evidence that allows leaving out a refused null at an optional key (docs/repair.md). It is the annotations
    and the HTTP method (`stated`), these and ten verbs that begin a tool's name (`reading`), or only the config
    (`drop`, `refuse`)."""

    READING = "reading"
    STATED = "stated"
    DROP = "drop"
    REFUSE = "refuse"


@value_class
class RepairPolicy:
    """Which repair rules (by name) may be used, and the keys that `drop_unknown` may remove. `by_hand` are the rules
    that the operator switched on by name, whatever is stated of the tool. `null_optional`: on whose word a refused null
    at an optional key is left out. `keeps_defaults`: not if a `default` would take its place. `aliases` are further
    names of the root's properties. `level` is the level that the config names, for texts."""

    rules: frozenset[str] = frozenset()
    drop_keys: frozenset[str] = frozenset()
    by_hand: frozenset[str] = frozenset()
    null_optional: NullOptional = NullOptional.READING
    aliases: Mapping[str, str] = field(default_factory=dict, hash=False)
    keeps_defaults: bool = False
    level: str = ""

    @classmethod
    def of(
        cls,
        level: str,
        switches: Mapping[str, bool],
        *,
        drop_keys: frozenset[str],
        null_optional: NullOptional,
        aliases: Mapping[str, str],
        listed: bool = False,
    ) -> RepairPolicy:
        """Returns the policy of a level with single rules switched on or off. `listed`: the tool is listed by its
        server. Raises KeyError for an unknown level or rule."""
        rules = select_rules(level, switches, listed=listed)
        by_hand = frozenset(name for name, is_on in switches.items() if is_on)
        return cls(rules, drop_keys, by_hand, null_optional, aliases, level=level)

    def without(self, rules: frozenset[str]) -> RepairPolicy:
        """The policy without these rules, but for those that were switched on by hand."""
        kept = share(self.rules - (rules - self.by_hand))
        return self if kept == self.rules else replace(self, rules=kept)


class ByAddress(StrEnum):
    """The counting in a conversation known only by its address, which several users may share. `digest` links the very
    same arguments and nothing else, `count` counts as with an id, `off` counts nothing."""

    DIGEST = "digest"
    COUNT = "count"
    OFF = "off"


@value_class
class ToolErrors:
    """The most errors of one tool in a conversation (Compozy: error budgets). `limit` None: any number.

    `window` in seconds: the count is over when so long no error came.
    """

    limit: int | None = None
    window: float = 300.0


@value_class
class AttemptsPolicy:
    """The retry contract of one tool (Acode FR-036..FR-045). Times in seconds."""

    max_attempts: int = 3
    ttl: float = 1800.0
    address_ttl: float = 300.0
    address: ByAddress = ByAddress.DIGEST
    block: Block = Block.SOFT
    tool_errors: ToolErrors = field(default_factory=ToolErrors)


@value_class
class ToolServer:
    """One of several servers whose tools are listed together, with a `prefix`. `down`: why it is unreachable, or ''."""

    name: str
    prefix: str
    down: str = ""


@value_class
class UnknownTool:
    """The rules for calls of tools that a route does not know, in the place of a tool's policy. `servers`: those that
    may have the tool, if a prefix tells them apart."""

    attempts: AttemptsPolicy = field(default_factory=AttemptsPolicy)
    feedback: FeedbackLimits = field(default_factory=FeedbackLimits)
    servers: tuple[ToolServer, ...] = ()
    finalising: ClassVar[bool] = False  # as with `ToolPolicy`: each of them calls something


@value_class
class CallCap:
    """The most successful calls of one tool in a conversation (Compozy gap 2). `limit` None: no limit.

    `ttl` in seconds: how long a conversation's count is remembered after its last call. `by_address`: the cap holds
    also if a conversation is known only by its address, which several users may share.
    """

    limit: int | None = None
    ttl: float = 86_400.0
    by_address: bool = False


class UpstreamErrors(StrEnum):
    """A tool's own error: explained to the model as ours are, or handed on untouched (docs/upstream.md).

    `outages` explains only that the service is overloaded or broken: if the client's protocol gives statuses a meaning
    (credentials, sessions), all others have to arrive.
    """

    EXPLAIN = "explain"
    PASSTHROUGH = "passthrough"
    OUTAGES = "outages"

    def is_handed_on(self, status: int) -> bool:
        """Returns whether an error of this HTTP status goes to the client as it is."""
        return self is UpstreamErrors.PASSTHROUGH or (self is UpstreamErrors.OUTAGES and status != 429 and status < 500)


@value_class
class ResendPolicy:
    """When the same payload may be sent to the upstream again (docs/upstream.md). Times in seconds.

    `deadline` is for all sends of one call together, None: the time one may take. `backoff` bounds the wait before the
    first resend, doubled each time up to `max_backoff`. `idempotent`: calling the tool twice does what calling it once
    does. `key_header`: the header (lower case) by which the upstream recognises a call it has seen, '' for none;
    `mint_key` sets it if the client does not. `on_retry_after`: 429 and 503 are waited for where they say how long.
    """

    max_resends: int = 2
    backoff: float = 0.025
    max_backoff: float = 0.25
    deadline: float | None = None
    on_retry_after: bool = False
    idempotent: bool = False
    key_header: str = ""
    mint_key: bool = False


@value_class
class AnswerPolicy:
    """The valid answers of a tool. `enforce`: another answer is refused, otherwise it is counted and forwarded."""

    check: Check
    enforce: bool = False


class ListRules(Protocol):
    """A route's rules for the tools that its server lists. A plugin makes and reads the rules."""

    def whole(self) -> dict[str, ToolPolicy]:
        """Returns the policies of the tools whose schemas are in the config."""

    def pin(self, pinned: PinnedTools) -> ListRules:
        """Returns the same rules, with these definitions approved by the operator."""


@value_class
class BroughtTools:
    """The rules for calls of tools that a request itself brings along: `template` is the policy of each."""

    template: ToolPolicy
    formats: Formats


@value_class
class ListedSchema:
    """A schema from outside that is too expensive to be compiled here: child processes judge by it."""

    schema: JsonValue = field(repr=False)
    formats: Formats


@value_class
class PolicyValues:
    """The values of a policy that reach the core as the config says them: the field of a further such key is here.

    `wrap_success`: a JSON answer goes to the client as `{success: true, data: ...}` (GoMind's `ToolResponse`). `added`:
    the values of plugins' keys, by key. `limits`: how often the tool may be called by whom, None for any number.
    """

    _: KW_ONLY
    mode: Mode = Mode.ENFORCE
    unknown_keys: UnknownKeys = UnknownKeys.SCHEMA
    leaked_markup: LeakedMarkup = LeakedMarkup.REFUSE
    text: TextLimits = field(default_factory=TextLimits)
    max_body: int = 1024 * 1024
    feedback: FeedbackLimits = field(default_factory=FeedbackLimits)
    attempts: AttemptsPolicy = field(default_factory=AttemptsPolicy)
    limits: Mapping[str, Any] | None = field(default=None, hash=False)  # by key; plugins make and read them
    resend: ResendPolicy = field(default_factory=ResendPolicy)
    upstream_errors: UpstreamErrors = UpstreamErrors.EXPLAIN
    wrap_success: bool = False
    added: Mapping[str, Any] = field(default_factory=dict, hash=False)


def list_policy_values(policy: PolicyValues) -> dict[str, Any]:
    """The fields of `PolicyValues`, by name."""
    return {each.name: getattr(policy, each.name) for each in fields(PolicyValues)}


@value_class
class ToolPolicy(PolicyValues):
    """Everything that decides one tool's calls. `check` is None if the operator wrote `validation: off`.

    `fingerprint` is a hash of the whole policy: a call that failed under one policy is validated again under another.
    `schema_id` is a hash of the schema only, for logs. `container` is set for a tool that is a container, `member_of`
    for a function of one that must be expanded first (`require_expansion`). `channels` validates what is not in the
    body. `operation`: how its calls are in HTTP requests. `answer`: what the tool may answer, None for anything.
    `reads`, `adds` and `changes`: its annotations or its HTTP method state that it only reads, that it only adds, or
    that it changes or removes something. `finalising`: nothing is called, a model's final output is checked (Compozy
    gap 5). `listed`: the schema is not compiled here, `check` is None, and a child process validates. `answers_here`:
    the proxy answers such calls itself, from their checked arguments.
    """

    tool: str
    check: Check | None
    fingerprint: str
    schema_id: str = ""
    description: str = ""
    repair: RepairPolicy = field(default_factory=RepairPolicy)
    cap: CallCap = field(default_factory=CallCap)
    container: Container | None = None
    member_of: Container | None = None
    answer: AnswerPolicy | None = None
    finalising: bool = False
    channels: ChannelJudge | None = None
    operation: OperationRule | None = field(default=None, repr=False)
    listed: ListedSchema | None = field(default=None, repr=False)
    changes: bool = False
    adds: bool = False
    reads: bool = False
    answers_here: Callable[[JsonValue], JsonValue] | None = field(default=None, compare=False, repr=False)
    # The repair policy by what is stated of the tool.
    repair_in_force: RepairPolicy = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        set_later(self, "repair_in_force", self._select_repairs())

    def _select_repairs(self) -> RepairPolicy:
        null, policy = self.repair.null_optional, self.repair
        if self.changes:
            policy = policy.without(ASSUMING)
        if null is NullOptional.REFUSE:
            return replace(policy, rules=share(policy.rules - LEAVING_OUT))
        if null is NullOptional.DROP:
            return replace(policy, rules=share(policy.rules | LEAVING_OUT)) if policy.rules else policy
        if self.changes:
            return policy.without(LEAVING_OUT)
        if self.reads or (null is NullOptional.READING and begins_reading(self.tool)):
            return policy
        # A final output calls nothing.
        return replace(policy, keeps_defaults=True) if self.adds or self.finalising else policy.without(LEAVING_OUT)
