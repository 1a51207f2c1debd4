"""docs/evidence/kubernetes-tried.md has the form that `make cluster` gives it, row by row."""

from __future__ import annotations

import re

from tests.cluster.__main__ import PAGE, write_page


def test_the_page_is_what_the_runner_writes_of_its_rows() -> None:
    text = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| (.+) \| (yes|\*\*no\*\*) \|$", text, re.MULTILINE)
    (about,) = re.findall(
        r"^on a single node out of the real programs, in a network of its own: (.*)$", text, re.MULTILINE
    )

    assert write_page([(name, seen, right == "yes") for name, seen, right in rows], about) == text


def test_a_run_that_was_broken_off_leaves_its_rows() -> None:
    page = write_page([("Install", "installed in 1 s", True), ("Roll back", "failed: no node", False)], "Kubernetes 1")
    assert ["| Install | installed in 1 s | yes |", "| Roll back | failed: no node | **no** |"] == page.splitlines()[
        9:11
    ]
