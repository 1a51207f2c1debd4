"""Provides the corrector of a config. The memory of conversations outlives a reload."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from proxy.config.model import Config
from proxy.core.model.values import UpstreamFault, UpstreamReply
from proxy.extensions.correction.core.settings import CorrectionSettings, DebugStore
from proxy.extensions.correction.core.words import BudgetKind
from proxy.extensions.correction.correction_section import find_correction
from proxy.extensions.correction.corrector import ModelCorrector
from proxy.extensions.correction.endpoint import Endpoint
from proxy.extensions.correction.record import DebugLog
from proxy.extensions.correction.trajectory import Trajectories
from proxy.interfaces import GuardedUpstream, Services, UpstreamRequest
from proxy.server.setup.upstreams import make_settings
from proxy.telemetry.logs import Log
from proxy.telemetry.metrics import Metrics
from proxy.upstream.outgoing_client import OutgoingClient


class Corrections:
    """Makes correctors, one for each config that is served."""

    def __init__(self, services: Services, log: Log, metrics: Metrics) -> None:
        self._log = log
        self._metrics = metrics
        self._now = services.clock.now
        self._trajectories: Trajectories | None = None
        self._debug: tuple[DebugStore, DebugLog] | None = None

    def extend(self, config: Config, services: Services) -> Services:
        """Returns the services with a corrector, if the config has one."""
        settings = find_correction(config)
        if settings is None:
            return services
        if self._trajectories is None:
            self._trajectories = Trajectories(self._now)
        client = OutgoingClient(make_settings(config.upstreams[settings.upstream]))
        ask = partial(self._exchange, settings.upstream, services.upstreams[settings.upstream], client)
        endpoint = Endpoint(settings, ask)
        corrector = ModelCorrector(
            settings, endpoint, self._trajectories, services, self._store(settings), self._log.defect, self._warn_spent
        )
        return replace(services, corrector=corrector)

    async def _exchange(
        self, name: str, upstream: GuardedUpstream, client: OutgoingClient, request: UpstreamRequest, limit: int
    ) -> UpstreamReply | UpstreamFault:
        """One question, unless the upstream's guard refuses it: its breaker and its bound hold for questions too."""
        found = await upstream.guard(request, lambda entered: client.fetch(entered, limit))
        if isinstance(found, UpstreamReply):
            self._metrics.count_sent(name, found.status)
        else:
            self._metrics.count_sent(name, 0, found.token)
        return found

    async def close(self) -> None:
        """Does nothing: nothing is queued."""

    def _store(self, settings: CorrectionSettings) -> DebugLog | None:
        if settings.debug is None:
            return None
        if self._debug is None or self._debug[0] != settings.debug:
            self._debug = settings.debug, DebugLog(settings.debug, self._warn_unwritten)
        return self._debug[1]

    def _warn_spent(self, budget: BudgetKind) -> None:
        self._log.event("correction budget used up", "warning", budget=budget.value)

    def _warn_unwritten(self, error: OSError) -> None:
        self._log.event("debug store cannot be written", "warning", reason=error.strerror or type(error).__name__)
