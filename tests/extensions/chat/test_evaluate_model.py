"""`evaluate --side model`: nothing wrong is accepted, clean answers stay, and repairs are worth what the page says."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from proxy.__main__ import main
from proxy.extensions.chat.cli.evaluate_model import WAYS, list_bundled_turns, measure_turns, read_turns, write_table
from tests.extensions.chat.recorded_turns import list_recorded_turns


@pytest.mark.large
async def test_the_bundled_turns_come_right_and_none_wrong() -> None:
    turns = list_bundled_turns()
    found = await measure_turns(turns)
    right = Counter(each.way for each in found if each.right)
    assert len(turns) >= 200
    assert len(turns) == len({turn.id for turn in turns})
    assert [] == [each.turn.id for each in found if each.wrong]
    assert [] == [
        each.turn.id for each in found if each.turn.kind == "clean" and each.way in WAYS[2:] and not each.same
    ]
    assert right["as it comes"] < right["plain JSON repair"] < right["standard"] < right["lenient"] == len(turns)
    assert "wrong and accepted" in write_table(found)


@pytest.mark.large
async def test_of_recorded_calls_none_is_made_wrong(tmp_path: Path) -> None:
    file = tmp_path / "turns.jsonl"
    file.write_text("\n".join(map(json.dumps, list_recorded_turns())), encoding="utf-8")
    found = await measure_turns(read_turns(file))
    assert [] == [each.turn.id for each in found if each.wrong]
    assert [] == [
        each.turn.id for each in found if each.turn.kind == "clean" and each.way in WAYS[2:] and not each.same
    ]


def test_a_file_that_holds_no_turns_is_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "turns.jsonl"
    file.write_text('{"id": "a"}\n')
    assert 2 == main(["evaluate", "--side", "model", "--file", str(file)])
    assert f"evaluate: {file}:1: this is no turn: KeyError('expected')\n" == capsys.readouterr().err
