"""The operator's port above several workers: each page made of theirs.

Any one worker tells what is the same in all (routes, schemas, a dry run). All are asked where each knows a part
(metrics, calls, the state of a drain) and where something changes. What the operator gets has the shape that one proxy
would give.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from proxy.app.pages import PAGES, Pages
from proxy.app.question import Page, Question, json_page, unfit
from proxy.core.jsontext import parse
from proxy.core.model import JsonValue
from proxy.telemetry.merged import merged

if TYPE_CHECKING:
    from proxy.app.fleet import Fleet

_NOBODY: Final = "no worker answers"


def fleet_pages(fleet: Fleet) -> Pages:
    """The pages of a fleet: those of `PAGES`, each answered by one worker or all."""
    own = {("/livez", "GET"): _alive, ("/metrics", "GET"): _metrics}
    own |= {(path, "GET"): _all for path in ("/readyz", "/startupz", "/-/drain", "/-/calls", "/-/config")}
    own |= {(path, "POST"): _all for path in ("/-/reload", "/-/drain", "/-/log-level")}
    return {
        path: {method: partial(own.get((path, method), _any), fleet) for method in methods}
        for path, methods in PAGES.items()
    }


async def _alive(_fleet: Fleet, _asked: Question) -> Page:
    return json_page({"status": "ok"})


async def _any(fleet: Fleet, asked: Question) -> Page:
    for worker in fleet.workers:
        page = await fleet.ask(worker, asked.method, _target(asked), _body(asked))
        if page is not None:
            return page
    return unfit(_NOBODY, 503)


async def _all(fleet: Fleet, asked: Question) -> Page:
    asking = (fleet.ask(worker, asked.method, _target(asked), _body(asked)) for worker in fleet.workers)
    pages = [page for page in await asyncio.gather(*asking) if page is not None]
    if len(pages) < len(fleet.workers):
        return unfit(f"{len(fleet.workers) - len(pages)} of {len(fleet.workers)} workers do not answer", 503)
    worst = max(pages, key=lambda page: page.status)
    answers = [value for page in pages if isinstance(value := parse(page.body), dict)]
    if worst.status >= 400:
        return worst
    return json_page(_together(answers))


def _together(answers: Sequence[dict[str, JsonValue]]) -> JsonValue:
    """The answers of all workers as one: numbers summed, lists joined newest first, `drained` when all are."""
    whole = dict(answers[0])
    if "inflight" in whole:
        whole["inflight"] = sum(answer["inflight"] for answer in answers)
        whole["drained"] = all(answer.get("drained", True) for answer in answers)
    if "calls" in whole:
        calls = [call for answer in answers for call in answer["calls"]]
        whole["calls"] = sorted(calls, key=lambda call: str(call["timestamp"]), reverse=True)
    if "digest" in whole:
        whole["workers"] = [answer["digest"] for answer in answers]
    return whole


async def _metrics(fleet: Fleet, asked: Question) -> Page:
    pages = await asyncio.gather(*(fleet.ask(worker, "GET", asked.path) for worker in fleet.workers))
    for worker, page in zip(fleet.workers, pages, strict=True):
        if page is not None:
            worker.page = page.body
    kind, text = merged([worker.page for worker in fleet.workers], (fleet.gone,))
    return Page(text, content_type=kind)


def _target(asked: Question) -> str:
    return f"{asked.path}?{asked.query}" if asked.query else asked.path


def _body(asked: Question) -> JsonValue:
    return dict(asked.body) if asked.method == "POST" else None
