"""docs/reference/codes.md says of every code what the catalogue says, and of nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from proxy.call_record import CallRecord
from proxy.core.contract.attempts import RAISES_ATTEMPT
from proxy.core.model.codes import ERROR_CODES, STATUS_OF_CATEGORY, VIOLATION_CODES, ErrorCode, Severity
from proxy.telemetry.logs import build_fields

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "codes.md").read_text()


def rows(title: str) -> list[tuple[str, ...]]:
    """The rows of the first table below a heading, without its head; code marks taken off."""
    table = PAGE.split(f"## {title}\n", 1)[1].split("\n|---", 1)[1].split("\n\n", 1)[0]
    lines = table.strip().split("\n")[1:]
    lines = [re.sub(r'<a id="[\w-]+"></a>', "", line) for line in lines]
    return [tuple(cell.strip().strip("`") for cell in line.strip("|").split(" | ")) for line in lines]


def test_every_code_has_an_anchor_that_the_log_line_links_to() -> None:
    assert sorted([*ERROR_CODES, *VIOLATION_CODES]) == sorted(re.findall(r'<a id="([\w-]+)"></a>`', PAGE))
    line = build_fields(CallRecord("r", "/weather", code="INVALID_ARGUMENTS"))
    assert "docs/reference/codes.md#INVALID_ARGUMENTS" == line["error.help"]


TITLES = {True: "Another call by the model can succeed (`retryable`)", False: "No other call can"}


def row(code: ErrorCode) -> tuple[str, ...]:
    return (code.name, str(code.status), code.category, code.meaning, code.remedy)


@pytest.mark.parametrize("retryable", TITLES)
def test_the_page_lists_every_code_with_status_category_meaning_and_remedy(retryable: bool) -> None:
    assert [row(code) for code in ERROR_CODES.values() if code.retryable is retryable] == rows(TITLES[retryable])


def test_the_page_lists_every_error_type_with_its_codes() -> None:
    names: dict[str, list[str]] = {}
    for code in ERROR_CODES.values():
        names.setdefault(code.error_type, []).append(code.name)
    found = {cells[0]: cells[1] for cells in rows("Types and attempts")}
    assert "all others" == found.pop("tool_error")
    del names["tool_error"]
    assert names == {error_type: re.findall(r"[A-Z_]+", codes) for error_type, codes in found.items()}


def test_the_page_lists_every_violation_with_hpds_name_and_its_meaning() -> None:
    assert [(code.name, code.hpd, code.meaning) for code in VIOLATION_CODES.values()] == rows("Errors of a value")


def test_the_page_lists_every_category_with_its_status() -> None:
    assert [(category, str(status)) for category, status in STATUS_OF_CATEGORY.items()] == rows("Categories")


def test_the_page_names_what_raises_an_attempt() -> None:
    sentence = re.search(r"\n((?:[^\n]+\n)*?raise the attempt)", PAGE)
    assert sentence is not None
    assert set(re.findall(r"`([A-Z_]+)`", sentence[1])) == RAISES_ATTEMPT


def test_the_page_names_every_severity() -> None:
    assert all(f"| `{severity}` |" in PAGE for severity in Severity)
