"""Stores for episodes, call counts and container expansions: one file per backend, chosen by `make_store`.

A new backend is one file with a `KeepsState`, and its entry in `STORES`. The store contract suite then also runs over
it. A plugin adds a backend that needs a server. `core.contract.attempts.add` defines what a failure does to an episode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from proxy.core.model.value_class import value_class
from proxy.interfaces import Clock, StateStore
from proxy.plugin import KeepsState
from proxy.plugins import find_plugins
from proxy.state.memory import KeptInMemory, MemoryStore

__all__ = ["MAX_KEYS", "STORES", "Changed", "MemoryStore", "StoreChange", "list_keepers", "make_store"]

# The most keys kept in this process (docs/contract.md): about 60 MB of typical episodes.
MAX_KEYS: Final = 100_000


@value_class
class StoreChange:
    """A shared store went away, for a `reason` without secrets, or came back after `seconds`, with `merged` entries."""

    up: bool
    reason: str = ""
    seconds: float = 0.0
    merged: int = 0


Changed = Callable[[StoreChange], None]

STORES: Final[tuple[KeepsState, ...]] = (
    KeptInMemory(),
)  # fmt: skip


def list_keepers() -> list[KeepsState]:
    """Returns all state backends: those in this process, and those of plugins."""
    return [*STORES, *find_plugins(KeepsState)]


def make_store(
    kind: str,
    clock: Clock,
    max_keys: int = MAX_KEYS,
    settings: object = None,
    changed: Changed = lambda change: None,  # noqa: ARG005
) -> StateStore:
    """Makes the store of a kind named in the config. `settings` are what a plugin has read of its backend's keys, and
    `changed` is called when a shared store goes away or comes back. Raises ImportError without its library."""
    keeper = next(each for each in list_keepers() if each.backend == kind)
    return keeper.make_store(clock, max_keys, settings, changed)
