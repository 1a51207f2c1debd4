"""docs/seed-coverage.md names tests that exist, and leaves no numbered requirement out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "seed-coverage.md").read_text()
ROWS = [
    tuple(cell.strip() for cell in line.strip("|").split("|", 2))
    for line in PAGE.split("\n")
    if line.startswith("| ") and not line.startswith("| id ")
]


def defined(path: Path) -> set[str]:
    """The names of the tests in a file."""
    return set(re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE))


def missing(shown_by: str) -> list[str]:
    """What a row names and nobody has written."""
    lost = []
    for named in re.findall(r"`([^`]+)`", shown_by):
        name, _, test = named.partition("::")
        path = ROOT / name
        if not path.is_file() or (test and test not in defined(path)):
            lost.append(named)
    return lost


@pytest.mark.parametrize(("row", "shown_by"), [(row, shown_by) for row, _, shown_by in ROWS])
def test_what_a_row_names_exists(row: str, shown_by: str) -> None:
    if shown_by.startswith("not ours: "):
        assert len(shown_by) > len("not ours: ")
    else:
        assert "`" in shown_by, row
        assert [] == missing(shown_by)


def test_every_numbered_requirement_has_a_row() -> None:
    numbered = [f"FR-{number:03}" for number in range(1, 67)] + [f"NFR-{number:03}" for number in range(1, 21)]
    assert numbered == [row for row, _, _ in ROWS if row.startswith(("FR-", "NFR-"))]


def test_no_row_stands_twice() -> None:
    assert len(ROWS) == len({row for row, _, _ in ROWS})
