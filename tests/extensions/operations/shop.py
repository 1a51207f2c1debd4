"""A tool server that describes itself, as FastAPI's do: `/openapi.json`, and what it describes, on a loopback port."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[2] / "data" / "openapi"
BOOKSHOP: dict[str, Any] = json.loads((DATA / "bookshop.json").read_text(encoding="utf-8"))


@dataclass
class Shop:
    """A running server. `described` is what it publishes from now on; `seen` has every request: line, headers, body."""

    port: int
    described: bytes
    status: int = 200
    seen: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Returns where its description is."""
        return f"http://127.0.0.1:{self.port}/openapi.json"

    @property
    def bodies(self) -> list[bytes]:
        """Returns what has been posted, in order."""
        return [body for line, _, body in self.seen if not line.startswith("GET")]


@contextlib.contextmanager
def shop(described: Any = None) -> Iterator[Shop]:
    """A server in a thread; it echoes what it is sent."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's signature
            pass

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            made.seen.append((f"{self.command} {self.path}", dict(self.headers.items()), body))
            is_description = self.path.partition("?")[0] == "/openapi.json"
            self.send_response(made.status if is_description else 200)
            told = made.described if is_description else body or b"{}"
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

        do_GET = do_POST = do_PUT = answer  # noqa: N815 - http.server's names

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made = Shop(server.server_port, json.dumps(described or BOOKSHOP).encode())
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
