"""docs/evidence/defaults.md is what the code says."""

from __future__ import annotations

from tests.docs.defaults import PAGE, fixed, page


def test_the_page_is_made_from_the_constants() -> None:
    assert page() == PAGE.read_text(encoding="utf-8"), "run `make docs`"


def test_the_page_is_not_empty() -> None:
    assert len(list(fixed())) > 5
