"""The middleware: which requests of an application the proxy takes, and which reach their handlers untouched.

There are three cases. 1. A route of the config judges the path: the request is handled like any call, and its handler
takes the place of the upstream. 2. A passthrough route has the path, or no route has it: the handler gets the request
as it came. 3. No route has the path, but its handler is guarded under another path: the request is refused, because
aiohttp's router and the config may read a path differently, and a guarded handler is reached through the guard alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Final

from aiohttp import web

from proxy.aiohttp.upstream import CURRENT, AppHandler, HandlerUpstream, Resolved
from proxy.config.load import load
from proxy.config.model import Config
from proxy.config.model import UpstreamConfig as UpstreamEntry
from proxy.interfaces import Upstream
from proxy.routing import Match, Route, RouteTable, build_routes
from proxy.server import Serving, start_serving
from proxy.server.http.framing import Response
from proxy.server.http.headers import split_target
from proxy.server.setup.upstreams import make_upstream

_PARAMETER: Final = re.compile(r"\{[^}]*\}")


def middleware(config: str | Path, upstream: str = "", environ: Mapping[str, str] | None = None) -> Guard:
    """A middleware that guards the handlers of an `aiohttp.web.Application`.

        guard = middleware("config.yaml")
        app = web.Application(middlewares=[guard])
        app.cleanup_ctx.append(guard.lifespan)

    `config` is a config file as `serve` takes it. `upstream` names the entry of its `upstreams` whose place the
    application's handlers take; it may be left out where there is only one. `environ` is where `${NAME}` is looked up
    (default: the process's). Raises ConfigError, which holds every mistake, and ValueError for an unknown upstream.
    """
    return Guard(config, upstream, environ)


class Guard:
    """A middleware of aiohttp; `lifespan` goes into the application's `cleanup_ctx`."""

    __middleware_version__ = 1  # the mark that `aiohttp.web.middleware` sets

    def __init__(self, config: str | Path, upstream: str = "", environ: Mapping[str, str] | None = None) -> None:
        self._environ = os.environ if environ is None else environ
        self._loaded = load(config, self._environ)
        self._upstream = _choose_upstream(self._loaded.config, upstream)
        self._serving: Serving | None = None
        self._app: web.Application | None = None
        self._table: RouteTable | None = None
        self._guarded: frozenset[object] = frozenset()

    async def lifespan(self, app: web.Application) -> AsyncIterator[None]:
        """Starts with the application and ends with it. Raises ValueError where a route has no handler or cannot be
        mounted, OSError where the operator's port of the config cannot be opened."""
        for route in _select_judged(build_routes(self._loaded.config), self._upstream):
            if route.learn is not None:
                raise ValueError(f"route {route.path}: MCP is served by a proxy in front of its server, not mounted")
            if not _find_handlers(app, route):
                raise ValueError(f"route {route.path}: no handler of the application has this path and method")
        self._app = app
        self._serving = await start_serving(self._loaded, mounted=self._make_upstream, environ=self._environ)
        try:
            yield
        finally:
            serving, self._serving = self._serving, None
            await serving.stop()

    async def __call__(self, request: web.Request, handler: AppHandler) -> web.StreamResponse:
        """Takes one request, or lets it go on to its handler."""
        serving = self._serving
        if serving is None:
            raise RuntimeError("the guard has not started: app.cleanup_ctx.append(guard.lifespan)")
        if self._leaves_alone(serving, request):
            return await handler(request)
        token = CURRENT.set(Resolved(request, handler))
        try:
            return _to_aiohttp(await serving.handler.handle(_drop_coding(request)))
        finally:
            CURRENT.reset(token)

    def _leaves_alone(self, serving: Serving, request: web.Request) -> bool:
        match_path = serving.handler.snapshot.table.match
        path, _ = split_target(request.raw_path)
        found = match_path(request.method, path)
        if isinstance(found, Match):
            route = found.route
            return route.kind == "passthrough" and route.auth is None and route.cors is None
        asked = request.headers.get("Access-Control-Request-Method", "")
        if request.method == "OPTIONS" and isinstance(wanted := match_path(asked, path), Match):
            return wanted.route.cors is None
        return request.match_info.handler not in self._find_guarded(serving.handler.snapshot.table)

    def _find_guarded(self, table: RouteTable) -> frozenset[object]:
        """The handlers that only checked calls may reach, under the routes that are served now."""
        if table is not self._table and self._app is not None:
            app, judged = self._app, _select_judged(table, self._upstream)
            self._guarded = frozenset(handler for route in judged for handler in _find_handlers(app, route))
            self._table = table
        return self._guarded

    def _make_upstream(self, entry: UpstreamEntry, stderr: Callable[[int, str], None]) -> Upstream:
        if entry.name == self._upstream:
            return HandlerUpstream(entry.name, entry.buffer)
        return make_upstream(entry, stderr)


def _choose_upstream(config: Config, name: str) -> str:
    known = ", ".join(config.upstreams) or "none"
    if name and name not in config.upstreams:
        raise ValueError(f"the config has no upstream {name!r} (known: {known})")
    if not name and len(config.upstreams) > 1:
        raise ValueError(f"say which upstream the application's handlers stand for: middleware(config, NAME) ({known})")
    return name or next(iter(config.upstreams), "")


def _select_judged(table: RouteTable, upstream: str) -> list[Route]:
    """The routes whose calls go to handlers."""
    return [route for route in table.routes if route.kind == "call" and route.upstream == upstream]


def _find_handlers(app: web.Application, route: Route) -> list[object]:
    """The handlers that a request of a route may come to."""
    return [
        each.handler
        for each in app.router.routes()
        if each.resource is not None
        and (each.method == "*" or each.method in route.methods)
        and _may_meet(route.path, each.resource.canonical)
    ]


def _may_meet(ours: str, theirs: str) -> bool:
    """Whether some path matches both templates. A parameter of the application's template may match slashes."""
    pairs = list(zip(ours.split("/"), theirs.split("/"), strict=False))
    if ours.count("/") == theirs.count("/") and all("{" in a or "{" in b or a == b for a, b in pairs):
        return True
    wide = "".join(".*" if part.startswith("{") else re.escape(part) for part in re.split(r"(\{[^}]*\})", theirs))
    return re.fullmatch(wide, _PARAMETER.sub("x", ours)) is not None


def _drop_coding(request: web.Request) -> web.Request:
    """The request without `Content-Encoding`: aiohttp decodes the body but keeps the header."""
    if "Content-Encoding" not in request.headers:
        return request
    dropped = ("content-encoding", "content-length")
    return request.clone(headers=[field for field in request.headers.items() if field[0].lower() not in dropped])


def _to_aiohttp(response: web.StreamResponse) -> web.StreamResponse:
    """A whole answer as an aiohttp response, for the application's other middlewares; a stream is passed on as it
    is."""
    if not isinstance(response, Response):
        return response
    made = web.Response(status=response.status, body=response.payload, headers=response.fields)
    if response.closes:
        made.force_close()
    return made
