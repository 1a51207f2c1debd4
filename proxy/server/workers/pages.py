"""The pages of the operator's port above several workers, made of the workers' own pages.

One worker answers where all workers would answer the same (routes, schemas, a dry run). All workers are asked where
each has a part of the answer (metrics, calls, the state of a drain), and for a reload, a drain and a new log level. The
answers have the same shape as those of a single proxy: counts are summed, and the highest percentile is shown.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qs, urlencode

from proxy.core.json.jsontext import parse
from proxy.core.model.values import JsonValue
from proxy.server.admin.api import PAGES, Pages
from proxy.server.admin.calls_page import MOST_ENTRIES
from proxy.server.admin.event_stream import follow_workers
from proxy.server.admin.overview_page import MOST_CHANGES
from proxy.server.admin.page import EventPage, Page, PageRequest, make_json_page, refuse_question
from proxy.server.workers.supervisor import WorkerPool
from proxy.telemetry.merged import merge_pages

_NOBODY: Final = "no worker answers"
_BAR: Final = 15
_BREAKERS: Final = ("none", "closed", "half-open", "open")

Answer = dict[str, Any]


def make_pool_pages(worker_pool: WorkerPool) -> Pages:
    """Returns the pages above several workers: those of `PAGES`, each answered by one worker or by all."""
    own: dict[tuple[str, str], Callable[[WorkerPool, PageRequest], Awaitable[Page | EventPage]]]
    own = {("/livez", "GET"): _alive, ("/metrics", "GET"): _metrics}
    own |= {(path, "GET"): _all for path in ("/readyz", "/startupz", "/-/drain", "/-/config")}
    own |= {
        (path, "GET"): _all for path in ("/-/overview", "/-/tools/", "/-/upstreams", "/-/attempts", "/-/conversations")
    }
    own |= {("/-/calls", "GET"): _calls, ("/-/calls/", "GET"): _first_found}
    own |= {(path, "POST"): _all for path in ("/-/reload", "/-/drain", "/-/log-level")}
    return {
        path: {method: partial(own.get((path, method), _any), worker_pool) for method in methods}
        for path, methods in PAGES.items()
    }


async def _alive(_: WorkerPool, _question: PageRequest) -> Page:
    return make_json_page({"status": "ok"})


async def _any(worker_pool: WorkerPool, question: PageRequest) -> Page:
    for worker in worker_pool.workers:
        page = await worker_pool.ask(worker, question.method, _target(question), _body(question), question.role)
        if page is not None:
            return page
    return refuse_question(_NOBODY, 503)


async def _all(worker_pool: WorkerPool, question: PageRequest) -> Page:
    pages = await _gather(worker_pool, question, _target(question))
    if len(pages) < len(worker_pool.workers):
        return refuse_question(
            f"{len(worker_pool.workers) - len(pages)} of {len(worker_pool.workers)} workers do not answer", 503
        )
    worst = max(pages, key=lambda page: page.status)
    answers = [value for page in pages if isinstance(value := parse(page.body), dict)]
    if worst.status >= 400:
        return worst
    return make_json_page(merge_answers(answers))


async def _gather(worker_pool: WorkerPool, question: PageRequest, target: str) -> list[Page]:
    """Asks all workers and returns their answers. Workers that do not answer are left out."""
    asking = (
        worker_pool.ask(worker, question.method, target, _body(question), question.role)
        for worker in worker_pool.workers
    )
    return [page for page in await asyncio.gather(*asking) if page is not None]


async def _first_found(worker_pool: WorkerPool, question: PageRequest) -> Page:
    """Asks all workers and returns the answer with the lowest status: that of the worker that keeps the call."""
    pages = await _gather(worker_pool, question, _target(question))
    return min(pages, key=lambda page: page.status, default=refuse_question(_NOBODY, 503))


async def _calls(worker_pool: WorkerPool, question: PageRequest) -> Page | EventPage:
    if not question.wants_events:
        return await _all(worker_pool, question)
    if worker_pool.readers.is_full():
        return refuse_question("too many readers follow the calls at the same time: try again later", 503)
    query = parse_qs(question.query)
    after = question.resume or query.pop("after", [""])[0]
    plain = replace(question, accept="", resume="")

    async def read(place: str, changes: str) -> dict[str, JsonValue] | None:
        more = {"limit": [str(MOST_ENTRIES)], "changes": [changes], **({"after": [place]} if place else {})}
        target = f"{question.path}?{urlencode({**query, **more}, doseq=True)}"
        answers = [value for page in await _gather(worker_pool, plain, target)
                   if page.status == 200 and isinstance(value := parse(page.body), dict)]  # fmt: skip
        return merge_answers(answers) if answers else None

    return EventPage(follow_workers(read, after, worker_pool.readers))


def merge_answers(answers: Sequence[dict[str, JsonValue]]) -> JsonValue:
    """Merges the workers' answers: counts are summed, calls are listed newest first, and `drained` is true once all
    workers are drained."""
    if "bars" in answers[0]:
        return merge_overviews(answers)
    if "mistakes" in answers[0] and "invented" in answers[0]:
        return merge_tools(answers)
    if "upstreams" in answers[0]:
        return merge_upstreams(answers)
    if isinstance(answers[0].get("attempts"), list):
        return merge_attempts(answers)
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
            changes = [change for answer in answers for change in answer["changes"]]
            whole["changes"] = sorted(changes, key=lambda change: change["at"])
    if "digest" in whole:
        whole["workers"] = [answer["digest"] for answer in answers]
    return whole


async def _metrics(worker_pool: WorkerPool, question: PageRequest) -> Page:
    pages = await asyncio.gather(*(worker_pool.ask(worker, "GET", question.path) for worker in worker_pool.workers))
    for worker, page in zip(worker_pool.workers, pages, strict=True):
        if page is not None:
            worker.page = page.body
    kind, text = merge_pages([worker.page for worker in worker_pool.workers], (worker_pool.gone,))
    return Page(text, content_type=kind)


def _target(question: PageRequest) -> str:
    return f"{question.path}?{question.query}" if question.query else question.path


def _body(question: PageRequest) -> JsonValue:
    return dict(question.body) if question.method == "POST" else None


def merge_overviews(answers: Sequence[Answer]) -> JsonValue:
    """Merges the workers' overviews."""
    whole = dict(answers[0])
    whole["workers"] = len(answers)
    whole["totals"] = _sum(answer["totals"] for answer in answers)
    whole["own_p95_ms"] = _worst(answer["own_p95_ms"] for answer in answers)
    whole["by_address"] = _sum(answer["by_address"] for answer in answers)
    whole["bars"] = _merge_bars(answers)
    whole["breakers"] = _merge_breakers(answers)
    for name in ("calls_kept", "calls_bound"):
        whole[name] = sum(answer[name] for answer in answers)
    rows = _group_rows((row for answer in answers for row in answer["tools"]), lambda row: (row["route"], row["tool"]))
    whole["tools"] = sorted((_merge_row(same) for same in rows), key=lambda row: -row["calls"])
    needs = {need["what"] + need["text"]: need for answer in answers for need in answer["needs"]}
    whole["needs"] = list(needs.values())
    return whole


def merge_tools(answers: Sequence[Answer]) -> JsonValue:
    """Merges the workers' pages of one tool. Each proposed change is taken from the worker with the most calls for
    it."""
    whole = dict(answers[0])
    whole["outcomes"] = _sum(answer["outcomes"] for answer in answers)
    whole["calls"] = sum(answer["calls"] for answer in answers)
    mistakes = _group_rows(
        (row for answer in answers for row in answer["mistakes"]), lambda row: (row["path"], row["code"])
    )
    whole["mistakes"] = sorted((_merge_counts(same) for same in mistakes), key=lambda row: -row["calls"])
    keys = _group_rows(
        (row for answer in answers for row in answer["invented"]), lambda row: (row["parent"], row["name"])
    )
    whole["invented"] = sorted((_merge_counts(same) for same in keys), key=lambda row: -row["calls"])
    changes = _group_rows(
        (row for answer in answers for row in answer["changes"]), lambda row: (row["rule"], row["path"])
    )
    whole["changes"] = [max(same, key=lambda row: row["calls"]) for same in changes]
    return whole


def merge_upstreams(answers: Sequence[Answer]) -> JsonValue:
    """Merges the workers' lists of upstreams."""
    rows = _group_rows((row for answer in answers for row in answer["upstreams"]), lambda row: row["upstream"])
    return {"upstreams": [_merge_upstream(same) for same in rows]}


def merge_attempts(answers: Sequence[Answer]) -> JsonValue:
    """Merges the workers' lists of episodes. An episode's row is that of the worker in which it failed last, which
    alone knows when that was."""
    rows = _group_rows((row for answer in answers for row in answer["attempts"]), lambda row: row["key"])
    latest = (max(same, key=lambda row: str(row.get("last", ""))) for same in rows)
    return {"attempts": sorted(latest, key=lambda row: not row["waiting"])}


def _merge_upstream(rows: Sequence[Answer]) -> Answer:
    worst = max(rows, key=lambda row: _BREAKERS.index(row["breaker"]))
    changes = sorted(
        (each for row in rows for each in row["changes"]), key=lambda each: each["timestamp"], reverse=True
    )
    return worst | {
        "requests": _sum(row["requests"] for row in rows),
        "faults": _sum(row["faults"] for row in rows),
        "resent": sum(row["resent"] for row in rows),
        "p50_ms": _worst(row["p50_ms"] for row in rows),
        "p95_ms": _worst(row["p95_ms"] for row in rows),
        "changes": changes[:MOST_CHANGES],
    }


def _merge_row(rows: Sequence[Answer]) -> Answer:
    whole = _merge_counts(rows)
    worst = [row["worst"] for row in rows if "worst" in row]
    if worst:
        whole["worst"] = max(worst, key=lambda each: each["calls"])
    whole["p95_ms"] = _worst(row["p95_ms"] for row in rows)
    if "safe_to_enforce" in whole:
        whole["safe_to_enforce"] = all(row.get("safe_to_enforce") for row in rows)
    return whole


def _merge_counts(rows: Sequence[Answer]) -> Answer:
    """Merges rows about one thing: integers and counts are summed, `last` is the latest, the rest is the first
    row's."""
    whole = dict(rows[0])
    for name, value in rows[0].items():
        if isinstance(value, int) and not isinstance(value, bool):
            whole[name] = sum(row.get(name, 0) for row in rows)
        elif isinstance(value, dict) and all(isinstance(number, int) for number in value.values()):
            whole[name] = _sum(row.get(name, {}) for row in rows)
        elif name == "last":
            whole[name] = max(row[name] for row in rows)
    return whole


def _merge_bars(answers: Sequence[Answer]) -> list[Answer]:
    """Merges the workers' bars. The workers' intervals end at different seconds, so bars are merged that end within the
    same 15 s of the clock."""
    bars = _group_rows((bar for answer in answers for bar in answer["bars"]), lambda bar: _quarter(bar["at"]))
    merged = [
        {"at": max(bar["at"] for bar in same), "outcomes": _sum(bar["outcomes"] for bar in same)} for same in bars
    ]
    return sorted(merged, key=lambda bar: str(bar["at"]))


def _quarter(stamp: str) -> int:
    return int(datetime.fromisoformat(stamp).timestamp()) // _BAR


def _merge_breakers(answers: Sequence[Answer]) -> dict[str, str]:
    names = [name for answer in answers for name in answer["breakers"]]
    return {
        name: max((answer["breakers"].get(name, "none") for answer in answers), key=_BREAKERS.index) for name in names
    }


def _sum(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(total)


def _worst(numbers: Iterable[float | None]) -> float | None:
    return max((number for number in numbers if number is not None), default=None)


def _group_rows(rows: Iterable[Answer], name: Callable[[Answer], object]) -> list[list[Answer]]:
    """Groups rows by name, in the order in which the names first occur."""
    found: dict[object, list[Answer]] = {}
    for row in rows:
        found.setdefault(name(row), []).append(row)
    return list(found.values())
