"""The plugin `workers`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from proxy.plugin import Flag, HostsProcess

if TYPE_CHECKING:
    import argparse

    from proxy.plugin import AdminConfig, Loaded, Signals


class WorkersPlugin(HostsProcess):
    """Runs several processes behind one port."""

    name = "workers"
    adds = "several processes behind one port"
    runs_workers = True

    def list_flags(self) -> Sequence[Flag]:
        import argparse

        return (Flag("--worker", argparse.SUPPRESS, action="store_true"),)  # only the parent process writes it

    async def run_workers(self, loaded: Loaded, args: argparse.Namespace, words: list[str], signals: Signals) -> int:
        from proxy.extensions.workers.cli import serve_many

        return await serve_many(loaded, args, words, signals)

    def read_entry(self, signals: Signals, admin: AdminConfig | None) -> AdminConfig:
        from proxy.extensions.workers.cli import read_worker_entry

        return read_worker_entry(signals, admin)
