"""The sample tools' server: plain HTTP/1.1 on loopback, a thread for each connection, one table of paths.

It counts the calls each tool got (`GET /status`), so that anyone can see that a refused call never arrived.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Final

from proxy.samples import arithmetic, currency, files, weather
from proxy.samples.answer import Answer, Fault, plain, refusal

DEFAULT_PORT: Final = 9101
# No sample takes more; the largest honest request is a few hundred bytes.
MAX_BODY: Final = 1024 * 1024

TOOLS: Final[dict[str, Callable[[bytes], Answer]]] = {
    "/weather": weather.answer,
    "/currency": currency.answer,
    "/read_file": files.answer,
    "/math": arithmetic.expand,
    **{f"/math/{name.lower()}": arithmetic.answering(name) for name in arithmetic.FUNCTIONS},
}


class SampleServer(ThreadingHTTPServer):
    """Listens on 127.0.0.1. Raises OSError if the port is taken; port 0 takes any free one."""

    daemon_threads = True  # an idle keep-alive connection must not hold up the end

    def __init__(self, port: int = DEFAULT_PORT) -> None:
        self._lock = Lock()
        self._calls: Counter[str] = Counter()
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def url(self) -> str:
        """The server's address, such as http://127.0.0.1:9101."""
        return f"http://127.0.0.1:{self.server_port}"

    def server_bind(self) -> None:
        """Binds without asking DNS for the machine's own name, as the standard server does."""
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    def count(self, path: str) -> None:
        """Notes a call of the tool at `path`."""
        with self._lock:
            self._calls[path.removeprefix("/")] += 1

    def status(self) -> Answer:
        """What `GET /status` says: the calls that arrived, by tool."""
        with self._lock:
            calls = dict(sorted(self._calls.items()))
        return plain({"status": "ok", "calls": calls})


class _Handler(BaseHTTPRequestHandler):
    server: SampleServer
    protocol_version = "HTTP/1.1"
    server_version = "sample-tools"
    sys_version = ""
    wbufsize = 16 * 1024  # head and body leave in one packet; unbuffered they cost a delayed acknowledgement
    disable_nagle_algorithm = True
    timeout = 60

    def do_GET(self) -> None:
        if self.path == "/status":
            self._send(self.server.status())
        else:
            self._send(refusal(Fault("RESOURCE_NOT_FOUND", f"nothing at {self.path}", "NOT_FOUND", False)))

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not length.isdecimal() or int(length) > MAX_BODY:
            self.close_connection = True
            self._send(refusal(Fault("INVALID_REQUEST", "send a Content-Length of at most 1 MiB", status=413)))
            return
        body = self.rfile.read(int(length))
        path = self.path.partition("?")[0]
        tool = TOOLS.get(path)
        if tool is None:
            self._send(refusal(Fault("RESOURCE_NOT_FOUND", f"no tool at {path}", "NOT_FOUND", False)))
            return
        self.server.count(path)
        self._send(tool(body))

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        """Says nothing: the proxy's log tells the story."""


@contextmanager
def running(server: SampleServer) -> Iterator[SampleServer]:
    """Lets a server answer, in a thread of its own, while the block runs; then closes it."""
    with server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
