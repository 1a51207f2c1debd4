"""Tools that a server lists: from the listed definition and the operator's config to the tool's policy. Pure.

Listed schemas are not trusted: they are bounded, cannot refer to other documents, and one that does not compile only
affects its own tool. The operator's config goes first: their own schema, or a patch over the listed one. A policy
is made when its tool is first called, so that unused tools cost nothing.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from typing import Final, Literal

from proxy.core.contract.listed_tool import BadSchemaError, Hints, PinnedTools, check_size, compile_listed, parse_schema
from proxy.core.contract.policy import CallCap, ListedSchema, ListRules, ToolPolicy
from proxy.core.contract.toolname import keep_usable_aliases, list_root_properties
from proxy.core.display.secrets import find_sensitive_names
from proxy.core.json.jsontext import JSON_TYPES, dumps
from proxy.core.model.value_class import value_class
from proxy.core.model.values import ABSENT, Container, ContainerFunction, JsonValue
from proxy.core.schema.formats import USUAL, Formats
from proxy.extensions.mcp.core.served_tools import ListedTool as ListedTool
from proxy.extensions.mcp.core.served_tools import Listing as Listing
from proxy.extensions.mcp.core.served_tools import ServedTools, ShownNames, apply_merge_patch, may_be_expensive
from proxy.extensions.mcp.core.tool_search import list_own_tools, make_own_policy
from proxy.plugin import Check

# Policies of one route with the code that judges their calls: 80 KB each for real tools.
MAX_POLICIES: Final = 2_000
EXPENSIVE: Final = "expensive"
Unjudged = Literal["refuse", "forward"]


@value_class
class Overlay:
    """The operator's config of one listed tool. A `policy` with a check has its own schema; else `patch` (RFC 7396) is
    laid over the listed one. `judged` False: its calls pass unjudged."""

    policy: ToolPolicy
    patch: JsonValue = field(default=ABSENT, repr=False)
    judged: bool = True


@value_class
class LearnPolicy:
    """The rules of a route for the tools that it learns of. `template` is the policy of a tool without an overlay.

    `unknown_schema`: how calls are treated while the tools are unknown; `on_bad_schema`: how those of a tool whose
    schema cannot be used. `trust_annotations`: a tool counts as idempotent if its server says so. `collapse`: a
    container that replaces all tools in the clients' list; its functions are filled in. Times in seconds: a list is
    requested again after `ttl`, and awaited for at most `wait`. `allow` and `deny` are patterns of the listed names.
    `names`: the names that clients see; they are the keys of `overlays`, `caps` and `descriptions` (shown in place of
    the listed ones). `by_token`: the policies for clients with one of these tokens; there `scope` is the token's name,
    and `client` the tools for such clients. `caller`: whether the caller sees a tool, by its shown name. `pinned`: the
    definitions that the operator has approved.
    """

    template: ToolPolicy
    overlays: Mapping[str, Overlay] = field(default_factory=dict)
    caps: Mapping[str, CallCap] = field(default_factory=dict)
    formats: Formats = USUAL
    unknown_schema: Unjudged = "refuse"
    on_bad_schema: Unjudged = "refuse"
    trust_annotations: bool = False
    output_check: bool = False
    collapse: Container | None = None
    collapse_description: str = ""
    credentials: frozenset[str] = frozenset()
    ttl: float = 300.0
    wait: float = 5.0
    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()
    names: ShownNames = field(default_factory=ShownNames)
    descriptions: Mapping[str, str] = field(default_factory=dict)
    scope: str = ""
    client: ServedTools | None = None
    caller: Callable[[str, Hints | None], bool] | None = None
    by_token: Mapping[str, LearnPolicy] = field(default_factory=dict)
    pinned: PinnedTools | None = None

    @property
    def shows_all(self) -> bool:
        """Returns whether clients see every listed tool as its server lists it."""
        is_all = self.allow == ("*",) and not self.deny and (self.client is None or self.client.is_all)
        return is_all and not (self.names.renamed or self.descriptions or self.caller or self.pinned)

    def serves(self, shown: str) -> bool:
        """Returns whether this client sees a tool of this name and may call it."""
        listed = self.names.find(shown)
        return listed is not None and self._may(listed)

    def show_name(self, listed: str, hints: Hints | None) -> str | None:
        """The name under which clients see a listed tool; None where they do not see it."""
        name = self.names.show(listed) if self._may(listed) else None
        return None if name is None or (self.caller is not None and not self.caller(name, hints)) else name

    def withholds(self, tool: ListedTool) -> bool:
        """Returns whether a tool cannot be called because its definition is not the approved one."""
        return self.pinned is not None and self.pinned.changed != "warn" and not self.is_pinned(tool)

    def is_pinned(self, tool: ListedTool) -> bool:
        """Returns whether a tool has the approved definition, or nothing is pinned."""
        return self.pinned is None or self.pinned.is_pinned(tool.name, tool.definition)

    def pin(self, pinned: PinnedTools) -> LearnPolicy:
        """The same with these approved definitions."""
        by_token = {token: replace(rules, pinned=pinned) for token, rules in self.by_token.items()}
        return replace(self, pinned=pinned, by_token=by_token)

    def show(self, listing: Listing) -> Listing:
        """The tools of a list that clients may call, as they see them."""
        tools: dict[str, ListedTool] = {}
        for listed, tool in listing.tools.items():
            if (name := self.show_name(listed, tool.hints)) is not None and not self.withholds(tool):
                described = self.descriptions.get(name, tool.description)
                tools[name] = replace(tool, name=name, description=described)
        return replace(listing, tools=tools, digest=f"{listing.digest}/{self.scope}")

    def _may(self, listed: str) -> bool:
        return ServedTools(self.allow, self.deny).has(listed) and (self.client is None or self.client.has(listed))

    def with_tokens(self, tokens: Mapping[str, ServedTools]) -> LearnPolicy:
        """The same with the tools for clients of each token."""
        by_token = {token: replace(self, scope=token, client=served) for token, served in tokens.items()}
        return replace(self, by_token=by_token)

    def of_token(self, token: str) -> LearnPolicy:
        """The same for the client with this token (its name in the config; '' for none)."""
        return self.by_token.get(token, self)

    def narrow(self, scope: str, may_see: Callable[[str, Hints | None], bool]) -> LearnPolicy:
        """The same for a caller who sees only some of the tools; `scope` is equal for callers who see the same."""
        return replace(self, scope=f"{self.scope}/{scope}", caller=may_see)

    def whole(self) -> dict[str, ToolPolicy]:
        """Returns the policies of the tools whose schemas are in the config."""
        own = {name: overlay.policy for name, overlay in self.overlays.items()}
        whole = {name: own[name] for name in own if own[name].check is not None or own[name].container is not None}
        return {name: whole[name] for name in whole if self.caller is None or self.caller(name, None)}


def read_rules(rules: ListRules | None) -> LearnPolicy:
    """The rules of an MCP route, as its kind made them."""
    if not isinstance(rules, LearnPolicy):
        raise TypeError("the route learns no tools of an MCP server")
    return rules


class Policies:
    """The policies of one route's listed tools, at most `MAX_POLICIES` of them: the least recently used go first. Lists
    with the same definition of a tool share its policy."""

    def __init__(self) -> None:
        self.made: OrderedDict[tuple[str, str], ToolPolicy] = OrderedDict()
        # The result of examining a schema: '' for cheap, `EXPENSIVE`, else why it cannot be used.
        self._shown: OrderedDict[tuple[str, str], str] = OrderedDict()
        self.settled = 0

    def get_examined(self, key: tuple[str, str]) -> str | None:
        """The result of examining a tool's schema; None before that."""
        return self._shown.get(key)

    def settle(self, key: tuple[str, str], shown: str) -> None:
        """Remembers the result of examining; an older policy will be made again."""
        self._shown[key] = shown
        self.settled += 1
        self.made.pop(key, None)
        if len(self._shown) > MAX_POLICIES:
            self._shown.popitem(last=False)

    def get(self, key: tuple[str, str]) -> ToolPolicy | None:
        """The policy of a tool, by its name and digest."""
        found = self.made.get(key)
        if found is not None:
            self.made.move_to_end(key)
        return found

    def keep(self, key: tuple[str, str], policy: ToolPolicy) -> None:
        """Remembers a policy."""
        self.made[key] = policy
        if len(self.made) > MAX_POLICIES:
            self.made.popitem(last=False)


class LearnedTools(Mapping[str, ToolPolicy]):
    """The policies of listed tools by name, each made when it is first asked for. A tool with a bad schema is not in it
    (unless the operator lets such tools through); `bad` says why.

    `careful`: a schema is compiled here only once it was examined (`find_unexamined`, `settle`) and is not expensive.
    All other calls are judged in a child process.
    """

    def __init__(
        self, listing: Listing, rules: LearnPolicy, policies: Policies | None = None, *, careful: bool = False
    ) -> None:
        self.listing: Final = listing
        self._careful = careful
        self._rules = rules
        self._policies = Policies() if policies is None else policies
        self._outputs: dict[str, Check | None] = {}
        self.bad: dict[str, str] = {}
        self._latest: tuple[str | None, int, ToolPolicy] = None, 0, rules.template  # a call asks several times
        self.container = _container(listing, rules)
        self.own = list_own_tools(self.container, listing.tools)
        """The proxy's own tools that are listed beside the container."""
        self._member_of = self.container if self.container is not None and self.container.require_expansion else None

    def __getitem__(self, name: str) -> ToolPolicy:
        latest, settled, known = self._latest
        if latest == name and settled == self._policies.settled:
            return known
        key = self._key(name)
        found = self._policies.get(key)
        if found is None:
            if name in self.bad and self._rules.on_bad_schema == "refuse":
                raise KeyError(name)
            found = self._make(name)
            self._policies.keep(key, found)
        self._latest = name, self._policies.settled, found
        return found

    def _key(self, name: str) -> tuple[str, str]:
        """The key of a policy among those of the route; that of a container covers all its tools."""
        listed = self.listing.tools.get(name)
        return name, self.listing.digest if listed is None or self.container is not None else listed.digest

    def __iter__(self) -> Iterator[str]:
        if self.container is not None and self.container.name not in self.listing.tools:
            yield self.container.name
        yield from self.own
        yield from self.listing.tools

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def is_made(self, name: str, is_ready: Callable[[ToolPolicy], bool]) -> bool:
        """Returns whether a tool's policy and code exist already. An unknown name counts as ready.

        `is_ready` is that of `call/judging.py`, `prepare` that of `core/decide.py`: both are above this file.
        """
        if name in self.bad or name not in self.listing.tools:
            return True
        policy = self._policies.get(self._key(name))
        return policy is not None and is_ready(policy)

    def prepare(self, name: str, prepare: Callable[[ToolPolicy], None]) -> None:
        """Makes a tool's policy, with all code that its calls need. For a thread: a large schema takes a second."""
        policy = self.get(name)
        if policy is not None:
            prepare(policy)

    # --- what a schema costs ------------------------------------------------------------------------------------------
    @property
    def wait(self) -> float:
        """Returns how long a call waits until its tool is examined, in seconds."""
        return self._rules.wait

    def rules_of(self, name: str) -> frozenset[str]:
        """The repair rules of a tool."""
        overlay = self._rules.overlays.get(name)
        return (overlay.policy if overlay is not None else self._rules.template).repair.rules

    def find_unexamined(self, name: str) -> ListedSchema | None:
        """Returns the schema of a tool that has not been examined yet; None if no examination is needed."""
        listed = self.listing.tools.get(name)
        if not self._careful or listed is None or name in self.bad:
            return None
        if (shown := self._policies.get_examined(self._key(name))) is not None:
            if shown not in ("", EXPENSIVE):
                self.bad[name] = shown
            return None
        try:
            found = _schema_of(listed, self._rules)
        except BadSchemaError as bad:
            self.bad[name] = str(bad)
            return None
        if found is None or not may_be_expensive(found.schema):
            self.settle(name)
            return None
        return found

    def settle(self, name: str, *, bad: str = "", expensive: bool = False) -> None:
        """Records what examining a schema showed: it cannot be used, is too expensive to compile here, or neither."""
        self._policies.settle(self._key(name), bad or (EXPENSIVE if expensive else ""))
        if bad:
            self.bad[name] = bad

    def output_check(self, name: str) -> Check | None:
        """The check of the tool's structured results; None where it lists no schema for them, or an unusable one."""
        if name not in self._outputs:
            listed = self.listing.tools.get(name)
            try:
                self._outputs[name] = None if listed is None else self._output(parse_schema(listed.output))
            except BadSchemaError:
                self._outputs[name] = None
        return self._outputs[name]

    def _output(self, schema: JsonValue) -> Check:
        if self._careful and may_be_expensive(schema):
            raise BadSchemaError("it may cost too much to be compiled here")
        return compile_listed(schema, USUAL)

    def _make(self, name: str) -> ToolPolicy:
        container = self.container
        if container is not None and name == container.name:
            return replace(self._rules.template, tool=name, check=None, container=container)
        if container is not None and name in self.own:
            return make_own_policy(name, self._rules.template, container)
        listed = self.listing.tools[name]
        try:
            if name in self.bad:
                raise BadSchemaError(self.bad[name])
            far = self._careful and self._policies.get_examined(self._key(name)) != ""
            return replace(_policy(listed, self._rules, far=far), member_of=self._member_of)
        except BadSchemaError as bad:
            self.bad[name] = str(bad)
            if self._rules.on_bad_schema == "refuse":
                raise KeyError(name) from None
            return make_unjudged_policy(name, self._rules)


def make_unjudged_policy(name: str, rules: LearnPolicy) -> ToolPolicy:
    """The policy of a tool without a usable schema: its calls are forwarded unchanged."""
    overlay = rules.overlays.get(name)
    return overlay.policy if overlay is not None else replace(rules.template, tool=name)


def _container(listing: Listing, rules: LearnPolicy) -> Container | None:
    if rules.collapse is None:
        return None
    functions = tuple(
        ContainerFunction(tool.name, tool.description, _show_schema(tool.schema)) for tool in listing.tools.values()
    )
    return replace(rules.collapse, functions=functions)


def _show_schema(schema: JsonValue) -> dict[str, JsonValue] | None:
    try:
        value = parse_schema(schema)
    except BadSchemaError:
        return None
    return value if isinstance(value, dict) else None


def _schema_of(listed: ListedTool, rules: LearnPolicy) -> ListedSchema | None:
    """The schema that judges a listed tool's calls; None if the operator gives one, or wants no validation.
    Raises BadSchemaError for one that cannot be used."""
    overlay = rules.overlays.get(listed.name)
    base = overlay.policy if overlay is not None else rules.template
    if base.check is not None or base.container is not None or (overlay is not None and not overlay.judged):
        return None
    schema = parse_schema(listed.schema)
    if overlay is not None and not isinstance(overlay.patch, type(ABSENT)):
        schema = apply_merge_patch(schema, overlay.patch)
    if isinstance(schema, dict):  # MCP's arguments are an object whether or not the schema says so
        schema = {"type": "object", **schema}
        kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if "object" not in kinds and kinds and all(kind in JSON_TYPES for kind in kinds if isinstance(kind, str)):
            raise BadSchemaError("its root is not an object, and arguments always are one")
    check_size(schema)
    return ListedSchema(schema, rules.formats)


def _policy(listed: ListedTool, rules: LearnPolicy, *, far: bool = False) -> ToolPolicy:
    """One tool's policy; `far`: its schema is not compiled here. Raises BadSchemaError."""
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
        changes=base.changes or listed.destructive,
        adds=listed.adds,
        reads=base.reads or listed.read_only,
    )
    found = _schema_of(listed, rules)
    if found is None:
        return made
    schema_id = hashlib.sha256(dumps(found.schema)).hexdigest()[:12]
    made = replace(made, schema_id=schema_id, fingerprint=f"{base.fingerprint}/{schema_id}")
    if far:
        properties = found.schema.get("properties") if isinstance(found.schema, dict) else None
        declared = frozenset(properties) if isinstance(properties, dict) else frozenset[str]()
        return replace(made, listed=found, repair=keep_usable_aliases(base.repair, declared))
    check = compile_listed(found.schema, found.formats)
    made = replace(made, repair=keep_usable_aliases(base.repair, list_root_properties(check)))
    return replace(made, check=check, feedback=replace(base.feedback, secret_names=find_sensitive_names(check.schemas)))
