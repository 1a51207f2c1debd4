"""Redis or Valkey as a `Remote`, and the store that is made of it."""

from __future__ import annotations

import asyncio
import re
from asyncio import Future
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError

from proxy.extensions.redis import operations
from proxy.extensions.redis.fallback import FallbackStore
from proxy.extensions.redis.operations import Keys, Operation, OperationQueue
from proxy.extensions.redis.redis_section import RedisSettings
from proxy.extensions.redis.remote import MissedChanges, SeenEpisode, SlotCount, Unreachable
from proxy.interfaces import Clock, Episode, FailedAttempt, FailureRecorded, Rate, RateExceeded
from proxy.plugin import Changed

# --- connections to Redis or Valkey -----------------------------------------------------------------------------------
# Connections to Redis or Valkey, opened by topology and discarded at the first failure.
#
# `Connections.run` sends a batch of script calls as one pipeline: one round trip, and a second one for scripts that
# the server does not know yet. Every failure becomes `Unreachable`; the client is then discarded with all it knew
# about addresses, roles and slots, so that the next try starts from nothing. The library's own retries are off,
# because a call is waiting and `FallbackStore` can answer it from memory at once.

# Seconds that a discarded client may take to close its sockets.
_CLOSING: Final = 0.5
# Keys per page of SCAN, and the seconds that all pages together may take: only the operator waits for them.
_SCAN_PAGE: Final = 500
_SCANNING: Final = 10.0


class Connections:
    """Opens connections on demand. Runs one batch at a time; a scan may run beside it."""

    def __init__(self, settings: RedisSettings) -> None:
        self._settings = settings
        self._client: Any = None
        self._sentinels: tuple[Any, ...] = ()

    async def run(self, batch: Sequence[Operation[Any]]) -> list[Any]:
        """The server's reply to each operation, in order; Unreachable in place of a refused one. Raises Unreachable."""
        async with self._use_client() as client:
            limit = self._settings.connect_timeout + self._settings.operation_timeout
            async with asyncio.timeout(limit):
                replies = await _send_pipeline(client, "EVALSHA", batch)
                unknown = [index for index, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
                if unknown:
                    again = await _send_pipeline(client, "EVAL", [batch[index] for index in unknown])
                    for index, reply in zip(unknown, again, strict=True):
                        replies[index] = reply
        if any(isinstance(one, Exception) for one in replies):
            await self.close()  # for example READONLY: this server is not the primary (any more)
        return [
            Unreachable(_describe_reason(one), sent=False) if isinstance(one, Exception) else one for one in replies
        ]

    async def scan(self, pattern: bytes, most: int) -> list[bytes]:
        """The names of matching keys, each once, at most so many. Raises Unreachable."""
        found: dict[bytes, None] = {}
        async with self._use_client() as client, asyncio.timeout(_SCANNING):
            async for name in client.scan_iter(match=pattern, count=_SCAN_PAGE):
                found[name] = None
                if len(found) >= most:
                    break
        return list(found)

    async def close(self) -> None:
        """Closes all connections; the next use opens new ones."""
        clients, self._client, self._sentinels = (self._client, *self._sentinels), None, ()
        for client in clients:
            if client is not None:
                with suppress(Exception):
                    async with asyncio.timeout(_CLOSING):
                        await client.aclose()

    @asynccontextmanager
    async def _use_client(self) -> AsyncIterator[Any]:
        """The client for one use. Exceptions of the library become Unreachable here."""
        sent = False
        try:
            if self._client is None:
                async with asyncio.timeout(self._settings.connect_timeout * (len(self._settings.hosts) + 1)):
                    self._client = self._open()
                    await self._client.initialize()
                    if self._settings.topology != "cluster":
                        await self._client.ping()
            sent = True
            yield self._client
        except Exception as error:  # noqa: BLE001 - whatever the library raises, no call may fail for it
            await self.close()
            raise Unreachable(_describe_reason(error), sent) from None  # the library's message may quote a credential
        except BaseException:
            await self.close()  # cancelled halfway: bytes of this exchange may still arrive
            raise

    def _open(self) -> Any:
        settings, options = self._settings, _make_options(self._settings)
        if settings.topology == "cluster":
            nodes = [ClusterNode(host, port) for host, port in settings.hosts]
            return RedisCluster(startup_nodes=nodes, **options)
        if settings.topology == "sentinel":
            own = options | _make_credentials(settings.sentinel_username, settings.sentinel_password)
            known = Sentinel(settings.hosts, sentinel_kwargs=own, **options)  # type: ignore[no-untyped-call]
            self._sentinels = tuple(known.sentinels)
            return known.master_for(settings.service, db=settings.database)
        if settings.unix_socket:
            return Redis(unix_socket_path=settings.unix_socket, db=settings.database, **options)
        host, port = settings.hosts[0]
        return Redis(host=host, port=port, db=settings.database, **options)


def _make_options(settings: RedisSettings) -> dict[str, Any]:
    """The options that every connection shares."""
    options: dict[str, Any] = {
        **_make_credentials(settings.username, settings.password),
        "socket_connect_timeout": settings.connect_timeout,
        "socket_timeout": settings.operation_timeout,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,  # RESP3 has no use here, and needs a handshake that older servers refuse
        "client_name": "toolcall-proxy",
    }
    if settings.tls is not None:
        tls = settings.tls
        options |= {"ssl": True, "ssl_ca_certs": tls.ca or None}
        options |= {"ssl_certfile": tls.cert or None, "ssl_keyfile": tls.key or tls.cert or None}
    return options


def _make_credentials(username: str, password: str) -> dict[str, str | None]:
    return {"username": username or None, "password": password or None}


async def _send_pipeline(client: Any, command: str, batch: Sequence[Operation[Any]]) -> list[Any]:
    """One round trip with EVALSHA or EVAL for each operation. Refusals are exceptions within the list."""
    # A cluster's pipeline has no `transaction` argument, and is not a transaction by default.
    made = client.pipeline() if isinstance(client, RedisCluster) else client.pipeline(transaction=False)
    async with made as pipeline:
        for one in batch:
            script = one.script.sha if command == "EVALSHA" else one.script.text
            keys = (one.key, *one.other_keys)
            pipeline.execute_command(command, script, len(keys), *keys, *one.arguments)
        replies: list[Any] = await pipeline.execute(raise_on_error=False)
        return replies


_CODE: Final = re.compile(r"[A-Z]{3,20}\b")


def _describe_reason(error: BaseException) -> str:
    """The reason of a failure without credentials: the exception's name, or the code of the system or the server."""
    name = type(error).__name__
    cause = error.__cause__ or error.__context__
    for known in (error, cause):
        if isinstance(known, OSError) and known.strerror:
            return f"{name}: {known.strerror}"
    code = _CODE.match(str(error))
    return f"{name}: {code[0]}" if code is not None else name


# --- redis or Valkey as a `Remote` ------------------------------------------------------------------------------------
# Episodes read at a time for the operator, so that calls are served between two pages.
_PAGE: Final = 100


def make_store(clock: Clock, max_keys: int, settings: RedisSettings, changed: Changed) -> FallbackStore:
    """A `MakeStore` (state/__init__.py)."""
    return FallbackStore(RedisRemote(settings), clock, max_keys, changed)


class RedisRemote:
    """Implements `Remote`."""

    def __init__(self, settings: RedisSettings) -> None:
        self._keys = Keys(settings.prefix)
        self._connections = Connections(settings)
        self._queue = OperationQueue(self._connections.run, settings.most_waiting)

    def look(self, key: str) -> Future[SeenEpisode | None]:
        return self._queue.submit(operations.look(self._keys.episode(key)))

    def fail(self, key: str, attempt: FailedAttempt, ttl: float) -> Future[FailureRecorded]:
        return self._queue.submit(operations.fail(self._keys.episode(key), attempt, ttl))

    def clear(self, key: str, forget: bool) -> Future[Episode | None]:
        return self._queue.submit(operations.clear(self._keys.episode(key), forget))

    def reserve(self, key: str, limit: int, ttl: float) -> Future[int | None]:
        return self._queue.submit(operations.reserve(self._keys.count(key), limit, ttl))

    def release(self, key: str) -> Future[int]:
        return self._queue.submit(operations.release(self._keys.count(key)))

    def count_taken(self, key: str) -> Future[SlotCount]:
        return self._queue.submit(operations.count_taken(self._keys.count(key)))

    def take_rates(self, rates: Sequence[Rate]) -> Future[RateExceeded | None]:
        return self._queue.submit(operations.take_rates([self._keys.rate(rate.key) for rate in rates], rates))

    def merge(self, key: str, missed: MissedChanges) -> Future[None]:
        return self._queue.submit(operations.merge(self._keys.episode(key), missed))

    def merge_used(self, key: str, change: int, ttl: float) -> Future[None]:
        return self._queue.submit(operations.merge_used(self._keys.count(key), change, ttl))

    def probe(self, key: str) -> Future[None]:
        return self._queue.submit(operations.probe(self._keys.probe(key)))

    async def list_episodes(self, most: int) -> Sequence[tuple[str, Episode]]:
        """Running episodes, found by SCAN: one that begins or ends during the scan may be missing or present."""
        names = await self._connections.scan(self._keys.episodes, most)
        found: list[tuple[str, Episode]] = []
        for first in range(0, len(names), _PAGE):
            page = names[first : first + _PAGE]
            seen = await asyncio.gather(*(self._queue.submit(operations.look(name)) for name in page))
            found += [(self._keys.key_of(name), one.episode) for name, one in zip(page, seen, strict=True) if one]
        return found

    async def close(self) -> None:
        """Waits for the queued operations, no longer than their timeouts, and closes the connections."""
        await self._queue.idle()
        await self._connections.close()
