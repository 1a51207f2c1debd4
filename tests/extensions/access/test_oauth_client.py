"""The MCP SDK's own OAuth client finds whom to ask for a token, gets one, and is let in with it."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from tests.extensions.access.issuer import Issuer, describe_key
from tests.extensions.mcp.server import ADD, NOW, McpServer, as_json, http, result
from tests.parties.environment import HERE, asked, needs, python
from tests.ports import hold_port
from tests.serving.proxied import proxied_by
from tests.serving.wire import JSON_TYPE, Seen, answer, tool

pytestmark = pytest.mark.large


class AuthorizationServer(Issuer):
    """A small OAuth 2.1 server whose user agrees to everything: metadata, registration, codes, signed tokens."""

    audience = ""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Seen) -> None:
        target = urlsplit(seen.start.split(" ")[1])
        made = self._answer(target.path, parse_qs(target.query), seen)
        if made is None:
            await super().__call__(reader, writer, seen)
            return
        self.asked.append(target.path)
        writer.write(made)
        await writer.drain()

    def _answer(self, path: str, query: dict[str, list[str]], seen: Seen) -> bytes | None:
        match path:
            case "/register":
                about = json.loads(seen.body)
                return _tell({**about, "client_id": "one", "client_secret": "s"}, "201 Created")
            case "/authorize":
                assert "S256" == query["code_challenge_method"][0]
                self.audience = query["resource"][0]
                said = urlencode({"code": "c0de", "state": query["state"][0]})
                return answer("302 Found", b"", f"Location: {query['redirect_uri'][0]}?{said}")
            case "/token":
                form = parse_qs(seen.body.decode())
                assert ("c0de", self.audience) == (form["code"][0], form["resource"][0])
                token = self.sign(aud=self.audience, scope="mcp:tools", exp=time.time() + 60, iat=time.time())
                return _tell({"access_token": token, "token_type": "Bearer", "expires_in": 60})
            case "/.well-known/oauth-authorization-server":
                endpoints = {f"{name}_endpoint": f"{self.url}/{at}" for name, at in _ENDPOINTS}
                return _tell({"issuer": self.url, "response_types_supported": ["code"],
                              "code_challenge_methods_supported": ["S256"], **endpoints})  # fmt: skip
            case _:
                return None


_ENDPOINTS = (("authorization", "authorize"), ("token", "token"), ("registration", "register"))


def _tell(value: Any, status: str = "200 OK") -> bytes:
    return answer(status, json.dumps(value).encode(), JSON_TYPE)


def introduce(message: Any, seen: Seen) -> bytes:
    """The server's part of `initialize`; anything else is accepted."""
    if not isinstance(message, dict) or message.get("method") != "initialize":
        return http("405 Method Not Allowed" if seen.start.startswith("GET") else "202 Accepted", b"")
    version = message["params"]["protocolVersion"]
    about = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
    return as_json(result(message, about))


async def test_the_sdks_own_client_gets_its_token_and_sees_what_its_scope_allows() -> None:
    needs("py2")
    port, issuer = hold_port(), AuthorizationServer([describe_key("RS256")])
    url = f"http://127.0.0.1:{port}"
    rules = "[{when: {scope: 'mcp:tools'}, tools: [add]}]"
    route = f"  - {{path: /mcp, upstream: tools, protocol: mcp, jwt: {{}}, allow: {rules}}}"
    async with tool(issuer) as issuing, tool(McpServer([ADD, NOW], otherwise=introduce)) as server:
        issuer.url = issuing.url
        access = f"{{url: '{url}', issuers: {{main: {{issuer: '{issuer.url}', audience: '{url}/mcp'}}}}}}"
        async with proxied_by(None, route, server.url, access=access, listen=f"127.0.0.1:{port}"):
            words = [python("py2"), str(HERE / "clients" / "oauth.py")]
            assert ["add"] == await asyncio.to_thread(asked, words, f"{url}/mcp")
        assert all(each.header("authorization") is None for each in server.seen)
    assert {"/register", "/authorize", "/token", "/keys"} <= set(issuer.asked)
