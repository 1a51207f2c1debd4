"""The proxy inside an aiohttp application: handlers get checked calls, and nothing else reaches them."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from proxy.aiohttp import Guard, middleware
from tests.serving.wire import Seen, exchange, post

CONFIG = """
version: 1
admin: off
upstreams: {app: {url: "http://127.0.0.1:9", timeouts: {response: 500ms}, headers: {set: {x-team: weather}}}}
routes:
  - path: /weather
    upstream: app
    tool: weather
    schema:
      type: object
      properties: {lat: {type: number}, lon: {type: number}, note: {type: string}}
      required: [lat]
  - {path: "/tools/{tool}", upstream: app, tools: [add]}
  - {path: /free, methods: [GET, POST, PUT], upstream: app, passthrough: true}
tools:
  add: {schema: {type: object, properties: {a: {type: integer}}, required: [a]}}
"""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Mounted:
    """A served application. `seen` holds what its handlers got: method, body and headers."""

    port: int
    seen: list[tuple[str, bytes, dict[str, str]]] = field(default_factory=list)

    async def post(self, path: str, body: bytes, *headers: str) -> Seen:
        """Posts a body and gives the answer as it was on the wire."""
        return await exchange(self.port, post(path, body, *headers))

    @property
    def bodies(self) -> list[bytes]:
        """The bodies that reached the handlers."""
        return [body for _, body, _ in self.seen]


def config(folder: Path, text: str = CONFIG) -> Path:
    path = folder / "config.yaml"
    path.write_text(text)
    return path


@contextlib.asynccontextmanager
async def running(app: web.Application) -> AsyncIterator[int]:
    """The port of a served application."""
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def served(
    folder: Path, routes: dict[str, Handler] | None = None, *, outer: tuple[Any, ...] = (), methods: str = "POST"
) -> AsyncIterator[Mounted]:
    """An application with these handlers (a plain one for each path that is not named) behind the guard."""
    guard = middleware(config(folder), environ={})
    app = web.Application(middlewares=[*outer, guard])
    app.cleanup_ctx.append(guard.lifespan)
    mounted = Mounted(0)

    async def plain(request: web.Request) -> web.Response:
        mounted.seen.append((request.method, await request.read(), dict(request.headers)))
        return web.json_response({"path": request.path, **request.match_info})

    async def unguarded(request: web.Request) -> web.Response:
        return await plain(request)

    app.router.add_route("*", "/free", unguarded)
    app.router.add_get("/elsewhere", unguarded)
    for path in ("/weather", "/tools/{tool}"):
        app.router.add_route(methods, path, (routes or {}).get(path, plain))
    async with running(app) as mounted.port:
        yield mounted


def error(seen: Seen) -> tuple[int, str]:
    return seen.status, json.loads(seen.body)["error"]["code"]


# --- what reaches a handler -------------------------------------------------------------------------------------------
async def test_a_valid_call_reaches_its_handler_byte_for_byte(tmp_path: Path) -> None:
    body = b'{ "note": "caf\xc3\xa9",\t"lat": 1.50, "lon": 1e2 }'
    async with served(tmp_path) as app:
        answer = await app.post("/weather?q=%2F", body, "X-Conversation-Id: c")
    assert (200, {"path": "/weather"}) == (answer.status, json.loads(answer.body))
    ((method, got, headers),) = app.seen
    assert ("POST", body, "weather", str(len(body))) == (method, got, headers["x-team"], headers["Content-Length"])
    assert answer.header("x-request-id") == headers["x-request-id"]


async def test_a_repaired_call_reaches_it_as_it_was_meant(tmp_path: Path) -> None:
    async with served(tmp_path) as app:
        answer = await app.post("/weather", b'{"lat": "48.85", "lon": 2}')
        named = await app.post("/tools/add", b'{"a": "5"}')
    assert ([200, 200], [b'{"lat":48.85,"lon":2}', b'{"a":5}']) == ([answer.status, named.status], app.bodies)
    assert "string_to_number;path=/lat" == answer.header("tool-repairs")
    assert {"path": "/tools/add", "tool": "add"} == json.loads(named.body)


async def test_a_refused_call_does_not_reach_it_and_attempts_are_counted(tmp_path: Path) -> None:
    async with served(tmp_path) as app:
        answers = [
            await app.post("/weather", json.dumps({"lat": f"north {number}"}).encode(), "X-Conversation-Id: c")
            for number in range(2)
        ]
    assert [(400, "INVALID_ARGUMENTS")] * 2 == [error(answer) for answer in answers]
    assert (["1/3", "2/3"], []) == ([answer.header("tool-attempt") for answer in answers], app.seen)


async def test_a_body_in_a_coding_is_judged_as_what_it_says(tmp_path: Path) -> None:
    async with served(tmp_path) as app:
        good = await app.post("/weather", gzip.compress(b'{"lat": 1}'), "Content-Encoding: gzip")
        bad = await app.post("/weather", gzip.compress(b'{"lat": "x"}'), "Content-Encoding: gzip")
    assert (200, (400, "INVALID_ARGUMENTS"), [b'{"lat": 1}']) == (good.status, error(bad), app.bodies)


async def test_a_body_that_is_too_large_is_refused(tmp_path: Path) -> None:
    bomb = gzip.compress(b'{"lat": 1, "note": "' + b"x" * 20_000_000 + b'"}')
    async with served(tmp_path) as app:
        plain = await app.post("/weather", b'{"lat": 1, "note": "' + b"x" * 2_000_000 + b'"}')
        coded = await app.post("/weather", bomb, "Content-Encoding: gzip")
    assert ([(413, "BODY_TOO_LARGE")] * 2, []) == ([error(plain), error(coded)], app.seen)


# --- what the guard leaves alone, and what it does not ----------------------------------------------------------------
async def test_passthrough_routes_and_paths_without_a_route_reach_their_handlers_untouched(tmp_path: Path) -> None:
    async with served(tmp_path) as app:
        free = await app.post("/free", b"not json", "X-Request-ID: mine")
        other = await exchange(app.port, b"GET /elsewhere HTTP/1.1\r\nHost: h\r\n\r\n")
    assert [200, 200] == [free.status, other.status]
    assert (b"not json", "mine", None) == (app.bodies[0], app.seen[0][2]["X-Request-ID"], free.header("x-request-id"))


@pytest.mark.parametrize("path", ["/tools/a%2Fb", "/tools/%61%00", "/tools/%ff", "/tools/x%5Cy"])
async def test_a_path_that_two_could_read_differently_does_not_reach_a_guarded_handler(
    tmp_path: Path, path: str
) -> None:
    async with served(tmp_path) as app:
        answer = await app.post(path, b'{"a": "x"}')
    assert ((404, "ROUTE_NOT_FOUND"), []) == (error(answer), app.seen)


@pytest.mark.parametrize("path", ["/%77eather", "/tools/%61dd", "//weather", "/./weather", "/weather/", "/weather;a"])
async def test_however_a_path_is_written_no_unchecked_call_reaches_a_handler(tmp_path: Path, path: str) -> None:
    async with served(tmp_path) as app:
        answer = await app.post(path, b'{"lat": "x", "a": "x"}')
    assert (True, []) == (answer.status in (400, 404), app.seen)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_a_method_that_no_route_has_does_not_reach_a_guarded_handler(tmp_path: Path, method: str) -> None:
    request = f"{method} /weather HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{{}}".encode()
    async with served(tmp_path, methods="*") as app:
        answer = await exchange(app.port, request)
    assert ((405, "METHOD_NOT_ALLOWED"), "POST", []) == (error(answer), answer.header("allow"), app.seen)


async def test_a_guarded_handler_is_refused_on_a_path_without_a_route(tmp_path: Path) -> None:
    guard = middleware(config(tmp_path), environ={})
    seen: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(request.path)
        return web.Response()

    app = web.Application(middlewares=[guard])
    app.cleanup_ctx.append(guard.lifespan)
    for path in ("/weather", "/tools/{tool:.+}", "/internal"):
        app.router.add_post(path, handler)
    async with running(app) as port:
        answers = [await exchange(port, post(path, b"{}")) for path in ("/internal", "/tools/a/b")]
    assert ([(404, "ROUTE_NOT_FOUND")] * 2, []) == ([error(answer) for answer in answers], seen)


# --- what comes back --------------------------------------------------------------------------------------------------
async def raising(_request: web.Request) -> web.Response:
    raise web.HTTPConflict(text='{"error": "taken"}', content_type="application/json")


async def failing(_request: web.Request) -> web.Response:
    raise RuntimeError("a secret")


async def sleeping(_request: web.Request) -> web.Response:
    await asyncio.sleep(60)
    return web.Response()


async def sending_a_file(_request: web.Request) -> web.StreamResponse:
    return web.FileResponse(__file__)


async def compressing(_request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    response.enable_compression(web.ContentCoding.gzip)
    return response


WHO = web.RequestKey("who", str)


@pytest.mark.parametrize("handler", [raising, failing, sleeping, sending_a_file, compressing])
async def test_a_handler_that_fails_is_told_of_as_a_failing_tool(tmp_path: Path, handler: Handler) -> None:
    async with served(tmp_path, {"/weather": handler}) as app:
        answer = await app.post("/weather", b'{"lat": 1}')
    expected = {"raising": 409, "sleeping": 504}.get(handler.__name__, 500)
    assert b"secret" not in answer.body
    assert (expected, True) == (answer.status, answer.header("tool-error") is not None)


async def test_a_stream_of_events_is_handed_on_as_it_is_written(tmp_path: Path) -> None:
    released = asyncio.Event()

    async def events(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Own": "yes"})
        await response.prepare(request)
        await response.write(b"data: 1\n\n")
        await released.wait()
        await response.write(b"data: 2\n\n")
        return response

    async with served(tmp_path, {"/weather": events}) as app:
        reader, writer = await asyncio.open_connection("127.0.0.1", app.port)
        writer.write(post("/weather", b'{"lat": 1}'))
        first = await reader.readuntil(b"data: 1\n\n")
        released.set()
        last = await reader.readuntil(b"0\r\n\r\n")
        writer.close()
    assert (True, True) == (b"X-Own: yes\r\n" in first, b"data: 2\n\n" in last)


async def test_a_large_answer_comes_whole(tmp_path: Path) -> None:
    large = b"x" * 5_000_000

    async def handler(_request: web.Request) -> web.Response:
        return web.Response(body=large)

    async with served(tmp_path, {"/weather": handler}) as app:
        answer = await app.post("/weather", b'{"lat": 1}')
    assert large == answer.body


async def test_a_stream_that_fails_half_way_does_not_end_cleanly(tmp_path: Path) -> None:
    async def events(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: 1\n\n")
        raise RuntimeError("half way")

    async with served(tmp_path, {"/weather": events}) as app:
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await app.post("/weather", b'{"lat": 1}')


async def test_other_middlewares_see_requests_and_answers_as_aiohttp_has_them(tmp_path: Path) -> None:
    @web.middleware
    async def outer(request: web.Request, handler: Handler) -> web.StreamResponse:
        request[WHO] = "me"
        response = await handler(request)
        assert isinstance(response, web.Response)
        response.headers["X-Outer"] = "yes"
        return response

    async def handler(request: web.Request) -> web.Response:
        return web.json_response({"who": request[WHO], "app": request.app is not None, "json": await request.json()})

    async with served(tmp_path, {"/weather": handler}, outer=(outer,)) as app:
        good = await app.post("/weather", b'{"lat": "1"}')
        bad = await app.post("/weather", b"{}")
    assert {"who": "me", "app": True, "json": {"lat": 1}} == json.loads(good.body)
    assert ["yes", "yes"] == [good.header("x-outer"), bad.header("x-outer")]


async def test_every_call_is_told_of_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    monkeypatch.setattr("sys.stderr", log)
    async with served(tmp_path) as app:
        await app.post("/weather", b'{"lat": 1}')
        await app.post("/weather", b'{"lat": "x"}')
        await app.post("/free", b"x")
    lines = [line for line in map(json.loads, log.getvalue().splitlines()) if "outcome" in line]
    assert ["delivered", "refused"] == [line["outcome"] for line in lines]


# --- mistakes of whoever mounts it ------------------------------------------------------------------------------------
async def test_a_route_without_a_handler_is_a_mistake_at_start(tmp_path: Path) -> None:
    guard = middleware(config(tmp_path), environ={})
    app = web.Application(middlewares=[guard])
    app.cleanup_ctx.append(guard.lifespan)
    with pytest.raises(ValueError, match="route /weather: no handler of the application has this path and method"):
        await web.AppRunner(app).setup()


async def test_an_mcp_route_is_not_mounted(tmp_path: Path) -> None:
    routes = "version: 1\nupstreams: {app: {url: 'http://127.0.0.1:9'}}\n"
    routes += "routes:\n  - {path: /mcp, upstream: app, protocol: mcp}\n"
    guard = middleware(config(tmp_path, routes), environ={})
    app = web.Application(middlewares=[guard])
    app.cleanup_ctx.append(guard.lifespan)
    with pytest.raises(ValueError, match="route /mcp: MCP is served by a proxy in front of its server, not mounted"):
        await web.AppRunner(app).setup()


async def test_a_config_taken_over_while_serving_guards_by_its_own_routes(tmp_path: Path) -> None:
    less = CONFIG.replace('  - {path: "/tools/{tool}", upstream: app, tools: [add]}\n', "")
    guard = middleware(config(tmp_path, less), environ={})
    seen: list[bytes] = []

    async def tool(request: web.Request) -> web.Response:
        seen.append(await request.read())
        return web.Response()

    async def weather(_request: web.Request) -> web.Response:
        return web.Response()

    app = web.Application(middlewares=[guard])
    app.cleanup_ctx.append(guard.lifespan)
    app.router.add_post("/tools/{tool}", tool)
    app.router.add_post("/internal", tool)
    app.router.add_post("/weather", weather)
    async with running(app) as port:
        before = await exchange(port, post("/internal", b"{}"))
        config(tmp_path)
        assert guard._serving is not None
        await guard._serving.reloader.reload()
        after = await exchange(port, post("/internal", b"{}"))
        called = await exchange(port, post("/tools/add", b'{"a": 1}'))
    assert (200, (404, "ROUTE_NOT_FOUND"), 200) == (before.status, error(after), called.status)
    assert [b"{}", b'{"a": 1}'] == seen


async def test_a_guard_that_was_not_started_lets_nothing_pass(tmp_path: Path) -> None:
    seen: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(request.path)
        return web.Response()

    app = web.Application(middlewares=[middleware(config(tmp_path), environ={})])
    app.router.add_post("/weather", handler)
    async with running(app) as port:
        answer = await exchange(port, post("/weather", b"{}"))
    assert (500, []) == (answer.status, seen)


def test_which_upstream_the_handlers_stand_for_is_said_where_there_are_several(tmp_path: Path) -> None:
    several = CONFIG.replace("upstreams: {app:", 'upstreams: {model: {url: "http://127.0.0.1:9"}, app:')
    path = config(tmp_path, several)
    with pytest.raises(ValueError, match=r"say which upstream .* \(model, app\)"):
        middleware(path, environ={})
    with pytest.raises(ValueError, match=r"no upstream 'ap' \(known: model, app\)"):
        middleware(path, "ap", environ={})
    assert isinstance(middleware(path, "app", environ={}), Guard)
