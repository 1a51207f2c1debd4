"""docs/engine.md names every keyword that is written and the bounds that hold."""

from __future__ import annotations

import re
from typing import Final

from proxy.core.check import functions, graph, program, shapes
from proxy.core.check.writer import CONDITIONS
from proxy.core.model.work import REPAIRING
from tests.core.test_suite import MISSED, PASSED
from tests.extensions.correction.running import ROOT

PAGE: Final = (ROOT / "docs" / "engine.md").read_text(encoding="utf-8")
WORDS: Final = re.sub(r"\s+", " ", PAGE)
SUITE: Final = re.sub(r"\s+", " ", (ROOT / "docs" / "evidence" / "engine.md").read_text(encoding="utf-8"))


def test_every_keyword_that_is_written_is_named() -> None:
    section = PAGE[PAGE.index("## Supported keywords") : PAGE.index("(`then` and `else`")]
    written = sorted({*CONDITIONS, *functions.KEYWORDS})
    assert written == re.findall(r"`([^`]+)`", section)


def test_the_bounds_are_those_of_the_code() -> None:
    assert f"`{REPAIRING:,}` units of work" in WORDS
    assert f"**Objects of more than {shapes.WIDE} properties**" in WORDS
    assert f"of up to {graph.SMALL} nodes are written out" in WORDS
    assert f"**From {program._SEVERAL} `patternProperties` on**" in WORDS


def test_the_figures_of_the_suite_are_those_of_its_test() -> None:
    required, _, formats = (sum(counts) for counts in zip(*PASSED.values(), strict=True))
    assert f"all {required:,} required cases" in SUITE
    assert f"all {formats:,} of `optional/format`" in SUITE
    assert len(MISSED) == 6
