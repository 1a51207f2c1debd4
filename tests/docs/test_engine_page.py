"""docs/engine.md names every keyword that is written, every reason that sends a schema to the other engine, and the
bounds that hold."""

from __future__ import annotations

import re
from typing import Any, Final

import pytest

from proxy.core.engine import graph, program, shapes, unevaluated
from proxy.core.engine.scalars import CONDITIONS
from proxy.core.repair import MAX_WORK
from proxy.core.validation import compile_check
from tests.cli.demo import ROOT
from tests.core.test_suite import FOREIGN, MISSED, PASSED

PAGE: Final = (ROOT / "docs" / "engine.md").read_text(encoding="utf-8")
WORDS: Final = re.sub(r"\s+", " ", PAGE)

HERE: Final = {"$id": "https://example.org/a", "$recursiveAnchor": True}
OTHER: Final = {"$id": "https://example.org/b", "$recursiveAnchor": True}
D2019: Final = "https://json-schema.org/draft/2019-09/schema"
LEFT: Final[list[tuple[dict[str, Any], dict[str, Any]]]] = [
    ({"$schema": "https://example.org/meta"}, {"https://example.org/meta": {"$schema": D2019}}),
    ({"$ref": "https://json-schema.org/draft/2020-12/schema"}, {}),
    ({"$dynamicAnchor": "x", "properties": {"a": {"$ref": "#", "$dynamicRef": "#x"}}}, {}),
    ({"$schema": D2019, **HERE, "$defs": {"b": OTHER}, "properties": {"a": {"$recursiveRef": "#"}}}, {}),
    (
        {
            "$id": "https://example.org/a",
            "$dynamicAnchor": "x",
            "$defs": {"b": {"$id": "https://example.org/b", "$dynamicAnchor": "x"}},
            "properties": {"a": {"$dynamicRef": "#x"}},
        },
        {},
    ),
]


def test_every_keyword_that_is_written_is_named() -> None:
    section = PAGE[PAGE.index("## What generated code expresses") : PAGE.index("(`then` and `else`")]
    written = sorted({*CONDITIONS, *shapes.SHAPES, *unevaluated.KEYWORDS})
    assert written == re.findall(r"`([^`]+)`", section)


@pytest.mark.parametrize(("schema", "documents"), LEFT)
def test_every_reason_for_the_other_engine_is_named(schema: dict[str, Any], documents: dict[str, Any]) -> None:
    reason = compile_check(schema, documents=documents).foreign
    assert reason is not None
    assert f"- `{reason}`" in PAGE


def test_there_are_no_other_reasons() -> None:
    reasons = {compile_check(schema, documents=documents).foreign for schema, documents in LEFT}
    assert len(LEFT) == len(reasons) == PAGE.count("\n- `$") + PAGE.count("\n- `a ref") + PAGE.count("\n- `the target")


def test_the_bounds_are_those_of_the_code() -> None:
    assert f"`{MAX_WORK:,}` units of work" in WORDS
    assert f"**Objects of more than {shapes.WIDE} properties**" in WORDS
    assert f"of up to {graph.SMALL} nodes are written out" in WORDS
    assert f"**From {program._SEVERAL} `patternProperties` on**" in WORDS


def test_the_figures_of_the_suite_are_those_of_its_test() -> None:
    required, _, formats = (sum(counts) for counts in zip(*PASSED.values(), strict=True))
    assert f"all {required:,} required cases" in WORDS
    assert f"all {formats:,} of `optional/format`" in WORDS
    assert len(MISSED) == 6
    assert f"JSON-Schema-Test-Suite {sum(FOREIGN.values())} schemas do" in WORDS
