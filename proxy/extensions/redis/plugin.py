"""The plugin `redis`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from proxy.plugin import KeepsState

if TYPE_CHECKING:
    from proxy.config.keys.kinds import Kind
    from proxy.extensions.redis.redis_section import RedisSettings
    from proxy.plugin import Changed, Clock, Context, Files, JsonValue, StateStore


class RedisPlugin(KeepsState):
    """Keeps attempts and counts in a Redis or Valkey."""

    name = "redis"
    adds = "attempts and counts that several processes share in a Redis or Valkey"
    backend = "redis"
    state_keys = ("url", "prefix", "timeouts", "tls", "sentinel")
    secrets = (("state", "url"), ("state", "sentinel", "password"))

    def declare_keys(self) -> Mapping[str, Kind]:
        from proxy.extensions.redis.redis_section import STATE

        return {"state": STATE}

    def read_state(self, context: Context, files: Files, written: Mapping[str, JsonValue]) -> RedisSettings | None:
        from proxy.extensions.redis.redis_section import read_settings

        return read_settings(context, files, written)

    def make_store(self, clock: Clock, max_keys: int, settings: object, changed: Changed) -> StateStore:
        from proxy.extensions.redis.redis_remote import make_store
        from proxy.extensions.redis.redis_section import RedisSettings

        assert isinstance(settings, RedisSettings)  # noqa: S101 - what `read_state` returned
        return make_store(clock, max_keys, settings, changed)
