"""OAuth through an MCP route: metadata and challenges of the server, as they are or as the client needs them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from urllib.parse import urlsplit

import pytest

from tests.extensions.mcp.conversation import BOTH
from tests.extensions.mcp.server import call, http
from tests.serving.proxied import Proxied, proxied
from tests.serving.wire import Seen, exchange, post, replies, tool

RESOURCE = "https://remote.example/v1/mcp"
METADATA = {"resource": RESOURCE, "authorization_servers": ["https://login.example"], "scopes_supported": ["read"]}
CHALLENGE = 'Bearer error="invalid_token", resource_metadata="https://remote.example/meta?of=mcp", scope="read"'
REWRITE = ", mcp: {resource: rewrite}"
WELL_KNOWN = "/.well-known/oauth-protected-resource"
AUTHORIZATION_SERVER = "/.well-known/oauth-authorization-server"


# The metadata of a server, by path.
USUAL = dict.fromkeys((WELL_KNOWN, AUTHORIZATION_SERVER), METADATA)
DESCRIBED = {"issuer": "https://remote.example", "token_endpoint": "https://remote.example/oauth/token"}


class Guarded:
    """A server that wants a token, and says where to get one. `asked` are the paths that were looked for, `metadata`
    what it has at paths that begin with these."""

    def __init__(self, metadata: Mapping[str, object] = USUAL, elsewhere: str = "401 Unauthorized") -> None:
        self.asked: list[str] = []
        self._metadata = metadata
        self._elsewhere = elsewhere

    async def __call__(self, _reader: object, writer: object, seen: Seen) -> None:
        path = seen.start.split(" ")[1]
        found = next((value for start, value in self._metadata.items() if path.startswith(start)), None)
        if found is not None or "/.well-known/" in path:
            self.asked.append(path)
        if found is not None:
            answer = http("200 OK", json.dumps(found).encode(), "Content-Type: application/json")
        elif "/.well-known/" in path:
            answer = http(self._elsewhere, b"{}")
        else:
            answer = http("401 Unauthorized", b"{}", f"WWW-Authenticate: {CHALLENGE}")
        writer.write(answer)  # type: ignore[attr-defined]
        await writer.drain()  # type: ignore[attr-defined]


@contextlib.asynccontextmanager
async def guarded(
    more: str = "", routes: str = "", server: Guarded | None = None
) -> AsyncIterator[tuple[Proxied, Guarded]]:
    server = server or Guarded()
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


async def test_an_old_server_is_described_as_the_authorization_server_at_the_proxys_address() -> None:
    server = Guarded({AUTHORIZATION_SERVER: DESCRIBED})
    async with guarded(REWRITE, server=server) as (proxy, _):
        assert {**DESCRIBED, "issuer": "http://tools.test"} == json.loads((await proxy.get(AUTHORIZATION_SERVER)).body)
    async with guarded(server=server) as (proxy, _):
        assert DESCRIBED == json.loads((await proxy.get(AUTHORIZATION_SERVER)).body)


async def test_keeps_the_issuer_that_a_server_repeats_to_the_client() -> None:
    described = {**DESCRIBED, "authorization_response_iss_parameter_supported": True}
    async with guarded(REWRITE, server=Guarded({AUTHORIZATION_SERVER: described})) as (proxy, _):
        assert described == json.loads((await proxy.get(AUTHORIZATION_SERVER)).body)


@pytest.mark.parametrize("status", ["404 Not Found", "401 Unauthorized"])
async def test_describes_an_old_server_without_a_description_by_the_endpoints_of_its_revision(status: str) -> None:
    async with guarded(REWRITE, server=Guarded({}, status)) as (proxy, _):
        described = json.loads((await proxy.get(AUTHORIZATION_SERVER)).body)
        token = urlsplit(described["token_endpoint"])
        assert ("127.0.0.1", "/token") == (token.hostname, token.path)
        assert described["issuer"] == "http://tools.test"
        assert described["authorization_endpoint"] == f"http://{token.netloc}/authorize"
        assert described["registration_endpoint"] == f"http://{token.netloc}/register"
    async with guarded(server=Guarded({}, status)) as (proxy, _):
        assert int(status[:3]) == (await proxy.get(AUTHORIZATION_SERVER)).status


async def test_finds_metadata_at_the_path_that_only_the_challenge_names() -> None:
    async with guarded(REWRITE, server=Guarded({"/meta": METADATA}, "404 Not Found")) as (proxy, server):
        assert 404 == (await proxy.get(f"{WELL_KNOWN}/tools")).status
        await exchange(proxy.port, post("/tools", json.dumps(call("add", {})).encode(), BOTH))
        found = json.loads((await proxy.get(f"{WELL_KNOWN}/tools")).body)
        assert {**METADATA, "resource": "http://tools.test/tools"} == found
        assert [f"{WELL_KNOWN}/v1/mcp", "/meta?of=mcp"] == server.asked[-2:]


async def test_the_well_known_path_precedes_the_path_of_the_servers_url() -> None:
    server = Guarded()
    async with tool(server) as upstream:
        for url, own in (("/base", "/base/v1/mcp"), ("/base/", "/base/v1/mcp"), ("", "/v1/mcp")):
            route = "  - {path: /tools, upstream: tools, upstream_path: /v1/mcp, protocol: mcp}\n"
            async with proxied(route, upstream.url + url) as proxy:
                server.asked.clear()
                seen = [await proxy.get(path) for path in (f"{WELL_KNOWN}/tools", WELL_KNOWN)]
                assert [json.dumps(METADATA).encode()] * 2 == [each.body for each in seen]
                assert [f"{WELL_KNOWN}{own}", WELL_KNOWN] == server.asked


async def test_metadata_and_challenge_name_the_route_if_the_config_says_so() -> None:
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


async def test_a_challenge_passes_unchanged_by_default() -> None:
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
