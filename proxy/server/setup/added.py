"""Additions of plugins to a config that has one of their sections: paths, texts about tools, services of calls, and
observers of finished calls, one of which traces (`Tracer`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Final, Protocol

from proxy.call_record import Trace
from proxy.config.model import Config
from proxy.core.model.values import CheckedCall, Failure
from proxy.interfaces import CallLimiter, CallRoute, Clock, Observer, Pacing, Services, ToolTexts
from proxy.plugin import ExtendsCalls, ObservesCalls
from proxy.plugins import find_pinned, find_plugins, list_used
from proxy.routing import RouteTable
from proxy.server.handler import AnswerPath
from proxy.telemetry.logs import Log
from proxy.telemetry.metrics import Metrics


def make_answers(config: Config) -> dict[str, AnswerPath]:
    """Returns what answers the paths that plugins serve beside the routes, by path."""
    found: dict[str, AnswerPath] = {}
    for plugin in list_used(config):
        found |= plugin.make_answers(config)
    return found


def make_tool_texts(config: Config) -> ToolTexts | None:
    """Returns what MCP clients read of tools; None where the config adds nothing."""
    return next((texts for plugin in list_used(config) if (texts := plugin.make_tool_texts(config))), None)


def list_unpinned(config: Config) -> Iterator[tuple[str, str, str, str]]:
    """The operations of a config that are not defined as approved: route, tool, what becomes of it, how it differs."""
    for route in dict.fromkeys(entry.name for entry in config.routes):
        if (pinned := find_pinned(config, route)) is not None:
            yield from ((route, tool, pinned.changed, change) for tool, change in pinned.unpinned.items())


class ServiceExtender(Protocol):
    """A plugin's addition to the services of calls. It outlives a reload."""

    def extend(self, config: Config, services: Services) -> Services:
        """The services with what the config asks for."""

    async def close(self) -> None:
        """Finishes what is queued, within seconds, and ends."""


class ExtensionServices:
    """The services that plugins add, each made for the first config that uses its plugin. A plugin's limiter is made
    for the first with one of its limits."""

    def __init__(self, base: Services, log: Log, metrics: Metrics) -> None:
        self._world = (base, log, metrics)
        self._made: dict[str, ServiceExtender] = {}
        self._limiters: dict[str, CallLimiter | None] = {}

    def extend(self, config: Config, services: Services) -> Services:
        """The services of a config, with all that it asks for."""
        for plugin in list_used(config):
            if plugin.name not in self._made and (made := plugin.make_services(*self._world)) is not None:
                self._made[plugin.name] = made
        for each in self._made.values():
            services = each.extend(config, services)
        return replace(services, limiter=self._find_limiter(config))

    def _find_limiter(self, config: Config) -> CallLimiter | None:
        used = {key for route in config.routes for policy in route.list_policies() for key in policy.limits or ()}
        found: list[CallLimiter] = []
        for plugin in find_plugins(ExtendsCalls):
            if not used.isdisjoint(plugin.limit_keys):
                if plugin.name not in self._limiters:
                    self._limiters[plugin.name] = plugin.make_limiter(self._world[0])
                if (limiter := self._limiters[plugin.name]) is not None:
                    found.append(limiter)
        return _JoinedLimiter(found) if len(found) > 1 else next(iter(found), None)

    async def close(self) -> None:
        """Ends each."""
        for each in self._made.values():
            await each.close()


class _JoinedLimiter:
    """The limiters of several plugins as one: a call passes if it passes each."""

    def __init__(self, limiters: Sequence[CallLimiter]) -> None:
        self._limiters = limiters

    async def admit(
        self, checked: CheckedCall, limits: Mapping[str, Any], call_route: CallRoute
    ) -> Failure | Callable[[], None] | None:
        """Counts a call at each limiter. One that refuses it, or fails, ends it at those before."""
        with ExitStack() as begun:
            for limiter in self._limiters:
                end = await limiter.admit(checked, limits, call_route)
                if isinstance(end, Failure):
                    return end
                if end is not None:
                    begun.callback(end)
            return begun.pop_all().close


# --- observers of finished calls --------------------------------------------------------------------------------------
# The longest time that a collector may delay the end of a drain or of the process.
FLUSH: Final = 3.0
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


class Tracer(Observer, Protocol):
    """Traces requests: an observer that begins the trace of each, as a plugin makes it."""

    def begin(self, traceparent: str | None, tracestate: str | None) -> Trace:
        """Starts the trace of a request."""

    async def flush(self, within: float) -> None:
        """Exports what is queued, within so many seconds."""

    async def close(self, within: float) -> None:
        """Exports what is queued and ends, within so many seconds."""


def make_tracer(setting: str, environ: Mapping[str, str], log: Log, metrics: Metrics, clock: Clock) -> Tracer | None:
    """Returns what traces as `telemetry.traces` wants it, None if it does not: `otlp`, `off`, or `auto`, which does
    what the standard variables `OTEL_*` ask for. OTEL_SDK_DISABLED overrides everything. If it cannot be made, the log
    says why and calls go on."""
    if setting == "off" or environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    exporters = [name.strip() for name in environ.get("OTEL_TRACES_EXPORTER", "").lower().split(",")]
    is_configured = "otlp" in exporters or (exporters == [""] and any(environ.get(name) for name in _ENDPOINTS))
    if setting != "otlp" and not is_configured:
        return None
    plugin = next((each for each in find_plugins(ObservesCalls) if each.traces), None)
    if plugin is None:
        log.event("Traces are off", "error", reason="no plugin that traces is installed")
        return None
    return plugin.make_tracer(environ, log, metrics, clock)


class ConfiguredObserver(Protocol):
    """A plugin's observer of finished calls. It gets each config, and outlives a reload."""

    @property
    def observers(self) -> tuple[Observer, ...]:
        """The observers that the config asks for; none where it asks for none, so that no request pays for them."""

    def adopt(self, config: Config, table: RouteTable, digest: str) -> None:
        """Observes by this config from now on."""

    async def close(self) -> None:
        """Writes what is queued, and ends."""


class ExtensionObservers:
    """The observers that plugins add, each made for the first config that has a section of its plugin."""

    def __init__(self, clock: Clock, pacing: Pacing, metrics: Metrics, log: Log) -> None:
        self._world = (clock, pacing, metrics, log)
        self._made: dict[str, ConfiguredObserver] = {}

    def adopt(self, config: Config, table: RouteTable, digest: str) -> tuple[Observer, ...]:
        """Tells each of a config; gives all observers that the config asks for."""
        for plugin in find_plugins(ObservesCalls):
            if plugin.name not in self._made and not config.sections.keys().isdisjoint(plugin.sections):
                self._made[plugin.name] = plugin.make_observer(*self._world)
        for each in self._made.values():
            each.adopt(config, table, digest)
        return tuple(one for each in self._made.values() for one in each.observers)

    async def close(self) -> None:
        """Ends each."""
        for each in self._made.values():
            await each.close()
