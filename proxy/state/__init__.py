"""Where episodes, call counts and expansions are remembered: one file for each backend, chosen by `make_store`.

A new backend is one file and one line in `STORES`; the store contract suite then runs over it unasked. What a failure
does to an episode is `core.contract.add`, the same for all.
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

# Keys kept at most in this process (contract section 4): about 60 MB when every one is an episode of typical size.
MAX_KEYS: Final = 100_000

Changed = Callable[["StoreChange"], None]


def _redis(clock: Clock, max_keys: int, settings: RedisSettings, changed: Changed) -> StateStore:
    # Only here: whoever keeps state in memory needs no client library, and nothing to fall back to.
    from proxy.state.fallback import FallbackStore
    from proxy.state.redis import RedisRemote

    return FallbackStore(RedisRemote(settings), clock, max_keys, changed)


STORES: Final[dict[str, Callable[[Clock, int, RedisSettings, Changed], StateStore]]] = {
    "memory": lambda clock, max_keys, _settings, _changed: MemoryStore(clock, max_keys),
    "redis": _redis,
}


def make_store(
    kind: str,
    clock: Clock,
    max_keys: int = MAX_KEYS,
    redis: RedisSettings | None = None,
    changed: Changed = lambda change: None,  # noqa: ARG005
) -> StateStore:
    """The store of a kind named in the config. `changed` hears when a shared store goes away and comes back.

    Raises ValueError, naming the known kinds, for any other, and ImportError where its client library is missing.
    """
    if kind not in STORES:
        raise ValueError(f"state: unknown kind {kind!r}; known: {', '.join(sorted(STORES))}")
    return STORES[kind](clock, max_keys, redis or RedisSettings(), changed)
