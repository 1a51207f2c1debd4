"""docs/errors.md says of every code what the catalogue says, and of nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from proxy.core.contract.attempts import RAISES_ATTEMPT
from proxy.core.model.codes import ERROR_CODES, STATUS_OF_CATEGORY, VIOLATION_CODES, ErrorCode, Severity

PAGE = (Path(__file__).parents[2] / "docs" / "errors.md").read_text()


def rows(title: str) -> list[tuple[str, ...]]:
    """The rows of the first table below a heading, without its head; code marks taken off."""
    table = PAGE.split(f"## {title}\n", 1)[1].split("\n|---", 1)[1].split("\n\n", 1)[0]
    lines = table.strip().split("\n")[1:]
    return [tuple(cell.strip().strip("`") for cell in line.strip("|").split(" | ")) for line in lines]


def row(code: ErrorCode) -> tuple[str, ...]:
    retryable = "yes" if code.retryable else "no"
    return (code.name, str(code.status), code.category, code.error_type, retryable, code.meaning, code.remedy)


def test_the_page_lists_every_code_with_status_category_meaning_and_remedy() -> None:
    assert [row(code) for code in ERROR_CODES.values()] == rows("What happened to the call")


def test_the_page_lists_every_violation_with_hpds_name_and_its_meaning() -> None:
    assert [(code.name, code.hpd, code.meaning) for code in VIOLATION_CODES.values()] == rows(
        "What is wrong with a value"
    )


def test_the_page_lists_every_category_with_its_status() -> None:
    assert [(category, str(status)) for category, status in STATUS_OF_CATEGORY.items()] == rows("Categories")


def test_the_page_names_what_raises_an_attempt() -> None:
    sentence = re.search(r"\n((?:[^\n]+\n)*?raise the attempt)", PAGE)
    assert sentence is not None
    assert set(re.findall(r"`([A-Z_]+)`", sentence[1])) == RAISES_ATTEMPT


def test_the_page_names_every_severity() -> None:
    assert all(f"| `{severity}` |" in PAGE for severity in Severity)
