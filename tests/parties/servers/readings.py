"""aiohttp, FastAPI and Flask, each answering with what it reads of a request: cookies, query, form and files.

Prints their ports as JSON, and ends when its standard input does.
"""
# mypy: ignore-errors
# The parties are not dependencies of the product, so their types are not there to be checked.

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
from typing import Any

import uvicorn
from aiohttp import web
from fastapi import FastAPI, Request
from flask import Flask, jsonify
from flask import request as asked
from werkzeug.serving import make_server


async def read_by_aiohttp(request: web.Request) -> web.Response:
    form = await request.post() if request.can_read_body else {}
    return web.json_response({
        "cookies": [list(pair) for pair in request.cookies.items()],
        "query": [list(pair) for pair in request.query.items()],
        "form": [[name, value] for name, value in form.items() if isinstance(value, str | bytes)],
        "files": [name for name, value in form.items() if not isinstance(value, str | bytes)],
    })  # fmt: skip


fastapi = FastAPI()


@fastapi.api_route("/{path:path}", methods=["GET", "POST"])
async def read_by_fastapi(request: Request) -> dict[str, Any]:
    form = (await request.form()).multi_items()
    return {
        "cookies": [list(pair) for pair in request.cookies.items()],
        "query": [list(pair) for pair in request.query_params.multi_items()],
        "form": [[name, value] for name, value in form if isinstance(value, str)],
        "files": [name for name, value in form if not isinstance(value, str)],
    }


flask = Flask(__name__)


@flask.route("/<path:path>", methods=["GET", "POST"])
def read_by_flask(path: str) -> Any:
    return jsonify({
        "cookies": [list(pair) for pair in asked.cookies.items()],
        "query": [list(pair) for pair in asked.args.items(multi=True)],
        "form": [list(pair) for pair in asked.form.items(multi=True)],
        "files": [name for name, _ in asked.files.items(multi=True)],
    })  # fmt: skip


async def main() -> None:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", read_by_aiohttp)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    bound = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(fastapi, log_level="error"))
    serving = asyncio.create_task(server.serve(sockets=[bound]))
    werkzeug = make_server("127.0.0.1", 0, flask, threaded=True)
    threading.Thread(target=werkzeug.serve_forever, daemon=True).start()
    while not server.started:
        await asyncio.sleep(0.01)
    ports = {
        "aiohttp": runner.addresses[0][1],
        "fastapi": bound.getsockname()[1],
        "flask": werkzeug.server_port,
    }
    sys.stdout.write(json.dumps(ports) + "\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    server.should_exit = True
    await serving
    await runner.cleanup()


asyncio.run(main())
