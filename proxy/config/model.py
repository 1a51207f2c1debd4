"""The config as frozen values: `load` makes them from the file, and `routing` compiles them.

Each default is written once: on the class of the core or the adapters that uses the value, otherwise here. Times are
seconds, sizes bytes. Header values and URLs may hold secrets, so no repr shows them, and header values stay `Secret`s
until a request is built from them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from ipaddress import IPv4Network, IPv6Network
from typing import Any, Final, Literal, Protocol

from proxy.adapters.base import DEFAULT_LADDER, CallShape, ConversationSource
from proxy.core.check.validation import Check
from proxy.core.contract.policy import CallCap, ListRules, Mode, NullOptional, PolicyValues, RepairPolicy, ToolPolicy
from proxy.core.contract.request_rules import ChannelJudge, QueryPolicy, RequestForm
from proxy.core.model.value_class import value_class
from proxy.core.model.values import Container, Headers, JsonValue
from proxy.core.schema.formats import USUAL, Formats
from proxy.core.tool_errors.circuit_breaker import GuardPolicy

# The treatment of keywords that JSON Schema does not know; `misspelt`: those that surely mean another one are mistakes.
UnknownKeywords = Literal["misspelt", "refuse", "note", "off"]


def find_default(owner: Any, name: str) -> Any:
    """The default of a dataclass's field."""
    entry = owner.__dataclass_fields__[name]
    return entry.default if entry.default_factory is dataclasses.MISSING else entry.default_factory()


_LAST_PORT: Final = 65535


@value_class
class Address:
    """A listening address: a host and a TCP port, or the path of a unix socket. `or_free`: if it is taken, any free
    port."""

    host: str = "127.0.0.1"
    port: int = 8080
    unix: str = ""
    or_free: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        if self.unix:
            return f"unix:{self.unix}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def above(self) -> Address:
        """Returns the loopback address one port above, the operator's port by default; any free one for port 0."""
        return Address(port=self.port and self.port + (1 if self.port < _LAST_PORT else -1))

    @property
    def is_loopback(self) -> bool:
        """Returns whether only this machine can reach the address."""
        return bool(self.unix) or self.host in ("localhost", "::1") or self.host.startswith("127.")


@value_class
class ServerTls:
    """TLS for incoming connections: absolute paths of PEM files. With `client_ca` '' clients need no certificate."""

    cert: str
    key: str = ""
    client_ca: str = ""


@value_class
class Listen(Address):
    """The address for calls, and the time limits of client connections.

    `mode` is the permissions of the unix socket, None for the umask's. `hosts` are the host names that clients may use,
    in lower case, `*.x` for all names below x; empty allows any.
    """

    mode: int | None = None
    tls: ServerTls | None = None
    head_timeout: float = 15.0
    idle_timeout: float = 620.0
    send_timeout: float = 60.0
    hosts: frozenset[str] = frozenset()

    @property
    def address(self) -> Address:
        """The address without the other settings."""
        return Address(self.host, self.port, self.unix)


Network = IPv4Network | IPv6Network


@value_class
class Trusted:
    """The proxies in front of us whose statements about the client are trusted."""

    networks: tuple[Network, ...] = ()
    unix: bool = False


@value_class
class AdminConfig:
    """The operator's port. `probes` serves only probes and metrics; requests below /-/ need `token`, '' for none.

    `readers` is the token of readers, who see everything except values and change nothing. `hosts` are names under
    which the port is reached, besides addresses and loopback names. `console`: whether there are pages. `values`: how
    arguments are kept, in at most `keep_values` bytes; `keep_calls` is the number of kept requests.
    """

    listen: Address = field(default_factory=lambda: Address().above)
    probes: Address | None = None
    token: str = field(default="", repr=False)
    readers: str = field(default="", repr=False)
    hosts: frozenset[str] = frozenset()
    console: bool = True
    values: Literal["off", "preview", "full"] = "off"
    keep_calls: int = 2000
    keep_values: int = 4 * 1024 * 1024


@value_class
class HeaderChanges:
    """Headers to set (lower-case name, value) and to remove before a request goes upstream."""

    set: Headers = field(default=(), repr=False)
    remove: frozenset[str] = frozenset()


@value_class
class UpstreamTls:
    """TLS to an upstream: absolute paths of PEM files. '' means the system's authorities, no client certificate, and
    the URL's host. `digest` changes with the content of the files."""

    ca: str = ""
    cert: str = ""
    key: str = ""
    server_name: str = ""
    verify: bool = True
    digest: str = ""


class AddedUpstream(Protocol):
    """An upstream without a URL: a process, or one that represents other upstreams. A plugin reads it and makes it."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The upstreams that it represents; none if it is a process."""

    @property
    def servers(self) -> tuple[str, ...]:
        """The names of the several servers that it joins."""

    @property
    def holds_sessions(self) -> bool:
        """Returns whether its sessions live in this process, so that several workers cannot share them."""

    @property
    def described(self) -> str:
        """Its description for the operator."""


@value_class
class UpstreamConfig:
    """One service behind the proxy. `idle_timeout` is the longest silence within a streamed answer.

    `socket` is the path of a unix socket to use instead of the URL's host. An answer longer than `buffer` is streamed.
    `added` replaces the URL if a plugin makes the service. `health` is a path that answers when it is ready; '' if
    taking connections says so.
    """

    name: str
    url: str = field(repr=False)
    socket: str = ""
    tls: UpstreamTls | None = None
    buffer: int = 1024 * 1024
    connect_timeout: float = 2.0
    response_timeout: float = 30.0
    idle_timeout: float = 300.0
    pool_idle: float = 4.0  # uvicorn drops idle connections after 5 s, and a POST must not meet a dead one
    pool_connections: int = 256
    headers: HeaderChanges = field(default_factory=HeaderChanges)
    guard: GuardPolicy = field(default_factory=GuardPolicy)
    added: AddedUpstream | None = None
    health: str = ""


@value_class
class RepairSettings:
    """The permitted repairs, and the keys that `drop_unknown` may remove."""

    level: str = "standard"
    rules: Mapping[str, bool] = field(default_factory=dict)
    drop_keys: frozenset[str] = frozenset()


@value_class
class Caps:
    """The most calls of each tool in a conversation: `overrides` by tool, otherwise `default`; None means no limit."""

    default: int | None = None
    overrides: Mapping[str, int] = field(default_factory=dict)
    ttl: float = find_default(CallCap, "ttl")
    by_address: bool = find_default(CallCap, "by_address")

    def of(self, tool: str) -> CallCap:
        """The cap of one tool."""
        return CallCap(self.overrides.get(tool, self.default), self.ttl, self.by_address)


@value_class
class Auth:
    """The permitted callers. `tokens`: (name, SHA-256 of the token). With `forward` the token reaches the upstream."""

    tokens: tuple[tuple[str, bytes], ...] = field(default=(), repr=False)
    forward: bool = False


@value_class
class Cors:
    """Which web pages may call. With `upstream` the upstream answers that itself. `max_age` is in seconds."""

    origins: frozenset[str] = frozenset()
    headers: tuple[str, ...] = ()
    max_age: float = 600.0
    upstream: bool = False


@value_class
class Policy(PolicyValues):
    """A complete policy, from `defaults`, the tool's keys and the route's. `timeout` None means the upstream's;
    `finalize_output_retries` None means the number of `attempts`."""

    repair: RepairSettings = field(default_factory=RepairSettings)
    null_optional: NullOptional = field(default=find_default(RepairPolicy, "null_optional"))
    aliases: Mapping[str, str] = field(default_factory=dict)
    envelope: str = "auto"
    error_status: Literal["category", "ok"] = "category"
    detail: Literal["compact", "full"] = "compact"
    caps: Caps = field(default_factory=Caps)
    timeout: float | None = None
    response_mode: Mode = Mode.REPORT
    finalize_output_retries: int | None = None
    formats: Formats = USUAL
    ladder: tuple[ConversationSource, ...] = DEFAULT_LADDER
    headers: HeaderChanges = field(default_factory=HeaderChanges)
    auth: Auth | None = None
    cors: Cors | None = None


@value_class
class ToolSchema:
    """A tool's schema, read and compiled. `schema_id` is a short hash of it and of everything it refers to.

    `notes` tells the operator what was read differently from how it is written, and what else is worth knowing.
    """

    value: JsonValue = field(repr=False)
    check: Check = field(repr=False)
    schema_id: str
    description: str = ""
    notes: tuple[str, ...] = ()


@value_class
class ToolConfig:
    """A tool as one route serves it. `schema` is None if validation is off or the tool is a container, `answer` if the
    tool may answer anything.

    `written` is the merged policy as written, without headers; the fingerprint is made from it. `request`: the form of
    its arguments in an HTTP request, None if they are sent as they are.
    """

    name: str
    description: str
    schema: ToolSchema | None
    container: Container | None
    policy: Policy
    written: Mapping[str, JsonValue] = field(default_factory=dict, repr=False)
    answer: ToolSchema | None = None
    request: RequestForm | None = None


class ListedRoute(Protocol):
    """The settings of a route of a plugin's protocol for the tools that its server lists (config/routes.py)."""

    @property
    def template(self) -> Policy:
        """The policy of a tool that the config does not name."""

    @property
    def tools(self) -> Mapping[str, ToolConfig]:
        """The tools that the config names, by the names that clients see."""

    @property
    def upstream(self) -> str:
        """The name of the upstream behind the route."""

    @property
    def upstream_path(self) -> str:
        """The path of the server's endpoint; '' if it has none."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The upstreams that the route names besides its `upstream`."""

    @property
    def rewritten_by(self) -> PluginSettings | None:
        """As in `RouteEntry`."""

    @property
    def trusts_annotations(self) -> bool:
        """Returns whether the hints on a listed tool count: its server is believed, or the config itself has them."""

    def list_notes(self) -> Iterator[str]:
        """Returns notes about the route that are no mistakes."""

    def show_all(self) -> ListedRoute:
        """The same route, where everybody sees every tool as its server lists it."""

    def make_rules(self, make_policy: Callable[[ToolConfig], ToolPolicy]) -> ListRules:
        """Returns the route's rules for the tools that its server lists."""


RouteKind = Literal["call", "validate", "passthrough"]


@value_class
class PluginSettings:
    """A plugin's settings of a route: `key` is its `relay_key` or its `protocol`."""

    key: str
    settings: Any


@value_class
class RouteEntry:
    """One path. `policy` holds what is decided before the tool is known: limits, envelope, conversation, headers.
    `channels`: what is judged besides the body; `lookalikes`: what happens to other spellings of a judged path.
    `relayed_by`: the plugin that answers the requests of a relayed route. `rewritten_by`: the plugin, by its protocol,
    that rewrites the answers of a relayed route.
    `is_from_root`: `upstream_path` is the whole path, without the path of the upstream's URL before it."""

    name: str
    path: str
    methods: tuple[str, ...]
    kind: RouteKind
    adapter: str
    shape: CallShape
    policy: Policy
    tools: Mapping[str, ToolConfig] = field(default_factory=dict)
    upstream: str = ""
    upstream_path: str = ""
    websocket: bool = True
    listed: ListedRoute | None = None
    query: QueryPolicy = QueryPolicy.FORWARD
    channels: ChannelJudge | None = None
    lookalikes: Literal["refuse", "pass"] = "refuse"
    rewritten_by: PluginSettings | None = None
    is_from_root: bool = False
    relayed_by: PluginSettings | None = None

    def list_policies(self) -> Iterator[Policy]:
        """Its own policy and those of its tools."""
        yield self.policy
        yield from (
            tool.policy for tool in (*self.tools.values(), *(self.listed.tools if self.listed else {}).values())
        )


@value_class
class LeftOutEntry:
    """A path whose requests are refused, because its operation is neither judged nor relayed, and why."""

    path: str
    methods: tuple[str, ...]
    why: str


@value_class
class StateConfig:
    """The memory of attempts and call counts; `max_keys` is the most conversations in this process. `shared`: the keys
    as the extension of the backend has read them."""

    backend: str = "memory"
    max_keys: int = 100_000
    shared: Any = None


@value_class
class Telemetry:
    """Log and traces. Log `auto` is console on a terminal, otherwise json; traces `auto` follows OTEL_* variables."""

    log_format: Literal["auto", "json", "console"] = "auto"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    traces: Literal["auto", "otlp", "off"] = "auto"


@value_class
class HookEntry:
    """One hook: what to load (`module:attribute` or an installed name), created with `settings`. `timeout` is in
    seconds for each point. `at` is the line and column, for mistakes found only by loading it."""

    use: str
    timeout: float = 0.05
    on_failure: Literal["ignore", "refuse"] = "refuse"
    settings: Mapping[str, JsonValue] = field(default_factory=dict, repr=False)
    at: tuple[int, int] = field(default=(1, 1), compare=False)


@value_class
class Config:
    """A complete config. `written` is the file's content with unresolved references, which a dump may show.

    `metadata_routes` relay the OAuth metadata of MCP servers. `notes` are remarks for the operator that are no
    mistakes. `drain` is how long the proxy continues to serve after the signal to stop, `finish` how long calls may
    take after that, in seconds. With `stay_ready` the proxy is ready while draining. `reload`: how often the files are
    checked for changes, in seconds; None: only on request. `memory`: the most memory for the bodies in transit
    together, in bytes; None: by the system's free memory. `prepare`: whether checks are compiled at the first call or
    ahead. `sections`: the values of the plugins' keys, by key.
    """

    routes: tuple[RouteEntry, ...]
    left_out: tuple[LeftOutEntry, ...] = ()
    metadata_routes: tuple[RouteEntry, ...] = ()
    upstreams: Mapping[str, UpstreamConfig] = field(default_factory=dict)
    listen: Listen = field(default_factory=Listen)
    admin: AdminConfig | None = field(default_factory=AdminConfig)
    trusted: Trusted = field(default_factory=Trusted)
    state: StateConfig = field(default_factory=StateConfig)
    telemetry: Telemetry = field(default_factory=Telemetry)
    hooks: tuple[HookEntry, ...] = ()
    drain: float = 25.0
    finish: float = 5.0
    stay_ready: bool = False
    reload: float | None = 2.0
    workers: int = 1
    memory: int | None = None
    prepare: Literal["first_call", "all"] = "first_call"
    sections: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    written: JsonValue = field(default=None, repr=False)
