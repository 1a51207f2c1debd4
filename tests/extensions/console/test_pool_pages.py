"""The extension's pages above several workers."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from proxy.extensions.console.pool_pages import join_calls, merge_calls, merge_upstreams
from proxy.extensions.workers.supervisor import WorkerPool
from proxy.server.admin.page import EventPage, Page, PageRequest, Readers


def test_orders_changes_of_all_workers_by_time_and_shows_the_last_twenty_of_a_breaker() -> None:
    def calls(run: str, *times: str) -> dict[str, Any]:
        changes = [{"event": "reload", "at": at} for at in times]
        return {"calls": [], "kept": 0, "bound": 10, "missed": 0, "cursor": f"{run}.0", "changes_cursor": f"{run}.2",
                "changes": changes}  # fmt: skip

    def upstream(hour: int) -> dict[str, Any]:
        changes = [{"timestamp": f"2026-11-23T{hour:02}:00:{second:02}Z", "state": "open"} for second in range(20)]
        row = {
            "upstream": "tools",
            "breaker": "open",
            "connections": {},
            "requests": {},
            "faults": {},
            "resent": 0,
            "changes": changes,
        }
        return {"upstreams": [row | {"p50_ms": None, "p95_ms": None}]}

    joined = merge_calls([calls("a", "2026-11-23T01", "2026-11-23T03"), calls("b", "2026-11-23T02")])
    assert isinstance(joined, dict)
    assert [f"2026-11-23T0{hour}" for hour in (1, 2, 3)] == [change["at"] for change in joined["changes"]]
    whole = merge_upstreams([upstream(1), upstream(2)])
    assert isinstance(whole, dict)
    assert [f"2026-11-23T02:00:{second:02}Z" for second in reversed(range(20))] == [
        change["timestamp"] for change in whole["upstreams"][0]["changes"]
    ]


def test_older_calls_of_several_workers_follow_behind_the_place_of_each() -> None:
    one = {"calls": [{"timestamp": "2", "duration_ms": 1}], "kept": 9, "bound": 10, "missed": 0, "cursor": "a.9",
           "older": "a.9", "has_older": True, "sort": "-duration"}  # fmt: skip
    other = {
        **one,
        "calls": [{"timestamp": "1", "duration_ms": 5}],
        "cursor": "b.3",
        "older": "b.1",
        "has_older": False,
    }
    joined = merge_calls([one, other])
    assert isinstance(joined, dict)
    assert ("a.9,b.1", True, [5, 1]) == (
        joined["older"],
        joined["has_older"],
        [call["duration_ms"] for call in joined["calls"]],
    )


def test_calls_of_several_workers_are_sorted_as_those_of_one() -> None:
    def answer(sort: str, *calls: dict[str, Any]) -> dict[str, Any]:
        return {"calls": list(calls), "kept": 2, "bound": 9, "missed": 0, "cursor": "a.1", "sort": sort}

    one: list[dict[str, Any]] = [{"timestamp": "4", "retry_attempt": 2}, {"timestamp": "2"}]
    other: list[dict[str, Any]] = [{"timestamp": "3", "retry_attempt": 1}, {"timestamp": "1", "gen_ai.tool.name": "b"}]
    found = {}
    for sort in ("time", "-time", "-attempts", "attempts", "tool"):
        joined = merge_calls([answer(sort, *one), answer(sort, *other)])
        assert isinstance(joined, dict)
        found[sort] = "".join(call["timestamp"] for call in joined["calls"])
    assert {"time": "1234", "-time": "4321", "-attempts": "4321", "attempts": "2134", "tool": "4321"} == found


@dataclass
class Pool:
    """Two workers, `a` and `b`, each with one kept call. Those in `silent` do not answer, those in `dead` ended."""

    silent: set[str] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)
    asked: int = 0
    readers: Readers = field(default_factory=Readers)

    @property
    def workers(self) -> list[Any]:
        return [
            SimpleNamespace(run=run, process=SimpleNamespace(returncode=-9 if run in self.dead else None))
            for run in ("a", "b")
        ]

    async def ask(self, worker: Any, _method: str, target: str, *_: object) -> Page | None:
        self.asked += 1
        if worker.run in self.silent | self.dead:
            return None
        new = "after" not in target or f"{worker.run}.1" not in target
        calls = [{"id": f"{worker.run}.1", "timestamp": "1"}] if new else []
        shown = {"calls": calls, "cursor": f"{worker.run}.1", "kept": 1, "bound": 9, "missed": 0, "changes": [],
                 "changes_cursor": f"{worker.run}.0"}  # fmt: skip
        return Page(json.dumps(shown).encode())


async def read_stream(pool: Pool, start: str) -> str:
    """The events of a stream, which the reader ends after two more requests to the workers."""
    question = PageRequest("GET", "/-/calls", "", "", {}, accept="text/event-stream", resume=start)
    page = await join_calls(cast(WorkerPool, pool), question)
    assert isinstance(page, EventPage)
    pieces = []
    async for piece in page.events:
        pieces.append(piece.decode())
        pool.readers.ending = pool.asked >= 2
    return "".join(pieces)


async def test_a_worker_that_lives_and_is_slow_is_not_lost_and_its_calls_come_once() -> None:
    pool = Pool(silent={"a"})

    async def wake() -> None:
        while not pool.asked:
            await asyncio.sleep(0)
        pool.silent.clear()

    events, _ = await asyncio.gather(read_stream(pool, "a.1,b.0"), wake())
    assert (0, 1, 1) == (events.count("event: lost"), events.count("event: call"), events.count('"id":"b.1"'))


async def test_a_worker_that_has_ended_is_lost() -> None:
    events = await read_stream(Pool(dead={"a"}), "a.1,b.1")
    assert 'event: lost\ndata: {"worker":"a","missed":null}' in events
