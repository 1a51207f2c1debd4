"""Stores for episodes, call counts and container expansions: one file per backend, chosen by `make_store`.

A new backend is one file and one line in `STORES`; the store contract suite then runs over it as well.
`core.contract.attempts.add` defines for all of them what a failure does to an episode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from proxy.interfaces import Clock, StateStore
from proxy.state.memory import MemoryStore
from proxy.state.settings import RedisSettings, Tls

if TYPE_CHECKING:
    from proxy.state.fallback import StoreChange

__all__ = ["MAX_KEYS", "STORES", "RedisSettings", "Tls", "make_store"]

# The most keys kept in this process (contract section 4): about 60 MB of typical episodes.
MAX_KEYS: Final = 100_000

Changed = Callable[["StoreChange"], None]


def _make_redis(clock: Clock, max_keys: int, settings: RedisSettings, changed: Changed) -> StateStore:
    # Imported here, because a store in memory needs no client library and no fallback.
    from proxy.state.fallback import FallbackStore
    from proxy.state.redis import RedisRemote

    return FallbackStore(RedisRemote(settings), clock, max_keys, changed)


STORES: Final[dict[str, Callable[[Clock, int, RedisSettings, Changed], StateStore]]] = {
    "memory": lambda clock, max_keys, _settings, _changed: MemoryStore(clock, max_keys),
    "redis": _make_redis,
}


def make_store(
    kind: str,
    clock: Clock,
    max_keys: int = MAX_KEYS,
    redis: RedisSettings | None = None,
    changed: Changed = lambda change: None,  # noqa: ARG005
) -> StateStore:
    """Makes the store of a kind named in the config. `changed` is called when a shared store goes away or comes back.

    Raises ValueError, which names the known kinds, for another kind, and ImportError where a client library is missing.
    """
    if kind not in STORES:
        raise ValueError(f"state: unknown kind {kind!r}; known: {', '.join(sorted(STORES))}")
    return STORES[kind](clock, max_keys, redis or RedisSettings(), changed)
