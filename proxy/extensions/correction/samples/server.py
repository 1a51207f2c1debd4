"""The sample tools' server: plain HTTP/1.1 on loopback, one thread per connection, one table of paths.

It counts the calls of each tool (`GET /status`), which shows that a refused call never arrived.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Final, TypeVar

from proxy.extensions.correction.samples import files, numbers, weather
from proxy.extensions.correction.samples.messages import SampleAnswer, SampleError, write_plain, write_refusal

DEFAULT_PORT: Final = 9101
# The largest body accepted; real requests have a few hundred bytes.
MAX_BODY: Final = 1024 * 1024

TOOLS: Final[dict[str, Callable[[bytes], SampleAnswer]]] = {
    "/weather": weather.answer,
    "/currency": numbers.answer_currency,
    "/read_file": files.answer,
    "/math": numbers.expand,
    **{f"/math/{name.lower()}": numbers.make_handler(name) for name in numbers.FUNCTIONS},
}


S = TypeVar("S", bound=ThreadingHTTPServer)


class SampleServer(ThreadingHTTPServer):
    """Listens on 127.0.0.1. Raises OSError if the port is taken; port 0 takes any free one."""

    daemon_threads = True  # idle keep-alive connections do not delay the end

    def __init__(self, port: int = DEFAULT_PORT) -> None:
        self._lock = Lock()
        self._calls: Counter[str] = Counter()
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def url(self) -> str:
        """The server's address, such as http://127.0.0.1:9101."""
        return f"http://127.0.0.1:{self.server_port}"

    def server_bind(self) -> None:
        """Binds without a DNS look-up of the machine's own name, which the standard server makes."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # so that a restart finds its port free
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    def count(self, path: str) -> None:
        """Counts a call of the tool at `path`."""
        with self._lock:
            self._calls[path.removeprefix("/")] += 1

    def status(self) -> SampleAnswer:
        """The answer to `GET /status`: the number of calls that arrived, by tool."""
        with self._lock:
            calls = dict(sorted(self._calls.items()))
        return write_plain({"status": "ok", "calls": calls})


class _Handler(BaseHTTPRequestHandler):
    server: SampleServer
    protocol_version = "HTTP/1.1"
    server_version = "sample-tools"
    sys_version = ""
    wbufsize = 16 * 1024  # sends head and body in one packet; unbuffered they would cost a delayed acknowledgement
    disable_nagle_algorithm = True
    timeout = 60

    def do_GET(self) -> None:
        if self.path == "/status":
            self._send(self.server.status())
        else:
            self._send(write_refusal(SampleError("RESOURCE_NOT_FOUND", f"nothing at {self.path}", "NOT_FOUND", False)))

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not length.isdecimal() or int(length) > MAX_BODY:
            self.close_connection = True
            self._send(
                write_refusal(SampleError("INVALID_REQUEST", "send a Content-Length of at most 1 MiB", status=413))
            )
            return
        body = self.rfile.read(int(length))
        path = self.path.partition("?")[0]
        tool = TOOLS.get(path)
        if tool is None:
            self._send(write_refusal(SampleError("RESOURCE_NOT_FOUND", f"no tool at {path}", "NOT_FOUND", False)))
            return
        self.server.count(path)
        self._send(tool(body))

    def _send(self, answer: SampleAnswer) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        """Logs nothing: the proxy's log shows the calls."""


@contextmanager
def run_server(server: S) -> Iterator[S]:
    """Runs a server in its own thread while the block runs; then closes it."""
    with server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
