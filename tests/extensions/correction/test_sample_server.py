"""The sample tools over real sockets: paths, keep-alive, the count of calls."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import pytest

from proxy.extensions.correction.samples.server import TOOLS, SampleServer, run_server
from tests.serving.proxied import proxied, told


@pytest.fixture
def server() -> Iterator[SampleServer]:
    with run_server(SampleServer(0)) as server:
        yield server


@pytest.fixture
def client(server: SampleServer) -> Iterator[HTTPConnection]:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    yield connection
    connection.close()


def ask(client: HTTPConnection, method: str, path: str, body: bytes = b"") -> tuple[int, Any]:
    client.request(method, path, body)
    reply = client.getresponse()
    return reply.status, json.loads(reply.read())


def test_every_tool_answers_at_its_path_on_one_connection(client: HTTPConnection) -> None:
    for path in TOOLS:
        status, body = ask(client, "POST", path, b"{}")
        assert (path == "/math") == (status == 200), body
    assert (200, {"status": "ok", "calls": {path[1:]: 1 for path in sorted(TOOLS)}}) == ask(client, "GET", "/status")


def test_the_tools_of_the_demo_end_on_sigterm() -> None:
    """The first process of a container gets no default for SIGTERM, and would run on until it is killed."""
    command = [sys.executable, "-m", "proxy.extensions.correction.samples", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("sample tools on ")
        process.send_signal(signal.SIGTERM)
        assert 0 == process.wait(30)


def test_a_call_is_answered_and_counted(client: HTTPConnection) -> None:
    assert (200, {"success": True, "data": {"function": "Add", "result": 15}}) == ask(
        client, "POST", "/math/add?trace=1", b'{"a": 5, "b": 10}'
    )
    assert (200, {"status": "ok", "calls": {"math/add": 1}}) == ask(client, "GET", "/status")


@pytest.mark.parametrize(("method", "path"), [("POST", "/nothing"), ("GET", "/weather")])
def test_an_unknown_path_is_a_404(client: HTTPConnection, method: str, path: str) -> None:
    assert 404 == ask(client, method, path)[0]


def test_a_body_without_a_length_is_refused(server: SampleServer) -> None:
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=60) as raw:
        raw.sendall(b"POST /weather HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
        assert b"HTTP/1.1 413 " == raw.recv(100)[:13]


def test_a_taken_port_is_an_oserror(server: SampleServer) -> None:
    with pytest.raises(OSError, match="in use"):
        SampleServer(server.server_port)


async def test_the_sample_tools_own_refusal_of_a_text_is_a_violation_with_its_code_kept() -> None:
    loose = "  - {path: /weather, upstream: tools, tool: weather, schema: {type: object, properties: {lat: {}}}}\n"
    with run_server(SampleServer(0)) as samples:
        async with proxied(loose, samples.url) as proxy:
            seen = await proxy.post("/weather", b'{"lat": "48.85", "lon": 2.35}', "X-Conversation-Id: c")
        arrived = json.loads(samples.status().body)["calls"]

    error = told(seen)["error"]
    assert (400, "1/3", {"weather": 1}) == (seen.status, seen.header("tool-attempt"), arrived)
    assert ("INVALID_REQUEST", "INPUT_ERROR") == (error["code"], error["category"])
    assert [("VAL-002", "/lat")] == [(one["code"], one["path"]) for one in error["errors"]]
    assert "Expected: number" in told(seen)["content"]
    assert "cannot unmarshal string into Go struct field WeatherRequest.lat" in error["message"]
