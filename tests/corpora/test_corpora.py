"""The corpus runs over the samples in tests/data: what each level makes of them, and nothing wrong anywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.corpora.run_all import RUNS, reported
from tests.corpora.run_engine import engine
from tests.corpora.run_mending import collected
from tests.corpora.run_repair import bfcl, model_calls, real_failures
from tests.corpora.run_schemas import mcp_tools
from tests.corpora.run_text import DIFFERING, DUPLICATE_KEYS, READ_AT_LENIENT, READ_AT_STANDARD, malformed, parsing

DATA: Final = Path(__file__).parent.parent / "data"

Run = Callable[[Path], Iterator[tuple[str, Counter[str]]]]

# run -> what comes of it; the figures are the point: a change of one is a change of behaviour
EXPECTED: Final[dict[Run, dict[str, dict[str, int]]]] = {
    real_failures: {
        "real-failures at off": {"refused though repairable": 63, "right": 27},
        "real-failures at basic": {"refused though repairable": 43, "right": 47},
        "real-failures at standard": {"refused though repairable": 15, "right": 75},
        "real-failures at lenient": {"right": 90},
    },
    bfcl: {
        "bfcl, as they are": {"untouched": 205},
        "bfcl, numbers as text": {"right": 94},
        "bfcl, booleans as text": {"right": 27},
        "bfcl, containers as text": {"right": 22},
        "bfcl, all as text": {"right": 126},
    },
    parsing: {
        "json-parsing at off": {"i_ read": 5, "i_ refused": 30, "n_ refused": 188, "y_ read": 93, "y_ refused": 2},
        "json-parsing at standard": {
            "i_ read": 5, "i_ refused": 30, "n_ read by text repair": 4, "n_ refused": 184,
            "y_ read": 93, "y_ refused": 2,
        },
        "json-parsing at lenient": {
            "i_ read": 5, "i_ refused": 30, "n_ read by text repair": 17, "n_ refused": 171,
            "y_ read": 93, "y_ refused": 2,
        },
    },
    malformed: {
        "malformed-json at off": {"refused": 709, "refused, valid JSON": 1, "valid, as it is": 140},
        "malformed-json at standard": {
            "read differently, with reason": 5, "refused": 686, "refused, valid JSON": 1, "right": 18,
            "valid, as it is": 140,
        },
        "malformed-json at lenient": {
            "read differently, with reason": 7, "refused": 636, "refused, valid JSON": 1, "right": 66,
            "valid, as it is": 140,
        },
    },
}  # fmt: skip


@pytest.mark.parametrize("run", EXPECTED, ids=lambda run: run.__name__)
def test_a_corpus_comes_out_as_it_did(run: Run) -> None:
    assert EXPECTED[run] == {name: dict(found) for name, found in run(DATA)}


def test_calls_that_models_really_made_are_sent_right_or_not_at_all() -> None:
    runs = dict(model_calls(DATA))
    assert {"untouched": 53, "refused": 1} == dict(runs.pop("model_calls, valid"))
    for level in ("standard", "lenient"):
        total = sum((found for name, found in runs.items() if f" at {level}," in name), Counter[str]())
        assert {"refused": 169, "right": 2, "repaired; the model meant another value": 9} == dict(total)


def test_generated_calls_of_real_tools_are_left_alone_and_recovered() -> None:
    runs = {name: dict(found) for name, found in mcp_tools(DATA)}
    assert {"minimal example": 117} == runs["mcp-tools, schemas"]
    assert {"untouched": 702} == runs["mcp-tools, generated calls"]
    assert {"nothing to spell": 424, "recovered": 278} == runs["mcp-tools, spelt as text"]
    assert {"refused", "repaired", "valid"} == runs["mcp-tools, with mistakes"].keys()


def test_menders_make_of_collected_calls_what_the_repair_engine_makes() -> None:
    ((_, found),) = collected(DATA)
    assert (0, True) == (found["wrong"], found["same"] > 50)


def test_the_engine_judges_and_reports_collected_calls_as_its_peers_do() -> None:
    ((_, found),) = engine(DATA)
    assert (0, True) == (found["wrong"], found["values"] > 1000)


def test_a_wrong_case_fails_the_runs(capsys: pytest.CaptureFixture[str]) -> None:
    def wrong(data: Path) -> Iterator[tuple[str, Counter[str]]]:
        yield "a run", Counter({"right": 3, "wrong": 1})

    assert 1 == reported((wrong,), DATA)
    assert "a run" + " " * 56 + "right 3, wrong 1\n" == capsys.readouterr().out
    assert {real_failures, bfcl, model_calls, parsing, malformed, mcp_tools, collected, engine} <= set(RUNS)


def test_the_lists_of_exceptions_are_short_and_reasoned() -> None:
    assert (2, 4, 17, 7) == (len(DUPLICATE_KEYS), len(READ_AT_STANDARD), len(READ_AT_LENIENT), len(DIFFERING))
    assert READ_AT_STANDARD < READ_AT_LENIENT
    assert all(DIFFERING.values())
