"""`toolcall-proxy serve`: stands in front of the tools until it is told to end.

SIGTERM drains first (the config's `drain`, 25 s by default: load balancers learn late), SIGINT (Ctrl-C) ends at once
but lets calls under way finish. SIGHUP takes over a changed config; changes are also found by looking (`reload`). A
config with mistakes at the start serves nothing: all of them are printed, exit code 2.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import re
import signal
import sys
from typing import TYPE_CHECKING, Any, Final

from proxy.cli.helptext import HelpText

if TYPE_CHECKING:
    from proxy.app import Serving
    from proxy.app.fleet import Fleet
    from proxy.config.load import Loaded
    from proxy.config.model import Address, Admin

EXIT_CONFIG: Final = 2
# Containers made and not freed; Python's own 700 is a handful of calls.
_MADE_BETWEEN_COLLECTIONS: Final = 50_000
# How long after the start the memory is settled at the latest, in seconds, and how long it waits for calls to end.
_WARM: Final = 1.0
_IDLE: Final = 1.0
_LISTEN: Final = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[^:]*):(?P<port>[0-9]{1,5})")

DESCRIPTION: Final = """\
Serves the routes of a config: repairs and checks every call, forwards the good ones, answers the bad ones.
The config is checked first; with a mistake in it nothing is served (exit code 2)."""

EPILOG: Final = """\
examples:
  toolcall-proxy serve config.yaml
  toolcall-proxy serve --mcp http://127.0.0.1:8000/mcp --listen 127.0.0.1:8081
  toolcall-proxy serve --openapi http://127.0.0.1:8000/openapi.json

SIGTERM drains and ends it, Ctrl-C ends it sooner, SIGHUP looks at the config at once (docs/operations.md).

exit codes: 0 ended by a signal, 2 the config has mistakes, or a port cannot be opened
"""


def register(subparsers: Any) -> None:
    """Describes the verb and its arguments."""
    parser = subparsers.add_parser(
        "serve",
        help="stand in front of your tools",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=HelpText,
    )
    parser.add_argument("path", nargs="?", metavar="CONFIG", help="the config file (YAML)")
    parser.add_argument("--config", metavar="FILE", help="the same, by name")
    parser.add_argument(
        "--listen", metavar="HOST:PORT", type=listen_address, help="listen here instead of where the config says"
    )
    parser.add_argument("--mcp", metavar="URL", help="no config: stand in front of the MCP server at this URL")
    parser.add_argument("--openapi", metavar="URL|FILE", help="no config: serve the operations of this description")
    parser.add_argument("--upstream", metavar="URL", help="where they run, if the description does not say so")
    parser.set_defaults(unwritten=False)
    # One of several processes behind a port (`workers`); started by `proxy/app/fleet.py` alone.
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)


def listen_address(text: str) -> Address:
    """`host:port`, `:port` or `[v6]:port` as an address. Raises ArgumentTypeError for anything else."""
    from proxy.config.model import Address

    found = _LISTEN.fullmatch(text)
    if found is None or int(found["port"]) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:8080")
    return Address(found["host"].strip("[]") or "0.0.0.0", int(found["port"]))  # noqa: S104 - `:port` means everywhere


def run(args: argparse.Namespace) -> int:
    """Serves until a signal; gives the exit code."""
    gc.disable()  # all that the start makes stays; to look at it again and again takes a twentieth of it
    try:
        return _run(args)
    finally:
        gc.enable()  # the process may go on with something else


def _run(args: argparse.Namespace) -> int:
    from proxy.config.load import load
    from proxy.config.mistakes import ConfigError

    if unfit := _unfit(args):
        print(f"serve: {unfit}", file=sys.stderr)
        return EXIT_CONFIG
    if args.openapi is not None or args.mcp is not None:
        return _run_unwritten(args)
    try:
        loaded = load(args.path or args.config, os.environ)
    except ConfigError as error:
        for mistake in error.mistakes:
            print(f"serve: {mistake.told}" if args.unwritten else mistake, file=sys.stderr)
        return EXIT_CONFIG
    try:
        with asyncio.Runner(loop_factory=_fast_loop()) as runner:
            if loaded.config.workers > 1 and not args.worker:
                return runner.run(_serve_many(loaded, args.listen))
            return runner.run(_serve(loaded, args.listen, worker=args.worker))
    except ConfigError as error:  # a hook that cannot be loaded
        print(error, file=sys.stderr)
        return EXIT_CONFIG
    except OSError as error:
        print(f"serve: cannot listen: {error}", file=sys.stderr)
        return EXIT_CONFIG


def _unfit(args: argparse.Namespace) -> str:
    """What is wrong with the arguments taken together; '' where nothing is."""
    sources = {"CONFIG": args.path, "--config": args.config, "--mcp": args.mcp, "--openapi": args.openapi}
    said = [word for word, value in sources.items() if value is not None]
    if not said:
        return "which config?  (toolcall-proxy serve config.yaml; without one: --mcp URL or --openapi URL)"
    if len(said) > 1:
        return f"{' and '.join(said)} cannot stand together: say one of them"
    return "--upstream goes with --openapi alone" if args.upstream is not None and args.openapi is None else ""


def _run_unwritten(args: argparse.Namespace) -> int:
    """Serves what a description describes, or an MCP server, without a config."""
    from proxy.cli.mcpconfig import made_mcp_config
    from proxy.cli.unwritten import made_config

    with contextlib.ExitStack() as kept:
        path = made_mcp_config(args.mcp, kept) if args.mcp is not None else made_config(args, kept)
        written = {"openapi": None, "mcp": None, "upstream": None, "path": path, "unwritten": True}
        return EXIT_CONFIG if path is None else _run(argparse.Namespace(**{**vars(args), **written}))


def _fast_loop() -> Any:
    """uvloop's event loop where it is installed (the extra `speed`), else None for asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _serve(loaded: Loaded, listen: Address | None, *, worker: bool = False) -> int:
    from proxy.app import Serving

    told = _signals()
    entry = _worker_entry(told) if worker else None
    serving = await Serving.start(loaded, listen=listen, watch=True, worker=entry)
    _announce(serving)
    settling = asyncio.create_task(_settle_when_idle(serving))
    if await _ending(serving, told) is signal.SIGTERM:
        await _drain(serving, told)
    settling.cancel()
    await serving.stop()
    return 0


async def _settle_when_idle(serving: Serving) -> None:
    """Settles the memory once the first checks are written and no call waits for it: it takes 25 ms, which the first
    answers shall not have to wait for."""
    if serving.warming.task is not None:
        await asyncio.wait({serving.warming.task}, timeout=_WARM)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(serving.handler.idle(), _IDLE)
    _settle_memory()


def _settle_memory() -> None:
    """What is loaded by now stays, so the collector need not look at it again. From now on it looks rarely: calls
    leave no cycles to speak of. Saves calls the pauses (p99), not the average."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_MADE_BETWEEN_COLLECTIONS, 20, 20)
    gc.enable()


async def _serve_many(loaded: Loaded, listen: Address | None) -> int:
    """The process above several workers: passes signals on until the last of them has ended."""
    from proxy.app.fleet import Fleet

    told = _signals()
    fleet = await Fleet.start(loaded, listen)
    _announce(fleet)
    _settle_memory()
    ended = asyncio.create_task(fleet.ended())
    while not ended.done():
        number = asyncio.create_task(told.get())
        await asyncio.wait({number, ended}, return_when=asyncio.FIRST_COMPLETED)
        if number.done():
            fleet.signal(number.result())
        number.cancel()
    return ended.result()


def _signals() -> asyncio.Queue[signal.Signals]:
    """The signals that come from now on."""
    told: asyncio.Queue[signal.Signals] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, told.put_nowait, number)
    return told


def _announce(running: Serving | Fleet) -> None:
    print(f"listening on {running.url}", flush=True)
    if running.admin_url is not None:
        print(f"admin on {running.admin_url}", flush=True)
    if running.probes_url is not None:
        print(f"probes on {running.probes_url}", flush=True)


def _worker_entry(told: asyncio.Queue[signal.Signals]) -> Admin:
    """A worker's own operator's port, with the token that stands on standard input. The end of that means that the
    process above is gone, and ends the worker too."""
    from proxy.config.model import Address, Admin

    token = sys.stdin.readline().strip()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), told.put_nowait, signal.SIGINT)
    return Admin(Address("127.0.0.1", 0), token=token)


async def _ending(serving: Serving, told: asyncio.Queue[signal.Signals]) -> signal.Signals:
    """The signal that ends the process; those that do not are done here."""
    while (number := await told.get()) is signal.SIGHUP:
        await serving.reloader.reload()
    return number


async def _drain(serving: Serving, told: asyncio.Queue[signal.Signals]) -> None:
    """Drains; a second signal ends the wait."""
    draining, impatient = asyncio.create_task(serving.drain()), asyncio.create_task(_ending(serving, told))
    _, pending = await asyncio.wait({draining, impatient}, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
