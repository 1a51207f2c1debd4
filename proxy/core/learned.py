"""Tools that a server lists by itself: from what it and the operator say of a tool to the tool's policy. Pure.

What a server lists is not trusted: a schema is bounded, leads nowhere outside of itself, and one that does not compile
costs its own tool alone. The operator's word goes first: a schema of his own, or a patch laid over the listed one.
Policies are made when a tool is first called, so that a server with a thousand tools costs no more than those in use.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from proxy.core.dialects import normalise
from proxy.core.jsontext import LosslessFloat, dumps, format_pointer, walk
from proxy.core.model import ABSENT, Container, ContainerFunction, JsonValue
from proxy.core.policy import CallCap, ToolPolicy
from proxy.core.secrets import sensitive_names
from proxy.core.validation import Check, SchemaError, compile_check

# Values in one schema: the largest in tests/data/mcp-tools has 422, and 5,000 take most of a second to compile.
MAX_NODES: Final = 5_000
# Policies of one route with the code that judges their calls: 80 KB each for real tools.
MAX_POLICIES: Final = 2_000
_LIMITS: Final = (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum"))
# Keywords that hold values and no schemas.
_DATA: Final = frozenset({"enum", "const", "default", "examples"})

Unjudged = Literal["refuse", "forward"]


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool as its server lists it. `schema` and `output` are JSON Schemas, `ABSENT` where there is none; `digest`
    tells two tools of one name apart."""

    name: str
    description: str = ""
    schema: JsonValue = field(default=ABSENT, repr=False)
    output: JsonValue = field(default=ABSENT, repr=False)
    idempotent: bool = False
    digest: str = ""


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Listing:
    """All tools of a server, by name and in its order. `digest` tells two listings apart, `size` is in bytes."""

    tools: Mapping[str, ListedTool] = field(repr=False)
    digest: str
    size: int


@dataclass(frozen=True, slots=True)
class Overlay:
    """What the operator says of one listed tool. A `policy` with a check brings its own schema; else `patch` (RFC 7396)
    is laid over the listed one. `judged` False: its calls go on unjudged."""

    policy: ToolPolicy
    patch: JsonValue = field(default=ABSENT, repr=False)
    judged: bool = True


@dataclass(frozen=True, slots=True)
class LearnPolicy:
    """How a route treats the tools it learns of. `template` is the policy of a tool without an overlay.

    `unknown_schema`: what becomes of calls while nothing is known of the tools, `on_bad_schema`: of calls of a tool
    whose schema is of no use. `trust_annotations`: the server's word that a tool is idempotent counts. `collapse`: one
    container that stands for all tools in the list that clients get; its functions are filled in. Times in seconds:
    a list is asked for anew after `ttl`, and waited for at most `wait`.
    """

    template: ToolPolicy
    overlays: Mapping[str, Overlay] = field(default_factory=dict)
    caps: Mapping[str, CallCap] = field(default_factory=dict)
    formats: bool = True
    unknown_schema: Unjudged = "refuse"
    on_bad_schema: Unjudged = "refuse"
    trust_annotations: bool = False
    output_check: bool = False
    collapse: Container | None = None
    collapse_description: str = ""
    credentials: frozenset[str] = frozenset()
    ttl: float = 300.0
    wait: float = 5.0

    def whole(self) -> dict[str, ToolPolicy]:
        """The policies of the tools of which the config alone says what they take."""
        own = {name: overlay.policy for name, overlay in self.overlays.items()}
        return {
            name: policy for name, policy in own.items() if policy.check is not None or policy.container is not None
        }


class BadSchemaError(Exception):
    """A tool's schema cannot be used; the message says why."""


class Policies:
    """The policies of one route's listed tools, at most `MAX_POLICIES` of them: the least recently used go first. Lists
    that say the same of a tool share its policy."""

    def __init__(self) -> None:
        self._made: OrderedDict[tuple[str, str], ToolPolicy] = OrderedDict()

    def __len__(self) -> int:
        return len(self._made)

    def __contains__(self, key: tuple[str, str]) -> bool:
        return key in self._made

    def get(self, key: tuple[str, str]) -> ToolPolicy | None:
        """The policy of a tool, by its name and digest."""
        found = self._made.get(key)
        if found is not None:
            self._made.move_to_end(key)
        return found

    def keep(self, key: tuple[str, str], policy: ToolPolicy) -> None:
        """Remembers a policy."""
        self._made[key] = policy
        if len(self._made) > MAX_POLICIES:
            self._made.popitem(last=False)


class LearnedTools(Mapping[str, ToolPolicy]):
    """The policies of listed tools by name, each made when it is first asked for. A tool with a bad schema is not in it
    (unless the operator lets such tools through); `bad` tells why."""

    def __init__(self, listing: Listing, rules: LearnPolicy, policies: Policies | None = None) -> None:
        self.listing: Final = listing
        self._rules = rules
        self._policies = Policies() if policies is None else policies
        self._outputs: dict[str, Check | None] = {}
        self.bad: dict[str, str] = {}
        self.container = _container(listing, rules)
        self._member_of = self.container if self.container is not None and self.container.require_expansion else None

    def __getitem__(self, name: str) -> ToolPolicy:
        key = self._key(name)
        found = self._policies.get(key)
        if found is None:
            if name in self.bad and self._rules.on_bad_schema == "refuse":
                raise KeyError(name)
            found = self._make(name)
            self._policies.keep(key, found)
        return found

    def _key(self, name: str) -> tuple[str, str]:
        """What tells a policy from others of the route: with a container, all the tools that it holds count."""
        listed = self.listing.tools.get(name)
        return name, self.listing.digest if listed is None or self.container is not None else listed.digest

    def __iter__(self) -> Iterator[str]:
        if self.container is not None and self.container.name not in self.listing.tools:
            yield self.container.name
        yield from self.listing.tools

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def is_made(self, name: str) -> bool:
        """Whether a tool's policy and code cost no more than looking them up; also of names that nobody knows."""
        if name in self.bad or name not in self.listing.tools:
            return True
        policy = self._policies.get(self._key(name))
        return policy is not None and policy.ready

    def prepare(self, name: str) -> None:
        """Makes a tool's policy, with all code that its calls need. For a thread: a large schema takes a second."""
        policy = self.get(name)
        if policy is not None:
            policy.prepare()

    def output_check(self, name: str) -> Check | None:
        """What the tool's structured results are held against; None where it promises nothing that can be read."""
        if name not in self._outputs:
            listed = self.listing.tools.get(name)
            try:
                self._outputs[name] = None if listed is None else _compiled(listed.output, True)
            except BadSchemaError:
                self._outputs[name] = None
        return self._outputs[name]

    def _make(self, name: str) -> ToolPolicy:
        container = self.container
        if container is not None and name == container.name:
            return replace(self._rules.template, tool=name, check=None, container=container)
        listed = self.listing.tools[name]
        try:
            return replace(_policy(listed, self._rules), member_of=self._member_of)
        except BadSchemaError as bad:
            self.bad[name] = str(bad)
            if self._rules.on_bad_schema == "refuse":
                raise KeyError(name) from None
            return unjudged(name, self._rules)


def unjudged(name: str, rules: LearnPolicy) -> ToolPolicy:
    """The policy of a tool of which nothing is known: its calls go on as they are."""
    overlay = rules.overlays.get(name)
    return overlay.policy if overlay is not None else replace(rules.template, tool=name)


def _container(listing: Listing, rules: LearnPolicy) -> Container | None:
    if rules.collapse is None:
        return None
    functions = tuple(
        ContainerFunction(tool.name, tool.description, tool.schema if isinstance(tool.schema, dict) else None)
        for tool in listing.tools.values()
    )
    return replace(rules.collapse, functions=functions)


def _policy(listed: ListedTool, rules: LearnPolicy) -> ToolPolicy:
    """One tool's policy. Raises BadSchemaError."""
    overlay = rules.overlays.get(listed.name)
    base = overlay.policy if overlay is not None else rules.template
    resend = base.resend
    if rules.trust_annotations and listed.idempotent:
        resend = replace(resend, idempotent=True)
    made = replace(
        base,
        tool=listed.name,
        description=base.description or listed.description,
        cap=rules.caps.get(listed.name, base.cap),
        resend=resend,
    )
    if base.check is not None or base.container is not None or (overlay is not None and not overlay.judged):
        return made
    schema = listed.schema
    if overlay is not None and not isinstance(overlay.patch, type(ABSENT)):
        schema = merged(schema, overlay.patch)
    if isinstance(schema, dict):  # MCP's arguments are an object whether or not the schema says so
        schema = {"type": "object", **schema}
    check = _compiled(schema, rules.formats)
    schema_id = hashlib.sha256(dumps(schema)).hexdigest()[:12]
    feedback = replace(base.feedback, secret_names=sensitive_names(check.schemas))
    fingerprint = f"{base.fingerprint}/{schema_id}"
    return replace(made, check=check, schema_id=schema_id, feedback=feedback, fingerprint=fingerprint)


def _compiled(schema: JsonValue, formats: bool) -> Check:
    """A listed schema, compiled. Raises BadSchemaError."""
    if not isinstance(schema, dict):
        raise BadSchemaError("it is missing, or no JSON object")
    if sum(1 for _ in walk(schema)) > MAX_NODES:
        raise BadSchemaError(f"it holds more than {MAX_NODES} values")
    if "$schema" not in schema:
        schema = _without_old_limits(schema)
    try:
        return compile_check(normalise(schema)[0], formats=formats)
    except SchemaError as error:
        raise BadSchemaError(f"{format_pointer(error.path)}: {error.message}"[:300]) from None


def _without_old_limits(schema: JsonValue) -> JsonValue:
    """A schema in which limits are spelled as since draft 6: `exclusiveMinimum: true` beside a `minimum` comes out of
    real servers that name no draft, and means one thing only."""
    if isinstance(schema, list):
        return [_without_old_limits(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: item if key in _DATA else _without_old_limits(item) for key, item in schema.items()}
    for limit, exclusive in _LIMITS:
        number = made.get(limit)
        if isinstance(made.get(exclusive), bool) and isinstance(number, int | float | LosslessFloat):
            holds = made.pop(exclusive)
            made |= {exclusive: made.pop(limit)} if holds else {}
    return made


def merged(target: JsonValue, patch: JsonValue) -> JsonValue:
    """A value with a JSON Merge Patch laid over it (RFC 7396 section 2)."""
    if not isinstance(patch, dict):
        return patch
    made = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = merged(made.get(key), value)
    return made
