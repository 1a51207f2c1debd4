"""The config of MCP: routes, processes, several servers as one, operations as one server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from typing import ClassVar, Final

from proxy.config.model import HeaderChanges, PluginSettings, Policy, RouteEntry, ToolConfig, find_default
from proxy.config.sections.units import read_switch
from proxy.core.contract.policy import ToolPolicy
from proxy.core.model.value_class import value_class
from proxy.core.model.values import ABSENT, Container, JsonValue
from proxy.extensions.mcp.core.listed_tools import LearnPolicy, Overlay, Unjudged
from proxy.extensions.mcp.core.served_tools import ServedTools, ShownNames

# The fields that `LearnPolicy` and `McpConfig` share.
_SHARED: Final = (
    "unknown_schema", "on_bad_schema", "trust_annotations", "output_check", "collapse", "collapse_description",
    "credentials", "ttl", "wait", "allow", "deny", "names", "descriptions",
)  # fmt: skip


@value_class
class Command:
    """An MCP server that the proxy starts and that speaks stdio. `environment` is added to the few usual variables, or
    with `pass_all` to the proxy's whole environment.

    At most `max_children` processes run; one whose session was idle for `idle` seconds is ended. With `shared` one
    process serves all sessions. `single_client`: this proxy serves only one client, as `stdio` does.
    """

    words: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    pass_all: bool = False
    cwd: str = ""
    max_children: int = 16
    idle: float = 1800.0
    shared: bool = False
    single_client: bool = False
    parts: ClassVar[tuple[str, ...]] = ()
    servers: ClassVar[tuple[str, ...]] = ()
    holds_sessions: ClassVar[bool] = True
    described: ClassVar[str] = "a process of this proxy"


@value_class
class Resource:
    """The `path` of the route whose URL replaces its server's in OAuth metadata. `describes`: the scheme and host of
    the server whose authorization server a metadata route describes; '' for none."""

    path: str
    describes: str = ""


@value_class
class ServerEntry:
    """One of several MCP servers behind one route: its name, its upstream, the path of its endpoint, the prefix of its
    tools' names, and whether it gets the clients' credentials."""

    name: str
    upstream: str
    path: str = "/mcp"
    prefix: str = ""
    credentials: bool = False
    headers: HeaderChanges = field(default_factory=HeaderChanges)


@value_class
class JoinedServers:
    """Several MCP servers as one upstream. Without `always` only names that two servers have get a prefix; `wait` is
    how long `initialize` and a list wait for one server, in seconds."""

    entries: tuple[ServerEntry, ...]
    always: bool = True
    wait: float = 2.0
    holds_sessions: ClassVar[bool] = True
    described: ClassVar[str] = "made of other upstreams"

    @property
    def parts(self) -> tuple[str, ...]:
        """The upstreams of the servers."""
        return tuple(entry.upstream for entry in self.entries)

    @property
    def servers(self) -> tuple[str, ...]:
        """The names of the servers."""
        return tuple(entry.name for entry in self.entries)


@value_class
class ServedOperations:
    """HTTP operations as the tools of one MCP server: the upstream that serves them, and each as `tools/list` shows it,
    by name."""

    upstream: str
    tools: Mapping[str, Mapping[str, JsonValue]] = field(repr=False)
    servers: ClassVar[tuple[str, ...]] = ()
    holds_sessions: ClassVar[bool] = False
    described: ClassVar[str] = "made of other upstreams"

    @property
    def parts(self) -> tuple[str, ...]:
        """The upstream of the service."""
        return (self.upstream,)


@value_class
class McpConfig:
    """The route's rules for the tools that its MCP server lists. Implements `ListedRoute` (config/model.py).

    `template` and `written` are the policy of a tool without an entry in `tools`; `patches` are laid over listed
    schemas, `descriptions` shown in place of listed ones. These three are by the names that clients see, `names`. The
    route leads to several servers with `joined`, and to HTTP operations with `operations`. Times in seconds.
    """

    template: Policy
    written: Mapping[str, JsonValue] = field(default_factory=dict, repr=False)
    tools: Mapping[str, ToolConfig] = field(default_factory=dict)
    patches: Mapping[str, JsonValue] = field(default_factory=dict, repr=False)
    unknown_schema: Unjudged = field(default=find_default(LearnPolicy, "unknown_schema"))
    on_bad_schema: Unjudged = field(default=find_default(LearnPolicy, "on_bad_schema"))
    trust_annotations: bool = find_default(LearnPolicy, "trust_annotations")
    output_check: bool = find_default(LearnPolicy, "output_check")
    collapse: Container | None = None
    collapse_description: str = ""
    credentials: frozenset[str] = frozenset()
    ttl: float = find_default(LearnPolicy, "ttl")
    wait: float = find_default(LearnPolicy, "wait")
    allow: tuple[str, ...] = find_default(LearnPolicy, "allow")
    deny: tuple[str, ...] = find_default(LearnPolicy, "deny")
    names: ShownNames = field(default_factory=ShownNames)
    descriptions: Mapping[str, str] = field(default_factory=dict)
    tokens: Mapping[str, ServedTools] = field(default_factory=dict)
    name: str = ""
    upstream: str = ""
    upstream_path: str = ""
    rewritten_by: PluginSettings | None = None
    joined: JoinedServers | None = None
    operations: ServedOperations | None = None

    @property
    def parts(self) -> tuple[str, ...]:
        """The upstreams that the route names besides its `upstream`."""
        return self.joined.parts if self.joined is not None else ()

    @property
    def trusts_annotations(self) -> bool:
        """Returns whether a tool's annotations count: those of operations are made from the config."""
        return self.trust_annotations or self.operations is not None

    def list_notes(self) -> Iterator[str]:
        """Notes on the calls and answers that pass unjudged on this route."""
        if self.unknown_schema == "forward":
            yield f"route {self.name!r}: calls go on unjudged while the server's list of tools cannot be had"
        if self.on_bad_schema == "forward":
            yield f"route {self.name!r}: calls of tools whose listed schema cannot be used are not judged"
        if self.template.mode == "report":
            yield f"route {self.name!r}: report only, invalid calls of its tools go through"

    def show_all(self) -> McpConfig:
        """The same route without rules on tools: clients see every tool as its server lists it."""
        shown = replace(self, allow=("*",), deny=(), names=ShownNames(), descriptions={}, tokens={})
        return replace(shown, collapse=None, collapse_description="")

    def make_rules(self, make_policy: Callable[[ToolConfig], ToolPolicy]) -> LearnPolicy:
        """The operator's rules for tools that a server lists, or that are operations."""
        overlays = {
            name: Overlay(
                make_policy(tool), self.patches.get(name, ABSENT), read_switch(tool.written.get("validation", True))
            )
            for name, tool in self.tools.items()
        }
        caps = self.template.caps
        learn = LearnPolicy(
            make_policy(ToolConfig("", "", None, None, self.template, self.written)),
            overlays,
            caps={self.names.show(name) or name: caps.of(name) for name in caps.overrides},
            formats=self.template.formats,
            **{name: getattr(self, name) for name in _SHARED},
        )
        return learn.with_tokens(self.tokens)


def find_mcp(route: RouteEntry) -> McpConfig | None:
    """Returns how an MCP route treats its tools; None for other routes."""
    return route.listed if isinstance(route.listed, McpConfig) else None
