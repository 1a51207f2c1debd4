"""Hand-made calls: those with two meanings are refused up to `standard`, those with one arrive as they were meant from
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
def test_refuses_a_call_with_two_meanings(case: dict[str, Any]) -> None:
    for level in LEVELS[: LEVELS.index("lenient")]:
        if case.get("debatable"):
            continue
        decision = judged(case["schema"], case["sent"], level, tool=case["tool"])
        assert isinstance(decision, Reject), (level, case["sent"], case["note"])


def test_the_share_of_two_meanings_that_pass_is_bounded() -> None:
    passed = [
        case["id"]
        for case in TWO
        if not case.get("debatable")
        and isinstance(judged(case["schema"], case["sent"], "lenient", tool=case["tool"]), Forward)
    ]
    assert len(passed) <= len(TWO) // 10
    assert sum(bool(case.get("debatable")) for case in TWO) <= 48


def list_from_its_level(case: dict[str, Any]) -> tuple[str, ...]:
    """The levels that repair a case; none for one that is refused although it has one meaning (docs/repair.md)."""
    return () if case["level"] == "refused" else LEVELS[LEVELS.index(case["level"]) :]


@each_row("case", ONE, ids=named)
def test_reads_a_call_with_one_meaning_from_its_level_on(case: dict[str, Any]) -> None:
    for level in list_from_its_level(case):
        decision = judged(case["schema"], case["sent"], level, tool=case["tool"])
        assert isinstance(decision, Forward), (level, case["sent"])
        assert outcome(decision, case["sent"], case["expected"]) in ("right", "untouched"), case["sent"]


@each_row("case", ONE, ids=named)
def test_refuses_such_a_call_below_its_level(case: dict[str, Any]) -> None:
    for level in LEVELS[: len(LEVELS) - len(list_from_its_level(case))]:
        assert isinstance(judged(case["schema"], case["sent"], level, tool=case["tool"]), Reject), level


def test_the_sets_are_as_large_as_they_say() -> None:
    assert len(TWO) >= 150
    assert len(ONE) >= 80
    assert len({json.dumps([case["tool"], case["schema"], case["sent"]]) for case in (*TWO, *ONE)}) == len(TWO) + len(
        ONE
    )
