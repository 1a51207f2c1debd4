"""The plugin `workers`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.plugin import PlacesProcess, RunsWorkers

if TYPE_CHECKING:
    import argparse
    import asyncio
    import signal

    from proxy.config.load import Loaded
    from proxy.config.model import AdminConfig


class WorkersPlugin(RunsWorkers):
    """Runs several processes behind one port."""

    name = "workers"
    adds = "several processes behind one port"

    async def run_workers(
        self,
        loaded: Loaded,
        args: argparse.Namespace,
        place: PlacesProcess | None,
        signals: asyncio.Queue[signal.Signals],
    ) -> int:
        from proxy.extensions.workers.cli import serve_many

        return await serve_many(loaded, args, place, signals)

    def read_worker_entry(self, signals: asyncio.Queue[signal.Signals], admin: AdminConfig | None) -> AdminConfig:
        from proxy.extensions.workers.cli import read_worker_entry

        return read_worker_entry(signals, admin)
