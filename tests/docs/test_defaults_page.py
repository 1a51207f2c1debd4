"""docs/defaults.md is what the schema and the code say."""

from __future__ import annotations

from tests.docs.defaults import PAGE, fixed, page, rows


def test_the_page_lists_every_default() -> None:
    assert page() == PAGE.read_text(encoding="utf-8"), "run `make docs`"


def test_the_page_is_not_empty() -> None:
    assert len(list(rows())) > 60
    assert len(list(fixed())) > 5
