"""The keys of the top level of a config. `CONFIG` is the whole: every other declaration is a part of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from proxy.config.files.secrets import reveal, reveal_all
from proxy.config.keys.kinds import (
    A_PATH,
    A_TOOL,
    DURATION,
    SAME_OWNER,
    SIZE,
    SWITCH,
    TOOL_PATTERN,
    WORD,
    ConfigKey,
    Kind,
    choice,
    either,
    list_of,
    mapping,
    name_kind,
    number,
    off_or,
    table_of,
    text,
)
from proxy.config.keys.route_keys import ROUTE, TOOL, list_policy_keys
from proxy.config.keys.upstream_keys import UPSTREAM
from proxy.config.model import Address, AdminConfig, Config, HookEntry, Listen, ServerTls, StateConfig, Telemetry
from proxy.state import STORES

# --- where calls come in ----------------------------------------------------------------------------------------------
_PLACE: Final = text(
    pattern=r"^(unix:.+|(\[[0-9a-fA-F:.]+\]|[^:\s/]*):[0-9]{1,5})$", x_expects="`host:port` or `unix:/path`"
)
_ADDRESS_KEYS: Final = (
    ConfigKey("host", text(), "A name or address.", default=Address().host, is_read=False),
    ConfigKey("port", number(minimum=0, maximum=65535), "A TCP port; 0 takes any free one.", is_read=False),
    ConfigKey("unix", text(), "The path of a unix socket, instead of host and port.", is_read=False),
)
_ADDRESS: Final = name_kind(
    "listen",
    "Address",
    either(
        _PLACE,
        mapping(None, *_ADDRESS_KEYS, x_expects="host and port, or unix"),
        x_expects="`host:port`, `unix:/path`, or a mapping of host and port",
    ),
    "The address to listen at: `host:port`, `unix:/path`, or a mapping.",
)
_SERVER_TLS: Final = name_kind(
    "server_tls",
    "Server TLS",
    mapping(
        ServerTls,
        ConfigKey("cert", WORD, "The certificate with its chain."),
        ConfigKey("key", WORD, "Its key, not encrypted. Default: in the certificate's file.", default=None),
        ConfigKey(
            "client_ca",
            WORD,
            "Authorities that client certificates must come from (mTLS). Default: none asked.",
            default=None,
        ),
        required=["cert"],
    ),
    "TLS 1.2 or newer for incoming calls. PEM files.",
)
_TIMEOUTS: Final = mapping(
    Listen,
    ConfigKey("head", DURATION, "For a request's head, once begun; then 408.", field="head_timeout"),
    ConfigKey("idle", DURATION, "Between two requests.", field="idle_timeout"),
    ConfigKey(
        "send", DURATION, "For a client that does not read its answer; then it is cut off.", field="send_timeout"
    ),
    make=dict,
)
_SERVED_NAME: Final = text(
    pattern=r"^(\*\.)?[A-Za-z0-9._-]+$|^\[[0-9a-fA-F:.]+\]$", x_expects="a host name without port, or *.name"
)
LISTEN: Final = mapping(
    Listen,
    *_ADDRESS_KEYS,
    ConfigKey(
        "mode",
        replace(
            text(pattern="^0?[0-7]{3}$", x_expects='permissions in quotes, such as "0660"'),
            read=lambda value: int(reveal(value), 8),
        ),
        "The socket's permissions, in quotes. Default: by the umask.",
    ),
    ConfigKey("tls", _SERVER_TLS, is_read=False),
    ConfigKey("timeouts", _TIMEOUTS, "Limits of a client's connection.", field=SAME_OWNER),
    ConfigKey(
        "hosts",
        list_of(_SERVED_NAME, lambda names: frozenset(name.strip("[]").lower() for name in names), minItems=1),
        "Names allowed in `Host`, without port; `*.example.com` is every name below. Default: any.",
        default=None,
    ),
    make=dict,
    x_expects="host and port, or unix, with tls, mode, timeouts, hosts",
)
_INBOUND: Final = name_kind(
    "inbound",
    "Inbound",
    either(_PLACE, LISTEN, x_expects="`host:port`, `unix:/path`, or a mapping"),
    "The address for calls: `host:port`, `unix:/path`, or a mapping with TLS, time limits, and names.",
)

# --- the operator's port ----------------------------------------------------------------------------------------------
# A secret stays one until a request is compared with it.
_TOKEN: Final = replace(
    text(minLength=16, x_expects="a secret of at least 16 characters"), read=lambda value: value, is_secret=True
)
_KEPT: Final = mapping(
    AdminConfig,
    ConfigKey(
        "calls",
        number(minimum=10, maximum=100000, x_expects="a number from 10 to 100000"),
        "How many calls.",
        field="keep_calls",
    ),
    ConfigKey("values", SIZE, "Memory for their arguments, with `values`.", field="keep_values"),
    make=dict,
    x_expects="a mapping of calls and values",
)
ADMIN: Final = mapping(
    AdminConfig,
    ConfigKey(
        "listen",
        _ADDRESS,
        "The address of the operator's port. Keep it on loopback: anyone who reaches it sees the configuration.",
        default=str(AdminConfig().listen),
        is_read=False,
    ),
    ConfigKey(
        "probes",
        _ADDRESS,
        "A second address with only /livez, /readyz, /startupz and /metrics, for kubelet and Prometheus. Default: "
        "none.",
        is_read=False,
    ),
    ConfigKey(
        "token",
        _TOKEN,
        "The bearer token for every path below /-/. May be `${ENV}` or `${file:/path}`. Default: no token is required.",
        default=None,
    ),
    ConfigKey(
        "readers",
        _TOKEN,
        "A second token, which sees all but values and changes nothing. May be `${ENV}` or `${file:/path}`. Default: "
        "none.",
        default=None,
    ),
    ConfigKey(
        "hosts",
        list_of(text(minLength=1, x_expects="a host name"), lambda names: frozenset(name.lower() for name in names)),
        "Further names of this port, such as an ingress's. Addresses and loopback names always work.",
    ),
    ConfigKey(
        "console",
        SWITCH,
        "The pages below /ui/ (docs/console.md), and the last calls that they show. `off`: no pages, and only failed "
        "calls are kept.",
    ),
    ConfigKey(
        "values",
        choice("off", False, "preview", "full", x_expects="off, preview or full"),
        "Keeps and shows the arguments of the last calls and the texts that models read: `off`; `preview`, masked and "
        "cut as for a model; `full`. Needs `token`.",
    ),
    ConfigKey("keep", _KEPT, "Limits for the last calls that are kept in memory.", field=SAME_OWNER),
    make=dict,
    description="The operator's port.",
)

# --- log, traces and hooks --------------------------------------------------------------------------------------------
TELEMETRY: Final = mapping(
    Telemetry,
    ConfigKey(
        "log",
        mapping(
            Telemetry,
            ConfigKey(
                "format",
                choice("auto", "json", "console"),
                "`json`: one object per line; `console`: for people; `auto`: `console` on a terminal, else `json`.",
                field="log_format",
            ),
            ConfigKey(
                "level",
                choice("debug", "info", "warning", "error"),
                "The least severe lines written.",
                field="log_level",
            ),
            make=dict,
        ),
        "The log.",
        field=SAME_OWNER,
    ),
    ConfigKey(
        "traces",
        choice("auto", "otlp", "off"),
        "Spans by OTLP over HTTP (the extra `otel`). `auto`: as `OTEL_*` variables say; `otlp`: always; `off`: never.",
    ),
)
HOOK: Final = mapping(
    HookEntry,
    ConfigKey(
        "use",
        text(minLength=1, x_expects="module:Class, or the name of an installed hook"),
        "`module:Class`, or an installed entry point of `toolcall_proxy.hooks`.",
    ),
    ConfigKey(
        "settings",
        Kind({"type": "object"}, reveal_all, is_secret=True),
        "The class's keyword arguments. Texts may hold `${ENV}` and `${file:/path}`.",
    ),
    ConfigKey("timeout", DURATION, "How long it may take at each point."),
    ConfigKey(
        "on_failure",
        choice("refuse", "ignore"),
        "When it fails or takes too long: `refuse` the call, or `ignore` the hook.",
    ),
    make=dict,
    description="One hook.",
    required=["use"],
)


# --- keys that fill fields of `Config` --------------------------------------------------------------------------------
_DRAIN: Final = mapping(
    Config,
    ConfigKey("serve", DURATION, "The same, beside `finish`.", field="drain"),
    ConfigKey(
        "finish",
        DURATION,
        "How long running calls may then still take, while new ones are rejected. Ends with the last.",
    ),
    ConfigKey(
        "stay_ready",
        SWITCH,
        "`/readyz` stays 200 during the drain. For Kubernetes: an ending pod gets no new calls, "
        "unless it is the last ready one.",
    ),
    make=dict,
)
_RELOAD: Final = mapping(
    Config,
    ConfigKey("interval", DURATION, "How often the config and the files it names are looked at.", field="reload"),
    make=dict,
)
_LIMITS: Final = mapping(
    Config,
    ConfigKey(
        "memory",
        SIZE,
        "The memory for all bodies under way and their judging, 24 bytes for each byte of a body. Beyond it a body is "
        "not read (503). Default: half of what is free at start below the control group's limit, or else below a "
        "quarter of the machine's memory; several workers divide it.",
    ),
    make=dict,
    title="Memory limits",
)
SINGLE_KEYS: Final = mapping(
    Config,
    ConfigKey(
        "drain",
        either(
            DURATION,
            _DRAIN,
            read=lambda value: _DRAIN.read(value if isinstance(value, dict) else {"serve": value}),
            x_expects="a time such as 25s, or a mapping with serve, finish and stay_ready",
        ),
        "How long the proxy still serves after SIGTERM, not ready and ending each connection, because load balancers "
        "learn late. Without this key it ends sooner if no calls arrive, except in a pod (`--pod-ports`).",
        default=DURATION.write(Config(()).drain),
        field=SAME_OWNER,
    ),
    ConfigKey(
        "reload",
        off_or(_RELOAD, "off, or a mapping with interval", off={"reload": None}),
        "Takes changed files over while serving. `off`: only by SIGHUP and POST /-/reload.",
        field=SAME_OWNER,
    ),
    ConfigKey("limits", _LIMITS, "Bounds of what is read.", field=SAME_OWNER),
    ConfigKey(
        "workers", number(minimum=1, maximum=256), "Processes that share the port. More than one needs a shared state."
    ),
    ConfigKey("prepare", choice("first_call", "all"), "Compiles a tool's check at its first call, or all ahead."),
    make=dict,
)

# --- the whole --------------------------------------------------------------------------------------------------------
_DRAIN_KEY, *_LAST_KEYS = (replace(key, default=key.write_default(Config)) for key in SINGLE_KEYS.keys or ())
_NETWORK: Final = text(minLength=1, x_expects="a network such as 10.0.0.0/8, an address, or unix")
_FORWARDED: Final = mapping(
    None,
    ConfigKey(
        "trusted",
        list_of(_NETWORK),
        "Networks whose `X-Forwarded-*` and `Forwarded` are trusted and extended; `unix`: those on a unix socket. All "
        "others' are replaced. The proxy reads the client's address from `X-Forwarded-For`. It reads `Forwarded` only "
        "if there is no `X-Forwarded-For`. So each of these hops must replace or remove both.",
        default=[],
    ),
)
STATE: Final = mapping(
    StateConfig,
    ConfigKey(
        "backend",
        choice(*(each.backend for each in STORES)),
        "`memory`: in this process.",
    ),
    ConfigKey(
        "max_keys",
        number(minimum=1),
        "The most conversations remembered in one process; the least recently used go first.",
    ),
)
_SCHEMAS: Final = mapping(
    None,
    ConfigKey(
        "unknown_keywords",
        choice("refuse", "note", "off"),
        "Keywords that JSON Schema does not know, except `x-...`. Default: a clear misspelling "
        "(`requird`) is an error, any other a note. `refuse`: each is an error. `note`: each is a "
        "note, and so is any other rule without effect (`import` writes this). `off`: none is "
        "reported.",
    ),
)
_ROUTE_LIST: Final = list_of(replace(ROUTE, name="", facts={"$ref": "#/$defs/route", "required": ["path"]}, keys=None))
_ROUTES: Final = either(
    replace(_ROUTE_LIST, facts={"minItems": 1}),
    table_of(r"^/[^?#\s]*$", A_PATH, ROUTE, minProperties=1),
    x_expects="a list of routes, or a mapping from path to route",
)
CONFIG: Final = mapping(
    None,
    ConfigKey("version", Kind({"const": 1, "x-expects": "1"}), "The format's version."),
    ConfigKey("listen", _INBOUND, "The port for calls.", default=str(Listen())),
    ConfigKey(
        "admin",
        off_or(ADMIN, "off, or a mapping of listen, probes, token, readers, hosts, console, values and keep"),
        "The operator's port: probes, metrics, routes. By default it is the loopback port one above `listen`'s. `off` "
        "for none.",
        default={"listen": str(AdminConfig().listen)},
    ),
    ConfigKey("forwarded", _FORWARDED, "Other proxies in front of this one."),
    ConfigKey(
        "upstreams",
        table_of("^[A-Za-z0-9_.-]+$", "letters, digits, '.', '_' and '-'", UPSTREAM),
        "The services behind the proxy, by name.",
        default={},
    ),
    ConfigKey(
        "defaults",
        mapping(None, *list_policy_keys("defaults")),
        "The policy of every route, unless the tool or the route says otherwise.",
    ),
    ConfigKey(
        "documents",
        table_of(r"^[A-Za-z][A-Za-z0-9+.-]*:[^#\s]*$", "an absolute URI without fragment", WORD),
        "Further documents for `$ref`: URI -> file. Nothing is ever fetched.",
        default={},
    ),
    ConfigKey("tools", table_of(TOOL_PATTERN, A_TOOL, TOOL), "The catalogue: tools by name.", default={}),
    ConfigKey("routes", _ROUTES, "The routes: a list, or a mapping from path to route."),
    ConfigKey("state", STATE, "The store for attempts and call counts."),
    ConfigKey("telemetry", TELEMETRY, "Log and traces."),
    ConfigKey(
        "plugins",
        list_of(WORD, x_expects="a list of names of plugins"),
        "Plugins of installed packages that this process loads, by their names in the entry point group "
        "`toolcall_proxy.plugins` (docs/plugins.md). If you remove a name, its plugin stays loaded until the next "
        "start.",
        default=[],
    ),
    ConfigKey(
        "hooks",
        list_of(HOOK, x_expects="a list of hooks, each with `use`"),
        "The operator's own code around each call, in order (docs/hooks.md).",
        default=[],
    ),
    _DRAIN_KEY,
    ConfigKey("schemas", _SCHEMAS, "How schemas are read."),
    *_LAST_KEYS,
    title="toolcall-proxy configuration",
    description="A toolcall-proxy configuration. Every key is explained in docs/reference/keys.md.",
    required=["version", "routes"],
)
