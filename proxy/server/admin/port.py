"""The operator's port: checks each request (`operator_access.py`) and calls the page that answers it (`api.py`).

Probes depend on this process only. `/livez` answers while the event loop runs; `/readyz` answers 200 while a config is
served and the proxy does not drain. They never depend on an upstream, because an upstream's failure must not take the
proxy out of service. The separate probes' port serves the probes and the metrics only, and accepts any `Host`, because
Prometheus and kubelet use their own names.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from proxy.config.files.secrets import reveal_again
from proxy.config.files.source import read_file
from proxy.config.model import AdminConfig
from proxy.core.json.jsontext import parse
from proxy.core.model.values import Fields, JsonValue
from proxy.plugin import AddsPages
from proxy.plugins import find_plugins
from proxy.server.admin.api import PROBES, Pages
from proxy.server.admin.page import (
    EventPage,
    OperatorAccess,
    Page,
    PageRequest,
    Role,
    is_foreign_page,
    make_json_page,
    refuse_question,
)
from proxy.server.http.body import read_whole, say_continue
from proxy.server.http.framing import SERVER, Response, ResponseStream
from proxy.server.http.request_head import BadRequest, find_fault, read_fields, split_target
from proxy.server.listener import Listener, Port, open_port

if TYPE_CHECKING:
    from aiohttp import web

# The largest body in bytes. The largest one needed is a whole call, asked about in a dry run.
MAX_BODY: Final = 4 * 1024 * 1024
_BODY_TIME: Final = 10.0
_API: Final = "/-/"
_UI: Final = "/ui/"
# Seconds that the answer to a wrong token waits, so that guessing is slow.
_WRONG_TOKEN_WAIT: Final = 0.1
_FOREIGN: Final = "a page of another origin may not use this port"
_JSON: Final = "application/json"


async def open_operator_ports(
    entry: AdminConfig,
    pages: Pages,
    now: Callable[[], float],
    secrets: tuple[Path, Mapping[str, str]],
    refuse_head: Callable[[BadRequest], Response],
    opened: list[Port],
    held: socket.socket | None = None,
) -> None:
    """Opens the operator's port, and the probes' port if the config has one, and adds them to `opened`. `held` is a
    socket that listens at the probes' port already.

    `secrets` holds the folder and the environment variables from which the tokens of the config are read again. Raises
    ListenError.
    """
    reveal_now = partial(reveal_again, folder=secrets[0], environ=secrets[1], read=read_file)
    admin = Admin(pages, OperatorAccess(entry, now, reveal_now), now)
    opened.append(await open_port(Listener(admin.handle, refuse_head), entry.listen, key="admin.listen"))
    if entry.probes is not None:
        opened.append(await open_port(Listener(admin.probe, refuse_head), entry.probes, key="admin.probes", held=held))
    elif held is not None:
        held.close()


class SharedPages(Protocol):
    """Answers readers with pages that were made for others."""

    async def find_or_make(
        self, question: PageRequest, cache_control: str, make: Callable[[PageRequest], Awaitable[Page | EventPage]]
    ) -> Page | EventPage:
        """A kept page that is young enough, or a new one."""


class Admin:
    """Answers the operator's port (`handle`) and the probes' port (`probe`)."""

    def __init__(self, pages: Pages, access: OperatorAccess, now: Callable[[], float]) -> None:
        self._pages = pages
        self._probes = {path: pages[path] for path in pages if path in PROBES}
        self._access = access
        self._now = now
        self._shared: SharedPages | None = None
        """Answers readers that accept an answer of some age, made for the first of them."""

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answers one request to the operator's port."""
        fields = read_fields(request)
        if not self._access.knows_host(fields.get("host") or ""):
            return _answer(
                refuse_question("this Host is not served here: use an address, a loopback name or `admin.hosts`", 403)
            )
        path, query = split_target(request.raw_path)
        if is_foreign_page(fields, may_navigate=path in ("/", "/ui") or path.startswith(_UI)):
            return _answer(refuse_question(_FOREIGN, 403))
        role: Role | Response = "operator"
        if path.startswith(_API):
            role = await self._find_role(request, fields, path)
        if isinstance(role, Response):
            return role
        if path in ("/", "/ui") and _UI in self._pages and request.method in ("GET", "HEAD"):
            return _answer(Page(b"", 303, "text/plain", (("Location", _UI),)))
        return await self._page(request, fields, (path, query), self._pages, role)

    async def probe(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answers one request to the probes' port, such as one of kubelet or Prometheus."""
        fields = read_fields(request)
        if fields.get("origin") is not None:
            return _answer(refuse_question(_FOREIGN, 403))
        return await self._page(request, fields, split_target(request.raw_path), self._probes, "reader")

    async def _find_role(self, request: web.BaseRequest, fields: Fields, path: str) -> Role | Response:
        """Returns the role in which a request may use this path, or the response that refuses it. The right token is
        taken at any time: other processes of the pod share its address, and must not lock the operator out."""
        role = self._access.find_role(fields)
        if role is None:
            if fields.get("authorization"):
                await asyncio.sleep(_WRONG_TOKEN_WAIT)
                if not self._access.count_wrong_token(request.remote or ""):
                    response = _answer(refuse_question("too many wrong tokens from this address: wait a minute", 429))
                    response.fields.append(("Retry-After", "60"))
                    return response
            response = _answer(
                refuse_question("this path requires `Authorization: Bearer` and the operator's token", 401)
            )
            response.fields.append(("WWW-Authenticate", "Bearer"))
            return response
        # A reader may POST to the paths that change nothing.
        added = [page for plugin in find_plugins(AddsPages) if (page := plugin.pages.get(path)) is not None]
        is_harmless = path == "/-/conversations/find" or any(page.is_harmless for page in added)
        if role == "reader" and request.method not in ("GET", "HEAD") and not is_harmless:
            return _answer(refuse_question("readers change nothing: this requires the operator's token", 403))
        return role

    async def _page(
        self, request: web.BaseRequest, fields: Fields, target: tuple[str, str], pages: Pages, role: Role
    ) -> web.StreamResponse:
        path, query = target
        if (fault := find_fault(request, fields)) is not None:
            return _answer(refuse_question(fault.message, fault.status or fault.code.status))
        # The page with this path, else the longest one that ends in a slash and begins it.
        folders = [name for name in pages if name.endswith("/") and path.startswith(name) and path != name]
        has_page = path in pages and (not path.endswith("/") or path == _UI)
        known = path if has_page else max(folders, key=len, default="")
        if not known:
            return _answer(make_json_page({"error": "unknown path", "paths": list(pages)}, 404))
        method = "GET" if request.method == "HEAD" else request.method
        make = pages[known].get(method)
        if make is None:
            response = _answer(refuse_question(f"this path takes {' and '.join(pages[known])}", 405))
            response.fields.append(("Allow", ", ".join(pages[known])))
            return response
        body = await _body(request, fields) if method == "POST" else {}
        if isinstance(body, Page):
            return _answer(body)
        question = PageRequest(
            method, path, path.removeprefix(known), query, body, role, request.remote or "",
            fields.get("accept") or "", fields.get("if-none-match") or "", fields.get("last-event-id") or "",
        )  # fmt: skip
        cache_control = fields.get("cache-control") or ""
        if cache_control and self._shared is None:
            made = (plugin.make_shared(self._now) for plugin in find_plugins(AddsPages))
            self._shared = next((shared for shared in made if shared is not None), None)
        shared = self._shared
        page = await (make(question) if shared is None else shared.find_or_make(question, cache_control, make))
        return await _send_events(page, request) if isinstance(page, EventPage) else _answer(page)


async def _body(request: web.BaseRequest, fields: Fields) -> Mapping[str, JsonValue] | Page:
    """Reads the JSON mapping in the body of a POST. An empty body counts as an empty mapping."""
    kind = (fields.get("content-type") or _JSON).partition(";")[0].strip().lower()
    if kind != _JSON:
        return refuse_question(f"a body here is {_JSON}: send `Content-Type: {_JSON}`", 415)
    await say_continue(request, fields)
    data = await read_whole(request, MAX_BODY, _BODY_TIME)
    if isinstance(data, BadRequest):
        return refuse_question(data.message, data.status or data.code.status)
    value = parse(data) if data.strip() else {}
    return value if isinstance(value, dict) else refuse_question("the body is a JSON mapping, or empty")


async def _send_events(page: EventPage, request: web.BaseRequest) -> web.StreamResponse:
    stream = ResponseStream(
        200, [("Content-Type", "text/event-stream"), ("Cache-Control", "no-store"), ("Server", SERVER)]
    )
    async with aclosing(page.events) as events:
        try:
            await stream.prepare(request)
            async for piece in events:
                await stream.write(piece)
            await stream.write_eof()
        except ConnectionError:
            stream.abort()
    return stream


def _answer(page: Page) -> Response:
    own = {name.lower() for name, _ in page.headers}
    usual = [("Content-Type", page.content_type), ("Cache-Control", "no-store"), ("Server", SERVER)]
    headers = [(name, value) for name, value in usual if name.lower() not in own]
    return Response(page.status, [*headers, *page.headers], page.body)
