"""`demo`: the bundled sample tools and the proxy in front of them, on the example config, with calls to paste."""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import signal
import socket
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from proxy.cli.helptext import HelpText

if TYPE_CHECKING:
    from proxy.config.load import Loaded
    from proxy.config.model import Address
    from proxy.samples.server import SampleServer

A = TypeVar("A", bound="Address")

EXAMPLE: Final = "config.example.yaml"

EPILOG: Final = """\
The tools listen on 127.0.0.1:9101, the proxy and its admin port where the example config says (8080 and 9090). A port
that is taken is replaced by a free one; the calls that are printed always have the right one.

examples:
  toolcall-proxy demo
  toolcall-proxy demo --config mine.yaml     another config; its upstream's url: ${SAMPLE_TOOLS_URL}
"""


@dataclass(frozen=True, slots=True)
class Sample:
    """One call to paste: what it shows, and the request."""

    shows: str
    path: str
    body: str | None = None

    def curl(self, url: str) -> str:
        """The command line, with the full URL."""
        if self.body is None:
            return f"curl -s {url}{self.path}"
        quoted = shlex.quote(self.body)
        return f"curl -s {url}{self.path} -H 'Content-Type: application/json' -d {quoted}"


# One for each route of the example config (tests/cli/test_demo.py runs them all).
SAMPLES: Final = (
    Sample("a clean call goes on byte for byte", "/tools/weather", '{"lat": 48.85, "lon": 2.35}'),
    Sample("numbers in quotes are repaired", "/tools/weather", '{"lat": "48.85", "lon": "2.35"}'),
    Sample("what cannot be repaired is explained; the tool is not asked", "/tools/weather", '{"lat": "48.85 N"}'),
    Sample(
        "the nearest member of a list is suggested", "/tools/currency", '{"amount": 5, "from": "USD", "to": "Euro"}'
    ),
    Sample("a JSON string, a wrong case: repaired as well", "/tools/read_file", r'"{\"Path\": \"welcome.txt\"}"'),
    Sample("a container takes no parameters", "/tools/Math", '{"function": "Add", "a": 5, "b": 10}'),
    Sample("called with nothing it lists its functions", "/tools/Math", "{}"),
    Sample("which are called by their own names", "/tools/Add", '{"a": "5", "b": 10}'),
    Sample("", "/tools/Subtract", '{"a": 5, "b": 10}'),
    Sample("", "/tools/Multiply", '{"a": 5, "b": 10}'),
    Sample("the tool's own error is told with what to do about it", "/tools/Divide", '{"a": 5, "b": 0}'),
    Sample("an unknown tool", "/tools/wether", '{"lat": 48.85, "lon": 2.35}'),
    Sample(
        "one path for all tools, the body names one",
        "/call",
        '{"id": "call_1", "tool": "weather", "arguments": {"lat": "48.85", "lon": "2.35"}}',
    ),
    Sample(
        "the same in OpenAI's shape",
        "/openai/call",
        r'{"id": "call_2", "function": {"name": "weather", "arguments": "{\"lat\": \"48.85\", \"lon\": 2.35}"}}',
    ),
    Sample("a check alone, nothing is sent", "/validate/weather", '{"lat": "48.85", "lon": "2.35"}'),
    Sample("relayed: how many calls have reached each tool", "/status"),
)


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describes the verb's arguments."""
    verb = subparsers.add_parser(
        "demo",
        help="try it: sample tools and the proxy, with calls to paste",
        description="Starts the bundled sample tools and the proxy in front of them, prints calls to paste, and serves "
        "until Ctrl-C.",
        epilog=EPILOG,
        formatter_class=HelpText,
    )
    verb.add_argument("--config", metavar="CONFIG", type=Path, help="another config than the bundled example")


def run(args: argparse.Namespace) -> int:
    """Serves until SIGINT or SIGTERM and gives the exit code."""
    from proxy.config.load import load
    from proxy.config.mistakes import ConfigError
    from proxy.samples.server import running

    with running(_tools()) as tools:
        try:
            loaded = load(args.config or example_config(), {**os.environ, "SAMPLE_TOOLS_URL": tools.url})
        except ConfigError as error:
            print(error, file=sys.stderr)
            return 2
        asyncio.run(_serve(loaded, tools.url))
    return 0


def example_config() -> Path:
    """The example config: in the package where it was installed, else at the top of the repository."""
    package = Path(__file__).parent.parent
    installed = package / "bundled" / EXAMPLE
    return installed if installed.is_file() else package.parent / EXAMPLE


def _tools() -> SampleServer:
    """The sample tools' server at its usual port, or at a free one."""
    from proxy.samples.server import DEFAULT_PORT, SampleServer

    try:
        return SampleServer(DEFAULT_PORT)
    except OSError:
        server = SampleServer(0)
        _say_taken(DEFAULT_PORT, "sample tools listen", server.server_port)
        return server


async def _serve(loaded: Loaded, tools_url: str) -> None:
    from proxy.app import Serving

    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    serving = await Serving.start(_on_free_ports(loaded))
    try:
        print(_welcome(serving.url, serving.admin_url, tools_url), flush=True)
        await ended.wait()
        print("\nstopping", flush=True)
    finally:
        await serving.stop(grace=1.0)


def _on_free_ports(loaded: Loaded) -> Loaded:
    """The config with each taken port replaced by a free one."""
    config = loaded.config
    config = replace(config, listen=_free(config.listen, "proxy listens"))
    if config.admin is not None:
        config = replace(config, admin=replace(config.admin, listen=_free(config.admin.listen, "admin port is")))
    return replace(loaded, config=config)


def _free(address: A, who: str) -> A:
    if address.unix or address.port == 0:
        return address
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As servers bind: a port whose last connections are still closing is not taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
        except OSError:
            probe.bind((address.host, 0))
            free = replace(address, port=probe.getsockname()[1])
            _say_taken(address.port, who, free.port)
            return free
    return address


def _say_taken(port: int, who: str, instead: int) -> None:
    print(f"port {port} is taken: the {who} on {instead} instead", flush=True)


def _welcome(url: str, admin_url: str | None, tools_url: str) -> str:
    calls = []
    for sample in SAMPLES:
        calls += [f"\n# {sample.shows}"] * bool(sample.shows) + [sample.curl(url)]
    admin = f"; {admin_url}/metrics counts them, {admin_url}/-/routes lists the routes" if admin_url else ""
    return (
        f"the proxy      {url}\nsample tools   {tools_url}\n\n"
        "Paste these into another terminal (add -i to see the headers, such as Tool-Repairs):\n"
        + "\n".join(calls)
        + f"\n\nEach call is one line of log here{admin}.\nCtrl-C ends it.\n"
    )
