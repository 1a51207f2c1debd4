"""docs/evidence/security.md claims nothing that no test shows."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from tests.tables import each_row

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "evidence" / "security.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))


@cache
def list_functions(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@each_row(("file", "name"), NAMED)
def test_the_test_that_shows_a_claim_exists(file: str, name: str) -> None:
    assert name in list_functions(file)


def test_every_row_names_a_test() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| threat: to |")]
    assert (len(rows) > 30, []) == (True, [row for row in rows if "::test_" not in row.rsplit("|", 2)[1]])


def test_every_row_has_the_four_columns() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")]
    assert [] == [row for row in rows if row.count(" | ") != 3]


def test_each_of_the_four_parties_has_its_table_and_what_it_still_can_do() -> None:
    parts = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:5]
    assert ["A hostile model", "A hostile client", "A hostile upstream", "The author of a config"] == [
        part.splitlines()[0] for part in parts
    ]
    assert all("**can**" in part and "::test_" in part for part in parts)
