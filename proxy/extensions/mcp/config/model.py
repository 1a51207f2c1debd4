"""The config of MCP: routes, processes, several servers as one, operations as one server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from typing import ClassVar, Final

from proxy.config.keys.kinds import (
    DURATION,
    HEADER_NAME,
    SWITCH,
    TOOL_NAME,
    WORD,
    ConfigKey,
    choice,
    list_of,
    map_of,
    mapping,
    name_kind,
    number,
    text,
)
from proxy.config.keys.route_keys import TOOL, UPSTREAM_PATH
from proxy.config.model import HeaderChanges, PluginSettings, Policy, RouteEntry, ToolConfig, find_default
from proxy.core.contract.policy import ToolPolicy
from proxy.core.model.value_class import value_class
from proxy.core.model.values import ABSENT, Container, JsonValue
from proxy.extensions.mcp.core.listed_tools import LearnPolicy, Overlay, Unjudged
from proxy.extensions.mcp.core.served_tools import ServedTools, ShownNames
from proxy.plugin import read_switch, reveal

# The fields that `LearnPolicy` and `McpConfig` share.
_SHARED: Final = (
    "unknown_schema", "on_bad_schema", "trust_annotations", "output_check", "collapse", "collapse_description",
    "credentials", "ttl", "wait", "allow", "deny", "names", "descriptions",
)  # fmt: skip


@value_class
class Command:
    """An MCP server that the proxy starts and that speaks stdio, as `UPSTREAM` describes it. `single_client`: this
    proxy serves only one client, as `stdio` does."""

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
    """One of several MCP servers behind one route, as `SERVER` describes it."""

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


# --- the keys ---------------------------------------------------------------------------------------------------------
UPSTREAM: Final = mapping(
    Command,
    ConfigKey(
        "command",
        list_of(text(), minItems=1, x_expects="a list of the program and its arguments, such as [npx, -y, PACKAGE]"),
        "A stdio MCP server in place of `url`, for routes with `protocol: mcp`: the program and its arguments, as a "
        "list; no shell reads it (docs/mcp.md).",
        field="words",
    ),
    ConfigKey(
        "env",
        map_of(replace(text(), is_secret=True)),
        "The command's environment beside PATH, HOME, LANG and the like; it inherits nothing else without `pass_env: "
        "all`.",
        default=None,
        field="environment",
    ),
    ConfigKey(
        "pass_env",
        replace(choice("usual", "all"), read=lambda written: reveal(written) == "all"),
        "Further variables for the command: `all`, the proxy's whole environment with its secrets, or only the `usual` "
        "ones.",
        default="usual",
        field="pass_all",
    ),
    ConfigKey(
        "cwd",
        text(),
        "The command's working folder, from the config file's folder on. Default: the proxy's own.",
        default=None,
    ),
    ConfigKey(
        "max_children",
        number(minimum=1),
        "Maximum number of processes of the command. A further session ends the one that was idle for longest, or gets "
        "503 if none is idle.",
    ),
    ConfigKey(
        "idle_session", DURATION, "A session and its process end after this time without a request.", field="idle"
    ),
    ConfigKey("shared", SWITCH, "One process for all sessions instead of one each."),
    make=dict,
)
SERVER: Final = name_kind(
    "server",
    "Server",
    mapping(
        ServerEntry,
        ConfigKey("upstream", WORD, "The upstream's name. Default: the server's."),
        ConfigKey("upstream_path", UPSTREAM_PATH, "The path of its MCP endpoint.", field="path"),
        ConfigKey(
            "prefix",
            WORD,
            "The prefix of the names of its tools and prompts. Default: the server's name and `_`.",
            default=None,
        ),
        ConfigKey(
            "credentials",
            SWITCH,
            "Forwards the client's credentials to it (authorization, cookie, x-api-key, api-key, x-auth-token).",
        ),
        make=dict,
    ),
    "One of several MCP servers behind one route.",
)
COLLAPSE: Final = mapping(
    Container,
    ConfigKey("name", TOOL_NAME, "The container's name."),
    ConfigKey(
        "description", text(), "Its description for the model. Default: the number and names of its tools.", default=""
    ),
    ConfigKey(
        "auto_expand",
        choice("off", "expand", "dispatch"),
        "A call with parameters: is rejected (`off`), expands the container the first time (`expand`), or goes to the "
        "function that it names (`dispatch`).",
    ),
    ConfigKey(
        "require_expansion",
        SWITCH,
        "The tools may be called only after the container was expanded in the conversation.",
    ),
    make=dict,
    required=["name"],
)
_UNJUDGED: Final = choice("refuse", "forward")
_SOME: Final = list_of(WORD, minItems=1)
_TOKEN: Final = mapping(
    ServedTools,
    ConfigKey("allow", _SOME, "The tools that such clients are served."),
    ConfigKey("deny", list_of(WORD), "The tools that such clients are not served."),
)
MCP: Final = mapping(
    McpConfig,
    ConfigKey(
        "unknown_schema", _UNJUDGED, "Calls while the server's list is unavailable: refused, or forwarded unjudged."
    ),
    ConfigKey(
        "on_bad_schema",
        _UNJUDGED,
        "Calls of a tool whose listed schema is unusable: refused, or forwarded unjudged. The log names such tools; "
        "others are not affected.",
    ),
    ConfigKey(
        "ttl", DURATION, "How long clean calls use a list before the proxy asks again; servers may set a longer time."
    ),
    ConfigKey("wait", DURATION, "How long a call waits for a list."),
    ConfigKey(
        "servers_wait",
        DURATION,
        "With `servers`: how long `initialize` and a list wait for a server that is not there yet; it joins later, and "
        "clients hear `list_changed`.",
        default=DURATION.write(find_default(JoinedServers, "wait")),
        is_read=False,
    ),
    ConfigKey(
        "credentials",
        list_of(HEADER_NAME, lambda names: frozenset(name.lower() for name in names)),
        "Further headers that identify the client to the upstream; each of their values has a separate list. Always: "
        "authorization, cookie, x-api-key, api-key, x-auth-token.",
    ),
    ConfigKey("allow", _SOME, "Tools listed and callable, by name; `*`, `?` and `[...]` are patterns."),
    ConfigKey("deny", list_of(WORD), "Tools neither listed nor callable, even if `allow` names them."),
    ConfigKey(
        "tokens",
        map_of(_TOKEN),
        "Which of these tools clients with a token of `auth.bearer` get, by the token's name.",
        default={},
    ),
    ConfigKey(
        "prefix",
        choice("always", "clash"),
        "With `servers`: every name gets its server's prefix, or only names that two servers have (`clash`).",
        default="always",
        is_read=False,
    ),
    ConfigKey(
        "resource",
        choice("relay", "rewrite"),
        "OAuth: the server's `/.well-known/oauth-protected-resource` is relayed. `rewrite`: there and in its 401 "
        "answers the route's URL replaces the server's, as clients of a remote server need it.",
        default="relay",
        is_read=False,
    ),
    ConfigKey(
        "trust_annotations",
        SWITCH,
        "Believes the server's `idempotentHint` and `readOnlyHint`: such calls are sent again after 5xx, timeouts and "
        "resets. Rules of `allow` may name `annotations`.",
    ),
    ConfigKey(
        "output_check",
        SWITCH,
        "Checks structured results against the tool's `outputSchema`. Only counted, never changed.",
    ),
    ConfigKey(
        "collapse",
        COLLAPSE,
        "Shows one container in place of all tools; calling it lists them. The tools stay callable.",
        is_read=False,
    ),
    ConfigKey(
        "tools",
        map_of(TOOL),
        "Single tools' own keys, as in the catalogue. A `schema` replaces the listed one, an `overlay` is laid over "
        "it; `as` and `description` are what clients see of a tool.",
        default={},
        is_read=False,
    ),
    make=dict,
)
