"""The pages that the extension adds to the operator's port: one function for each."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from proxy.core.model.values import JsonValue
from proxy.extensions.console.calls_page import list_calls, show_call
from proxy.extensions.console.overview_page import show_overview, show_tool, show_upstreams
from proxy.interfaces import CountsConnections
from proxy.server.admin.api import is_waiting, list_current_tools, list_limits
from proxy.server.admin.page import EventPage, Page, PageRequest, refuse_question

if TYPE_CHECKING:
    from proxy.plugin import Serving

# --- answers of the operator's port that several readers share --------------------------------------------------------
# The most answers that are kept, and how long the longest one may be in bytes.
MOST_ANSWERS: Final = 8
LONGEST_ANSWER: Final = 256 * 1024
_MAX_AGE: Final = re.compile(r"(?:^|,)\s*max-age=([1-9][0-9]{0,5})\s*(?:,|$)")

Answer = Page | EventPage


class SharedAnswers:
    """The last answers that were made for readers with `max-age`, so that ten open pages cost little more than one.
    `now` gives seconds.

    A reader that sends `Cache-Control: max-age=N` (RFC 9111 section 5.2.1.1) takes an answer up to N seconds old, which
    was made for another reader with the same role, path and query. A reader that sends no `max-age` gets a new answer,
    and a POST, which may change something, ends all kept ones.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._made: dict[tuple[str, str, str, str], tuple[float, Page]] = {}

    async def find_or_make(
        self, question: PageRequest, cache_control: str, make: Callable[[PageRequest], Awaitable[Answer]]
    ) -> Answer:
        """Answers with a kept answer that is young enough, or with a new one. `Age` tells the age of a kept one."""
        wanted = _MAX_AGE.search(cache_control.lower())
        if question.method != "GET":
            answer = await make(question)
            self._made.clear()
            return answer
        if wanted is None:
            return await make(question)
        key = (question.role, question.path, question.query, question.accept)
        at, kept = self._made.get(key, (0.0, None))
        age = self._now() - at
        if kept is not None and age < int(wanted[1]):
            return replace(kept, headers=(*kept.headers, ("Age", str(int(age)))))
        answer = await make(question)
        if isinstance(answer, Page) and answer.status == 200 and len(answer.body) <= LONGEST_ANSWER:
            self._made.pop(key, None)
            self._made[key] = (self._now(), answer)
            if len(self._made) > MOST_ANSWERS:
                del self._made[next(iter(self._made))]
        return answer


# --- the pages that the extension adds to the operator's port ---------------------------------------------------------
# --- the console's static files below `/ui/` --------------------------------------------------------------------------
#
# The paths come from a list of the folder's files, so that no request can name a file elsewhere. A file is read at
# each request. The files need no token because they hold nothing about this proxy. The Content-Security-Policy lets
# the page load scripts, styles and data from this origin only, and Trusted Types keep text from being executed as
# code.

FOLDER: Final = Path(__file__).parent / "ui"
_INDEX: Final = "index.html"
_KINDS: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS: Final = (
    ("Cache-Control", "no-cache"),
    ("Content-Security-Policy", _POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)


@cache
def list_files() -> dict[str, Path]:
    """Returns every file that is served, by its path below /ui/."""
    found = (path for path in FOLDER.rglob("*") if path.suffix in _KINDS and path.is_file())
    return {path.relative_to(FOLDER).as_posix(): path for path in found}


async def show_file(question: PageRequest) -> Page:
    """Serves one file; `/ui/` serves index.html. An `If-None-Match` with the file's ETag gets a 304."""
    path = list_files().get(question.rest or _INDEX)
    if path is None:
        return refuse_question("no such file", 404)
    body = await asyncio.to_thread(path.read_bytes)
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = (*_HEADERS, ("ETag", tag))
    if question.known == tag:
        return Page(b"", 304, _KINDS[path.suffix], headers)
    return Page(body, 200, _KINDS[path.suffix], headers)


# --- the pages that the extension adds to the operator's port ---------------------------------------------------------
# The most tools with changed definitions that the overview shows, the latest reports.
_UNPINNED: Final = 20
# The states of circuit breakers by the number that the metric shows.
_BREAKER_STATES: Final = ("closed", "half-open", "open")


async def make_calls_page(serving: Serving, question: PageRequest) -> Page | EventPage:
    """The kept calls, or the stream of calls to come."""
    if serving.console is None:
        return _off()
    if question.wants_events and serving.readers.is_full():
        return refuse_question("too many readers follow the calls at the same time: try again later", 503)
    return await list_calls(serving.console, question, serving.readers)


async def make_call_page(serving: Serving, question: PageRequest) -> Page:
    """One kept call in full."""
    if serving.console is None:
        return _off()
    return await show_call(serving.console, question, serving.handler.snapshot.table.routes)


async def make_overview(serving: Serving, question: PageRequest) -> Page:
    """Returns whether the proxy works, and what needs attention."""
    if serving.console is None:
        return _off()
    served, handler = serving.reloader.served, serving.handler
    episodes = await handler.snapshot.services.store.list_episodes()
    limits = list_limits(serving)
    state: dict[str, JsonValue] = {
        "status": "draining" if handler.draining else "ok",
        "digest": served.loaded.digest,
        "config_mistakes": list(serving.reloader.mistakes),
        "restart_needed": list(served.restart_needed),
        "breakers": _name_breakers(serving),
        "conversations_waiting": len(
            {key.partition("/")[0] for key, episode in episodes if is_waiting(key, episode, limits)}
        ),
        "unpinned": [
            {
                "route": route,
                "tool": tool,
                "effect": effect,
                "change": change,
                "approve": serving.write_approval(route, tool),
            }
            for route, tool, effect, change in serving.unpinned.list_shown()[-_UNPINNED:]
        ],
        "listen": serving.url,
        "workers": 1,
    }
    return show_overview(serving.console, question, list_current_tools(serving), state)


async def make_tool_page(serving: Serving, question: PageRequest) -> Page:
    """The mistakes of models with one tool."""
    return _off() if serving.console is None else show_tool(serving.console, question, list_current_tools(serving))


def _off() -> Page:
    return refuse_question("the console is off (`admin.console`)", 404)


async def make_upstreams_page(serving: Serving, _: PageRequest) -> Page:
    """Breakers, statuses, faults and times of every upstream."""
    if serving.console is None:
        return _off()
    # Open, idle, and how many may be open; of those that keep a pool of connections.
    connections: dict[str, tuple[int, int, int]] = {}
    for name in serving.config.upstreams:
        upstream = serving.pools.find_unguarded(name)
        if isinstance(upstream, CountsConnections):
            connections[name] = upstream.count_connections()
    breakers = _name_breakers(serving)
    return show_upstreams(serving.console, serving.config.upstreams, breakers, connections, serving.metrics)


def _name_breakers(serving: Serving) -> dict[str, str]:
    """Upstream -> closed, half-open or open; of those that have a breaker."""
    return {name: _BREAKER_STATES[state] for name, state in serving.pools.breaker_states().items()}


async def make_file_page(_serving: Serving, question: PageRequest) -> Page:
    """Serves a file of the console."""
    return await show_file(question)
