"""Hand-made calls: those with two meanings are refused at every level, those with one arrive as they were meant from
the level on that each names (`tests/data/two-meanings`, `tests/data/one-meaning`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from proxy.core.model.values import Forward, Reject
from proxy.core.rules.rules import LEVELS
from tests.corpora.calls import judged, outcome, rows
from tests.tables import each_row

DATA: Final = Path(__file__).parent.parent / "data"
TWO: Final = list(rows(DATA / "two-meanings/further.jsonl"))
ONE: Final = list(rows(DATA / "one-meaning/further.jsonl"))


def named(case: dict[str, Any]) -> str:
    return str(case["id"])


@each_row("case", TWO, ids=named)
def test_a_call_with_two_meanings_is_refused_at_every_level(case: dict[str, Any]) -> None:
    for level in LEVELS:
        decision = judged(case["schema"], case["sent"], level, tool=case["tool"])
        assert isinstance(decision, Reject), (level, case["sent"], case["note"])


@each_row("case", ONE, ids=named)
def test_a_call_with_one_meaning_is_taken_as_it_was_meant_from_its_level_on(case: dict[str, Any]) -> None:
    for level in LEVELS[LEVELS.index(case["level"]) :]:
        decision = judged(case["schema"], case["sent"], level, tool=case["tool"])
        assert isinstance(decision, Forward), (level, case["sent"])
        assert outcome(decision, case["sent"], case["expected"]) in ("right", "untouched"), case["sent"]


@each_row("case", ONE, ids=named)
def test_below_its_level_such_a_call_is_refused(case: dict[str, Any]) -> None:
    for level in LEVELS[: LEVELS.index(case["level"])]:
        assert isinstance(judged(case["schema"], case["sent"], level, tool=case["tool"]), Reject), level


def test_the_sets_are_as_large_as_they_say() -> None:
    assert len(TWO) >= 150
    assert len(ONE) >= 80
    assert len({json.dumps([case["tool"], case["schema"], case["sent"]]) for case in (*TWO, *ONE)}) == len(TWO) + len(
        ONE
    )
