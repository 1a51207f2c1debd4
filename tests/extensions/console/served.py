"""A separate proxy for the tests of the pages: `serve` with a config of the test. The test can kill its upstream and
start it again."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

TOKEN: Final = "a-token-of-the-operator"
READER: Final = "a-token-of-the-readers"
SECRET: Final = "planted-7b2f9c-planted"
ADMIN: Final = f"{{listen: 127.0.0.1:0, token: {TOKEN}, readers: {READER}}}"
ROUTES: Final = """
  - path: /reminders
    upstream: tools
    tool: add_reminder
    description: Adds a reminder.
    schema:
      type: object
      properties:
        text: {type: string}
        at: {type: string, format: date-time}
        count: {type: integer}
        password: {type: string, writeOnly: true}
      required: [text, at]
      additionalProperties: false
"""


class Upstream:
    """A tool that takes every call, and counts them. It can be killed, and started again at its port."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self._server: ThreadingHTTPServer | None = None
        self.port = 0
        self.start()

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Listens."""
        bodies = self.bodies

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", "2")
                self.send_header("Connection", "close")  # else a killed server would answer on
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def kill(self) -> None:
        """Listens no more."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


@dataclass
class Served:
    """A running `serve`. `text` is its config; a changed one is written by `write`."""

    folder: Path
    text: str
    port: int = 0
    admin: int = 0
    popen: subprocess.Popen[str] | None = field(default=None, repr=False)

    @property
    def config(self) -> Path:
        """The config's file."""
        return self.folder / "config.yaml"

    @property
    def log(self) -> str:
        """Returns what it has logged so far."""
        return (self.folder / "log.jsonl").read_text()

    @property
    def ui(self) -> str:
        """Returns the console's address."""
        return f"http://127.0.0.1:{self.admin}/ui/"

    def link(self, token: str = TOKEN, view: str = "") -> str:
        """A link that logs in, or one to a view for who has."""
        return self.ui + (view or f"#k={token}")

    def write(self, text: str) -> None:
        """Writes another config; the ports stay those that were opened first."""
        self.text = text
        usual = "listen: 127.0.0.1:0\n"
        self.config.write_text(
            text.replace(usual, usual.replace(":0\n", f":{self.port}\n")).replace(
                "{listen: 127.0.0.1:0", f"{{listen: 127.0.0.1:{self.admin}"
            )
        )

    def start(self) -> None:
        """Starts the process and waits until it listens."""
        self.write(self.text)
        with (self.folder / "log.jsonl").open("a") as log:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "proxy", "serve", str(self.config)],
                stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        assert self.popen.stdout is not None
        ports: dict[str, int] = {}
        while len(ports) < 2:
            line = self.popen.stdout.readline()
            assert line, self.log
            ports[line.split(" on ")[0]] = int(line.rsplit(":", 1)[1])
        self.port, self.admin = ports["listening"], ports["admin"]

    def stop(self) -> None:
        """Ends the process."""
        if self.popen is not None and self.popen.stdout is not None:
            self.popen.terminate()
            self.popen.wait(30)
            self.popen.stdout.close()
            self.popen = None

    def call(self, body: Any, conversation: str = "c", path: str = "/reminders") -> bytes:
        """Makes a call, and gives what its client reads."""
        return self._ask(self.port, path, body, {"X-Conversation-Id": conversation})

    def send(self, path: str, body: bytes) -> bytes:
        """Makes a call with these bytes, and gives what its client reads."""
        return self._ask(self.port, path, body, {})

    def ask(self, path: str, body: Any = None, token: str = TOKEN) -> Any:
        """Asks the operator's port."""
        return json.loads(self._ask(self.admin, path, body, {"Authorization": f"Bearer {token}"}))

    def _ask(self, port: int, path: str, body: Any, headers: dict[str, str]) -> bytes:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = urllib.request.Request(
            f"http://127.0.0.1:{port}{path}", data, {**headers, "Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(sent) as answer:  # noqa: S310 - loopback
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            return error.read()


@contextlib.contextmanager
def served(folder: Path, admin: str = ADMIN, routes: str = ROUTES) -> Iterator[tuple[Served, Upstream]]:
    """A proxy with these routes, and the upstream behind it."""
    upstream = Upstream()
    tools = f'{{tools: {{url: "{upstream.url}", breaker: {{failures: 2, open: 300ms}}}}}}'
    started = Served(
        folder,
        f"version: 1\nlisten: 127.0.0.1:0\nadmin: {admin}\nreload: {{interval: 50ms}}\n"
        f"drain: {{serve: 0s, finish: 1s}}\n"
        f"upstreams: {tools}\nroutes:\n{routes}",
    )
    try:
        started.start()
        yield started, upstream
    finally:
        started.stop()
        upstream.kill()
