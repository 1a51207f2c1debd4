"""Takes over a changed config while serving, as a whole or not at all.

    Reloader.watch      looks at the files every `reload.interval`
      Reloader.reload   also on SIGHUP and POST /-/reload
        load_settled, build_routes     the whole new config, compiled in a thread; the event loop continues
        with_running                   sections that need a restart stay as they run, and are reported
        adopt                          one reference is exchanged; requests under way keep what they began with

A config with mistakes changes nothing: the last good one is served on, the proxy stays ready, and log and metrics say
so until the files are mended (docs/operations.md, Reload).
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

from proxy.config.files.secrets import Secret
from proxy.config.load import Loaded, find_unshared
from proxy.config.mistakes import ConfigError, Mistake
from proxy.config.model import Config
from proxy.config.watch import hash_files, load_settled
from proxy.core.model.value_class import value_class
from proxy.plugin import SpeaksProtocol
from proxy.plugins import find_plugins
from proxy.routing import RouteTable, build_routes
from proxy.server.bound_route import RouteBinding
from proxy.telemetry.metrics import Served

# How long to wait where the config says `reload: off`; a later one, taken over by hand, may say otherwise.
IDLE: Final = 2.0

# Sections that may change while serving. Every other one needs a restart: a port is open, a store is connected.
_LIVE: Final = frozenset(
    {"routes", "sections", "upstreams", "drain", "finish", "stay_ready", "reload", "prepare", "notes", "written"}
)
# How the file calls a field, if it has another name there.
_SECTIONS: Final = {"trusted": "forwarded"}


@value_class
class Compiled:
    """A loaded config with its routes, ready to be served. Made in a thread."""

    loaded: Loaded
    table: RouteTable
    bindings: Mapping[str, RouteBinding]
    restart_needed: tuple[str, ...] = ()

    @classmethod
    def of(cls, loaded: Loaded, restart_needed: tuple[str, ...] = ()) -> Compiled:
        """Compiles the routes."""
        table = build_routes(loaded.config)
        spoken = {route.adapter for route in table.routes}
        for plugin in find_plugins(SpeaksProtocol):
            if plugin.adapter in spoken:
                plugin.prepare()
        return cls(loaded, table, {route.key: RouteBinding.of(route) for route in table.routes}, restart_needed)


@value_class
class Reloaded:
    """The result of a look at the files. `mistakes` are lines `file:line:col section message`, only for `failure`.
    `changed` names the sections and tools that differ from those served before. `notes` are remarks for the operator
    that the config before did not have. Both are for `success`."""

    result: Literal["success", "unchanged", "failure"]
    digest: str
    mistakes: tuple[str, ...] = ()
    restart_needed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Reloader:
    """Keeps the served config equal to the files. `adopt` serves a config from the moment it is called.

    `served` is what is served, `mistakes` what is against the files as they are now.
    """

    def __init__(
        self,
        served: Compiled,
        environ: Mapping[str, str],
        adopt: Callable[[Compiled], None],
        tell: Callable[[Reloaded], None],
        report_error: Callable[[str, BaseException], None],
    ) -> None:
        self.served = served
        self._started = served.loaded.config
        self._path = served.loaded.files[0]
        self._environ = environ
        self._adopt = adopt
        self._tell = tell
        self._report_error = report_error
        self._seen = dict(served.loaded.seen)
        self.mistakes: tuple[str, ...] = ()
        self._lock = asyncio.Lock()

    async def watch(self) -> None:
        """Takes over changes until it is cancelled."""
        while True:
            interval = self.served.loaded.config.reload
            await asyncio.sleep(interval or IDLE)
            if interval is not None and await self._has_changed():
                await self.reload()

    async def reload(self) -> Reloaded:
        """Takes over the files' config, if it differs and is valid."""
        async with self._lock:
            reloaded = await self._reload()
        self._tell(reloaded)
        return reloaded

    async def _has_changed(self) -> bool:
        return await asyncio.to_thread(hash_files, tuple(self._seen)) != self._seen

    async def _reload(self) -> Reloaded:
        served, compiled = self.served, None
        if await self._has_changed():  # else the same bytes mean the same config, and the same mistakes
            try:
                compiled = await asyncio.to_thread(
                    _compile_config, self._path, self._environ, self._started, tuple(self._seen)
                )
                self._seen, self.mistakes = dict(compiled.loaded.seen), ()
            except ConfigError as error:
                self._seen = {self._path: "", **error.seen}
                self.mistakes = tuple(map(str, error.mistakes))
            except Exception as error:  # noqa: BLE001 - a defect of ours: what is served goes on being served
                self._report_error("reload", error)
                self.mistakes = (f"{self._path}:1:1  cannot be compiled ({type(error).__name__}, see the log)",)
        if compiled is None or compiled.loaded.digest == served.loaded.digest:
            result: Literal["failure", "unchanged"] = "failure" if self.mistakes else "unchanged"
            return Reloaded(result, served.loaded.digest, self.mistakes, served.restart_needed)
        changed = find_changes(served.loaded.config, compiled.loaded.config)
        self._adopt(compiled)
        self.served = compiled
        known = served.loaded.config.notes
        notes = tuple(note for note in compiled.loaded.config.notes if note not in known)
        return Reloaded("success", compiled.loaded.digest, (), compiled.restart_needed, changed, notes)


def find_changes(before: Config, after: Config) -> tuple[str, ...]:
    """The keys of the file in which two configs differ: sections, and below `tools` and `upstreams` each entry; files
    that a tool's schema is in have the tool's name."""
    old, new = (one.written if isinstance(one.written, dict) else {} for one in (before, after))
    found: list[str] = []
    for section in dict.fromkeys((*old, *new)):
        one, other = old.get(section), new.get(section)
        if isinstance(one, dict) and isinstance(other, dict) and section in ("tools", "upstreams"):
            found += [f"{section}.{name}" for name in dict.fromkeys((*one, *other)) if one.get(name) != other.get(name)]
        elif one != other:
            found.append(section)
    known = {(route.name, name): tool.schema for route in before.routes for name, tool in route.tools.items()}
    for route in after.routes:
        for name, tool in route.tools.items():
            was = known.get((route.name, name))
            if was is not None and tool.schema is not None and was.schema_id != tool.schema.schema_id:
                found.append(f"tools.{name}.schema")
    return tuple(dict.fromkeys(found))


def _compile_config(path: Path, environ: Mapping[str, str], started: Config, known: tuple[Path, ...]) -> Compiled:
    """The config as it can be served by this process. Raises ConfigError."""
    loaded = load_settled(path, environ, known)
    needed = list_restart_sections(started, loaded.config)
    config = keep_running_sections(started, loaded.config)
    if (why := find_unshared(config)) is not None:
        raise ConfigError([Mistake(str(path), 1, 1, "workers", f"{why[0]}, which need a restart", why[1])], loaded.seen)
    return Compiled.of(replace(loaded, config=config), needed)


def list_restart_sections(started: Config, new: Config) -> tuple[str, ...]:
    """The sections in which a new config differs from the running one and which only a restart can take over."""
    running = keep_running_sections(started, new)
    names = [each.name for each in dataclasses.fields(Config)]
    return tuple(_SECTIONS.get(name, name) for name in names if getattr(running, name) != getattr(new, name))


def keep_running_sections(started: Config, new: Config) -> Config:
    """Returns a new config with every section that needs a restart unchanged, so that none is half applied."""
    kept = {field.name: getattr(started, field.name) for field in dataclasses.fields(Config) if field.name not in _LIVE}
    if started.admin is not None and new.admin is not None:
        before, after = started.admin.token, new.admin.token
        if isinstance(before, Secret) and isinstance(after, Secret) and before.written == after.written:
            kept["admin"] = replace(started.admin, token=after)  # the secret behind the reference has changed
    kept["telemetry"] = replace(started.telemetry, log_level=new.telemetry.log_level)
    return replace(new, **kept)


def list_served(compiled: Compiled) -> list[Served]:
    """The tools of a config, as the metrics name them."""
    return [
        Served(route.name, tool, route.kind, policy.mode.value, policy.schema_id)
        for route in compiled.table.routes
        for tool, policy in route.tools.items()
    ]
