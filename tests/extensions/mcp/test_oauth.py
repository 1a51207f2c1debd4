"""OAuth through an MCP route: metadata and challenges of the server, as they are or as the client needs them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator

import pytest

from tests.extensions.mcp.conversation import BOTH
from tests.extensions.mcp.server import call, http
from tests.serving.proxied import Proxied, proxied
from tests.serving.wire import Seen, exchange, post, replies, tool

RESOURCE = "https://remote.example/v1/mcp"
METADATA = {"resource": RESOURCE, "authorization_servers": ["https://login.example"], "scopes_supported": ["read"]}
CHALLENGE = 'Bearer error="invalid_token", resource_metadata="https://remote.example/.well-known/x", scope="read"'
WELL_KNOWN = "/.well-known/oauth-protected-resource"
AUTHORIZATION_SERVER = "/.well-known/oauth-authorization-server"


class Guarded:
    """A server that wants a token, and says where to get one. `asked` are the paths that were looked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, _reader: object, writer: object, seen: Seen) -> None:
        path = seen.start.split(" ")[1]
        if path.startswith((WELL_KNOWN, AUTHORIZATION_SERVER)):
            self.asked.append(path)
            answer = http("200 OK", json.dumps(METADATA).encode(), "Content-Type: application/json")
        else:
            answer = http("401 Unauthorized", b"{}", f"WWW-Authenticate: {CHALLENGE}")
        writer.write(answer)  # type: ignore[attr-defined]
        await writer.drain()  # type: ignore[attr-defined]


@contextlib.asynccontextmanager
async def guarded(more: str = "", routes: str = "") -> AsyncIterator[tuple[Proxied, Guarded]]:
    server = Guarded()
    route = f"  - {{path: /tools, upstream: tools, upstream_path: /v1/mcp, protocol: mcp{more}}}\n{routes}"
    async with tool(server) as upstream, proxied(route, upstream.url) as proxy:
        yield proxy, server


@pytest.mark.parametrize("path", [f"{WELL_KNOWN}/tools", WELL_KNOWN])
async def test_metadata_comes_from_the_server_byte_for_byte(path: str) -> None:
    async with guarded() as (proxy, server):
        assert json.dumps(METADATA).encode() == (await proxy.get(path)).body
        assert [path.replace("/tools", "/v1/mcp")] == server.asked


@pytest.mark.parametrize("more", ["", ", mcp: {resource: rewrite}"])
async def test_passes_the_authorization_server_that_an_old_server_is_itself(more: str) -> None:
    async with guarded(more) as (proxy, server):
        assert 200 == (await proxy.get(AUTHORIZATION_SERVER)).status
        assert [AUTHORIZATION_SERVER] == server.asked
    other = "  - {path: /other, upstream: tools, protocol: mcp}\n"
    async with guarded(routes=other) as (proxy, server):
        assert 404 == (await proxy.get(AUTHORIZATION_SERVER)).status


async def test_the_well_known_path_stands_before_the_path_of_the_servers_url() -> None:
    server = Guarded()
    async with tool(server) as upstream:
        for url, own in (("/base", "/base/v1/mcp"), ("/base/", "/base/v1/mcp"), ("", "/v1/mcp")):
            route = "  - {path: /tools, upstream: tools, upstream_path: /v1/mcp, protocol: mcp}\n"
            async with proxied(route, upstream.url + url) as proxy:
                server.asked.clear()
                seen = [await proxy.get(path) for path in (f"{WELL_KNOWN}/tools", WELL_KNOWN)]
                assert [json.dumps(METADATA).encode()] * 2 == [each.body for each in seen]
                assert [f"{WELL_KNOWN}{own}", WELL_KNOWN] == server.asked


async def test_metadata_and_challenge_name_the_route_where_the_config_says_so() -> None:
    async with guarded(", mcp: {resource: rewrite}") as (proxy, _):
        url = f"http://tools.test{WELL_KNOWN}/tools"
        told = json.loads((await proxy.get(f"{WELL_KNOWN}/tools")).body)
        assert {**METADATA, "resource": "http://tools.test/tools"} == told
        for message in ({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}, call("add", {})):
            seen = await exchange(proxy.port, post("/tools", json.dumps(message).encode(), BOTH))
            expected = f'Bearer error="invalid_token", resource_metadata="{url}", scope="read"'
            assert (401, expected) == (seen.status, seen.header("www-authenticate"))


@pytest.mark.parametrize(
    ("body", "more"),
    [(b"no gzip", ("Content-Encoding: gzip",)), (json.dumps({**METADATA, "x": "y" * 262_144}).encode(), ())],
    ids=["a coding that is not one", "too long"],
)
async def test_metadata_that_cannot_be_read_is_an_upstream_error(body: bytes, more: tuple[str, ...]) -> None:
    route = "  - {path: /tools, upstream: tools, upstream_path: /v1/mcp, protocol: mcp, mcp: {resource: rewrite}}\n"
    answer = http("200 OK", body, "Content-Type: application/json", *more)
    async with tool(replies(answer)) as upstream, proxied(route, upstream.url) as proxy:
        seen = await proxy.get(f"{WELL_KNOWN}/tools")
        assert (502, True) == (seen.status, b"UPSTREAM_BAD_ANSWER" in seen.body)


async def test_a_challenge_passes_as_it_is_where_the_config_says_nothing() -> None:
    async with guarded() as (proxy, _):
        seen = await exchange(proxy.port, post("/tools", json.dumps(call("add", {})).encode(), BOTH))
        assert (401, CHALLENGE) == (seen.status, seen.header("www-authenticate"))


async def test_a_route_of_the_config_goes_before_and_two_servers_share_no_path() -> None:
    own = (
        f"  - {{path: {WELL_KNOWN}/tools, methods: [GET], upstream: tools, upstream_path: /mine, passthrough: true}}\n"
    )
    async with guarded(routes=own) as (proxy, _):
        assert 401 == (await proxy.get(f"{WELL_KNOWN}/tools")).status
    other = "  - {path: /other, upstream: tools, protocol: mcp}\n"
    async with guarded(routes=other) as (proxy, server):
        assert 404 == (await proxy.get(WELL_KNOWN)).status
        await proxy.get(f"{WELL_KNOWN}/other")
        assert [f"{WELL_KNOWN}/other"] == server.asked
