"""The extension's pages above several workers, made of the workers' own pages: counts are summed, and the highest
percentile is shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final
from urllib.parse import parse_qs, urlencode

from proxy.core.json.jsontext import parse
from proxy.core.model.values import JsonValue
from proxy.extensions.console.attention import COUNTED, count_needs
from proxy.extensions.console.calls_page import MOST_ENTRIES, USUAL_SORT
from proxy.extensions.console.event_stream import follow_workers
from proxy.extensions.console.kept_calls import SORTS
from proxy.extensions.console.overview_page import MOST_CHANGES
from proxy.extensions.workers.pages import NO_ANSWER, Answer, ask_all, gather_pages, group_rows, make_target
from proxy.extensions.workers.supervisor import WorkerPool
from proxy.server.admin.page import EventPage, Page, PageRequest, refuse_question

_BAR: Final = 15
_BREAKERS: Final = ("none", "closed", "half-open", "open")


async def join_calls(worker_pool: WorkerPool, question: PageRequest) -> Page | EventPage:
    """The calls of all workers, newest first, or the stream of their events."""
    if not question.wants_events:
        return await ask_all(worker_pool, question, merge_calls)
    if worker_pool.readers.is_full():
        return refuse_question("too many readers follow the calls at the same time: try again later", 503)
    query = parse_qs(question.query)
    after = question.resume or query.pop("after", [""])[0]
    plain = replace(question, accept="", resume="")

    async def read(place: str, changes: str) -> dict[str, JsonValue] | None:
        more = {"limit": [str(MOST_ENTRIES)], "changes": [changes], **({"after": [place]} if place else {})}
        target = f"{question.path}?{urlencode({**query, **more}, doseq=True)}"
        pages = await gather_pages(worker_pool, plain, target)
        answers = [value for page in pages if page.status == 200 and isinstance(value := parse(page.body), dict)]
        # A worker that lives and does not answer in time keeps its place: its calls come with a later answer.
        living = sum(worker.process.returncode is None for worker in worker_pool.workers)
        return merge_calls(answers) if answers and len(answers) >= living else None

    return EventPage(follow_workers(read, after, worker_pool.readers))


def merge_calls(answers: Sequence[Answer]) -> JsonValue:
    """Calls are listed in the order that was asked for (of equal ones the newest first), counts are summed, and cursors
    are joined."""
    whole = dict(answers[0])
    calls = [call for answer in answers for call in answer["calls"]]
    order = str(whole.get("sort", USUAL_SORT))
    field = SORTS[order.removeprefix("-")][1]
    calls.sort(key=lambda call: call["timestamp"], reverse=True)
    empty: JsonValue = "" if any(isinstance(call.get(field), str) for call in calls) else 0
    whole["calls"] = sorted(calls, key=lambda call: call.get(field, empty), reverse=order.startswith("-"))
    whole["has_older"] = any(answer.get("has_older") for answer in answers)
    whole |= {name: sum(answer[name] for answer in answers) for name in ("kept", "bound", "missed")}
    for name in ("cursor", "older", "changes_cursor"):
        whole |= {name: ",".join(answer[name] for answer in answers)} if name in whole else {}
    if "changes" in whole:
        changes = [change for answer in answers for change in answer["changes"]]
        whole["changes"] = sorted(changes, key=lambda change: change["at"])
    return whole


async def find_call(worker_pool: WorkerPool, question: PageRequest) -> Page:
    """Asks all workers and returns the answer with the lowest status: that of the worker that keeps the call."""
    pages = await gather_pages(worker_pool, question, make_target(question))
    return min(pages, key=lambda page: page.status, default=refuse_question(NO_ANSWER, 503))


async def join_overviews(worker_pool: WorkerPool, question: PageRequest) -> Page:
    """The overview of all workers."""
    return await ask_all(worker_pool, question, _merge_overviews)


async def join_tools(worker_pool: WorkerPool, question: PageRequest) -> Page:
    """The page of one tool over all workers."""
    return await ask_all(worker_pool, question, _merge_tools)


async def join_upstreams(worker_pool: WorkerPool, question: PageRequest) -> Page:
    """The upstreams as all workers see them."""
    return await ask_all(worker_pool, question, merge_upstreams)


def _merge_overviews(answers: Sequence[Answer]) -> JsonValue:
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
    rows = group_rows((row for answer in answers for row in answer["tools"]), lambda row: (row["route"], row["tool"]))
    whole["tools"] = sorted((_merge_row(same) for same in rows), key=lambda row: -row["calls"])
    needs = {need["what"] + need["text"]: need for answer in answers for need in answer["needs"]
             if need["what"] not in COUNTED}  # fmt: skip
    whole["needs"] = [*count_needs(whole), *needs.values()]
    return whole


def _merge_tools(answers: Sequence[Answer]) -> JsonValue:
    """Merges the workers' pages of one tool. Each proposed change is from the worker with the most calls for it."""
    whole = dict(answers[0])
    whole["outcomes"] = _sum(answer["outcomes"] for answer in answers)
    whole["calls"] = sum(answer["calls"] for answer in answers)
    mistakes = group_rows(
        (row for answer in answers for row in answer["mistakes"]), lambda row: (row["path"], row["code"])
    )
    whole["mistakes"] = sorted((_merge_counts(same) for same in mistakes), key=lambda row: -row["calls"])
    keys = group_rows(
        (row for answer in answers for row in answer["invented"]), lambda row: (row["parent"], row["name"])
    )
    whole["invented"] = sorted((_merge_counts(same) for same in keys), key=lambda row: -row["calls"])
    changes = group_rows(
        (row for answer in answers for row in answer["changes"]), lambda row: (row["rule"], row["path"])
    )
    whole["changes"] = [max(same, key=lambda row: row["calls"]) for same in changes]
    return whole


def merge_upstreams(answers: Sequence[Answer]) -> JsonValue:
    """Merges the workers' lists of upstreams."""
    rows = group_rows((row for answer in answers for row in answer["upstreams"]), lambda row: row["upstream"])
    return {"upstreams": [_merge_upstream(same) for same in rows]}


def _merge_upstream(rows: Sequence[Answer]) -> Answer:
    worst = max(rows, key=lambda row: _BREAKERS.index(row["breaker"]))
    changes = sorted(
        (each for row in rows for each in row["changes"]), key=lambda each: each["timestamp"], reverse=True
    )
    return worst | {
        "connections": _sum(row["connections"] for row in rows),
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
    whole["upstream"] = max(row["upstream"] for row in rows)
    if summary := max((row.get("summary", "") for row in rows), key=_read_share):
        whole["summary"] = summary
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
    bars = group_rows(
        (bar for answer in answers for bar in answer["bars"]),
        lambda bar: int(datetime.fromisoformat(bar["at"]).timestamp()) // _BAR,
    )
    merged = [
        {"at": max(bar["at"] for bar in same), "outcomes": _sum(bar["outcomes"] for bar in same)} for same in bars
    ]
    return sorted(merged, key=lambda bar: str(bar["at"]))


def _merge_breakers(answers: Sequence[Answer]) -> dict[str, str]:
    names = [name for answer in answers for name in answer["breakers"]]
    return {
        name: max((answer["breakers"].get(name, "none") for answer in answers), key=_BREAKERS.index) for name in names
    }


def _read_share(summary: str) -> int:
    """The share at the beginning of a tool's sentence, such as `30 % of calls ...`."""
    share = summary.partition(" ")[0]
    return int(share) if share.isdecimal() else 0


def _sum(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(total)


def _worst(numbers: Iterable[float | None]) -> float | None:
    return max((number for number in numbers if number is not None), default=None)
