"""A plain pass-through of aiohttp's server and client, as its documentation shows them. Validates nothing.

python aiohttp_plain.py PORT UPSTREAM_PORT
"""

from __future__ import annotations

import sys

from aiohttp import ClientSession, web

HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host", "content-encoding"}
SESSION = web.AppKey("session", ClientSession)


async def forward(request: web.Request) -> web.Response:
    """Sends the request on and gives the answer back."""
    headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP}
    body = await request.read()
    url = f"http://127.0.0.1:{sys.argv[2]}{request.raw_path}"
    async with request.app[SESSION].request(request.method, url, headers=headers, data=body) as answer:
        kept = {name: value for name, value in answer.headers.items() if name.lower() not in HOP}
        return web.Response(status=answer.status, headers=kept, body=await answer.read())


async def application() -> web.Application:
    """The server with its one session."""
    app = web.Application(client_max_size=8 * 1024 * 1024)
    app[SESSION] = ClientSession()
    app.router.add_route("*", "/{path:.*}", forward)
    return app


if __name__ == "__main__":
    web.run_app(application(), host="127.0.0.1", port=int(sys.argv[1]), access_log=None, print=None)
