"""The plugin interface: what a plugin can add to the proxy.

A plugin is a class that inherits seams of this file. Its methods import its modules: a proxy loads only what it uses.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

from proxy.core.model.value_class import value_class

if TYPE_CHECKING:
    import argparse
    import asyncio
    import signal
    from contextlib import ExitStack

    from proxy.plugin_parts import *

    Upstreams = Mapping[str, UpstreamConfig]
    Signals = asyncio.Queue[signal.Signals]
else:
    from proxy.plugin_parts import load_part

    __getattr__ = load_part  # a helper is imported when a plugin first takes it


class Plugin:
    """The description of a plugin: its `name`, what it `adds` in one sentence, and the plugins that it `uses`.

    A dump of the config hides all below the places in `secrets`. In a place, `*` means any step, and `**` any that has
    the name of a secret. `schemas` are places of JSON Schemas. A dump shows only the program of the keys `commands`."""

    name: ClassVar[str]
    adds: ClassVar[str]
    uses: ClassVar[tuple[str, ...]] = ()
    secrets: ClassVar[tuple[tuple[str, ...], ...]] = ()
    schemas: ClassVar[tuple[tuple[str, ...], ...]] = ()
    commands: ClassVar[tuple[str, ...]] = ()

    def prepare(self) -> None:
        """Imports what its requests need, so that the first one does not wait for it."""

    def declare_keys(self) -> Mapping[str, Kind]:
        """Returns place -> the mapping of its keys there: '' for the top level, a section, or a name in `$defs`."""
        raise NotImplementedError

    def list_metrics(self) -> Sequence[MetricRow]:
        """The rows of its metrics, for docs. The plugin itself adds them to `Metrics`."""
        return ()


# --- verbs and their flags --------------------------------------------------------------------------------------------
class Verb(Protocol):
    """A verb of the command line: a module with these two functions, as in `proxy/cli/`."""

    def register(self, subparsers: argparse._SubParsersAction[CommandParser], /) -> None:
        """Adds the verb to the parser of the command line."""

    def run(self, args: argparse.Namespace, /) -> int:
        """Runs it and returns its exit code."""


class AddsVerbs(Plugin):
    """Adds `verbs` to the command line."""

    verbs: ClassVar[tuple[str, ...]]

    def load_verb(self, verb: str) -> Verb:
        """The module of one of `verbs`."""
        raise NotImplementedError


@value_class
class Flag:
    """A flag of the command line, in the words of argparse's `add_argument`."""

    name: str
    help: str
    metavar: str | None = None
    dest: str | None = None
    default: str | None = None
    choices: tuple[str, ...] | None = None
    action: Literal["store_true"] | None = None
    nargs: Literal["?"] | None = None
    const: str | None = None
    type: Callable[[str], object] | None = None

    @property
    def key(self) -> str:
        return self.dest or self.name.removeprefix("--").replace("-", "_")


@value_class
class NoConfig:
    """A flag of `serve` in place of a config. `make_file` writes that config, or prints why not. Only `flags` and those
    in `shares` apply. `takes_command`: words behind `--` replace its value. `find_trouble`: why and if it must end."""

    flag: Flag
    make_file: Callable[[argparse.Namespace, ExitStack], Path | None]
    examples: tuple[str, ...] = ()
    flags: tuple[Flag, ...] = ()
    shares: frozenset[str] = frozenset()
    takes_command: bool = False
    has_one_path: Callable[[argparse.Namespace], bool] = lambda _: True
    find_trouble: Callable[[argparse.Namespace, Serving], Awaitable[tuple[list[str], bool]]] | None = None


class ExtendsVerbs(Plugin):
    """Adds flags to verbs of the main job."""

    def add_check_flags(self, parser: CommandParser) -> None:
        """Adds its flags to `check`, and their paragraphs to the `epilog` of the parser."""

    def list_check_flags(self) -> Mapping[str, CheckFlag]:
        """The flags of `check`, by name."""
        return {}

    def list_no_config(self) -> Sequence[NoConfig]:
        """The flags of `serve` in place of a config."""
        return ()


class HostsProcess(Plugin):
    """Knows the host of a process of `serve`: a pod, or a pool of workers. Its flags count if the first one is given.
    `title` and `text` head the flags in the help. If it `runs_workers`, it starts the pool too."""

    title: ClassVar[str] = ""
    text: ClassVar[str] = ""
    runs_workers: ClassVar[bool] = False

    def list_flags(self) -> Sequence[Flag]:
        """The flags."""
        raise NotImplementedError

    def write_flags(self, args: argparse.Namespace) -> list[str]:
        """The words of the flags, for the command line of a worker."""
        return []

    def list_mistakes(self, config: Config, args: argparse.Namespace) -> list[str]:
        """The contradictions between the config and the host, in lines."""
        return []

    def make_watcher(self, args: argparse.Namespace) -> TroubleWatcher | None:
        """Returns the watcher that shows troubles there."""
        return None

    def read_entry(self, signals: Signals, admin: AdminConfig | None) -> AdminConfig | None:
        """The operator's port of this process in place of the config's; None if the host leaves it."""
        return None

    async def run_workers(self, loaded: Loaded, args: argparse.Namespace, words: list[str], signals: Signals) -> int:
        """Runs as many workers as the config says, with these words of other hosts, and returns the exit code."""
        raise NotImplementedError


# --- config -----------------------------------------------------------------------------------------------------------
class AddsKeys(Plugin):
    """Adds keys to the config. `sections` are top-level keys, `policy_keys` those of `defaults`, tools and routes,
    `limit_keys` those of `limits`. Processes share counts of `shared_limits`. Of policies, `tool_keys` apply to one
    tool, `whole_keys` are not merged, and lists of `joined_keys` extend outer ones. `call_keys` need calls. Other code
    reads `other_keys`. `other_names`: system -> its name for a key -> what to write here."""

    sections: ClassVar[tuple[str, ...]] = ()
    policy_keys: ClassVar[tuple[str, ...]] = ()
    tool_keys: ClassVar[tuple[str, ...]] = ()
    whole_keys: ClassVar[tuple[str, ...]] = ()
    joined_keys: ClassVar[tuple[str, ...]] = ()
    limit_keys: ClassVar[tuple[str, ...]] = ()
    shared_limits: ClassVar[tuple[str, ...]] = ()
    other_keys: ClassVar[tuple[str, ...]] = ()
    call_keys: ClassVar[tuple[str, ...]] = ()
    other_names: ClassVar[Mapping[str, Mapping[str, str]]] = {}

    def read_section(self, key: str, context: Context, files: Files, upstreams: Upstreams) -> object:
        """The value of one of `sections`; mistakes are recorded in `context`."""
        return self.declare_keys()[""].read({key: context.structure.entry(key)})[key]

    def read_policy_key(self, key: str, written: JsonValue) -> object:
        """The value of one of `policy_keys` or `limit_keys`, merged; None if it says nothing."""
        return self.declare_keys()["limits" if key in self.limit_keys else "route"].read({key: written})[key]

    def check_keys(self, context: Context, routes: tuple[RouteEntry, ...]) -> None:
        """Checks its keys together with the rest of a config in which one of them is written."""

    def check_route(self, context: Context, route: WrittenRoute) -> Iterator[Finding]:
        """The contradictions among the keys of a route that speaks its protocol or has one of its keys."""
        return iter(())

    def summarize(self, config: Config) -> list[str]:
        """The lines that `check` adds to what a config serves, if it has one of its keys."""
        return []


# --- protocols and schemas --------------------------------------------------------------------------------------------
class SpeaksProtocol(Plugin):
    """Adds the adapter of a protocol, and what its routes need. The three kinds of protocols are:

    - a value of `protocol`, whose servers list their tools. An upstream may have the first of `upstream_keys` in place
      of a URL, as `upstream_hint` says, and the others with it. Web pages may send `page_headers` (`*` ends a prefix)
      and read `answer_headers`. Hooks may not change headers that begin with `header_prefix`.
    - relayed routes with the key `relay_key`, and all paths below. `relay_policy_keys` need that key.
    - calls as HTTP requests, whose places of arguments are in the keys `request` and `parameters`, or in a schema with
      the key `schema_source`."""

    adapter: ClassVar[str]
    protocol: ClassVar[str] = ""
    methods: ClassVar[tuple[str, ...]] = ()
    upstream_keys: ClassVar[tuple[str, ...]] = ()
    upstream_hint: ClassVar[str] = ""
    page_headers: ClassVar[tuple[str, ...]] = ()
    answer_headers: ClassVar[tuple[str, ...]] = ()
    header_prefix: ClassVar[str] = ""
    relay_key: ClassVar[str] = ""
    relay_policy_keys: ClassVar[tuple[str, ...]] = ()
    schema_source: ClassVar[str] = ""

    def load_adapter(self) -> Adapter:
        """Returns the adapter."""
        raise NotImplementedError

    def make_reader(self, context: Context, catalogue: ToolReader) -> RouteKindReader:
        """Returns the reader of the keys of routes with its `protocol`."""
        raise NotImplementedError

    def make_handler(
        self, clock: Clock, fresh_id: Callable[[], str], reports: Reports, passed_on: PassedOn | None
    ) -> RouteHandler:
        """Returns the handler of its routes' requests in this process."""
        raise NotImplementedError

    def make_lists(self) -> LearnedLists:
        """Returns the lists of tools learned for one route."""
        raise NotImplementedError

    def read_upstream(self, context: Context, name: str, written: Mapping[str, JsonValue]) -> UpstreamConfig:
        """One upstream without a URL."""
        raise NotImplementedError

    def make_upstreams(self, log: Log) -> UpstreamKind:
        """Returns the maker of such upstreams for calls."""
        raise NotImplementedError

    def read_relay(self, context: Context, route: WrittenRoute) -> object:
        """The value of `relay_key`."""
        return self.declare_keys()["route"].read(context.mapping(*route.at))[self.relay_key]

    def make_relay(self, clock: Clock, reports: Reports) -> RelayHandler:
        """Returns the handler of the requests of routes with `relay_key` in this process."""
        raise NotImplementedError

    def read_request(self, context: Context, at: Pointer, written: Mapping[str, JsonValue]) -> RequestForm | None:
        """The value of `request`."""
        raise NotImplementedError

    def read_channels(
        self, catalogue: ToolReader, route: WrittenRoute, formats: JsonValue, policy: QueryPolicy
    ) -> ChannelJudge:
        """Returns the judge of a route's parameters."""
        raise NotImplementedError

    def read_operation(self, document: JsonValue, name: str, provided: frozenset[str]) -> FoundSchema | SourceProblem:
        """The schema of one operation."""
        raise NotImplementedError

    def bind(self, form: RequestForm, check: Check | None, *, by_name: bool, query: QueryPolicy) -> OperationRule:
        """Returns the form of a tool's calls in requests. `by_name`: it is called by its name."""
        raise NotImplementedError


# --- calls ------------------------------------------------------------------------------------------------------------
class ExtendsCalls(AddsKeys):
    """Extends calls for a config with one of its sections or policy keys, or `always`. Keys of `asks_callers` ask who
    calls."""

    always: ClassVar[bool] = False
    asks_callers: ClassVar[tuple[str, ...]] = ()

    def make_services(self, services: Services, log: Log, metrics: Metrics) -> ServiceExtender | None:
        """Returns the extender of the services of calls. It is made once and outlives a reload."""
        return None

    def make_limiter(self, services: Services) -> CallLimiter | None:
        """Returns the limiter by its `limit_keys`, for the first config with one of them. It outlives a reload."""
        return None

    def make_answers(self, config: Config) -> Mapping[str, AnswerPath]:
        """Returns path -> its answer, for paths outside of the routes."""
        return {}

    def make_tool_texts(self, config: Config) -> ToolTexts | None:
        """Returns the texts on tools that MCP clients read; None if the config adds nothing."""
        return None

    def find_pinned(self, config: Config, route: str) -> PinnedTools | None:
        """The approved definitions of a route's listed tools; None if the config pins nothing there."""
        return None

    def preview_call(self, config: Config, entry: CallRecord, sent: Headers, call: CheckedCall) -> dict[str, JsonValue]:
        """Additions of `validate`, by name, about a call that would be forwarded with the headers `sent`."""
        return {}


class ObservesCalls(AddsKeys):
    """Observes finished calls, for a config with one of the plugin's sections. If it `traces`, it traces requests too,
    if the config or the environment asks for that."""

    traces: ClassVar[bool] = False

    def make_observer(self, clock: Clock, pacing: Pacing, metrics: Metrics, log: Log) -> ConfiguredObserver:
        """The observer. It is made once, gets each config, and outlives a reload."""
        raise NotImplementedError

    def make_tracer(self, environ: Mapping[str, str], log: Log, metrics: Metrics, clock: Clock) -> Tracer | None:
        """The tracer; None, with a log line, if it cannot be made."""
        raise NotImplementedError

    def find_missing(self) -> str:
        """The missing libraries of the tracer, in words; '' if none is missing."""
        return ""


@value_class
class AddedPage:
    """A page of the operator's port. `is_harmless`: a reader may POST to it, because it changes nothing."""

    method: str = "GET"
    is_harmless: bool = False


class AddsPages(Plugin):
    """Adds pages to the operator's port, by path. A path that ends in a slash takes all below it."""

    pages: ClassVar[Mapping[str, AddedPage]]

    async def answer_page(self, path: str, serving: Serving, question: PageRequest) -> Page | EventPage:
        """Answers with the page at one of the paths of `pages`."""
        raise NotImplementedError

    def make_counts(self, read: Callable[[], Counts], wall: Callable[[], float], *, values: bool) -> PageCounts | None:
        """Returns the counter of finished calls for its pages. `read` returns the counts of all requests."""
        return None

    def make_shared(self, now: Callable[[], float]) -> SharedPages | None:
        """Returns the pages that are shared by readers, for the first reader that says which age it takes."""
        return None


class KeepsState(Plugin):
    """Adds a value of `state.backend`; `state_keys` are those of `state` that only this backend has."""

    backend: ClassVar[str]
    state_keys: ClassVar[tuple[str, ...]] = ()

    def read_state(self, context: Context, files: Files, written: Mapping[str, JsonValue]) -> object:
        """The value of the keys of `state`."""
        return None

    def make_store(self, clock: Clock, max_keys: int, settings: object, changed: Changed) -> StateStore:
        """The store; `settings` is what `read_state` returned. Raises ImportError if a client library is missing."""
        raise NotImplementedError
