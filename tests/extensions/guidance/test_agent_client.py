"""`toolcall_proxy.client.read`: a real answer of the proxy in each of its formats, read by what an agent host has."""

from __future__ import annotations

import ast
import asyncio
import json
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from proxy.extensions.guidance import agent_client
from proxy.extensions.guidance.agent_client import Answer, Blocked, Retry, read
from tests.serving.proxied import WEATHER, proxied
from tests.serving.wire import answer, replies, tool

FORMATS = ["tool_result", "gomind", "hpd", "acode", "compozy", "openai", "anthropic", "mcp", "problem"]


@dataclass
class Response:
    """A response as httpx and requests have it."""

    status_code: int
    content: bytes
    headers: dict[str, str] = field(default_factory=dict)


def post(port: int, arguments: object) -> Response:
    """Posts arguments with the standard library."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/weather",
        json.dumps(arguments).encode(),
        {"content-type": "application/json", "x-conversation-id": "c1"},
    )
    try:
        with urllib.request.urlopen(request, timeout=120) as response:  # noqa: S310 - the proxy of this test
            return Response(response.status, response.read(), dict(response.headers.items()))
    except urllib.error.HTTPError as error:
        return Response(error.code, error.read(), dict(error.headers.items()))


@pytest.mark.parametrize("envelope", FORMATS)
async def test_distinguishes_an_answer_a_retry_and_a_block_in_every_format(envelope: str) -> None:
    route = f"{WEATHER}    envelope: {envelope}\n    attempts: {{max: 2}}\n"
    async with tool(replies(answer("200 OK", b'{"sky": "blue"}'))) as server, proxied(route, server.url) as proxy:
        good = read(await asyncio.to_thread(post, proxy.port, {"lat": 1}))
        first = read(await asyncio.to_thread(post, proxy.port, {"lat": "x"}))
        second = read(await asyncio.to_thread(post, proxy.port, {"lat": "y"}))

    assert Answer({"sky": "blue"}) == good
    assert isinstance(first, Retry)
    assert ("INVALID_ARGUMENTS", "1/2") == (first.code, first.attempt)
    assert "lat" in first.text
    assert isinstance(second, Blocked), second


def test_the_tools_own_errors_are_its_answer() -> None:
    assert Answer("no", 500) == read(Response(500, b"no"))
    assert Answer({"a": 1}, 404) == read(Response(404, b'{"a": 1}'))


def test_the_file_imports_only_the_standard_library() -> None:
    tree = ast.parse(Path(agent_client.__file__).read_text(encoding="utf-8"))
    found = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    found |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert found <= sys.stdlib_module_names
