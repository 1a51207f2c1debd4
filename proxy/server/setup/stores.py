"""The state store as the config wants it, and what the operator hears: one line when it is lost, one when back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.config.model import SharedState, StateConfig
from proxy.interfaces import Clock, StateStore
from proxy.state import RedisSettings, Tls, make_store
from proxy.telemetry.logs import Log

if TYPE_CHECKING:
    from proxy.state.fallback import StoreChange


class SharedStore:
    """Makes the store and listens to it. `up` is what the metric `state_backend_up` tells; memory is always up."""

    def __init__(self, log: Log) -> None:
        self.up = True
        self._log = log
        self._backend = ""

    def make(self, state: StateConfig, clock: Clock) -> StateStore:
        """The store of a config's `state`."""
        self._backend = state.backend
        redis = None if state.shared is None else make_redis_settings(state.shared)
        return make_store(state.backend, clock, state.max_keys, redis, self._changed)

    def _changed(self, change: StoreChange) -> None:
        self.up = change.up
        if change.up:
            away = round(change.seconds, 3)
            self._log.event("State store is back", backend=self._backend, away_seconds=away, merged=change.merged)
        else:
            self._log.event("State store lost, counting locally", "error", backend=self._backend, reason=change.reason)


def make_redis_settings(shared: SharedState) -> RedisSettings:
    """What the backend has to be told."""
    files = shared.tls_files
    tls = Tls(files.ca, files.cert, files.key) if files is not None else Tls()
    return RedisSettings(
        topology=shared.topology.value,
        hosts=shared.hosts,
        unix_socket=shared.unix,
        database=shared.database,
        service=shared.service,
        username=shared.username,
        password=shared.password,
        sentinel_username=shared.sentinel_username,
        sentinel_password=shared.sentinel_password,
        tls=tls if shared.tls else None,
        prefix=shared.prefix,
        connect_timeout=shared.connect_timeout,
        operation_timeout=shared.operation_timeout,
    )
