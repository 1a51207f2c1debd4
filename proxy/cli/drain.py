"""`toolcall-proxy drain`: tells a running proxy to drain, and waits until it has. Made for a container's preStop hook.

The proxy is asked over its operator's port and does not end: kubelet would start an ended sidecar again. It goes on
serving for the config's `drain` time, not ready any more and ending each connection; then it refuses what is new and
finishes what is under way. Only then this command returns, and the SIGTERM that follows ends the process at once.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any, Final

from proxy.cli.helptext import HelpText

TOKEN_VARIABLE: Final = "TOOLCALL_PROXY_ADMIN_TOKEN"  # noqa: S105 - the name of a variable
EXIT_NOT_DRAINED: Final = 1
EXIT_USAGE: Final = 2

_LOOK_EVERY: Final = 0.2
_ANSWER_WITHIN: Final = 5.0

EPILOG: Final = f"""\
examples:
  toolcall-proxy drain                                    the proxy on this machine, with the config's drain time
  toolcall-proxy drain --admin unix:/run/proxy/admin.sock --seconds 10

Where the config has an `admin.token`, it is read from --token-file or from the variable {TOKEN_VARIABLE}.

exit codes: 0 drained, 1 not within --timeout, or nobody answers there, 2 wrong usage
"""


def register(subparsers: Any) -> None:
    """Describes the verb's arguments."""
    verb = subparsers.add_parser(
        "drain",
        help="let a running proxy finish its calls (a preStop hook)",
        description="Tells a running proxy to drain and waits until no call is under way. The proxy does not end.",
        epilog=EPILOG,
        formatter_class=HelpText,
    )
    where = "its operator's port (default 127.0.0.1:9090), or unix:/PATH"
    verb.add_argument("--admin", metavar="HOST:PORT", type=_address, default="127.0.0.1:9090", help=where)
    verb.add_argument("--seconds", metavar="N", type=float, help="drain this long instead of what the config says")
    verb.add_argument("--timeout", metavar="N", type=float, default=600.0, help="stop waiting after N seconds")
    verb.add_argument("--token-file", metavar="FILE", help="a file that holds the operator's token")


def run(args: argparse.Namespace) -> int:
    """Drains the proxy at `args.admin` and gives the exit code."""
    try:
        token = Path(args.token_file).read_text(encoding="utf-8").strip() if args.token_file else ""
    except (OSError, ValueError) as error:
        print(f"drain: cannot read {args.token_file}: {error}", file=sys.stderr)
        return EXIT_USAGE
    desk = _Desk(args.admin, token or os.environ.get(TOKEN_VARIABLE, ""))
    until = time.monotonic() + args.timeout
    try:
        state = desk.ask("POST", {} if args.seconds is None else {"seconds": args.seconds})
        while not state["drained"]:
            if time.monotonic() > until:
                print(f"drain: {state['inflight']} calls still under way after {args.timeout:g} s", file=sys.stderr)
                return EXIT_NOT_DRAINED
            time.sleep(_LOOK_EVERY)
            state = desk.ask("GET")
    except OSError as error:
        told = f"{error.strerror or error}  (is the proxy running, and is this its operator's port, `admin.listen`?)"
        print(f"drain: {args.admin}: {told}", file=sys.stderr)
        return EXIT_NOT_DRAINED
    except (http.client.HTTPException, ValueError) as error:
        print(f"drain: {args.admin}: {error}", file=sys.stderr)
        return EXIT_NOT_DRAINED
    print("drained")
    return 0


def _address(text: str) -> str:
    """An address as it can be asked. Raises ArgumentTypeError for anything else."""
    host, colon, port = text.removeprefix("http://").rpartition(":")
    if not text.startswith("unix:") and not (colon and port.isdecimal() and int(port) <= 65535 and "/" not in host):
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:9090, or unix:/PATH")
    return text


class _Desk:
    """The operator's port of a running proxy."""

    def __init__(self, address: str, token: str) -> None:
        self._address = address
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def ask(self, method: str, body: dict[str, float] | None = None) -> dict[str, Any]:
        """The state of the drain. Raises OSError where nobody answers, ValueError where the answer is a refusal."""
        connection = _connection(self._address)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, "/-/drain", text, self._headers)
            answer = connection.getresponse()
            state = _mapping(answer.read())
        finally:
            connection.close()
        if answer.status == 200 and "drained" in state:
            return state
        why = state.get("error")
        raise ValueError(why if isinstance(why, str) else "no operator's port  (it is where `admin.listen` says)")


def _mapping(text: bytes) -> dict[str, Any]:
    """The JSON object that a text holds; of anything else an empty one."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _connection(address: str) -> http.client.HTTPConnection:
    if address.startswith("unix:"):
        return _UnixConnection(address.removeprefix("unix:"))
    host, _, port = address.removeprefix("http://").rpartition(":")
    return http.client.HTTPConnection(host.strip("[]") or "127.0.0.1", int(port), timeout=_ANSWER_WITHIN)


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_ANSWER_WITHIN)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
