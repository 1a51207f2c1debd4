"""The operator's port above several workers: each page is made of the workers' pages.

Any one worker answers for what is the same in all (routes, schemas, a dry run). All are asked where each has a part
(metrics, calls, the state of a drain) and where something changes. The result has the same shape as a single proxy's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final
from urllib.parse import parse_qs, urlencode

from proxy.core.json.jsontext import parse
from proxy.core.model.values import JsonValue
from proxy.server.admin.api import PAGES, Pages
from proxy.server.admin.calls_page import MOST_ENTRIES
from proxy.server.admin.event_stream import follow_workers
from proxy.server.admin.page import EventPage, Page, PageRequest, make_json_page, refuse_question
from proxy.server.workers.merged_answers import merge_overviews, merge_tools, merge_upstreams
from proxy.server.workers.supervisor import WorkerPool
from proxy.telemetry.merged import merge_pages

_NOBODY: Final = "no worker answers"


def make_pool_pages(worker_pool: WorkerPool) -> Pages:
    """The pages above several workers: those of `PAGES`, each answered by one worker or by all."""
    own: dict[tuple[str, str], Callable[[WorkerPool, PageRequest], Awaitable[Page | EventPage]]]
    own = {("/livez", "GET"): _alive, ("/metrics", "GET"): _metrics}
    own |= {(path, "GET"): _all for path in ("/readyz", "/startupz", "/-/drain", "/-/config")}
    own |= {(path, "GET"): _all for path in ("/-/overview", "/-/tools/", "/-/upstreams")}
    own |= {("/-/calls", "GET"): _calls, ("/-/calls/", "GET"): _first_found}
    own |= {(path, "POST"): _all for path in ("/-/reload", "/-/drain", "/-/log-level")}
    return {
        path: {method: partial(own.get((path, method), _any), worker_pool) for method in methods}
        for path, methods in PAGES.items()
    }


async def _alive(_: WorkerPool, _asked: PageRequest) -> Page:
    return make_json_page({"status": "ok"})


async def _any(worker_pool: WorkerPool, asked: PageRequest) -> Page:
    for worker in worker_pool.workers:
        page = await worker_pool.ask(worker, asked.method, _target(asked), _body(asked), asked.role)
        if page is not None:
            return page
    return refuse_question(_NOBODY, 503)


async def _all(worker_pool: WorkerPool, asked: PageRequest) -> Page:
    pages = await _gather(worker_pool, asked, _target(asked))
    if len(pages) < len(worker_pool.workers):
        return refuse_question(
            f"{len(worker_pool.workers) - len(pages)} of {len(worker_pool.workers)} workers do not answer", 503
        )
    worst = max(pages, key=lambda page: page.status)
    answers = [value for page in pages if isinstance(value := parse(page.body), dict)]
    if worst.status >= 400:
        return worst
    return make_json_page(together(answers))


async def _gather(worker_pool: WorkerPool, asked: PageRequest, target: str) -> list[Page]:
    """What the workers answer; those that do not are left out."""
    asking = (worker_pool.ask(worker, asked.method, target, _body(asked), asked.role) for worker in worker_pool.workers)
    return [page for page in await asyncio.gather(*asking) if page is not None]


async def _first_found(worker_pool: WorkerPool, asked: PageRequest) -> Page:
    """The answer of the worker that knows what is asked for."""
    pages = await _gather(worker_pool, asked, _target(asked))
    return min(pages, key=lambda page: page.status, default=refuse_question(_NOBODY, 503))


async def _calls(worker_pool: WorkerPool, asked: PageRequest) -> Page | EventPage:
    if not asked.wants_events:
        return await _all(worker_pool, asked)
    if worker_pool.readers.is_full():
        return refuse_question("as many readers as may be follow the calls already: come again later", 503)
    query = parse_qs(asked.query)
    after = asked.resume or query.pop("after", [""])[0]
    plain = replace(asked, accept="", resume="")

    async def read(place: str, changes: str) -> dict[str, JsonValue] | None:
        more = {"limit": [str(MOST_ENTRIES)], "changes": [changes], **({"after": [place]} if place else {})}
        target = f"{asked.path}?{urlencode({**query, **more}, doseq=True)}"
        answers = [value for page in await _gather(worker_pool, plain, target)
                   if page.status == 200 and isinstance(value := parse(page.body), dict)]  # fmt: skip
        return together(answers) if answers else None

    return EventPage(follow_workers(read, after, worker_pool.readers))


def together(answers: Sequence[dict[str, JsonValue]]) -> JsonValue:
    """The workers' answers as one: numbers summed, lists joined newest first, `drained` once all of them are."""
    if "bars" in answers[0]:
        return merge_overviews(answers)
    if "mistakes" in answers[0] and "invented" in answers[0]:
        return merge_tools(answers)
    if "upstreams" in answers[0]:
        return merge_upstreams(answers)
    whole = dict(answers[0])
    if "inflight" in whole:
        whole["inflight"] = sum(answer["inflight"] for answer in answers)
        whole["drained"] = all(answer.get("drained", True) for answer in answers)
    if "calls" in whole:
        calls = [call for answer in answers for call in answer["calls"]]
        whole["calls"] = sorted(calls, key=lambda call: str(call["timestamp"]), reverse=True)
        whole |= {name: sum(answer[name] for answer in answers) for name in ("kept", "bound", "missed")}
        for name in ("cursor", "changes_cursor"):
            whole |= {name: ",".join(answer[name] for answer in answers)} if name in whole else {}
        if "changes" in whole:
            whole["changes"] = [change for answer in answers for change in answer["changes"]]
    if "digest" in whole:
        whole["workers"] = [answer["digest"] for answer in answers]
    return whole


async def _metrics(worker_pool: WorkerPool, asked: PageRequest) -> Page:
    pages = await asyncio.gather(*(worker_pool.ask(worker, "GET", asked.path) for worker in worker_pool.workers))
    for worker, page in zip(worker_pool.workers, pages, strict=True):
        if page is not None:
            worker.page = page.body
    kind, text = merge_pages([worker.page for worker in worker_pool.workers], (worker_pool.gone,))
    return Page(text, content_type=kind)


def _target(asked: PageRequest) -> str:
    return f"{asked.path}?{asked.query}" if asked.query else asked.path


def _body(asked: PageRequest) -> JsonValue:
    return dict(asked.body) if asked.method == "POST" else None
