"""What extensions add to a config that has one of their sections: paths that they answer, texts about tools, services
that calls use, and observers of finished calls, one of which traces (`Tracer`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol

from proxy.config.model import Config
from proxy.core.contract.listed_tool import PinnedTools
from proxy.core.contract.policy import ToolPolicy
from proxy.core.model.values import CheckedCall
from proxy.extensions import (
    EXTENSIONS,
    Extension,
    find_limiter,
    find_pinned_place,
    find_sampler,
    find_tracer,
    load_place,
)
from proxy.interfaces import CallLimiter, Clock, Observer, Pacing, Services, ToolTexts, Trace
from proxy.routing import RouteTable
from proxy.server.handler import AnswerPath
from proxy.telemetry.logs import Log
from proxy.telemetry.metrics import Metrics


def make_answers(config: Config) -> dict[str, AnswerPath]:
    """What answers the paths that extensions serve beside the routes, by path."""
    found: dict[str, AnswerPath] = {}
    for row in _list_used(config):
        if row.answers:
            found |= load_place(row.answers)(config)
    return found


def make_tool_texts(config: Config) -> ToolTexts | None:
    """What MCP clients read of tools; None where the config adds nothing."""
    made: list[ToolTexts | None] = [load_place(row.tool_texts)(config) for row in _list_used(config) if row.tool_texts]
    return next((texts for texts in made if texts is not None), None)


def list_unpinned(config: Config) -> Iterator[tuple[str, str, str, str]]:
    """The operations of a config that are not defined as approved: route, tool, what becomes of it, how it differs."""
    if place := find_pinned_place(config.sections):
        for route in dict.fromkeys(entry.name for entry in config.routes):
            pinned: PinnedTools | None = load_place(place)(config, route)
            if pinned is not None:
                yield from ((route, tool, pinned.changed, change) for tool, change in pinned.unpinned.items())


class ServiceExtender(Protocol):
    """What an extension puts among the services of calls. It outlives a reload."""

    def extend(self, config: Config, services: Services) -> Services:
        """The services with what the config asks for."""

    async def close(self) -> None:
        """Finishes what is queued, within seconds, and ends."""


# How an extension makes it: from the services as they are without it, the log, and the metrics that it may add its rows
# to.
MakeExtender = Callable[[Services, Log, Metrics], ServiceExtender]


class CallSampler(ServiceExtender, Protocol):
    """A `ServiceExtender` that is shown a sample of the forwarded calls, unless the config asks for something else."""

    def sample(self, route: str, checked: CheckedCall, policy: ToolPolicy) -> None:
        """Takes one of these calls, and waits for nothing."""


class ExtensionServices:
    """The services that extensions add, each made for the first config that has a section of its extension; the limiter
    of calls for the first that limits some, the sampler for the first sampled call."""

    def __init__(self, base: Services, log: Log, metrics: Metrics) -> None:
        self._world = (base, log, metrics)
        self._made: dict[str, ServiceExtender] = {}
        self._limiter: CallLimiter | None = None

    def extend(self, config: Config, services: Services) -> Services:
        """The services of a config, with all that it asks for."""
        if (sampler := find_sampler()) is not None:
            services = replace(services, sampled=partial(self._sample, sampler))
        for row in _list_used(config):
            if row.services:
                self._make(row)
        for each in self._made.values():
            services = each.extend(config, services)
        policies = [route.policy for route in config.routes]
        for route in config.routes:
            listed = route.listed.tools if route.listed is not None else {}
            policies += [tool.policy for tool in (*route.tools.values(), *listed.values())]
        if any(policy.limits is not None for policy in policies):
            self._limiter = self._limiter or load_place(find_limiter())(self._world[0])
            services = replace(services, limiter=self._limiter)
        return services

    def _make(self, row: Extension) -> Any:
        if row.name not in self._made:
            make: MakeExtender = load_place(row.services)
            self._made[row.name] = make(*self._world)
        return self._made[row.name]

    def _sample(self, row: Extension, route: str, checked: CheckedCall, policy: ToolPolicy) -> None:
        sampler: CallSampler = self._make(row)
        sampler.sample(route, checked, policy)

    async def close(self) -> None:
        """Ends each."""
        for each in self._made.values():
            await each.close()


def _list_used(config: Config) -> Iterator[Extension]:
    """The extensions that have a section in a config, or that a route's policy has a key of."""
    keys = {key for route in config.routes for key in route.policy.added} | config.sections.keys()
    return (row for row in EXTENSIONS if not keys.isdisjoint((*row.sections, *row.policy_keys)))


# --- observers of finished calls --------------------------------------------------------------------------------------
# The longest time that a collector may delay the end of a drain or of the process.
FLUSH: Final = 3.0
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


class Tracer(Observer, Protocol):
    """Traces requests: an observer that begins the trace of each, as an extension makes it."""

    def begin(self, traceparent: str | None, tracestate: str | None) -> Trace:
        """Starts the trace of a request."""

    async def flush(self, within: float) -> None:
        """Exports what is queued, within so many seconds."""

    async def close(self, within: float) -> None:
        """Exports what is queued and ends, within so many seconds."""


# How an extension makes its tracer: from the environment, the log, the metrics that it may add its rows to, and the
# clock. None, with a log line, where it cannot be made.
MakeTracer = Callable[[Mapping[str, str], Log, Metrics, Clock], Tracer | None]


def make_tracer(setting: str, environ: Mapping[str, str], log: Log, metrics: Metrics, clock: Clock) -> Tracer | None:
    """What traces as `telemetry.traces` wants it, None where it does not: `otlp`, `off`, or `auto`, which does what the
    standard variables `OTEL_*` ask for. OTEL_SDK_DISABLED overrides everything. If it cannot be made, the log says why
    and calls go on."""
    if setting == "off" or environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    exporters = [name.strip() for name in environ.get("OTEL_TRACES_EXPORTER", "").lower().split(",")]
    is_configured = "otlp" in exporters or (exporters == [""] and any(environ.get(name) for name in _ENDPOINTS))
    if setting != "otlp" and not is_configured:
        return None
    row = find_tracer()
    if not row.is_installed:
        log.event("Traces are off", "error", reason=f"`traces` {row.absence}")
        return None
    make: MakeTracer = load_place(row.tracer)
    return make(environ, log, metrics, clock)


class ConfiguredObserver(Protocol):
    """What an extension adds to observe finished calls. It gets each config, and outlives a reload."""

    @property
    def observers(self) -> tuple[Observer, ...]:
        """The observers that the config asks for; none where it asks for none, so that no request pays for them."""

    def adopt(self, config: Config, table: RouteTable, digest: str) -> None:
        """Observes by this config from now on."""

    async def close(self) -> None:
        """Writes what is queued, and ends."""


# How an extension makes its observer: from the clock, chance, and the metrics that it may add its rows to.
MakeObserver = Callable[[Clock, Pacing, Metrics], ConfiguredObserver]


class ExtensionObservers:
    """The observers that extensions add, each made for the first config that has a section of its extension."""

    def __init__(self, clock: Clock, pacing: Pacing, metrics: Metrics) -> None:
        self._world = (clock, pacing, metrics)
        self._made: dict[str, ConfiguredObserver] = {}

    def adopt(self, config: Config, table: RouteTable, digest: str) -> tuple[Observer, ...]:
        """Tells each of a config; gives all observers that the config asks for."""
        for row in EXTENSIONS:
            if row.observer and row.name not in self._made and not row.sections.keys().isdisjoint(config.sections):
                make: MakeObserver = load_place(row.observer)
                self._made[row.name] = make(*self._world)
        for each in self._made.values():
            each.adopt(config, table, digest)
        return tuple(one for each in self._made.values() for one in each.observers)

    async def close(self) -> None:
        """Ends each."""
        for each in self._made.values():
            await each.close()
