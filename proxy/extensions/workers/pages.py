"""The pages of the operator's port above several workers, made of the workers' own pages.

One worker answers where all workers would answer the same (routes, schemas, a dry run). All workers are queried if each
has a part of the answer (metrics, calls, the state of a drain), and for a reload, a drain and a new log level. The
answers have the same shape as those of a single proxy: counts are summed, and the highest percentile is shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol, runtime_checkable

from proxy.core.json.jsontext import parse
from proxy.core.model.values import JsonValue
from proxy.extensions.workers.supervisor import WorkerPool, merge_pages
from proxy.plugin import AddsPages
from proxy.plugins import find_plugins, list_plugins
from proxy.server.admin.api import PAGES, Make, Pages
from proxy.server.admin.page import EventPage, Page, PageRequest, make_json_page, refuse_question

NO_ANSWER: Final = "no worker answers"

Answer = dict[str, Any]
# Merges the workers' answers into one.
Merge = Callable[[Sequence[Answer]], JsonValue]


PoolPage = Callable[[WorkerPool, PageRequest], Awaitable[Page | EventPage]]


@runtime_checkable
class PoolsPages(Protocol):
    """A plugin with pages that are joined out of those of several workers."""

    def list_pool_pages(self) -> Mapping[str, PoolPage]:
        """Path -> what joins the pages."""


def make_pool_pages(worker_pool: WorkerPool) -> Pages:
    """Returns the pages above several workers: those of `PAGES`, each answered by one worker or by all."""
    own: dict[tuple[str, str], Callable[[WorkerPool, PageRequest], Awaitable[Page | EventPage]]]
    own = {("/livez", "GET"): _alive, ("/metrics", "GET"): _metrics}
    own |= {(path, "GET"): ask_all for path in ("/readyz", "/startupz", "/-/drain", "/-/config")}
    own |= {(path, "GET"): _list_attempts for path in ("/-/attempts", "/-/conversations")}
    own |= {(path, "POST"): ask_all for path in ("/-/reload", "/-/drain", "/-/log-level")}
    found: dict[str, dict[str, Make]] = {
        path: {method: partial(own.get((path, method), ask_any), worker_pool) for method in methods}
        for path, methods in PAGES.items()
    }
    pooled = {
        path: page
        for plugin in list_plugins()
        if isinstance(plugin, PoolsPages)
        for path, page in plugin.list_pool_pages().items()
    }
    for plugin in find_plugins(AddsPages):
        for path, page in plugin.pages.items():
            found.setdefault(path, {})[page.method] = partial(pooled.get(path, ask_any), worker_pool)
    return found


async def _alive(_: WorkerPool, _question: PageRequest) -> Page:
    return make_json_page({"status": "ok"})


async def ask_any(worker_pool: WorkerPool, question: PageRequest) -> Page:
    """Asks the first worker that answers."""
    for worker in worker_pool.workers:
        page = await worker_pool.ask(worker, question.method, make_target(question), _body(question), question.role)
        if page is not None:
            return page
    return refuse_question(NO_ANSWER, 503)


async def ask_all(worker_pool: WorkerPool, question: PageRequest, merge: Merge | None = None) -> Page:
    """Asks all workers, and merges their answers; a worker's refusal is the answer of all."""
    pages = await gather_pages(worker_pool, question, make_target(question))
    if len(pages) < len(worker_pool.workers):
        return refuse_question(
            f"{len(worker_pool.workers) - len(pages)} of {len(worker_pool.workers)} workers do not answer", 503
        )
    worst = max(pages, key=lambda page: page.status)
    answers = [value for page in pages if isinstance(value := parse(page.body), dict)]
    if worst.status >= 400:
        return worst
    return make_json_page((merge or _merge_answers)(answers))


async def gather_pages(worker_pool: WorkerPool, question: PageRequest, target: str) -> list[Page]:
    """Asks all workers and returns their answers. Workers that do not answer are left out."""
    asking = (
        worker_pool.ask(worker, question.method, target, _body(question), question.role)
        for worker in worker_pool.workers
    )
    return [page for page in await asyncio.gather(*asking) if page is not None]


async def _list_attempts(worker_pool: WorkerPool, question: PageRequest) -> Page:
    return await ask_all(worker_pool, question, merge_attempts)


def _merge_answers(answers: Sequence[Answer]) -> JsonValue:
    """Counts are summed, and `drained` is true once all workers are drained."""
    whole = dict(answers[0])
    if "inflight" in whole:
        whole["inflight"] = sum(answer["inflight"] for answer in answers)
        whole["drained"] = all(answer.get("drained", True) for answer in answers)
    if "digest" in whole:
        whole["workers"] = [answer["digest"] for answer in answers]
    return whole


def merge_attempts(answers: Sequence[Answer]) -> JsonValue:
    """Merges the workers' lists of episodes. An episode's row is that of the worker in which it failed last, because
    only that worker knows the time."""
    rows = group_rows((row for answer in answers for row in answer["attempts"]), lambda row: row["key"])
    latest = (max(same, key=lambda row: str(row.get("last", ""))) for same in rows)
    return {"attempts": sorted(latest, key=lambda row: not row["waiting"])}


async def _metrics(worker_pool: WorkerPool, question: PageRequest) -> Page:
    pages = await asyncio.gather(*(worker_pool.ask(worker, "GET", question.path) for worker in worker_pool.workers))
    for worker, page in zip(worker_pool.workers, pages, strict=True):
        if page is not None:
            worker.page = page.body
    kind, text = merge_pages([worker.page for worker in worker_pool.workers], (worker_pool.ended_metrics,))
    return Page(text, content_type=kind)


def make_target(question: PageRequest) -> str:
    """Returns the path and query to request from a worker."""
    return f"{question.path}?{question.query}" if question.query else question.path


def _body(question: PageRequest) -> JsonValue:
    return dict(question.body) if question.method == "POST" else None


def group_rows(rows: Iterable[Answer], name: Callable[[Answer], object]) -> list[list[Answer]]:
    """Groups rows by name, in the order in which the names first occur."""
    found: dict[object, list[Answer]] = {}
    for row in rows:
        found.setdefault(name(row), []).append(row)
    return list(found.values())
