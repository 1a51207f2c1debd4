"""The operator's port: who may ask, and which page answers. What the pages show and do stands in `pages.py`.

Probes answer from this process alone: `/livez` that the event loop turns, `/readyz` that a config is served and
nothing is draining; never the upstream, whose trouble must not take the proxy out of service. A page in a browser
must not reach this port: `Host` has to be an address or a loopback name (DNS rebinding), and `Origin` is refused.
With `admin.token`, everything below /-/ asks for it. The probes' port has the probes and the metrics alone, under any
`Host`: Prometheus and kubelet come with names of their own.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final
from urllib.parse import unquote

from proxy.app.body import Unread, read_whole
from proxy.app.http1.answer import SERVER, Answer
from proxy.app.http1.request import Request, path_and_query
from proxy.app.pages import PROBES, Pages
from proxy.app.question import Page, Question, json_page, unfit
from proxy.core.jsontext import parse
from proxy.core.model import JsonValue

_HOST: Final = re.compile(r"(?P<name>\[[^\]]*\]|[^:]*)(?::[0-9]*)?")
_LOOPBACK_NAMES: Final = frozenset({"localhost", "ip6-localhost"})
# The largest body is that of /-/validate: a whole call.
MAX_BODY: Final = 4 * 1024 * 1024
_BODY_TIME: Final = 10.0
_BEARER: Final = "bearer "


class Admin:
    """Answers the operator's port (`handle`) and the probes' (`probe`). `host` is where it listens, `token` what it
    asks for, '' for nothing."""

    def __init__(self, pages: Pages, host: str, token: str) -> None:
        self._pages = pages
        self._probes = {path: pages[path] for path in pages if path in PROBES}
        self._names = _LOOPBACK_NAMES | {host.lower()}
        self._token = token.encode("utf-8", "surrogatepass")

    async def handle(self, request: Request) -> Answer:
        """Answers one request of the operator."""
        if not self._knows_host(request.headers.get("host") or ""):
            return _answer(unfit("this Host is not served here: use an address or a loopback name", 403))
        path, query = path_and_query(request.target)
        if path.startswith("/-/") and not self._may(request):
            answer = _answer(unfit("this path asks for `Authorization: Bearer` and the operator's token", 401))
            answer.headers.append(("WWW-Authenticate", "Bearer"))
            return answer
        return await self._page(request, path, query, self._pages)

    async def probe(self, request: Request) -> Answer:
        """Answers one request of kubelet or Prometheus."""
        return await self._page(request, *path_and_query(request.target), self._probes)

    async def _page(self, request: Request, path: str, query: str, pages: Pages) -> Answer:
        if request.headers.get("origin") is not None:
            return _answer(unfit("pages in a browser are not served here", 403))
        folder = path[: path.rfind("/") + 1]
        known = path if path in pages and not path.endswith("/") else folder
        if known not in pages or (known == folder and path == folder):
            return _answer(json_page({"error": "unknown path", "paths": list(pages)}, 404))
        method = "GET" if request.method == "HEAD" else request.method
        make = pages[known].get(method)
        if make is None:
            answer = _answer(unfit(f"this path takes {' and '.join(pages[known])}", 405))
            answer.headers.append(("Allow", ", ".join(pages[known])))
            return answer
        body = await _body(request) if method == "POST" else {}
        if isinstance(body, Page):
            return _answer(body)
        return _answer(await make(Question(method, path, unquote(path.removeprefix(known)), query, body)))

    def _may(self, request: Request) -> bool:
        """Whether the request bears the token; compared in constant time."""
        if not self._token:
            return True
        given = request.headers.get("authorization") or ""
        scheme, bearer = given[: len(_BEARER)].lower(), given[len(_BEARER) :].strip()
        return scheme == _BEARER and hmac.compare_digest(bearer.encode("utf-8", "surrogatepass"), self._token)

    def _knows_host(self, host: str) -> bool:
        """Whether a Host header names an address, a loopback name or a configured name (RFC 9110 section 7.2)."""
        found = _HOST.fullmatch(host)
        name = found["name"].strip("[]").lower() if found is not None else ""
        if name in self._names:
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return True


async def _body(request: Request) -> Mapping[str, JsonValue] | Page:
    """The JSON mapping that a POST brings; none at all counts as an empty one."""
    request.say_continue()
    data = await read_whole(request, MAX_BODY, _BODY_TIME)
    if isinstance(data, Unread):
        return unfit(data.message, data.status or data.code.status)
    value = parse(data) if data.strip() else {}
    return value if isinstance(value, dict) else unfit("the body is a JSON mapping, or empty")


def _answer(page: Page) -> Answer:
    headers = [("Content-Type", page.content_type), ("Cache-Control", "no-store"), ("Server", SERVER)]
    return Answer(page.status, headers, page.body)
