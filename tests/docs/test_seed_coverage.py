"""docs/evidence/seed-coverage.md names tests that exist and show what the row says, and leaves no requirement out."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import yaml

from tests.tables import each_row

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "evidence" / "seed-coverage.md").read_text()
ROWS = [
    tuple(cell.strip() for cell in line.strip("|").split("|", 2))
    for line in PAGE.split("\n")
    if line.startswith("| ") and not line.startswith("| id ")
]


# row -> what the tests that it names have to hold between them: the behaviour that the requirement asks for.
EVIDENCE = {
    "FR-008": ["severity=warning", "severity: info"],
    "FR-036": ["tool-attempt: 1/3", "tool-attempt: 2/3", "tool-attempt: 3/3", "together:"],
    "FR-038": ["tool-attempt: 3/3", "error_type: escalation", "max: 2"],
    "FR-041": ["error_type: escalation", "tool-error: ATTEMPTS_EXHAUSTED", "webhook"],
    "FR-042": ["history: [", "Attempt 1: ", "Attempt 2: ", "Attempt 3: ", "earlier"],
    "FR-043": ["original_call"],
    "FR-044": ["validation failed after 3 attempts."],
    "FR-045": ["status: blocked", "Status: Blocked.", "blocked"],
    "FR-048": ["For example", "if one of them means", "x-hint"],
    "FR-049": ["tool-attempt: 1/3", "tool-attempt: 2/3", "tool-attempt: 3/3"],
    "FR-055": ["ONE_ERROR", "ESCALATION", "max_content"],
    "NFR-015": ["warning", "escalated"],
    "NFR-016": ["toolproxy_violations_total", "toolproxy_warnings_total"],
    "V-3": ["tool-attempt: 2/3", "status: 200"],
    "V-4": ["status: blocked", "Attempt 1: "],
    "HPD-F1": ["/tools/Math.Add", "/tools/Math_Add", "Call 'Add' by its own name."],
    "HPD-F2": ["Multipy", "suggestion: ", "You probably want 'Multiply'"],
    "HPD-F3": ["auto_expand: expand", "Your parameters were ignored"],
    "HPD-F4": ["toolproxy_containers_total"],
    "GM-2": ["hint", "Add the country", "retryable"],
    "GM-8": ["original_error", "dial tcp: no such host"],
    "GM-13": ["LOCATION_NOT_FOUND", "Add the country", "Flower Mound"],
    "CZ-A2": ["CALL_CAP_EXCEEDED", "TOOL_ERROR_BUDGET", "by_address: on"],
}


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def sources(shown_by: str) -> str:
    """Returns the source of the tests that a row names: a whole scenario, or one function with the constants of its
    file."""
    found = []
    for named in re.findall(r"`([^`:]+\.(?:yaml|py))(?:::(test_\w+))?`", shown_by):
        text = (ROOT / named[0]).read_text()
        if not named[1]:
            found.append(text)
            continue
        tree = tree_of(ROOT / named[0])
        parts = [node for node in tree.body if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        parts += [node for node in tree.body if getattr(node, "name", None) == named[1]]
        found += [ast.get_source_segment(text, node) or "" for node in parts]
    return "\n".join(found)


def asserts(path: Path, test: str) -> bool:
    """Returns whether a test can fail: it asserts, or expects an exception."""
    tree = tree_of(path)
    (found,) = (node for node in tree.body if getattr(node, "name", None) == test)
    return any(
        isinstance(node, ast.Assert) or (isinstance(node, ast.Attribute) and node.attr == "raises")
        for node in ast.walk(found)
    )


def defined(path: Path) -> set[str]:
    """The names of the tests in a file."""
    return set(re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE))


def missing(shown_by: str) -> list[str]:
    """Returns what a row names and nobody has written."""
    lost = []
    for named in re.findall(r"`([^`]+)`", shown_by):
        name, _, test = named.partition("::")
        path = ROOT / name
        if not path.is_file() or (test and test not in defined(path)):
            lost.append(named)
    return lost


@each_row(("row", "shown_by"), [(row, shown_by) for row, _, shown_by in ROWS])
def test_the_tests_that_a_row_names_exist(row: str, shown_by: str) -> None:
    if shown_by.startswith("not ours: "):
        assert len(shown_by) > len("not ours: ")
    else:
        assert "`" in shown_by, row
        assert [] == missing(shown_by)


def test_every_numbered_requirement_has_a_row() -> None:
    numbered = [f"FR-{number:03}" for number in range(1, 67)] + [f"NFR-{number:03}" for number in range(1, 21)]
    assert numbered == [row for row, _, _ in ROWS if row.startswith(("FR-", "NFR-"))]


def test_no_row_appears_twice() -> None:
    assert len(ROWS) == len({row for row, _, _ in ROWS})


@each_row("row", EVIDENCE)
def test_the_tests_that_a_row_names_contain_its_evidence(row: str) -> None:
    (shown_by,) = (shown_by for name, _, shown_by in ROWS if name == row)
    held = sources(shown_by)
    assert [] == [words for words in EVIDENCE[row] if words not in held]


def test_every_named_test_can_fail() -> None:
    named = {
        (path, test)
        for _, _, shown_by in ROWS
        for path, test in re.findall(r"`(tests/[^`:]+\.py)::(test_\w+)`", shown_by)
    }
    assert [] == sorted(f"{path}::{test}" for path, test in named if not asserts(ROOT / path, test))


def test_every_named_scenario_has_steps_that_expect_something() -> None:
    named = {name for _, _, shown_by in ROWS for name in re.findall(r"`(tests/scenarios/\w+\.yaml)`", shown_by)}
    steps = {name: yaml.safe_load((ROOT / name).read_text())["steps"] for name in named}
    assert [] == sorted(
        name for name, each in steps.items() if not each or not all(step.get("expect") for step in each)
    )
