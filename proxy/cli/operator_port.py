"""A client of the operator's port of a running proxy, for `drain` and `calls`."""

from __future__ import annotations

import argparse
import http
import http.client
import json
import os
import socket
from pathlib import Path
from typing import Any, Final

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
    where = "its operator's port (default 127.0.0.1:8081), or unix:/PATH"
    verb.add_argument("--admin", metavar="HOST:PORT", type=read_operator_address, default=DEFAULT_ADDRESS, help=where)
    verb.add_argument("--token-file", metavar="FILE", help="a file that holds the operator's token")


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
