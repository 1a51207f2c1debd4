"""`toolcall-proxy serve` runs the proxy in front of the tools until a signal stops it.

SIGTERM drains first, because load balancers notice late: for as long as the config's `drain` says. Without `drain` it
ends as soon as no calls arrive, or after 25 s; in a pod after 25 s. SIGINT (Ctrl-C) stops at once but lets calls under
way finish. SIGHUP reloads the config; `reload` also finds changed files. If the config has errors, the proxy prints all
of them and ends with exit code 2.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import re
import secrets
import signal
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from proxy.cli.options import add_flag, add_header_option, add_null_option, add_timeout_option
from proxy.cli.serve_flags import find_contradiction, list_no_config, name_sharing, suggest_command
from proxy.plugin import HostsProcess, NoConfig
from proxy.plugins import find_plugins

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from proxy.config.load import Loaded
    from proxy.config.model import Address
    from proxy.server import Serving

EXIT_NOTHING_THERE: Final = 1
EXIT_CONFIG: Final = 2
# The allocation thresholds of the garbage collector. Objects made at the start stay, so each is looked at once. That
# takes 20 ms, and gives 1.5 MB back while the start can still use it (mostly classes that became classes with slots).
_STARTING: Final = (10_000, 1_000, 1_000)
# Python's own 700 is reached by a handful of calls.
_SERVING: Final = (50_000, 20, 20)
# Seconds after which a thread that compiles a check hands the interpreter to the thread that serves calls. A call asks
# for the interpreter at every packet: beside a large schema it waits 70 ms with Python's own 5 ms, and 20 ms with it.
_SWITCH_INTERVAL: Final = 0.0005
# Memory is settled at most this many seconds after the start, and waits this long for calls to end.
_WARM: Final = 1.0
_IDLE: Final = 1.0
_LISTEN: Final = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[^:]*):(?P<port>[0-9]{1,5})")


DESCRIPTION: Final = """\
Run the proxy with a config. It validates every call, and repairs it if needed. It forwards valid calls and answers all
others itself. If the config has errors, the proxy does not start (exit code 2)."""

EPILOG: Final = """\
examples:
  toolcall-proxy serve config.yaml
  {examples}

SIGTERM: finish calls as the config's `drain` says, then exit. Ctrl-C: exit sooner. SIGHUP: reload the config now.

exit codes: 0 ended by a signal, 1 no server answers (see --wait), 2 usage or config error, or a port cannot be opened
"""


def register(subparsers: Any) -> None:
    """Describes the verb and its arguments."""
    examples = "\n  ".join(f"toolcall-proxy serve {each}" for source in list_no_config() for each in source.examples)
    epilog = EPILOG.format(examples=examples)
    parser = subparsers.add_parser("serve", help="run the proxy", description=DESCRIPTION, epilog=epilog)
    parser.add_argument("path", nargs="?", metavar="CONFIG", help="the config file (YAML)")
    parser.add_argument("--config", metavar="FILE", help="the same as CONFIG")
    parser.add_argument(
        "--listen", metavar="HOST:PORT", type=read_listen_address, help="listen here instead of at the config's address"
    )
    for source in list_no_config():
        for flag in (source.flag, *source.flags):
            add_flag(parser, flag)
    add_header_option(parser, f"with {name_sharing('header')}: send this header with every request; may be repeated")
    add_timeout_option(
        parser, f"with {name_sharing('timeout')}: limit each tool call (default: off for a command, 5m for a URL)"
    )
    nulls = "leave out a null that an optional key rejects: always (drop), never (refuse), if the tool's annotations "
    nulls += "or HTTP method allow it (stated), or also if its name does (reading, the default)"
    add_null_option(parser, f"with {name_sharing('null_optional')}: {nulls}")
    parser.add_argument(
        "--admin", metavar="HOST:PORT|off", type=lambda text: text if text == "off" else read_listen_address(text),
        help=f"with {name_sharing('admin')}: port for console and metrics (default: one above --listen, or a free one)",
    )  # fmt: skip
    waits = f"with {name_sharing('wait')}: serve even if no server answers yet, instead of exiting with code 1"
    parser.add_argument("--wait", action="store_true", help=waits)
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), help="replaces the config's")
    for host in find_plugins(HostsProcess):
        group = parser.add_argument_group(host.title, host.text) if host.title else parser
        for flag in host.list_flags():
            add_flag(group, flag)
    parser.set_defaults(no_config=False, source=None)


def read_listen_address(text: str) -> Address:
    """`host:port`, `:port` or `[v6]:port` as an address. Raises ArgumentTypeError for anything else."""
    from proxy.config.model import Address

    found = _LISTEN.fullmatch(text)
    if found is None or int(found["port"]) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:8080")
    return Address(found["host"].strip("[]") or "0.0.0.0", int(found["port"]))  # noqa: S104 - `:port` means everywhere


def run(args: argparse.Namespace) -> int:
    """Serves until a signal arrives; gives the exit code."""
    thresholds = gc.get_threshold()
    gc.set_threshold(*_STARTING)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL)
    try:
        if unfit := find_contradiction(args):
            print(f"serve: {unfit}", file=sys.stderr)
            return EXIT_CONFIG
        if source := next((each for each in list_no_config() if getattr(args, each.flag.key) is not None), None):
            with contextlib.ExitStack() as kept:
                path = source.make_file(args, kept)
                args.no_config, args.source = True, source
                return EXIT_CONFIG if path is None else _serve_file(path, args)
        return _serve_file(args.path or args.config, args)
    finally:  # the process may go on with other work
        sys.setswitchinterval(interval)
        gc.set_threshold(*thresholds)


def _serve_file(path: Path | str, args: argparse.Namespace) -> int:
    from proxy.config.load import load
    from proxy.config.mistakes import ConfigError

    try:
        loaded = load(path, os.environ)
    except ConfigError as error:
        import shutil

        for mistake in error.mistakes:
            print(f"serve: {mistake.text}" if args.no_config else mistake, file=sys.stderr)
        word = args.source and getattr(args, args.source.flag.key)
        if word and shutil.which(word):
            print(f"serve: {suggest_command(args).strip(' ()')}", file=sys.stderr)
        return EXIT_CONFIG
    if args.no_config:
        closed = replace(loaded, config=replace(loaded.config, admin=None))
        loaded = closed if args.admin == "off" else open_console(loaded, args.admin, args.listen)
    hosts = [each for each in find_plugins(HostsProcess) if getattr(args, each.list_flags()[0].key)]
    if not hosts and not args.no_config and sys.stdout.isatty():
        loaded = allow_free_port(loaded)
    if mistakes := [mistake for host in hosts for mistake in host.list_mistakes(loaded.config, args)]:
        print(*[f"{path}: {each}" for each in mistakes], sep="\n", file=sys.stderr)
        return EXIT_CONFIG
    try:
        with asyncio.Runner(loop_factory=_find_loop()) as runner:
            return runner.run(_serve(loaded, args, hosts))
    except ConfigError as error:  # a hook that cannot be loaded
        print(error, file=sys.stderr)
    except ImportError as error:  # a library of another version
        print(f"serve: {error}", file=sys.stderr)
    except OSError as error:
        hint = "`listen` and `admin: {listen: ...}` take other ports, `admin: off` has no operator's port"
        hint = "--listen and --admin take other ports" if args.no_config else hint
        print(f"serve: cannot listen: {error}  ({hint})", file=sys.stderr)
    return EXIT_CONFIG


def _find_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Returns the factory of uvloop's event loop, or None if it is not installed."""
    with contextlib.suppress(ImportError):  # it supports neither Windows nor PyPy
        import uvloop

        return uvloop.new_event_loop
    return None


def describe_loop(loop: asyncio.AbstractEventLoop) -> str:
    """Returns a line that names the event loop, and says how to install uvloop if the system supports it."""
    name = type(loop).__module__.partition(".")[0]
    lacks = name != "uvloop" and sys.platform in ("linux", "darwin") and sys.implementation.name == "cpython"
    return f"event loop: {name}" + lacks * "  (uvloop is not installed: calls take more CPU; run `pip install uvloop`)"


async def _serve(loaded: Loaded, args: argparse.Namespace, hosts: list[HostsProcess]) -> int:
    pool = next((each for each in find_plugins(HostsProcess) if each.runs_workers), None)
    if pool is not None and pool not in hosts and loaded.config.workers > 1:
        words = [word for host in hosts for word in host.write_flags(args)]
        return await pool.run_workers(loaded, args, words, queue_signals())
    from proxy.server import start_serving

    signals = queue_signals()  # a signal during the import ends the process at once
    entry = next((found for host in hosts if (found := host.read_entry(signals, loaded.config.admin))), None)
    watcher = next((made for host in hosts if (made := host.make_watcher(args))), None)
    serving = await start_serving(loaded, listen=args.listen, watch=True, worker=entry, watcher=watcher, held=args.held)
    serving.log.level = args.log_level or serving.log.level
    takes_calls = not is_ended(signals)
    announce(serving, loaded, args, is_worker=entry is not None)
    looking = None
    if args.source is not None:
        if args.source.has_one_path(args):
            print(f"clients use {serving.url}{loaded.config.routes[0].path}", flush=True)
        looking = asyncio.create_task(_look_at(args.source, args, signals, serving))
    settling = asyncio.create_task(_settle_when_idle(serving))
    number = await _await_ending(serving, signals)
    if number is signal.SIGTERM and takes_calls:
        # A second signal ends the drain.
        waiting = (
            asyncio.create_task(serving.drain(until_quiet=watcher is None)),
            asyncio.create_task(_await_ending(serving, signals)),
        )
        _, pending = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
    settling.cancel()
    code = EXIT_NOTHING_THERE if looking is not None and looking.done() and looking.result() else 0
    if looking is not None:
        looking.cancel()
    if entry is not None:  # a terminal and the first process both send it each signal
        await serving.stop()
    else:
        await _stop(serving, signals, by_hand=number is signal.SIGINT)
    return code


async def _stop(serving: Serving, signals: asyncio.Queue[signal.Signals], *, by_hand: bool) -> None:
    """Stops the proxy. A further signal ends the calls that it waits for; `by_hand`: a line says so."""
    from proxy.server.lifecycle import GRACE

    running = serving.handler.inflight
    if by_hand and running:
        calls = f"{running} call{'s' * (running > 1)}"
        print(f"waiting up to {GRACE:g} s for {calls}; press Ctrl-C again to stop now", flush=True)
    stopping, again = asyncio.create_task(serving.stop()), asyncio.create_task(_await_ending(serving, signals))
    await asyncio.wait((stopping, again), return_when=asyncio.FIRST_COMPLETED)
    again.cancel()
    if not stopping.done():
        await serving.handler.abandon()
    await stopping


async def _look_at(
    source: NoConfig, args: argparse.Namespace, signals: asyncio.Queue[signal.Signals], serving: Serving
) -> bool:
    """Reports on stderr that nothing can be served, and returns whether it ends the process: yes without `--wait`."""
    lines, is_final = ([], False) if source.find_trouble is None else await source.find_trouble(args, serving)
    for line in lines:
        print(f"serve {source.flag.name}: {line}", file=sys.stderr, flush=True)
    ends = bool(lines) and is_final and not args.wait
    if ends:
        print("serve: nothing to serve  (use --wait to serve until there is)", file=sys.stderr, flush=True)
        signals.put_nowait(signal.SIGINT)
    return ends


async def _settle_when_idle(serving: Serving) -> None:
    """Settles the memory once the first checks are compiled and no call is under way: its 25 ms would delay answers."""
    if serving.warming.task is not None:
        await asyncio.wait({serving.warming.task}, timeout=_WARM)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(serving.handler.idle(), _IDLE)
    settle_memory()


def settle_memory() -> None:
    """Exempts everything loaded so far from garbage collection, and makes collections rare: calls leave hardly any
    cycles. This saves pauses (p99), not average time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_SERVING)


def queue_signals() -> asyncio.Queue[signal.Signals]:
    """A queue of the signals that arrive from now on."""
    signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, signals.put_nowait, number)
    return signals


def is_ended(signals: asyncio.Queue[signal.Signals]) -> bool:
    """Returns whether SIGTERM has arrived already: a proxy that is ended while it starts has no calls to drain."""
    queued = [signals.get_nowait() for _ in range(signals.qsize())]
    for number in queued:
        signals.put_nowait(number)
    return signal.SIGTERM in queued


def announce(running: Any, loaded: Loaded, args: argparse.Namespace, *, is_worker: bool = False) -> None:
    """Prints the addresses of a `Serving` or of several workers, and the event loop. The token of a user's config
    is not printed: the console's page asks for it."""
    print(f"listening on {running.url}", flush=True)
    if loaded.config.admin is not None:
        for line in describe_moved(loaded.config.admin.listen, running.admin_url, "operator's port is"):
            print(line, flush=True)
    if running.admin_url is not None:
        print(f"admin on {running.admin_url}", flush=True)
    if running.probes_url is not None:
        print(f"probes on {running.probes_url}", flush=True)
    url = make_link(running.admin_url, loaded, with_token=args.no_config)
    if url is not None and not is_worker:
        print(f"console  {url}" if args.no_config else f"console on {url}", flush=True)
    if not is_worker:
        print(describe_loop(asyncio.get_running_loop()), flush=True)


async def _await_ending(serving: Serving, signals: asyncio.Queue[signal.Signals]) -> signal.Signals:
    """Waits for the signal that ends the process, and handles other signals until then."""
    while (number := await signals.get()) is signal.SIGHUP:
        await serving.reloader.reload()
    return number


# --- the operator's port of a proxy without a config of the user's ----------------------------------------------------
# Without one, `serve` and `demo` add an operator's port at a free port, so that several such processes can run side by
# side. Its token is in the fragment of the console's link, which no browser sends anywhere; the page takes it out
# of the address at once.
_TOKEN_BYTES: Final = 24


def open_console(loaded: Loaded, at: Address | None = None, listen: Address | None = None) -> Loaded:
    """The config with an operator's port that asks for a token: the config's own, or a fresh one. It is `at`. By
    default it is the usual one (the one above `listen`, if that is given), or a free one if it is taken."""
    from proxy.config.model import AdminConfig

    admin = loaded.config.admin or AdminConfig()
    address = at or replace(admin.listen if listen is None else listen.above, or_free=True)
    token = admin.token or secrets.token_urlsafe(_TOKEN_BYTES)
    return replace(loaded, config=replace(loaded.config, admin=replace(admin, listen=address, token=token)))


def allow_free_port(loaded: Loaded) -> Loaded:
    """The config with a free port for the operator if the default one is taken. A port that the config names stays."""
    admin, written = loaded.config.admin, loaded.config.written
    entry = written.get("admin") if isinstance(written, dict) else None
    if admin is None or (isinstance(entry, dict) and "listen" in entry):
        return loaded
    listen = replace(admin.listen, or_free=True)
    return replace(loaded, config=replace(loaded.config, admin=replace(admin, listen=listen)))


def describe_moved(address: Address, url: str | None, who: str) -> list[str]:
    """A line that says which free port replaces a taken one; nothing if the port is that of the address."""
    port = urlsplit(url or "").port
    return [f"port {address.port} is taken: the {who} {port} instead"] if port and address.port not in (0, port) else []


def make_link(admin_url: str | None, loaded: Loaded, *, with_token: bool = True) -> str | None:
    """The console's URL, with the operator's token in it; None where there is no console."""
    from proxy.config.files.secrets import reveal

    admin = loaded.config.admin
    if admin is None or not admin.console or not admin_url or not admin_url.startswith("http"):
        return None
    token = reveal(admin.token) if with_token else ""
    return f"{admin_url}/ui/" + (f"#k={token}" if token else "")
