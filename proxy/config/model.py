"""The config as frozen values: what `load` makes of the file, and what `routing` compiles.

Every default stands once. Where a value is handed on to a class of the core or the adapters, its default is that
class's own; the rest have theirs here. Times are seconds, sizes bytes. Header values and URLs may hold secrets: they
stay out of every repr, and header values are `Secret`s until a request is made of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network
from typing import Any, Literal

from proxy.adapters.base import DEFAULT_LADDER, CallShape, ConversationSource
from proxy.core.correction import CorrectionPolicy, CorrectionSettings
from proxy.core.guard import GuardPolicy
from proxy.core.jsontext import TextLimits
from proxy.core.learned import LearnPolicy, Unjudged
from proxy.core.model import Container, FeedbackLimits, Headers, JsonValue
from proxy.core.policy import (
    AttemptsPolicy,
    CallCap,
    Mode,
    ResendPolicy,
    ToolPolicy,
    UnknownKeys,
    UpstreamErrors,
)
from proxy.core.validation import Check


def default_of(owner: Any, name: str) -> Any:
    """The default of a dataclass's field."""
    for entry in dataclasses.fields(owner):
        if entry.name == name:
            return entry.default if entry.default_factory is dataclasses.MISSING else entry.default_factory()
    raise AttributeError(name)


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen: a host and a TCP port, or the path of a unix socket."""

    host: str = "127.0.0.1"
    port: int = 8080
    unix: str = ""

    def __str__(self) -> str:
        if self.unix:
            return f"unix:{self.unix}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return bool(self.unix) or self.host in ("localhost", "::1") or self.host.startswith("127.")


@dataclass(frozen=True, slots=True)
class ServerTls:
    """TLS for what comes in: paths of PEM files, absolute. `client_ca` '' asks clients for no certificate."""

    cert: str
    key: str = ""
    client_ca: str = ""


@dataclass(frozen=True, slots=True)
class Listen(Address):
    """Where calls come in, and how long a client's connection may take.

    `mode`: the permissions of the unix socket, None for what the umask leaves. `hosts`: the names that clients may
    use, in lower case, `*.x` for all below x; empty for any.
    """

    mode: int | None = None
    tls: ServerTls | None = None
    head_timeout: float = 15.0
    idle_timeout: float = 620.0
    send_timeout: float = 60.0
    hosts: frozenset[str] = frozenset()

    @property
    def address(self) -> Address:
        """Where, and nothing else."""
        return Address(self.host, self.port, self.unix)


Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class Trusted:
    """The hops in front whose word about the client is believed."""

    networks: tuple[Network, ...] = ()
    unix: bool = False


@dataclass(frozen=True, slots=True)
class Admin:
    """The operator's port. `probes` serves probes and metrics alone; `token` is asked for below /-/, '' for none."""

    listen: Address = field(default_factory=lambda: Address(port=9090))
    probes: Address | None = None
    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class HeaderChanges:
    """Headers that are set (lower-case name, value) and removed on the way to the upstream."""

    set: Headers = field(default=(), repr=False)
    remove: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class UpstreamTls:
    """TLS towards an upstream: paths of PEM files, absolute; '' for the system's authorities, no certificate of ours,
    the url's host. `digest` changes with the content of the files."""

    ca: str = ""
    cert: str = ""
    key: str = ""
    server_name: str = ""
    verify: bool = True
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Upstream:
    """One service behind the proxy. `idle_timeout` is the longest silence within a streamed answer.

    `socket` is the path of a unix socket to use instead of the url's host; `buffer` the longest answer kept in memory.
    """

    name: str
    url: str = field(repr=False)
    socket: str = ""
    tls: UpstreamTls | None = None
    buffer: int = 1024 * 1024
    connect_timeout: float = 2.0
    response_timeout: float = 30.0
    idle_timeout: float = 300.0
    pool_idle: float = 4.0  # uvicorn drops idle connections after 5 s: a POST must not hit a dead one
    pool_connections: int = 256
    headers: HeaderChanges = field(default_factory=HeaderChanges)
    guard: GuardPolicy = field(default_factory=GuardPolicy)


@dataclass(frozen=True, slots=True)
class RepairSettings:
    """What may be repaired. `drop_keys` None: none, or the known plumbing keys where the level is lenient."""

    level: str = "standard"
    rules: Mapping[str, bool] = field(default_factory=dict)
    drop_keys: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Caps:
    """How often a conversation may call each tool: `overrides` by tool, else `default`, else as often as it likes."""

    default: int | None = None
    overrides: Mapping[str, int] = field(default_factory=dict)
    ttl: float = default_of(CallCap, "ttl")

    def of(self, tool: str) -> CallCap:
        """The cap of one tool."""
        return CallCap(self.overrides.get(tool, self.default), self.ttl)


@dataclass(frozen=True, slots=True)
class Auth:
    """Who may call. `tokens`: (name, SHA-256 of the token); `forward`: the token goes on to the upstream."""

    tokens: tuple[tuple[str, bytes], ...] = field(repr=False)
    forward: bool = False


@dataclass(frozen=True, slots=True)
class Cors:
    """Which pages in a browser may call. `upstream`: it says so itself. `max_age` in seconds."""

    origins: frozenset[str] = frozenset()
    headers: tuple[str, ...] = ()
    max_age: float = 600.0
    upstream: bool = False


@dataclass(frozen=True, slots=True)
class Policy:
    """A whole policy: `defaults`, then the tool's, then the route's own keys. `timeout` None: the upstream's;
    `finalize_output_retries` None: what `attempts` says."""

    mode: Mode = field(default=default_of(ToolPolicy, "mode"))
    repair: RepairSettings = field(default_factory=RepairSettings)
    unknown_keys: UnknownKeys = field(default=default_of(ToolPolicy, "unknown_keys"))
    envelope: str = "auto"
    error_status: Literal["category", "ok"] = "category"
    attempts: AttemptsPolicy = field(default_factory=AttemptsPolicy)
    caps: Caps = field(default_factory=Caps)
    feedback: FeedbackLimits = field(default_factory=FeedbackLimits)
    max_body: int = 1024 * 1024
    text: TextLimits = field(default_factory=TextLimits)
    timeout: float | None = None
    resend: ResendPolicy = field(default_factory=ResendPolicy)
    upstream_errors: UpstreamErrors = field(default=default_of(ToolPolicy, "upstream_errors"))
    wrap_success: bool = field(default=default_of(ToolPolicy, "wrap_success"))
    correction: CorrectionPolicy = field(default_factory=CorrectionPolicy)
    response_mode: Mode = Mode.REPORT
    finalize_output_retries: int | None = None
    formats: bool = True
    ladder: tuple[ConversationSource, ...] = DEFAULT_LADDER
    headers: HeaderChanges = field(default_factory=HeaderChanges)
    auth: Auth | None = None
    cors: Cors | None = None


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """A tool's schema, read and compiled. `schema_id` is a short hash of it and of all it refers to.

    `notes` says what was read differently from how it is written, and what the operator should know of it.
    """

    value: JsonValue = field(repr=False)
    check: Check = field(repr=False)
    schema_id: str
    description: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as one route serves it. `schema` is None where validation is off or the tool is a container, `answer`
    where the tool may answer anything.

    `written` is the policy as written (all layers merged, headers left out): the fingerprint is made of it.
    """

    name: str
    description: str
    schema: ToolSchema | None
    container: Container | None
    policy: Policy
    written: Mapping[str, JsonValue] = field(default_factory=dict, repr=False)
    answer: ToolSchema | None = None


@dataclass(frozen=True, slots=True)
class Mcp:
    """What a route does with the tools that its MCP server lists. `template` and `written` are the policy of a tool
    without an entry in `tools`; `patches` are laid over listed schemas. Times in seconds."""

    template: Policy
    written: Mapping[str, JsonValue] = field(default_factory=dict, repr=False)
    tools: Mapping[str, Tool] = field(default_factory=dict)
    patches: Mapping[str, JsonValue] = field(default_factory=dict, repr=False)
    unknown_schema: Unjudged = field(default=default_of(LearnPolicy, "unknown_schema"))
    on_bad_schema: Unjudged = field(default=default_of(LearnPolicy, "on_bad_schema"))
    trust_annotations: bool = default_of(LearnPolicy, "trust_annotations")
    output_check: bool = default_of(LearnPolicy, "output_check")
    collapse: Container | None = None
    collapse_description: str = ""
    credentials: frozenset[str] = frozenset()
    ttl: float = default_of(LearnPolicy, "ttl")
    wait: float = default_of(LearnPolicy, "wait")


RouteKind = Literal["call", "validate", "passthrough"]


@dataclass(frozen=True, slots=True)
class RouteEntry:
    """One path. `policy` holds what is decided before the tool is known: limits, envelope, conversation, headers."""

    name: str
    path: str
    methods: tuple[str, ...]
    kind: RouteKind
    adapter: str
    shape: CallShape
    policy: Policy
    tools: Mapping[str, Tool] = field(default_factory=dict)
    upstream: str = ""
    upstream_path: str = ""
    websocket: bool = True
    mcp: Mcp | None = None


class Topology(StrEnum):
    """How the servers of a shared store stand to each other, and so how the right one is found."""

    SINGLE = "single"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class SharedState:
    """A store that several processes share. `hosts` are (host, port) of servers or sentinels; times in seconds.

    `tls_files` None trusts what the system trusts and shows no certificate.
    """

    topology: Topology = Topology.SINGLE
    hosts: tuple[tuple[str, int], ...] = ()
    unix: str = ""
    database: int = 0
    service: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    sentinel_username: str = ""
    sentinel_password: str = field(default="", repr=False)
    tls: bool = False
    tls_files: UpstreamTls | None = None
    prefix: str = "toolproxy"
    connect_timeout: float = 0.1
    operation_timeout: float = 0.05


@dataclass(frozen=True, slots=True)
class State:
    """Where attempts and call counts are remembered, and how many conversations at most in this process."""

    backend: str = "memory"
    max_keys: int = 100_000
    shared: SharedState | None = None


@dataclass(frozen=True, slots=True)
class Telemetry:
    """The log: `auto` is console on a terminal and json elsewhere. Traces: `auto` is what the variables OTEL_* say."""

    log_format: Literal["auto", "json", "console"] = "auto"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    traces: Literal["auto", "otlp", "off"] = "auto"


@dataclass(frozen=True, slots=True)
class Reload:
    """How often the files are looked at, in seconds; None: only when asked to."""

    interval: float | None = 2.0


@dataclass(frozen=True, slots=True)
class Guidance:
    """What agents are told before they call: at most `max_chars` characters, with the state of a conversation or
    without (Compozy, `enable_dynamic_prompt_state`)."""

    dynamic_state: bool = True
    max_chars: int = 12_000


@dataclass(frozen=True, slots=True)
class HookEntry:
    """One hook: what to load (`module:attribute` or an installed name), made with `settings`. `timeout` in seconds for
    each of its points. `at`: line and column, for a mistake that only loading it can find."""

    use: str
    timeout: float = 0.05
    on_failure: Literal["ignore", "refuse"] = "refuse"
    settings: Mapping[str, JsonValue] = field(default_factory=dict, repr=False)
    at: tuple[int, int] = field(default=(1, 1), compare=False)


@dataclass(frozen=True, slots=True)
class Config:
    """A whole config. `written` is the file's content with references as they are written: what a dump may show.

    `notes` is for the operator: nothing is wrong, but worth knowing. `drain` and
    `finish`, what calls under way have after it, in seconds.
    """

    routes: tuple[RouteEntry, ...]
    upstreams: Mapping[str, Upstream] = field(default_factory=dict)
    listen: Listen = field(default_factory=Listen)
    admin: Admin | None = field(default_factory=Admin)
    trusted: Trusted = field(default_factory=Trusted)
    state: State = field(default_factory=State)
    telemetry: Telemetry = field(default_factory=Telemetry)
    hooks: tuple[HookEntry, ...] = ()
    guidance: Guidance = field(default_factory=Guidance)
    correction: CorrectionSettings | None = None
    drain: float = 25.0
    finish: float = 5.0
    reload: Reload = field(default_factory=Reload)
    workers: int = 1
    notes: tuple[str, ...] = ()
    written: JsonValue = field(default=None, repr=False)
