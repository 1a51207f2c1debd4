"""`serve` with several workers: the process above them, and the operator's port of each."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from dataclasses import replace
from typing import Any

from proxy.cli.serve import announce, is_ended, settle_memory
from proxy.config.load import Loaded
from proxy.config.model import Address, AdminConfig
from proxy.extensions.workers.start import start_workers
from proxy.extensions.workers.supervisor import readers_token


async def serve_many(
    loaded: Loaded, args: argparse.Namespace, watching: Any, signals: asyncio.Queue[signal.Signals]
) -> int:
    """Runs the supervisor of several workers: forwards signals until the last worker has ended."""
    flags = watching.write_flags(args) if watching is not None else []
    more = [*(["--log-level", args.log_level] if args.log_level else []), *flags]
    worker_pool = await start_workers(loaded, args.listen, more=more, held=args.held)
    if is_ended(signals):
        worker_pool.signal(signal.SIGINT)
    announce(worker_pool, loaded, args)
    settle_memory()
    ended: asyncio.Task[int] = asyncio.create_task(worker_pool.wait_ended())
    while not ended.done():
        number = asyncio.create_task(signals.get())
        await asyncio.wait({number, ended}, return_when=asyncio.FIRST_COMPLETED)
        if number.done():
            worker_pool.signal(number.result())
        number.cancel()
    return ended.result()


def read_worker_entry(signals: asyncio.Queue[signal.Signals], admin: AdminConfig | None) -> AdminConfig:
    """The operator's port of a worker, with the token that the supervisor writes to standard input. The worker ends
    when standard input ends, because the supervisor is gone then."""
    token = sys.stdin.readline().strip()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), signals.put_nowait, signal.SIGINT)
    own = Address("127.0.0.1", 0)
    entry = admin or AdminConfig(console=False)
    return replace(entry, listen=own, probes=None, token=token, readers=readers_token(token), hosts=frozenset())
