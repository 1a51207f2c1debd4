"""A list of tools that a client reads on from the SDK's own server (`Last-Event-ID`), through the proxy."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest

from tests.parties.environment import needs, servers
from tests.serving.proxied import proxied

pytestmark = pytest.mark.large

ACCEPT = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
HIDES = {
    "rules": "mcp: {trust_annotations: on}, allow: [{annotations: {readOnlyHint: true}}]",
    "names": "allow: [{tools: read}]",
    "deny": "mcp: {deny: [wipe]}",
}


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    needs("py1")
    with servers("resumable") as ports:
        yield ports["resumable"]


async def read_events(reply: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, str]]:
    """The id and the data of each event as it comes."""
    number = ""
    async for line in reply.content:
        name, _, value = line.decode().strip().partition(":")
        number = value.strip() if name == "id" else number
        if name == "data":
            yield number, value.strip()


async def list_resumed(session: aiohttp.ClientSession, url: str) -> tuple[list[str], str]:
    """The names in a list that is read on after its stream's first event, and the whole event."""

    def ask(method: str, number: int, **params: object) -> dict[str, object]:
        return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}

    hello = ask(
        "initialize", 0, protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "c", "version": "1"}
    )
    async with session.post(url, json=hello, headers=ACCEPT) as opened:
        headers = {**ACCEPT, "Mcp-Session-Id": opened.headers["Mcp-Session-Id"]}
    told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    async with session.post(url, json=told, headers=headers) as heard:
        assert 202 == heard.status
    async with session.post(url, json=ask("tools/list", 1), headers=headers) as listed:
        first, _ = await anext(read_events(listed))
    async with session.get(url, headers={**headers, "Last-Event-ID": first}) as resumed:
        async for _, data in read_events(resumed):
            if data:
                return [tool["name"] for tool in json.loads(data)["result"]["tools"]], data
    raise AssertionError("the list did not come")


async def test_the_server_replays_its_list_to_who_reads_on(server: int) -> None:
    async with aiohttp.ClientSession() as session:
        names, _ = await list_resumed(session, f"http://127.0.0.1:{server}/mcp/")
    assert ["read", "wipe"] == names


@pytest.mark.parametrize("hides", HIDES)
async def test_a_list_that_is_read_on_holds_no_tool_that_is_not_the_callers(server: int, hides: str) -> None:
    route = f"  - {{path: /mcp, upstream: tools, upstream_path: /mcp/, protocol: mcp, {HIDES[hides]}}}"
    async with proxied(route, f"http://127.0.0.1:{server}") as proxy, aiohttp.ClientSession() as session:
        names, data = await list_resumed(session, f"http://127.0.0.1:{proxy.port}/mcp")
    assert (["read"], False) == (names, "secret shelf" in data)
