"""The composition root: a loaded config becomes a running proxy with its ports open, `Serving` of `lifecycle.py`."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from functools import partial
from typing import TextIO

from proxy.config.load import Loaded
from proxy.config.model import Address
from proxy.config.model import AdminConfig as AdminEntry
from proxy.interfaces import Clock, ConnectedStore
from proxy.server.admin.api import make_pages
from proxy.server.admin.port import open_operator_ports
from proxy.server.http.reading import check_aiohttp
from proxy.server.lifecycle import Serving
from proxy.server.listener import Listener, make_server_context, open_port
from proxy.server.reload import Compiled
from proxy.server.request_cycle import begin_request, handle_request
from proxy.server.service import Timeouts
from proxy.server.setup.services import SharedStore, SystemClock, make_services, tell_notes
from proxy.telemetry.logs import Log
from proxy.telemetry.watches import TroubleWatcher


async def start_serving(
    loaded: Loaded,
    *,
    listen: Address | None = None,
    clock: Clock | None = None,
    log_to: TextIO | None = None,
    environ: Mapping[str, str] | None = None,
    watch: bool = False,
    worker: AdminEntry | None = None,
    watcher: TroubleWatcher | None = None,
    held: socket.socket | None = None,
) -> Serving:
    """Opens the ports and serves. `listen` goes before the config's; port 0 takes any free one.

    `watch`: changed files are taken over while serving, with `environ` (default: the process's) for `${NAME}`.
    `worker`: the operator's port of one of several that share the port. `watcher`: shows what keeps the proxy from its
    work. `held`: a socket that listens at the probes' port already. Raises OSError (a port cannot be opened),
    ConfigError (a hook cannot be loaded) or ImportError (aiohttp's minor version), and leaves nothing open.
    """
    check_aiohttp()
    config, clock, environ = loaded.config, clock or SystemClock(), os.environ if environ is None else environ
    log = Log(log_to or sys.stderr, config.telemetry.log_format, config.telemetry.log_level, clock.wall)
    shared = SharedStore(log)
    base, admin = make_services(loaded, shared, log, clock), worker or config.admin
    serving = Serving(Compiled.of(loaded), base, environ, log, admin)
    serving.metrics.state_up.watch(lambda: shared.up)
    serving.notices.watcher = watcher
    try:
        if isinstance(base.store, ConnectedStore):
            await base.store.open()
        await _open_port(serving, listen or config.listen, shared=worker is not None)
        if admin is not None:
            known, refuse = (loaded.files[0].parent, environ), serving.handler.refuse_head
            ports = serving.operator_ports
            await open_operator_ports(admin, make_pages(serving), clock.now, known, refuse, ports, held)
    except OSError:
        await serving.stop(grace=0)
        raise
    if worker is None:  # the process above the workers has logged it
        tell_notes(log, loaded, watched=watch)
    serving.begin(watch=watch)
    return serving


async def _open_port(serving: Serving, listen: Address, *, shared: bool) -> None:
    handler, inbound = serving.handler, serving.config.listen
    serving.library_log.attach()
    timeouts = Timeouts(inbound.head_timeout, inbound.idle_timeout, inbound.send_timeout)
    listener = Listener(
        partial(handle_request, handler), handler.refuse_head, timeouts, partial(begin_request, handler)
    )
    tls = make_server_context(inbound.tls) if inbound.tls is not None else None
    serving.ports.append(await open_port(listener, listen, key="listen", shared=shared, tls=tls, mode=inbound.mode))
