"""Corrections as the config wants them: a corrector over one of its upstreams. What is remembered outlives a reload."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from proxy.core.correction import CorrectionSettings, DebugStore
from proxy.core.model import UpstreamFault, UpstreamReply
from proxy.interfaces import Services, Upstream, UpstreamRequest
from proxy.telemetry.logs import Log
from proxy.upstream import ReplyBroken
from proxy.upstream.stream import close_body

if TYPE_CHECKING:
    from proxy.correction import DebugLog, Trajectories


class Corrections:
    """Makes correctors, one for each config that is served. Their room is loaded for the first that has them."""

    def __init__(self, services: Services, log: Log) -> None:
        self._log = log
        self._now = services.clock.now
        self._trajectories: Trajectories | None = None
        self._debug: tuple[DebugStore, DebugLog] | None = None

    def added(self, settings: CorrectionSettings | None, services: Services) -> Services:
        """The services with a corrector, where the config has one."""
        if settings is None:
            return services
        from proxy.correction import Endpoint, ModelCorrector, Trajectories

        if self._trajectories is None:
            self._trajectories = Trajectories(self._now)
        way = partial(exchange, services.upstreams[settings.upstream])
        corrector = ModelCorrector(
            settings, Endpoint(settings, way), self._trajectories, services, self._store(settings), self._log.defect
        )
        return replace(services, corrector=corrector)

    def _store(self, settings: CorrectionSettings) -> DebugLog | None:
        if settings.debug is None:
            return None
        from proxy.correction import DebugLog

        if self._debug is None or self._debug[0] != settings.debug:
            self._debug = settings.debug, DebugLog(settings.debug, self._unwritten)
        return self._debug[1]

    def _unwritten(self, error: OSError) -> None:
        self._log.event("debug store cannot be written", "warning", reason=error.strerror or type(error).__name__)


async def exchange(upstream: Upstream, request: UpstreamRequest, most: int) -> UpstreamReply | UpstreamFault | None:
    """The upstream's whole answer; None where its body has more than `most` bytes, which are not waited for."""
    reply = await upstream.relay(request, None)
    if isinstance(reply, UpstreamFault):
        return reply
    if isinstance(reply.body, bytes):
        return reply if len(reply.body) <= most else None
    read = bytearray()
    try:
        async for chunk in reply.body:
            read += chunk
            if len(read) > most:
                return None
    except ReplyBroken as broken:
        return broken.fault
    finally:
        await close_body(reply)
    return replace(reply, body=bytes(read))
