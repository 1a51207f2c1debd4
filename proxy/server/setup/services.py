"""The services that calls use, as the config wants them: state store and hooks; time and chance as this process has
them.

The memory of a service outlives a reload. The room of hooks is loaded for the first config that has some.
"""

from __future__ import annotations

import random
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.machinery import PathFinder
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from proxy import driver
from proxy.call.judging import Elsewhere
from proxy.config.load import Loaded
from proxy.config.mistakes import ConfigError, Mistake
from proxy.config.model import HookEntry, StateConfig
from proxy.config.watch import find_warnings
from proxy.core.model.values import Failure
from proxy.interfaces import Clock, Services, StateStore
from proxy.state import StoreChange, make_store
from proxy.telemetry.logs import Log

if TYPE_CHECKING:
    from proxy.hooks.running import HookChain, HookLoadError

# --- tools' own formatters of errors (Acode 007.b) --------------------------------------------------------------------
Formatter = Callable[[Failure], Iterable[str]]

GROUP: Final = "toolcall_proxy.formatters"

# The most lines of one formatter: advice, not a page. The whole text is bounded as well.
_MAX_LINES: Final = 5
_MAX_LINE: Final = 300


class Formatters:
    """The formatters by tool name. One adds lines to the text for the model, bounded and masked like any other text. It
    changes nothing else. `report` receives the tool's name and the exception of one that fails."""

    def __init__(self, formatters: Mapping[str, Formatter], report: Callable[[str, Exception], None]) -> None:
        self._formatters = dict(formatters)
        self._report = report
        self.are_installed = bool(formatters)

    @classmethod
    def load_installed(cls, report: Callable[[str, Exception], None]) -> Formatters:
        """Loads every installed entry point of `GROUP`; reports and skips those that cannot be loaded."""
        if not _any_installed():
            return cls({}, report)
        from importlib.metadata import entry_points

        found: dict[str, Formatter] = {}
        for entry in entry_points(group=GROUP):
            try:
                found[entry.name] = entry.load()
            except Exception as error:  # noqa: BLE001 - foreign code: whatever it raises must not stop the proxy
                report(entry.name, error)
        return cls(found, report)

    def lines(self, tool: str, failure: Failure) -> tuple[str, ...]:
        """The extra lines for a failed call of `tool`: at most five of 300 characters, often none."""
        formatter = self._formatters.get(tool) or self._formatters.get("*")
        if formatter is None:
            return ()
        try:
            return tuple(str(line)[:_MAX_LINE] for line in islice(formatter(_own(failure)), _MAX_LINES))
        except Exception as error:  # noqa: BLE001 - foreign code: the answer goes out without its lines
            self._report(tool, error)
            return ()


def _own(failure: Failure) -> Failure:
    """A copy of the failure for formatters: what they write into it does not reach the answer."""
    misuse = failure.container
    if misuse is not None:
        functions = tuple(map(replace, misuse.container.functions))
        misuse = replace(misuse, container=replace(misuse.container, functions=functions))
    violations = tuple(map(replace, failure.violations))
    return replace(failure, violations=violations, details=dict(failure.details), container=misuse)


def _any_installed() -> bool:
    """Returns whether some package may declare a formatter: the group's name occurs in its list of entry points.

    Python's own reader of these lists imports parsers of e-mail and of archives: 2 MB, and a tenth of the start. So it
    runs only if it may find something, or where packages come from somewhere other than a folder.
    """
    if any(hasattr(finder, "find_distributions") and finder is not PathFinder for finder in sys.meta_path):
        return True
    folders = [Path(entry or ".") for entry in sys.path]
    if any(folder.is_file() for folder in folders):
        return True
    return any(
        GROUP.encode() in file.read_bytes() for folder in folders for file in folder.glob("*-info/entry_points.txt")
    )


# --- time and chance --------------------------------------------------------------------------------------------------
class SystemClock:
    """Implements `Clock` over the system's clocks."""

    # The functions themselves: a call asks a dozen times.
    now = staticmethod(time.monotonic)  # seconds on the monotonic clock
    wall = staticmethod(time.time)  # seconds since the Unix epoch


class SystemPacing:
    """Implements `Pacing` over the event loop and the system's source of chance."""

    sleep = staticmethod(driver.sleep)  # seconds
    chance = staticmethod(random.random)  # at least 0 and below 1

    def fresh_key(self) -> str:
        """A value for an idempotency key: 128 random bits (RFC 9562 section 5.4 makes them a UUID)."""
        return str(uuid.uuid4())


def make_services(loaded: Loaded, shared: SharedStore, log: Log, clock: Clock) -> Services:
    """Makes the services that calls use, except for the upstreams."""
    store, formatters = shared.make(loaded.config.state, clock), Formatters.load_installed(log.formatter_failed)
    extra_lines = formatters.lines if formatters.are_installed else None
    chain = make_hook_chain(loaded, log, clock)
    hooks = None if chain is None else chain.begin
    elsewhere = Elsewhere()
    return Services(
        store, clock, {}, SystemPacing(), extra_lines, hooks=hooks, elsewhere=elsewhere, report_error=log.defect
    )


# --- the state store --------------------------------------------------------------------------------------------------
class SharedStore:
    """Makes the store and listens to it. `up` is what the metric `state_backend_up` tells; memory is always up."""

    def __init__(self, log: Log) -> None:
        self.up = True
        self._log = log
        self._backend = ""

    def make(self, state: StateConfig, clock: Clock) -> StateStore:
        """The store of a config's `state`."""
        self._backend = state.backend
        return make_store(state.backend, clock, state.max_keys, state.shared, self._note_change)

    def _note_change(self, change: StoreChange) -> None:
        self.up = change.up
        if change.up:
            away = round(change.seconds, 3)
            self._log.event("State store is back", backend=self._backend, away_seconds=away, merged=change.merged)
        else:
            self._log.event("State store lost, counting locally", "error", backend=self._backend, reason=change.reason)


# --- hooks ------------------------------------------------------------------------------------------------------------
def make_hook_chain(loaded: Loaded, log: Log, clock: Clock) -> HookChain | None:
    """Returns the chain of a config's hooks, None if it has none. Raises ConfigError with every hook that fails."""
    if not loaded.config.hooks:
        return None
    from proxy.hooks.running import HookChain, HookLoadError, load_hook

    made, mistakes = [], []
    for entry in loaded.config.hooks:
        hook = load_hook(entry.use, entry.settings, entry.timeout, strict=entry.on_failure == "refuse")
        if isinstance(hook, HookLoadError):
            mistakes.append(_mistake(str(loaded.files[0]), entry, hook))
        else:
            made.append(hook)
    if mistakes:
        raise ConfigError(mistakes)
    return HookChain(made, log.hook_failed, clock.now)


def check_hooks(hooks: Sequence[HookEntry], file: str) -> list[Mistake]:
    """Returns what is wrong with the hooks of a config file, as far as that shows without making any."""
    if not hooks:
        return []
    from proxy.hooks.running import HookLoadError, find_hook

    found = [(entry, find_hook(entry.use)) for entry in hooks]
    return [_mistake(file, entry, hook) for entry, hook in found if isinstance(hook, HookLoadError)]


def _mistake(file: str, entry: HookEntry, found: HookLoadError) -> Mistake:
    return Mistake(file, *entry.at, "hooks", found.message, found.hint)


# --- what the log says of a config once it is served ------------------------------------------------------------------
def tell_notes(log: Log, loaded: Loaded, *, watched: bool) -> None:
    """Writes down what the operator should know of a config, and of files whose changes would not be seen."""
    for note in loaded.config.notes:
        log.event("config note", note=note)
    for warning in find_warnings(loaded.files) if watched else ():
        log.event("config note", "warning", note=warning)


def warn_of_addresses(log: Log, calls: int, by_address: int) -> None:
    """Most clients send no conversation id: the operator may not know what that costs."""
    remedy = "send a conversation id (docs/contract.md, Conversations); without one, attempts and caps do little"
    log.event("Most calls carry no conversation id", "warning", calls=calls, by_address=by_address, remedy=remedy)


def warn_of_null(log: Log, route: str, tool: str, place: str) -> None:
    """A model has sent null for an optional value. The operator may know that the tool takes it for "not given"."""
    remedy = "if a null means 'not given' here, set `null_optional: drop` on the tool or route (docs/repair.md)"
    log.event("null refused at an optional key", "warning", route=route, tool=tool, place=place, remedy=remedy)
