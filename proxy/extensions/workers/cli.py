"""`serve` with several workers: the process above them, and the operator's port of each."""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, TextIO

from proxy.call_record import CallRecord
from proxy.cli.serve import announce, is_ended, settle_memory
from proxy.config.model import Address, AdminConfig
from proxy.extensions.workers.pages import make_pool_pages
from proxy.extensions.workers.supervisor import WorkerPool, readers_token
from proxy.plugin import ConfigError, Loaded, Log, open_operator_ports
from proxy.server.http.framing import Response
from proxy.server.http.request_head import BadRequest, make_id
from proxy.server.http.responses import answer_unrouted
from proxy.server.setup.services import SystemClock, check_hooks, tell_notes

# --- starts several workers -------------------------------------------------------------------------------------------
_TOKEN_BYTES: Final = 32


async def start_workers(
    loaded: Loaded,
    listen: Address | None = None,
    log_to: TextIO | None = None,
    more: Sequence[str] = (),
    held: socket.socket | None = None,
) -> WorkerPool:
    """Starts as many workers as the config says. `more` are words of their command line, `held` is a socket that
    listens at the probes' port already.

    Raises OSError if a port cannot be opened or a worker does not start, ConfigError if a hook cannot be found.
    """
    config, clock = loaded.config, SystemClock()
    if mistakes := check_hooks(config.hooks, str(loaded.files[0])):
        raise ConfigError(mistakes)
    log = Log(log_to or sys.stderr, config.telemetry.log_format, config.telemetry.log_level, clock.wall)
    reserved, address = _reserve_port(listen or config.listen)
    words = ["-m", "proxy", "serve", str(loaded.files[0]), "--listen", str(address), "--worker", *more]
    pool = WorkerPool(loaded, (sys.executable, *words), log, secrets.token_hex(_TOKEN_BYTES), reserved=reserved)
    try:
        await pool.start()
        if config.admin is not None:
            known = (loaded.files[0].parent, os.environ)
            pages = make_pool_pages(pool)
            await open_operator_ports(config.admin, pages, clock.now, known, _refuse_head, pool.ports, held)
    except BaseException:
        await pool.stop()
        raise
    tell_notes(log, loaded, watched=True)
    pool.watch()
    return pool


def _refuse_head(why: BadRequest) -> Response:
    """Returns the response to a request to the operator's port that is not valid HTTP."""
    return answer_unrouted(why.code, why.message, CallRecord(make_id(), ""), status=why.status)


def _reserve_port(listen: Address) -> tuple[socket.socket | None, Address]:
    """Finds a free port for all workers if the config says port 0. The returned socket keeps the port reserved; nothing
    listens on it. Raises OSError."""
    if listen.port:
        return None, Address(listen.host, listen.port)
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    port = socket.socket(family, socket.SOCK_STREAM)
    port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    port.bind((listen.host, 0))
    return port, Address(listen.host, port.getsockname()[1])


# --- `serve` with several workers -------------------------------------------------------------------------------------
async def serve_many(
    loaded: Loaded, args: argparse.Namespace, words: list[str], signals: asyncio.Queue[signal.Signals]
) -> int:
    """Runs the supervisor of several workers: forwards signals until the last worker has ended."""
    more = [*(["--log-level", args.log_level] if args.log_level else []), *words]
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
