"""A check is one for all threads: whoever comes first writes its code, and all others get the same."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from proxy.core.check.validation import Check, compile_check
from proxy.core.contract.policy import RepairPolicy, ToolPolicy
from proxy.core.decide import prepare
from proxy.core.json.embedded import read_python_value
from proxy.core.model.values import JsonValue
from proxy.core.rules.rules import select_rules
from proxy.core.schema.nodes import Node

THREADS = 6
RULES = select_rules("standard", {})
SCHEMA: JsonValue = {
    "type": "object",
    "properties": {
        "rows": {"type": "array", "items": {"$ref": "#/$defs/row"}},
        "kind": {"oneOf": [{"const": "a"}, {"type": "object", "properties": {"b": {"type": "integer"}}}]},
    },
    "$defs": {"row": {"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}}},
}


@pytest.fixture(autouse=True)
def _threads_take_turns_at_every_step() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_the_nodes_of_a_schema_are_the_same_for_every_thread() -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in range(60):
            schemas, start = compile_check(SCHEMA).schemas, Barrier(THREADS)

            def walk(start: Barrier = start, root: Node = schemas.root) -> list[int]:
                start.wait()
                return [id(node) for node in root.schemas.nodes()]

            walks = [future.result() for future in [pool.submit(walk) for _ in range(THREADS)]]
            assert [walks[0]] * THREADS == walks


def test_code_is_written_once_however_many_threads_ask_for_it() -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in range(60):
            check, start = compile_check(SCHEMA), Barrier(THREADS)

            def write(start: Barrier = start, check: Check = check) -> object:
                start.wait()
                prepare(ToolPolicy("t", check, "f", repair=RepairPolicy(RULES)))
                return check.accepts

            found = [future.result() for future in [pool.submit(write) for _ in range(THREADS)]]
            assert 1 == len(set(map(id, found)))
            assert (True, False) == (check.accepts({"rows": [{"id": 1}]}), check.accepts({"rows": [{"id": "1"}]}))


class _Restless:
    """Garbage that gives other threads a turn when it is collected."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        time.sleep(0)


def test_python_texts_are_read_while_other_threads_read_some() -> None:
    names = [f"k{number}" for number in range(50)]

    def read(_: int) -> list[JsonValue]:
        found = []
        for _ in range(300):
            _Restless()
            found.append(read_python_value(repr(names)))
        return found

    before = gc.get_threshold()
    gc.set_threshold(10, 2, 2)
    try:
        with ThreadPoolExecutor(THREADS) as pool:
            results = [found for each in pool.map(read, range(THREADS)) for found in each]
    finally:
        gc.set_threshold(*before)
    assert [names] * 300 * THREADS == results


def test_writes_a_check_again_after_a_failed_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    check = compile_check(SCHEMA)
    with monkeypatch.context() as broken:

        def fail(*_: object) -> None:
            raise SystemError("out of luck")

        broken.setattr("proxy.core.check.writer.Writer.fail", fail)
        with pytest.raises(SystemError):
            check.prepare(everywhere=True)
    check.prepare(everywhere=True)

    assert (True, False) == (check.accepts({"rows": [{"id": 1}]}), check.accepts({"rows": [{"id": "1"}]}))
    assert ["type"] == [one.keyword for one in check.list_broken({"rows": [{"id": "1"}]})]
