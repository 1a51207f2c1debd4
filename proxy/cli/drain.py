"""`toolcall-proxy drain` tells a running proxy to drain, and waits until it has. Made for a container's preStop hook.

A proxy that is still starting has no operator's port yet, so the command waits a moment for it.

The request goes to the operator's port, and the proxy keeps running, because kubelet would restart a sidecar that
ended. The proxy serves on for the config's `drain` time, not ready and closing each connection; then it refuses new
calls and finishes those under way. Only then does this command return; the SIGTERM that follows ends the process at
once.
"""

from __future__ import annotations

import argparse
import http
import http.client
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any, Final

# --- the client of the operator's port --------------------------------------------------------------------------------
TOKEN_VARIABLE: Final = "TOOLCALL_PROXY_ADMIN_TOKEN"  # noqa: S105 - the name of a variable
DEFAULT_ADDRESS: Final = "127.0.0.1:8081"
_ANSWER_WITHIN: Final = 5.0


def read_operator_address(text: str) -> str:
    """Reads `HOST:PORT` or `unix:/PATH`. Raises ArgumentTypeError for anything else."""
    host, colon, port = text.removeprefix("http://").rstrip("/").rpartition(":")
    if not text.startswith("unix:") and not (colon and port.isdecimal() and int(port) <= 65535 and "/" not in host):
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:8081, or unix:/PATH")
    return text if text.startswith("unix:") else f"{host}:{port}"


def add_operator_arguments(verb: argparse.ArgumentParser) -> None:
    """Adds the options for the operator's port, and for its token."""
    where = "the operator's port, `admin.listen` in the config (default 127.0.0.1:8081), or unix:/PATH"
    verb.add_argument("--admin", metavar="HOST:PORT", type=read_operator_address, default=DEFAULT_ADDRESS, help=where)
    verb.add_argument("--token-file", metavar="FILE", help="read the token for --admin from this file")


class OperatorPort:
    """A client of one operator's port. `token_file`, `token` or the variable TOKEN_VARIABLE holds the token; raises
    OSError or ValueError if the file cannot be read."""

    def __init__(self, address: str, token_file: str | None, token: str = "") -> None:
        token = token if not token_file else Path(token_file).read_text(encoding="utf-8").strip()
        token = token or os.environ.get(TOKEN_VARIABLE, "")
        self.address = address
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, Any]]:
        """Status and JSON object of an answer, {} for any other text. Raises OSError where nobody answers."""
        connection = self._connect(_ANSWER_WITHIN)
        try:
            kind = {} if body is None else {"Content-Type": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), {**self._headers, **kind})
            answer = connection.getresponse()
            text = answer.read()
            try:
                found = json.loads(text)
            except ValueError:
                found = None
            return answer.status, found if isinstance(found, dict) else {}
        finally:
            connection.close()

    def follow(self, path: str, resume: str = "") -> http.client.HTTPResponse:
        """Opens a stream of events without a time limit, from behind the event `resume`. May raise OSError."""
        connection = self._connect(None)
        more = {"Last-Event-ID": resume} if resume else {}
        connection.request("GET", path, headers={**self._headers, "Accept": "text/event-stream", **more})
        return connection.getresponse()

    def _connect(self, timeout: float | None) -> http.client.HTTPConnection:
        if self.address.startswith("unix:"):
            return _UnixConnection(self.address.removeprefix("unix:"), timeout)
        host, _, port = self.address.rpartition(":")
        return http.client.HTTPConnection(host.strip("[]") or "127.0.0.1", int(port), timeout=timeout)


def write_refusal(status: int, found: dict[str, Any]) -> str:
    """Words an error answer of the port, with what to do about it."""
    error = found.get("error")
    message = error if isinstance(error, str) else "no operator's port  (it is where `admin.listen` says)"
    if status != http.HTTPStatus.UNAUTHORIZED:
        return message
    return (
        f"{message}: name its file with --token-file, or put it into {TOKEN_VARIABLE} (after `demo` or `make run` it "
        "is the part after `#k=` in the console's link)"
    )


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str, timeout: float | None) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


EXIT_NOT_DRAINED: Final = 1
EXIT_USAGE: Final = 2

_LOOK_EVERY: Final = 0.2
# Seconds that a proxy which is starting has to open its operator's port.
_STARTS_WITHIN: Final = 3.0

EPILOG: Final = f"""\
examples:
  toolcall-proxy drain                                    the proxy on this machine, with the config's drain time
  toolcall-proxy drain --admin unix:/run/proxy/admin.sock --seconds 10

If the config has an `admin.token`, pass it with --token-file, --config, or the variable {TOKEN_VARIABLE}.

exit codes: 0 success, 1 not drained within --timeout, no answer within --wait, or a wrong token, 2 usage error
"""


def register(subparsers: Any) -> None:
    """Describes the verb's arguments."""
    verb = subparsers.add_parser(
        "drain",
        help="let a running proxy finish its calls (for a preStop hook)",
        description="Make a running proxy reject new calls after --seconds, and wait until the others have finished.\n"
        "It waits for `drain.finish` at most. The proxy does not exit.",
        epilog=EPILOG,
    )
    verb.add_argument("--seconds", metavar="N", type=float, help="accept calls for N seconds (default: `drain.serve`)")
    verb.add_argument(
        "--with-tools",
        action="store_true",
        help="stop accepting calls when no upstream on this machine accepts connections (the tool of a Job has ended)",
    )
    verb.add_argument("--timeout", metavar="N", type=float, default=600.0, help="give up after N seconds (default 600)")
    verb.add_argument(
        "--wait", metavar="N", type=float, default=_STARTS_WITHIN,
        help=f"wait N seconds for a starting proxy to open its port (default {_STARTS_WITHIN:g})",
    )  # fmt: skip
    verb.add_argument("--config", metavar="FILE", help="read the token for --admin from this config's `admin.token`")
    add_operator_arguments(verb)


def run(args: argparse.Namespace) -> int:
    """Drains the proxy at `args.admin` and gives the exit code."""
    try:
        port = OperatorPort(args.admin, args.token_file, _read_token(args.config) if args.config else "")
    except (OSError, ValueError) as error:
        print(f"drain: cannot read {args.token_file}: {error}", file=sys.stderr)
        return EXIT_USAGE
    until = time.monotonic() + args.timeout
    try:
        body: dict[str, float | bool] = {} if args.seconds is None else {"seconds": args.seconds}
        state = _begin(port, body | ({"with_tools": True} if args.with_tools else {}), time.monotonic() + args.wait)
        while not state["drained"]:
            if time.monotonic() > until:
                print(f"drain: {state['inflight']} calls still under way after {args.timeout:g} s", file=sys.stderr)
                return EXIT_NOT_DRAINED
            time.sleep(_LOOK_EVERY)
            state = _ask(port, "GET")
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        hint = "  (is the proxy running, and is this its operator's port, `admin.listen`?)"
        print(f"drain: {args.admin}: {reason}{hint if isinstance(error, OSError) else ''}", file=sys.stderr)
        return EXIT_NOT_DRAINED
    print("drained")
    return 0


def _read_token(config: str) -> str:
    """Returns the token that a config names. '' if it names none or has a mistake: then the proxy may serve another."""
    from proxy.config.files.secrets import Substitution, reveal
    from proxy.config.files.source import Files
    from proxy.config.mistakes import ConfigError

    path = Path(config)
    try:
        value = Files().source(path, config).value
        admin = value.get("admin") if isinstance(value, dict) else None
        token = admin.get("token") if isinstance(admin, dict) else None
    except (OSError, ValueError, ConfigError):
        return ""
    read = Substitution(os.environ, Path.read_bytes, path.parent).apply(token, [])
    return reveal(read) if isinstance(read, str) else ""


def _begin(port: OperatorPort, body: dict[str, float | bool], until: float) -> dict[str, Any]:
    """Begins the drain; where nobody listens yet, tries again until that time. Raises as `_ask` does."""
    while True:
        try:
            return _ask(port, "POST", body)
        except (ConnectionRefusedError, FileNotFoundError):
            if time.monotonic() > until:
                raise
            time.sleep(_LOOK_EVERY)


def _ask(port: OperatorPort, method: str, body: dict[str, float | bool] | None = None) -> dict[str, Any]:
    """The state of the drain. Raises OSError where the proxy cannot be reached, ValueError where it refuses."""
    status, state = port.ask(method, "/-/drain", body)
    if status == 200 and "drained" in state:
        return state
    raise ValueError(write_refusal(status, state))
