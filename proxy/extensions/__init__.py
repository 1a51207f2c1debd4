"""The extensions: products of their own, each in one folder beside this file, joined to the main job by its row here.

A row names what its extension adds, and the places in it that the main job calls, written `module:name` below this
package. A module is imported when a verb, a config key, a route or a page first needs it; a plain `serve` imports none.
Nothing else names a module of an extension (tests/test_architecture.py), so a folder can be taken away
(tests/extensions/test_locks.py). Its row then still says to which extension a verb or a config key belongs.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence, Set
from dataclasses import field
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from proxy.core.model.value_class import value_class


@value_class
class PageRow:
    """One page of the operator's port: `place` is a function `(serving, PageRequest) -> Page | EventPage`.
    `is_harmless`: a reader may POST to it, because it changes nothing. `pooled`: a function `(worker pool, PageRequest)
    -> Page | EventPage` that answers above several workers; '' where any one worker may answer."""

    place: str
    method: str = "GET"
    is_harmless: bool = False
    pooled: str = ""


@value_class
class RouteKind:
    """The parts of a protocol of routes: an `Adapter` (adapters/base.py), a `RouteKindReader` of their keys
    (config/routes.py), a `RouteHandler` (server/listed_routes.py), and the `LearnedLists` of one route; `methods` are
    those of its requests."""

    methods: tuple[str, ...]
    adapter: str
    reader: str
    handler: str
    lists: str


@value_class
class RelayKind:
    """An extension's handling of the requests of a relayed route with its key; such a route takes every path below its
    own. `reader` is a function `(context, route) -> settings`; `handler` makes a `RelayHandler`
    (server/listed_routes.py). `adapter` is an `Adapter` (adapters/base.py) that says how its clients read failures.
    `other_keys` are those of a policy that count on such a route."""

    reader: str
    handler: str
    adapter: str
    other_keys: tuple[str, ...] = ()


@value_class
class NoConfig:
    """A flag of `serve` in place of a config: `make_file` is a function `(args, kept) -> path` that writes one, which
    exists until `kept` closes; `find_trouble` a coroutine function `(url, headers)` that gives the reasons, in lines,
    why the tools cannot be reached. `option`: the flag as argparse's `add_argument` takes it; `flags` the same of those
    that count beside it alone, by name."""

    make_file: str
    find_trouble: str = ""
    option: Mapping[str, Any] = field(default_factory=dict)
    flags: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@value_class
class ServeFlags:
    """Flags of `serve` that say where the process runs. `flags`: name -> the keywords of argparse's `add_argument`; a
    `type` among them is a place. They count where the first of them is given; `module` has then
    `list_mistakes(config, args) -> lines`, `make_watcher(args) -> TroubleWatcher` (telemetry/notices.py) and
    `write_flags(args) -> words of a worker's command line`."""

    title: str
    text: str
    module: str
    flags: Mapping[str, Mapping[str, Any]]

    @property
    def first(self) -> str:
        """The name of the first flag as argparse's namespace has it."""
        return next(iter(self.flags)).removeprefix("--").replace("-", "_")


@value_class
class StateBackend:
    """A value of `state.backend`: `reader` is a function `(context, files, keys of state as written) -> settings`, and
    `store` a `MakeStore` (state/__init__.py). `keys` are those of `state` that only this backend has."""

    reader: str
    store: str
    keys: tuple[str, ...]


@value_class
class Extension:
    """One row: the folder's `name`, what the extension `adds` in one sentence, and the other extensions that it `uses`.

    `verbs`: verb -> a module with `register(subparsers)` and `run(args) -> exit code`, as in `proxy/cli/`.
    `sections`: top-level key of the config -> its reader (`read_sections` of config/context.py). The keys' schema is
        the `config.schema.json` in the extension's folder.
    `policy_keys`: key of a policy (of `defaults`, a tool, a route) -> a function of the key's merged value.
    `limit_keys`: key of a policy's `limits` -> a function of the key's merged value.
    `limiter`: makes the `CallLimiter` (interfaces.py) of calls, from the services, for the first config that has one of
        `limit_keys`.
    `callers`: those of its policy keys by which a route asks who calls (`Services.access` of such a route).
    `summary`: a function of the config; gives the lines that `check` adds to what a config serves.
    `check`: its check (`check_added_keys` of config/context.py), called for a config in which one of `keys` is written.
    `pages`: path below the operator's port -> what answers it. A path that ends in a slash takes all below it.
    `observer`: makes a `ConfiguredObserver` (server/setup/added.py) for the first config with one of `sections`.
    `page_counts`: makes the `PageCounts` (server/admin/console_data.py) of its pages, where `admin.console` is on.
    `shared_answers`: makes, from a clock, what answers readers of the operator's port with what was made for others,
        for the first reader that says which age it takes.
    `workers`: a coroutine function `(loaded, arguments of serve, what watches, queue of signals) -> exit code` that
        runs as many workers as the config says; `worker_entry`: a function `(queue of signals, admin) -> AdminConfig`
        that gives the operator's port of one of them.
    `tracer`: a `MakeTracer` (server/setup/added.py), called where the config or the environment asks for traces.
    `tracer_library`: says in words which libraries are missing; '' where none is.
    `answers`: a function of the config; gives an `AnswerPath` (server/handler.py) for each path that it serves beside
        the routes. Called for a config with one of `sections`; so is the next.
    `services`: makes a `ServiceExtender` (server/setup/added.py) for the first config with one of `sections`.
    `is_sampler`: it makes a `CallSampler` (server/setup/added.py), for the first sampled call at the latest.
    `tool_texts`: a function of the config; gives the `ToolTexts` for MCP clients, or None.
    `pinned`: a function `(config, name of a route) -> PinnedTools | None` (core/contract/listed_tool.py): which
        definitions of the tools that its server lists are approved. Called for a config with one of `sections`.
    `route_kinds`: value of a route's `protocol` -> what speaks it.
    `route_check`: yields what contradicts itself among the keys of a route that speaks one of its protocols, or that
        has one of its keys itself or at its upstream (config/combinations.py).
    `backends`: value of `state.backend` -> what keeps state there.
    `upstream_keys`: key of an upstream in place of its URL -> a function `(context, name, written) -> UpstreamConfig`.
    `upstreams`: makes the `UpstreamKind` (server/setup/upstreams.py) of upstreams without a URL.
    `sources`: kind of a recorded import -> a coroutine function `(Recorded, headers, folder) -> Harvest`.
    `check_flags`: flag of `check` -> a function `(report, loaded config, args) -> exit code` that puts what it finds
        into the `CheckReport` (cli/check_formats.py).
    `imports`: kind of `import` -> a module with `register(kinds)` and `run(args) -> exit code`.
    `no_config`: flag of `serve` -> what it does.
    `serve_flags`: the flags of `serve` that say where the process runs.
    `adapters`: name of an `Adapter` (adapters/base.py) that routes may have -> the adapter.
    `binder`: makes the `OperationRule` (core/contract/request_rules.py) of a tool: from its `RequestForm`, the check of
        its schema, whether it is called by name, and the query policy.
    `tool_keys`: key of a tool -> a function `(context, path, written) -> RequestForm | None`.
    `route_keys`: key of a route -> a function `(catalogue, route, formats, query policy) -> ChannelJudge`.
    `relays`: key of a relayed route -> what happens to its requests.
    `schema_sources`: key of a `schema` that is no JSON Schema -> a `ReadSource` (config/schemas.py).
    `other_keys`: its keys of the config at other places, which the readers above read.
    `evaluations`: side of `evaluate` -> a function `(args) -> exit code` that measures it.
    `metrics`: the rows of its metrics, for docs; the extension itself adds them to `Metrics`.
    """

    name: str
    adds: str
    uses: tuple[str, ...] = ()
    verbs: Mapping[str, str] = field(default_factory=dict)
    sections: Mapping[str, str] = field(default_factory=dict)
    policy_keys: Mapping[str, str] = field(default_factory=dict)
    limit_keys: Mapping[str, str] = field(default_factory=dict)
    limiter: str = ""
    callers: tuple[str, ...] = ()
    summary: str = ""
    check: str = ""
    pages: Mapping[str, PageRow] = field(default_factory=dict)
    observer: str = ""
    page_counts: str = ""
    shared_answers: str = ""
    workers: str = ""
    worker_entry: str = ""
    tracer: str = ""
    tracer_library: str = ""
    metrics: str = ""
    answers: str = ""
    tool_texts: str = ""
    services: str = ""
    is_sampler: bool = False
    pinned: str = ""
    route_kinds: Mapping[str, RouteKind] = field(default_factory=dict)
    route_check: str = ""
    upstream_keys: Mapping[str, str] = field(default_factory=dict)
    upstreams: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)
    check_flags: Mapping[str, str] = field(default_factory=dict)
    imports: Mapping[str, str] = field(default_factory=dict)
    no_config: Mapping[str, NoConfig] = field(default_factory=dict)
    serve_flags: ServeFlags | None = None
    other_keys: tuple[str, ...] = ()
    adapters: Mapping[str, str] = field(default_factory=dict)
    binder: str = ""
    tool_keys: Mapping[str, str] = field(default_factory=dict)
    route_keys: Mapping[str, str] = field(default_factory=dict)
    schema_sources: Mapping[str, str] = field(default_factory=dict)
    relays: Mapping[str, RelayKind] = field(default_factory=dict)
    evaluations: Mapping[str, str] = field(default_factory=dict)
    backends: Mapping[str, StateBackend] = field(default_factory=dict)

    @property
    def keys(self) -> tuple[str, ...]:
        """Every key of the config that is the extension's."""
        named = (
            self.sections,
            self.policy_keys,
            self.limit_keys,
            self.tool_keys,
            self.route_keys,
            self.upstream_keys,
            self.relays,
            self.other_keys,
        )
        return tuple(key for keys in named for key in keys)

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return Path(__file__).parent / self.name

    @property
    def is_installed(self) -> bool:
        """Whether the extension's folder is there."""
        return _has_folder(self.name)

    @property
    def absence(self) -> str:
        """The message about a verb or key whose extension's folder is missing."""
        return f"belongs to the extension {self.name!r}, which is not installed here"


EXTENSIONS: Final = (
    Extension(
        "recording",
        uses=("second_judge",),
        adds="calls recorded to a file, and judged again by another config: `record`, `replay`, `diff`",
        verbs={"replay": "recording.cli.replay", "diff": "recording.cli.diff"},
        sections={"record": "recording.record_section:read_record"},
        pages={"/-/trial": PageRow("recording.schema_comparison:make_comparison_page", "POST", is_harmless=True)},
        observer="recording.recorder:make_recorder",
        metrics="recording.recorder:METRICS",
    ),
    Extension(
        "second_judge",
        uses=("examples",),
        adds="jsonschema and fastjsonschema, which judge accepted calls too: some beside them, or all before they go",
        sections={"second_judge": "second_judge.second_judge_section:read_second_judge"},
        services="second_judge.second_judges:SecondJudges",
        is_sampler=True,
        check_flags={"second-opinion": "second_judge.cli.second_opinion:compare_judges"},
        metrics="second_judge.second_judges:METRICS",
    ),
    Extension(
        "guidance",
        uses=("examples",),
        adds="what agents read of tools before they call: prompt text, and definitions as vendors want them",
        verbs={"guidance": "guidance.cli.guidance", "export": "guidance.cli.export"},
        sections={"guidance": "guidance.guidance_section:read_guidance"},
        pages={"/-/guidance": PageRow("guidance.guidance_page:make_guidance_page")},
        answers="guidance.served_guidance:make_answers",
        tool_texts="guidance.tool_texts:make_tool_texts",
    ),
    Extension(
        "importing",
        uses=("outgoing",),
        adds="configs written for tools that describe themselves: `import`, and `check --live`",
        verbs={"import": "importing.cli.import_"},
        check_flags={"live": "importing.cli.check_live:check_live"},
    ),
    Extension(
        "operations",
        adds="HTTP operations: OpenAPI descriptions, and arguments in path, query, headers, cookies and forms",
        uses=("importing",),
        adapters={"http": "operations.adapters.http_operation:ADAPTER"},
        binder="operations.adapters.bound_operation:bind_operation",
        tool_keys={"request": "operations.config.operation_section:read_request"},
        route_keys={"parameters": "operations.config.route_channels:read_channels"},
        schema_sources={"openapi": "operations.config.document_source:read_operation"},
        sources={"openapi": "operations.importing.openapi:read_again"},
        imports={"openapi": "operations.cli.import_openapi"},
        no_config={
            "openapi": NoConfig(
                "operations.cli.openapi_config:make_config_file",
                option={"metavar": "URL|FILE", "help": "no config: serve the operations of this description"},
                flags={
                    "--as": {
                        "dest": "serve_as",
                        "choices": ("http", "mcp"),
                        "default": "http",
                        "help": "with --openapi: under their own paths and names (http, the default), or as the tools "
                        "of an MCP server",
                    },
                    "--upstream": {
                        "dest": "upstream",
                        "metavar": "URL",
                        "help": "with --openapi: where they run, if the description does not say so",
                    },
                    "--relay": {
                        "dest": "relay",
                        "action": "store_true",
                        "help": "with --openapi: pass on, unjudged, what cannot be judged",
                    },
                },
            )
        },
    ),
    Extension(
        "mcp",
        adds="MCP: servers that list their tools, over HTTP or as processes, alone or several as one; `stdio`",
        uses=("importing",),
        verbs={"stdio": "mcp.cli.stdio", "install": "mcp.cli.install", "uninstall": "mcp.cli.uninstall"},
        route_kinds={
            "mcp": RouteKind(
                # POST carries messages; GET opens the stream of old revisions, DELETE ends their sessions.
                methods=("POST", "GET", "DELETE"),
                adapter="mcp.adapters.mcp:ADAPTER",
                reader="mcp.config.mcp_routes:McpRoutes",
                handler="mcp.server.exchange:Exchange",
                lists="mcp.server.lists.catalogue:Catalogues",
            )
        },
        route_check="mcp.config.mcp_combinations:check_route_keys",
        metrics="mcp.server.lists.list_reports:METRICS",
        upstream_keys={"command": "mcp.config.command_section:read_process"},
        upstreams="mcp.upstreams:McpUpstreams",
        sources={"mcp": "mcp.importing.mcp:read_again"},
        imports={"mcp": "mcp.cli.import_mcp", "mcpservers": "mcp.cli.import_mcpservers"},
        no_config={
            "mcp": NoConfig(
                "mcp.cli.no_config:make_config_file",
                "mcp.cli.no_config:find_trouble",
                option={
                    "metavar": "URL",
                    "nargs": "?",
                    "const": "",
                    "help": "no config: stand in front of the MCP server at this URL, or of the one that the command "
                    "behind -- starts",
                },
            )
        },
        other_keys=(
            "mcp",
            "servers",
            "operations",
            "env",
            "pass_env",
            "cwd",
            "max_children",
            "idle_session",
            "shared",
        ),
    ),
    Extension(
        "correction",
        adds="a model that is asked for a better call than one that failed, and `evaluate`",
        verbs={"evaluate": "correction.cli.evaluate"},
        sections={"correction": "correction.correction_section:read_correction"},
        policy_keys={"correct": "correction.correction_section:read_correction_policy"},
        check="correction.correction_section:check_correct",
        services="correction.correctors:Corrections",
        observer="correction.correction_metrics:CorrectionMetrics",
        metrics="correction.correction_metrics:METRICS",
        uses=("demo", "outgoing"),
    ),
    Extension(
        "console",
        uses=("workers",),
        adds="the operator's pages: whether the proxy works, what happened to calls, what to change in a schema",
        verbs={"calls": "console.cli.calls"},
        page_counts="console.page_counts:ConsoleCounts",
        shared_answers="console.shared_answers:SharedAnswers",
        pages={
            "/ui/": PageRow("console.pages:make_file_page"),
            "/-/overview": PageRow("console.pages:make_overview", pooled="console.pool_pages:join_overviews"),
            "/-/validate": PageRow("console.dry_run:make_verdict_page", "POST", is_harmless=True),
            "/-/calls": PageRow("console.pages:make_calls_page", pooled="console.pool_pages:join_calls"),
            "/-/calls/": PageRow("console.pages:make_call_page", pooled="console.pool_pages:find_call"),
            "/-/tools/": PageRow("console.pages:make_tool_page", pooled="console.pool_pages:join_tools"),
            "/-/upstreams": PageRow("console.pages:make_upstreams_page", pooled="console.pool_pages:join_upstreams"),
        },
    ),
    Extension(
        "access",
        adds="who may call what and how often: tokens that issuers sign, rules and rates, and a line per decision",
        uses=("importing", "outgoing"),
        verbs={"pin": "access.cli.pin"},
        sections={"access": "access.access_section:read_access", "pins": "access.pins.pins_section:read_pins"},
        policy_keys={"jwt": "access.access_section:read_jwt", "allow": "access.access_section:read_allow"},
        limit_keys={
            "rate": "access.rates.limit_keys:read_rates",
            "concurrent": "access.rates.limit_keys:read_concurrent",
        },
        limiter="access.rates.limiter:make_limiter",
        callers=("jwt", "allow"),
        summary="access.access_table:write_table",
        check="access.access_checks:check_access",
        answers="access.metadata:make_answers",
        services="access.access_services:AccessServices",
        metrics="access.access_services:METRICS",
        pinned="access.pins.pins_section:find_pinned",
    ),
    Extension(
        "chat",
        adds="model servers: the tool calls in their answers are judged and repaired before the agent reads them",
        uses=("mcp",),
        no_config={
            "model": NoConfig(
                "chat.cli.model_config:make_config_file",
                option={"metavar": "URL", "help": "no config: repair the tool calls of the model server there"},
                flags={
                    "--text-calls": {
                        "dest": "text_calls",
                        "choices": ("off", "leaked", "json"),
                        "default": "off",
                        "help": "with --model: turn markup of calls in the model's text into calls (default: off)",
                    }
                },
            )
        },
        evaluations={"model": "chat.cli.evaluate_model:run"},
        metrics="chat.server.model_metrics:METRICS",
        relays={
            "model": RelayKind(
                reader="chat.config.model_section:read_model",
                handler="chat.server.model_relay:ModelRelay",
                adapter="chat.adapters.model_errors:ADAPTER",
                other_keys=("repair", "null_optional", "unknown_keys", "leaked_markup", "feedback", "formats"),
            )
        },
    ),
    Extension(
        "outgoing",
        adds="requests of the proxy's own that are not calls",
    ),
    Extension(
        "agent_client",
        adds="what an agent host does with an answer of the proxy, as `toolcall_proxy.client` in the wheel",
    ),
    Extension(
        "examples",
        adds="example arguments made from a schema",
    ),
    Extension(
        "workers",
        adds="several processes behind one port",
        workers="workers.cli.serve_many:serve_many",
        worker_entry="workers.cli.serve_many:read_worker_entry",
    ),
    Extension(
        "traces",
        adds="spans of requests, by OTLP over HTTP",
        tracer="traces.tracing:make_tracer",
        tracer_library="traces.tracing:find_missing",
        metrics="traces.tracing:METRICS",
    ),
    Extension(
        "escalation",
        uses=("outgoing",),
        adds="a webhook that receives each escalation, signed and without delaying a call",
        sections={"on_escalation": "escalation.escalation_section:read_on_escalation"},
        services="escalation.escalations:Escalations",
    ),
    Extension(
        "redis",
        adds="attempts and counts that several processes share in a Redis or Valkey",
        backends={
            "redis": StateBackend(
                reader="redis.redis_section:read_settings",
                store="redis.redis_remote:make_store",
                keys=("url", "prefix", "timeouts", "tls", "sentinel"),
            )
        },
    ),
    Extension(
        "demo",
        adds="sample tools and the proxy in front of them, with calls to paste: `demo`",
        verbs={"demo": "demo.cli.demo"},
    ),
    Extension(
        "kubernetes",
        adds="the sidecar in Kubernetes manifests, and what a pod shows of it: `inject`",
        verbs={"inject": "kubernetes.cli.inject"},
        serve_flags=ServeFlags(
            "in a Kubernetes pod",
            "What the pod's manifest says; the chart and `inject` set it.",
            "kubernetes.pod_serving",
            {
                "--pod-ports": {
                    "metavar": "CALLS,PROBES,ADMIN",
                    "type": "kubernetes.pod_serving:read_pod_ports",
                    "help": "refuse a config that does not listen there, where the pod's Service, kubelet and hook ask",
                },
                "--pod-upstream": {
                    "metavar": "NAME",
                    "default": "",
                    "help": "refuse a config without this upstream",
                },
                "--pod-events": {
                    "action": "store_true",
                    "help": "write what is wrong as Events of the pod, too",
                },
            },
        ),
    ),
)


def load_place(place: str) -> Any:
    """Imports what a row names: a module, or `module:name` in one."""
    module, _, name = place.partition(":")
    found = import_module(f"{__name__}.{module}")
    return getattr(found, name) if name else found


def list_installed() -> list[Extension]:
    """The rows of the extensions whose folders are there."""
    return [row for row in EXTENSIONS if row.is_installed]


def list_added_pages() -> list[tuple[str, PageRow]]:
    """The pages of all installed extensions, with their paths."""
    return [page for row in list_installed() for page in row.pages.items()]


def find_page_counts() -> str:
    """The function that counts finished calls for the operator's pages; '' without one."""
    return next((row.page_counts for row in list_installed() if row.page_counts), "")


def find_shared_answers() -> str:
    """What lets readers of the operator's port share answers; '' without one."""
    return next((row.shared_answers for row in list_installed() if row.shared_answers), "")


def list_summaries(keys: Set[str]) -> list[str]:
    """The functions that add lines to the summary of `check` for a config with these sections and policy keys."""
    return [row.summary for row in EXTENSIONS if row.summary and not keys.isdisjoint((*row.sections, *row.policy_keys))]


def find_verb(verb: str) -> Extension | None:
    """The extension that a verb belongs to, installed or not."""
    return next((row for row in EXTENSIONS if verb in row.verbs), None)


def find_protocol(protocol: str) -> Extension | None:
    """The extension that speaks a protocol, installed or not."""
    return next((row for row in EXTENSIONS if protocol in row.route_kinds), None)


def find_route_kind(protocol: str) -> RouteKind | None:
    """The route kind of an extension's protocol; None for the main job's own."""
    row = find_protocol(protocol)
    return None if row is None else row.route_kinds[protocol]


def find_evaluations() -> dict[str, str]:
    """The sides of `evaluate` that installed extensions measure, each with its function."""
    return {side: place for row in list_installed() for side, place in row.evaluations.items()}


def find_relay(key: str) -> tuple[Extension, RelayKind]:
    """The extension and relay of a relayed route's key, installed or not. Raises StopIteration for other keys."""
    return next((row, row.relays[key]) for row in EXTENSIONS if key in row.relays)


def list_route_checks(protocol: str, *written: Mapping[str, Any]) -> list[str]:
    """The checks of a route with this protocol; `written` are its keys, and those of its upstream."""
    keys = frozenset(key for mapping in written for key in mapping)
    return [
        row.route_check
        for row in list_installed()
        if row.route_check and (protocol in row.route_kinds or not keys.isdisjoint(row.keys))
    ]


def find_upstream_reader(keys: Mapping[str, Any]) -> str:
    """The reader of an upstream with an extension's key in place of a URL; '' for others."""
    return next((place for row in list_installed() for key, place in row.upstream_keys.items() if key in keys), "")


def find_upstream_place() -> str:
    """The maker of upstreams without a URL. Raises LookupError where no extension has one."""
    found = [row.upstreams for row in list_installed() if row.upstreams]
    if not found:
        raise LookupError("no installed extension makes upstreams without a URL")
    return found[0]


def list_serve_flags() -> list[tuple[Extension, ServeFlags]]:
    """The extensions with flags about where `serve` runs, and these flags, installed or not."""
    return [(row, row.serve_flags) for row in EXTENSIONS if row.serve_flags is not None]


def find_source(kind: str) -> Extension:
    """The extension that reads a kind of recorded import, installed or not. Raises StopIteration for any other kind."""
    return next(row for row in EXTENSIONS if kind in row.sources)


def find_schema_source(key: str) -> Extension:
    """The extension that takes schemas out of a kind of document, installed or not. Raises StopIteration for others."""
    return next(row for row in EXTENSIONS if key in row.schema_sources)


def find_adapter_place(name: str) -> str:
    """An extension's adapter of this name; '' where none has one."""
    if (kind := find_route_kind(name)) is not None:
        return kind.adapter
    named = ({**row.adapters, **{key: kind.adapter for key, kind in row.relays.items()}} for row in EXTENSIONS)
    return next((places[name] for places in named if name in places), "")


def find_binder() -> str:
    """The maker of operations' rules. Raises StopIteration where no extension has one."""
    return next(row.binder for row in EXTENSIONS if row.binder)


def find_tool_key(key: str) -> str:
    """The reader of a tool's key. Raises StopIteration where no extension has one."""
    return next(row.tool_keys[key] for row in EXTENSIONS if key in row.tool_keys)


def find_route_key(key: str) -> str:
    """The reader of a route's key. Raises StopIteration where no extension has one."""
    return next(row.route_keys[key] for row in EXTENSIONS if key in row.route_keys)


def find_workers() -> Extension:
    """The extension that starts several workers, installed or not."""
    return next(row for row in EXTENSIONS if row.workers)


def find_tracer() -> Extension:
    """The extension that traces requests, installed or not."""
    return next(row for row in EXTENSIONS if row.tracer)


def find_sampler() -> Extension | None:
    """The installed extension that is shown a sample of the forwarded calls."""
    return next((row for row in list_installed() if row.is_sampler), None)


def list_import_kinds() -> list[tuple[str, str]]:
    """The kinds of `import` that installed extensions add, each with its module."""
    return [kind for row in list_installed() for kind in row.imports.items()]


def find_key(key: str, holder: Sequence[str | int] = ()) -> Extension | None:
    """The extension that a key of the config belongs to, installed or not. `holder` is the path above the key."""
    if holder == ("state",):
        return next((row for row, backend in BACKENDS.values() if key in backend.keys), None)
    return next((row for row in EXTENSIONS if key in row.keys), None)


# Every flag of `serve` in place of a config -> its row, and what it does.
NO_CONFIG: Final = dict(sorted((flag, (row, made)) for row in EXTENSIONS for flag, made in row.no_config.items()))

# Every flag of `check` that is an extension's -> its row, and what it calls.
CHECK_FLAGS: Final = {flag: (row, place) for row in EXTENSIONS for flag, place in row.check_flags.items()}

# Every value of `state.backend` that is an extension's -> its row, and what keeps state there.
BACKENDS: Final = {name: (row, backend) for row in EXTENSIONS for name, backend in row.backends.items()}


# The keys by which extensions answer the requests of relayed routes.
RELAY_KEYS: Final = tuple(key for row in EXTENSIONS for key in row.relays)

# Every key of a policy that is an extension's -> its reader.
POLICY_PLACES: Final[Mapping[str, str]] = {key: place for row in EXTENSIONS for key, place in row.policy_keys.items()}

# The keys of a policy by which a route asks who calls.
ASKS_CALLER: Final = frozenset(key for row in EXTENSIONS for key in row.callers)


# Every key of a policy's `limits` that is an extension's -> its reader.
LIMIT_PLACES: Final[Mapping[str, str]] = {key: place for row in EXTENSIONS for key, place in row.limit_keys.items()}


def find_pinned_place(sections: Container[str]) -> str:
    """The function that finds approved definitions, for a config with these sections; '' without one."""
    return next((row.pinned for row in EXTENSIONS if row.pinned and any(key in sections for key in row.sections)), "")


def find_limiter() -> str:
    """The maker of the limiter of calls. Raises StopIteration where no extension has one."""
    return next(row.limiter for row in EXTENSIONS if row.limiter)


@cache
def _has_folder(name: str) -> bool:
    spec = find_spec(f"{__name__}.{name}")
    return spec is not None and spec.origin is not None  # a folder of compiled leftovers alone has no origin
