"""The OAuth client of `mcp` 2.x: asks a guarded server for its tools, with a user who agrees to everything.

Runs in `.parties/py2`. Usage: oauth.py URL, as JSON. Prints the names of the tools as JSON.
"""
# mypy: ignore-errors
# The parties are not dependencies of the product, so their types are not there to be checked.

import asyncio
import json
import sys
from urllib.parse import parse_qs, urlsplit

import httpx2
import mcp
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata

REDIRECT = "http://localhost:1/callback"


class Memory:
    """The storage of a client between its runs; this one keeps it for one run."""

    tokens = None
    client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client


async def main(url: str) -> list[str]:
    seen: list[str] = []

    async def redirect(to: str) -> None:
        async with httpx2.AsyncClient(follow_redirects=False) as browser:
            seen.append((await browser.get(to)).headers["location"])

    async def callback() -> AuthorizationCodeResult:
        query = parse_qs(urlsplit(seen[-1]).query)
        return AuthorizationCodeResult(code=query["code"][0], state=query.get("state", [None])[0])

    about = OAuthClientMetadata(
        redirect_uris=[REDIRECT], client_name="p", scope="mcp:tools", token_endpoint_auth_method="client_secret_post"
    )
    auth = OAuthClientProvider(url, about, Memory(), redirect, callback)
    http = httpx2.AsyncClient(auth=auth, timeout=300)
    async with http, mcp.Client(streamable_http_client(url, http_client=http), mode="legacy") as client:
        return [tool.name for tool in (await client.list_tools()).tools]


sys.stdout.write(json.dumps(asyncio.run(main(json.loads(sys.argv[1])))))
