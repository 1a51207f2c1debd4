"""The code of a check is written at the first call, or with `prepare: all` once the ports are open, for all checks."""

from __future__ import annotations

import asyncio
import io
import threading
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.config.load import load
from proxy.config.model import Address
from proxy.core.check.validation import Check
from proxy.core.contract.policy import ToolPolicy
from proxy.core.model.value_class import set_later
from proxy.core.schema.nodes import Node
from proxy.routing import RouteTable
from proxy.server import start_serving
from proxy.server.lifecycle import Warming
from proxy.server.reload import Compiled
from tests.steady import until

CONFIG = """\
version: 1
admin: off
prepare: all
upstreams: {tools: {url: http://127.0.0.1:9101}}
tools:
  weather: {schema: {type: object, properties: {lat: {type: number}}}}
  raw: {validation: "off"}
routes:
  - {path: /one, upstream: tools, tool: weather}
  - {path: /two, upstream: tools, tool: raw}
"""


def compile_text(tmp_path: Path, text: str = CONFIG) -> Compiled:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return Compiled.of(load(str(path), {}))


def check_of(table: RouteTable, route: str = "/one") -> Check:
    policy = next(route_.tools["weather"] for route_ in table.routes if route_.path == route)
    assert policy.check is not None
    return policy.check


def written(check: Check) -> bool:
    """Returns whether the judge has its code; before, `accepts` is the method that would write it."""
    return getattr(check.accepts, "__name__", "") == "A0"


async def test_a_warm_up_writes_each_check_and_ends(tmp_path: Path) -> None:
    told: list[str] = []
    compiled, warming = compile_text(tmp_path), Warming(lambda doing, error: told.append(f"{doing}: {error}"))
    assert not written(check_of(compiled.table))
    warming.begin(compiled)
    assert warming.task is not None
    await warming.task
    assert (True, []) == (written(check_of(compiled.table)), told)


async def test_a_check_waits_for_its_first_call_without_prepare(tmp_path: Path) -> None:
    compiled, warming = compile_text(tmp_path, CONFIG.replace("prepare: all\n", "")), Warming(lambda *_: None)
    warming.begin(compiled)
    assert warming.task is not None
    await warming.task
    assert not written(check_of(compiled.table))


async def test_the_last_one_begun_is_the_one_that_runs(tmp_path: Path) -> None:
    compiled, warming = compile_text(tmp_path), Warming(lambda *_: None)
    warming.begin(compiled)
    first = warming.task
    warming.begin(compiled)
    assert first is not None
    with pytest.raises(asyncio.CancelledError):
        await first
    warming.end()


async def test_a_defect_is_reported_and_stops_nothing_else(tmp_path: Path) -> None:
    told: list[str] = []
    compiled = compile_text(tmp_path)
    tools: dict[str, ToolPolicy] = {"broken": object()}  # type: ignore[dict-item]
    set_later(compiled.table.routes[0], "tools", tools)
    warming = Warming(lambda doing, error: told.append(f"{doing}: {type(error).__name__}"))
    warming.begin(compiled)
    assert warming.task is not None
    await warming.task
    assert ["warming up: AttributeError"] == told


@pytest.mark.large
async def test_a_thousand_routes_are_served_before_their_code_is_written(tmp_path: Path) -> None:
    text = (
        "version: 1\nadmin: off\nprepare: all\nupstreams: {tools: {url: http://127.0.0.1:9101}}\nroutes:\n"
        + "".join(
            f"  - {{path: /{number}, upstream: tools, tool: weather, "
            f"schema: {{properties: {{lat: {{maximum: {number}}}}}}}}}\n"
            for number in range(1000)
        )
    )
    path = tmp_path / "config.yaml"
    path.write_text(text)
    loaded = load(str(path), {})
    started = time.thread_time()
    serving = await start_serving(loaded, listen=Address("127.0.0.1", 0), log_to=io.StringIO(), environ={})
    took = time.thread_time() - started
    try:
        task = serving.warming.task
        assert task is not None
        assert not task.done()
        assert took < 5  # 2 to 10 ms each, were they written first
        checks = [check_of(serving.reloader.served.table, f"/{number}") for number in (0, 999)]
        await until(lambda: written(checks[0]))
        assert not written(checks[1])
    finally:
        await serving.stop(grace=0)
    assert task.cancelled() or task.cancelling()


async def test_the_first_call_of_a_tool_has_its_code_written_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[threading.Thread] = set()
    write = Check._write

    def note(check: Check, kind: str, node: Node) -> Any:
        threads.add(threading.current_thread())
        return write(check, kind, node)

    monkeypatch.setattr(Check, "_write", note)
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    serving = await start_serving(load(str(path), {}), listen=Address("127.0.0.1", 0), log_to=io.StringIO(), environ={})
    try:
        serving.warming.end()
        check = check_of(serving.reloader.served.table)
        assert not written(check)
        async with aiohttp.ClientSession() as client, client.post(f"{serving.url}/one", json={"lat": "x"}) as answer:
            assert 400 == answer.status
        assert written(check)
        assert threads
        assert threading.main_thread() not in threads
    finally:
        await serving.stop(grace=0)
