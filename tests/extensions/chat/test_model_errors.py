"""Failures of the proxy on a route with `model` speak of a model, not of a tool, in the API's own error format."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from typing import Any

import pytest

from tests.extensions.chat.answers import chat_request, messages_request, responses_request
from tests.serving.proxied import proxied, told
from tests.serving.wire import Seen, tool

PATHS: dict[str, bytes] = {
    "/v1/chat/completions": chat_request(),
    "/v1/responses": responses_request(stream=True),
    "/v1/embeddings": b'{"input": "x"}',
    "/v1/messages": messages_request(),
    "/v1/messages/count_tokens": messages_request(),
}


def make_wanted(path: str, kind: tuple[str, str], code: str, message: str) -> dict[str, Any]:
    """The error of the path's API; `kind` in OpenAI's and in Anthropic's words."""
    if "messages" in path:
        return {"type": "error", "error": {"type": kind[1], "message": message}}
    return {"error": {"message": message, "type": kind[0], "param": None, "code": code}}


@pytest.mark.parametrize("path", PATHS)
async def test_a_model_server_that_cannot_be_reached_is_said_to_be_one(path: str) -> None:
    async with proxied("  - {path: /v1, upstream: tools, model: {}}") as proxy:
        seen = await proxy.post(path, PATHS[path])
        line = proxy.lines()[-1]
    message = "The model server could not be reached. (upstream 'tools': the connection was refused)"
    wanted = make_wanted(path, ("server_error", "api_error"), "UPSTREAM_UNAVAILABLE", message)
    assert (502, wanted) == (seen.status, told(seen))
    assert ("UPSTREAM_UNAVAILABLE", "upstream_error") == (line["error.code"], line["outcome"])


@pytest.mark.parametrize("path", PATHS)
async def test_a_model_server_that_is_too_slow_is_said_to_be_one(path: str) -> None:
    async def script(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter, _seen: Seen) -> None:
        await reader.readexactly(1)

    routes = "  - {path: /v1, upstream: tools, timeout: 50ms, model: {}}"
    async with tool(script) as server, proxied(routes, server.url) as proxy:
        seen = await proxy.post(path, PATHS[path])
    message = "The model server did not answer in time. (upstream 'tools': no complete answer in time)"
    wanted = make_wanted(path, ("server_error", "timeout_error"), "UPSTREAM_TIMEOUT", message)
    assert (504, wanted) == (seen.status, told(seen))


@pytest.mark.parametrize("path", PATHS)
async def test_a_request_without_the_proxys_own_token_is_refused_as_the_api_does_it(path: str) -> None:
    token = f"sha256:{sha256(b'ours').hexdigest()}"
    routes = f"  - {{path: /v1, upstream: tools, auth: {{bearer: ['{token}']}}, model: {{}}}}"
    async with proxied(routes) as proxy:
        seen = await proxy.post(path, PATHS[path])
    message = "This route asks for a bearer token."
    wanted = make_wanted(path, ("invalid_request_error", "authentication_error"), "TOKEN_REQUIRED", message)
    assert (401, wanted) == (seen.status, told(seen))


async def test_clients_of_anthropic_are_known_by_their_header_at_every_path() -> None:
    async with proxied("  - {path: /v1, upstream: tools, model: {}}") as proxy:
        seen = await proxy.get("/v1/models", "anthropic-version: 2023-06-01")
    assert "error" == told(seen)["type"]
