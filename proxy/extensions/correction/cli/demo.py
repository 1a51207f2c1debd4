"""`demo` runs the bundled sample tools, a script in place of a model, and the proxy in front of them, on the example
config, with calls to paste."""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from proxy.cli.serve import describe_moved, make_link, open_console
from proxy.core.model.value_class import value_class
from proxy.plugin import CommandParser

if TYPE_CHECKING:
    from http.server import ThreadingHTTPServer

    from proxy.config.model import Config
    from proxy.plugin import Loaded
    from proxy.server import Serving

_Server = TypeVar("_Server", bound="ThreadingHTTPServer")
EXAMPLE: Final = "config.example.yaml"

EPILOG: Final = """\
The sample tools listen on 127.0.0.1:9101, and a script that replaces a model on 9102. The proxy and its console listen
at the addresses of the example config. If a port is taken, the demo uses a free one and prints it.

examples:
  toolcall-proxy demo
  toolcall-proxy demo --config mine.yaml     write  url: ${SAMPLE_TOOLS_URL}  in its upstream
"""


@value_class
class Sample:
    """One call to paste: its request, and a remark about what it demonstrates."""

    shows: str
    path: str
    body: str | None = None

    def curl(self, url: str) -> str:
        """The call as a curl command with the full URL."""
        if self.body is None:
            return f"curl -s {url}{self.path}"
        quoted = shlex.quote(self.body)
        return f"curl -s {url}{self.path} -H 'Content-Type: application/json' -d {quoted}"


# One per route of the example config (tests/extensions/correction/test_demo.py runs them all).
SAMPLES: Final = (
    Sample("a clean call is forwarded byte for byte", "/tools/weather", '{"lat": 48.85, "lon": 2.35}'),
    Sample("numbers in quotes are repaired", "/tools/weather", '{"lat": "48.85", "lon": "2.35"}'),
    Sample(
        "a call that cannot be repaired is explained; the tool is not called", "/tools/weather", '{"lat": "48.85 N"}'
    ),
    Sample(
        "the nearest member of a list is suggested", "/tools/currency", '{"amount": 5, "from": "USD", "to": "Euro"}'
    ),
    Sample("a JSON string, a wrong case: repaired as well", "/tools/read_file", r'"{\"Path\": \"welcome.txt\"}"'),
    Sample("a container takes no parameters", "/tools/Math", '{"function": "Add", "a": 5, "b": 10}'),
    Sample("called with nothing it lists its functions", "/tools/Math", "{}"),
    Sample("which are called by their own names", "/tools/Add", '{"a": "5", "b": 10}'),
    Sample("", "/tools/Subtract", '{"a": 5, "b": 10}'),
    Sample("", "/tools/Multiply", '{"a": 5, "b": 10}'),
    Sample("the tool's own error, with advice for the model", "/tools/Divide", '{"a": 5, "b": 0}'),
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
    Sample("only a check, nothing is sent", "/validate/weather", '{"lat": "48.85", "lon": "2.35"}'),
    Sample(
        "layer 3: a model corrects what no rule can know (here a script answers that knows this call by heart)",
        "/corrected/currency",
        '{"amount": "five", "from": "USD", "to": "EUR"}',
    ),
    Sample(
        "layer 4: the same where the tool itself refuses, with what the user wants",
        "/corrected/currency",
        '{"amount": 5, "from": "USD", "to": "Euro"}',
    ),
    Sample("relayed: how many calls have reached each tool", "/status"),
)


def register(subparsers: argparse._SubParsersAction[CommandParser]) -> None:
    """Describes the verb's arguments."""
    verb = subparsers.add_parser(
        "demo",
        help="try it: sample tools and the proxy, with calls to paste",
        description="Start the bundled sample tools and the proxy in front of them, print calls to paste, and serve "
        "until Ctrl-C.",
        epilog=EPILOG,
    )
    verb.add_argument("--config", metavar="CONFIG", type=Path, help="use this config instead of the bundled example")


def run(args: argparse.Namespace) -> int:
    """Serves until SIGINT or SIGTERM and gives the exit code."""
    from proxy.extensions.correction.samples.model import DEFAULT_MODEL_PORT, ScriptedModel
    from proxy.extensions.correction.samples.server import DEFAULT_PORT, SampleServer, run_server
    from proxy.plugin import ConfigError, load

    sample = _start(SampleServer, DEFAULT_PORT, "sample tools listen")
    scripted = _start(ScriptedModel, DEFAULT_MODEL_PORT, "scripted model listens")
    with run_server(sample) as tools, run_server(scripted) as model:
        urls = {"SAMPLE_TOOLS_URL": tools.url, "SAMPLE_MODEL_URL": model.url}
        try:
            loaded = load(args.config or find_example_config(), {**os.environ, **urls})
            if args.config is None:
                loaded = _show_values(loaded)
        except ConfigError as error:
            print(error, file=sys.stderr)
            return 2
        asyncio.run(_serve(loaded, tools.url))
    return 0


def find_example_config() -> Path:
    """The example config: in the package where it was installed, else at the top of the repository."""
    package = Path(__file__).parents[3]
    installed = package / "bundled" / EXAMPLE
    return installed if installed.is_file() else package.parent / EXAMPLE


def _start(make: Callable[[int], _Server], port: int, what: str) -> _Server:
    """Starts a server at its usual port, or at a free one."""
    try:
        return make(port)
    except OSError:
        server = make(0)
        _say_taken(port, what, server.server_port)
        return server


async def _serve(loaded: Loaded, tools_url: str) -> None:
    from proxy.server import start_serving

    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    loaded = _allow_other_ports(loaded)
    serving = await start_serving(loaded)
    try:
        _say_where_else(loaded.config, serving)
        print(_write_welcome(serving.url, make_link(serving.admin_url, loaded), tools_url), flush=True)
        await ended.wait()
        print("\nstopping", flush=True)
    finally:
        await serving.stop(grace=1.0)


def _allow_other_ports(loaded: Loaded) -> Loaded:
    """The config with any free port in place of a taken one, and with a console if it has an operator's port."""
    config = loaded.config
    other = replace(loaded, config=replace(config, listen=replace(config.listen, or_free=True)))
    return other if config.admin is None else open_console(other)


def _show_values(loaded: Loaded) -> Loaded:
    """The config with a console that shows the values of calls: sample data has nothing to hide."""
    admin = loaded.config.admin
    return (
        loaded if admin is None else replace(loaded, config=replace(loaded.config, admin=replace(admin, values="full")))
    )


def _say_where_else(config: Config, serving: Serving) -> None:
    """Prints which ports were taken, and which are used instead."""
    moved = describe_moved(config.listen, serving.url, "proxy listens on")
    if config.admin is not None:
        moved += describe_moved(config.admin.listen, serving.admin_url, "operator's port is")
    for line in moved:
        print(line, flush=True)


def _say_taken(port: int, who: str, instead: int) -> None:
    print(f"port {port} is taken: the {who} on {instead} instead", flush=True)


def _write_welcome(url: str, console: str | None, tools_url: str) -> str:
    calls = []
    for sample in SAMPLES:
        calls += [f"\n# {sample.shows}"] * bool(sample.shows) + [sample.curl(url)]
    link = f"console        {console}\n" if console else ""
    shown = ", and is shown by the console" if console else ""
    return (
        f"the proxy      {url}\nsample tools   {tools_url}\n{link}\n"
        "Paste these into another terminal (add -i to see the headers, such as Tool-Repairs):\n"
        + "\n".join(calls)
        + f"\n\nEach call is one line of log here{shown}.\nCtrl-C ends it.\n"
    )
