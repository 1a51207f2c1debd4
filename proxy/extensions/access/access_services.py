"""Puts what judges callers among the services of calls."""

from __future__ import annotations

from proxy.config.model import Config
from proxy.interfaces import Services
from proxy.telemetry.logs import Log


class AccessServices:
    """Implements `ServiceExtender`. What it remembers outlives a reload."""

    def __init__(self, base: Services, log: Log) -> None:
        self._base = base
        self._log = log

    def extend(self, config: Config, services: Services) -> Services:  # noqa: ARG002 - nothing is judged yet
        """The services with what the config asks of callers."""
        return services
