"""MCP spoken by hand, for what no client library sends: one request, the JSON-RPC answer in it."""

from __future__ import annotations

import http.client
import json
import re
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

MODERN: Final = "2026-07-28"
OLD: Final = "2025-11-25"
_FRESH: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|^id: ?.*$", re.MULTILINE)
META: Final = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
}


@dataclass(frozen=True)
class Answer:
    """An answer: status, headers with lower-case names, body, and the JSON-RPC message in it (None: no such)."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> Any:
        """The last message: of a stream of events the answer comes last."""
        texts = [self.body]
        if self.headers.get("content-type", "").startswith("text/event-stream"):
            texts = [line[5:].strip() for line in self.body.splitlines() if line.startswith(b"data:")]
        found = [json.loads(text) for text in texts if text.strip()]
        return found[-1] if found else None


def posted(url: str, body: bytes, **headers: str) -> Answer:
    """Posts a body; header names are written with underscores."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    usual = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    request = urllib.request.Request(url, body, {**usual, **named})  # noqa: S310 - loopback
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:  # noqa: S310
            return Answer(answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, {k.lower(): v for k, v in error.headers.items()}, error.read())


@dataclass(frozen=True)
class Session:
    """A session of the old kind, or none: then every request is of the new kind."""

    url: str
    session: str | None

    def call(self, params: dict[str, Any], request_id: Any = 7) -> Answer:
        """One `tools/call`. `params` as they are; of the new kind what a request must carry is added."""
        message = {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}
        if self.session is not None:
            return posted(self.url, json.dumps(message).encode(), **self.headers())
        message["params"] = {**params, "_meta": META}
        named = {"mcp_method": "tools/call", "mcp_name": str(params.get("name", ""))}
        return posted(self.url, json.dumps(message).encode(), mcp_protocol_version=MODERN, **named)

    def headers(self) -> dict[str, str]:
        """Returns what every request of an old session says."""
        return {"mcp_protocol_version": OLD, **({"mcp_session_id": self.session} if self.session else {})}


def opened(url: str) -> Session:
    """A session of the old kind."""
    wanted = {"protocolVersion": OLD, "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": wanted}
    answer = posted(url, json.dumps(message).encode())
    assert 200 == answer.status, answer
    session = Session(url, answer.headers.get("mcp-session-id", ""))
    posted(url, b'{"jsonrpc": "2.0", "method": "notifications/initialized"}', **session.headers())
    return session


def exchanged(url: str, method: str, headers: dict[str, str], body: str | None) -> tuple[int, str, str]:
    """Any request with just these headers: status, content type and body of the answer. A stream is left unread."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection("127.0.0.1", parts.port or 0, timeout=300)
    try:
        connection.request(method, parts.path, body, headers)
        answer = connection.getresponse()
        media_type = answer.headers.get("content-type", "")
        text = "" if method == "GET" and answer.status == 200 else answer.read().decode()
        # Text that servers make again for each answer.
        return answer.status, media_type, _FRESH.sub("", text)
    finally:
        connection.close()
