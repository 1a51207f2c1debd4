"""A test over a table tries every row and names those that failed."""

from __future__ import annotations

import pytest

from tests.tables import each_row


def test_all_rows_are_tried_and_those_that_fail_are_named() -> None:
    tried = []

    @each_row("letter", "ab")
    @each_row(("number", "wanted"), [(1, 2), (3, 4)], ids=["one", "three"])
    def increments(letter: str, number: int, wanted: int) -> None:
        tried.append((letter, number))
        assert wanted == number + (letter == "a"), f"{letter}{number}"

    with pytest.raises(pytest.fail.Exception, match=r"^1 of 2 rows failed:\n\nb\nFailed: 2 of 2 .*\n\none\n") as seen:
        increments()
    assert "AssertionError: b3" in str(seen.value)
    assert [("a", 1), ("a", 3), ("b", 1), ("b", 3)] == tried


@each_row("number", [1, 2])
def test_a_parameter_that_is_no_column_is_a_fixture(number: int, tmp_path: object) -> None:
    assert (True, True) == (number in (1, 2), tmp_path is not None)


def test_a_table_without_rows_is_refused() -> None:
    with pytest.raises(AssertionError, match="without a row"):
        each_row("number", [])
