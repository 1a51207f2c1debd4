"""The services that calls use, as the config wants them: state store, second judge, hooks.

What a service remembers outlives a reload. The room of hooks is loaded for the first config that has some.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from proxy.call.judging import Elsewhere
from proxy.config.load import Loaded
from proxy.config.mistakes import ConfigError, Mistake
from proxy.config.model import HookEntry, SecondJudging, StateConfig
from proxy.config.watch import find_warnings
from proxy.core.contract.policy import ToolPolicy
from proxy.core.second_judge.question import Opinion
from proxy.formatters import Formatters
from proxy.interfaces import (
    Clock,
    ConnectedStore,
    SecondJudge,
    Services,
    StateStore,
)
from proxy.offload.pool import OffloadPool
from proxy.second_opinion import DISAGREED, GAVE_UP, MEMORY, SecondOpinion
from proxy.server.identity import SystemPacing
from proxy.state import StoreChange, make_store
from proxy.telemetry.logs import Log
from proxy.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from proxy.hooks.loading import HookLoadError
    from proxy.hooks.running import HookChain


def make_services(loaded: Loaded, shared: SharedStore, log: Log, clock: Clock) -> Services:
    """Makes the services that calls use, except for the upstreams."""
    store, formatters = shared.make(loaded.config.state, clock), Formatters.load_installed(log.formatter_failed)
    hooks = make_hook_chain(loaded, log, clock)
    elsewhere = Elsewhere()
    return Services(store, clock, {}, SystemPacing(), formatters.lines, hooks=hooks, elsewhere=elsewhere)


# --- the state store --------------------------------------------------------------------------------------------------
class SharedStore:
    """Makes the store and listens to it. `up` is what the metric `state_backend_up` tells; memory is always up."""

    def __init__(self, log: Log) -> None:
        self.up = True
        self._log = log
        self._backend = ""
        self._store: StateStore | None = None

    def make(self, state: StateConfig, clock: Clock) -> StateStore:
        """The store of a config's `state`."""
        self._backend = state.backend
        self._store = make_store(state.backend, clock, state.max_keys, state.shared, self._note_change)
        return self._store

    async def open(self) -> None:
        """Opens the store, if it is on a server."""
        if isinstance(self._store, ConnectedStore):
            await self._store.open()

    def _note_change(self, change: StoreChange) -> None:
        self.up = change.up
        if change.up:
            away = round(change.seconds, 3)
            self._log.event("State store is back", backend=self._backend, away_seconds=away, merged=change.merged)
        else:
            self._log.event("State store lost, counting locally", "error", backend=self._backend, reason=change.reason)


# --- the second judge -------------------------------------------------------------------------------------------------
class SecondJudges:
    """The second judge in each of its two modes. No child process is there before the first question."""

    def __init__(self, chance: Callable[[], float], metrics: Metrics, log: Log) -> None:
        self._metrics = metrics
        self._log = log
        self._chance = chance
        self._made: dict[SecondJudging, SecondOpinion] = {}

    def of(self, mode: SecondJudging) -> SecondJudge | None:
        """The judge for a config; None where it says `off`."""
        if mode == "off":
            return None
        if mode not in self._made:
            pool = OffloadPool(size=2 if mode == "always" else 1, memory=MEMORY)
            self._made[mode] = SecondOpinion(
                pool, asks_first=mode == "always", chance=self._chance, report=self._report
            )
        return self._made[mode]

    async def close(self) -> None:
        """Ends the child processes."""
        for judge in self._made.values():
            await judge.close()

    def _report(self, route: str, policy: ToolPolicy, outcome: str, opinion: Opinion) -> None:
        """Counts an opinion. What is logged names the schema and the place in it, and no value."""
        self._metrics.count_second_opinion(route, policy.tool, outcome)
        fields = {"route": route, "tool": policy.tool, "schema": policy.schema_id}
        if outcome == DISAGREED:
            self._log.event("Second judge disagrees", "error", **fields, judge=opinion.judge, place=opinion.place)
        elif outcome == GAVE_UP:
            self._log.event("Second judge gave up", "warning", **fields, reason=opinion.reason)


# --- hooks ------------------------------------------------------------------------------------------------------------
def make_hook_chain(loaded: Loaded, log: Log, clock: Clock) -> HookChain | None:
    """The chain of a config's hooks, None where it has none. Raises ConfigError with every hook that cannot be made."""
    if not loaded.config.hooks:
        return None
    from proxy.hooks.loading import HookLoadError, load_hook
    from proxy.hooks.running import HookChain

    made, mistakes = [], []
    for entry in loaded.config.hooks:
        hook = load_hook(entry.use, entry.settings, entry.timeout, strict=entry.on_failure == "refuse")
        if isinstance(hook, HookLoadError):
            mistakes.append(_mistake(loaded, entry, hook))
        else:
            made.append(hook)
    if mistakes:
        raise ConfigError(mistakes)
    return HookChain(made, log.hook_failed, clock.now)


def check_hooks(loaded: Loaded) -> list[Mistake]:
    """What is wrong with a config's hooks, as far as that shows without making any."""
    if not loaded.config.hooks:
        return []
    from proxy.hooks.loading import HookLoadError, find_hook

    found = [(entry, find_hook(entry.use)) for entry in loaded.config.hooks]
    return [_mistake(loaded, entry, hook) for entry, hook in found if isinstance(hook, HookLoadError)]


def _mistake(loaded: Loaded, entry: HookEntry, found: HookLoadError) -> Mistake:
    return Mistake(str(loaded.files[0]), *entry.at, "hooks", found.message, found.hint)


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
