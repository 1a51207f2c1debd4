"""The last part of docs/reference/keys.md is what the code says."""

from __future__ import annotations

from tests.docs.defaults import PAGE, START, fixed, part


def test_the_part_is_made_from_the_constants() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert part() == START + text.partition(START)[2], "run `make docs`"


def test_the_part_is_not_empty() -> None:
    assert len(list(fixed())) > 5
