"""The pages on access: each row of their tables is held by the code or by a test."""

from __future__ import annotations

import json
import re
from pathlib import Path

from proxy.config.files.published import load_published_schema

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/reference/access.md").read_text(encoding="utf-8")
EXPECTED = (ROOT / "docs/evidence/access.md").read_text(encoding="utf-8")


def test_each_row_of_what_is_expected_names_a_test_that_is_there() -> None:
    named = set(re.findall(r"\| `(test_\w+)` \|$", EXPECTED, re.MULTILINE))
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.rglob("test_*.py"))
    assert (True, set()) == (len(named) >= 9, {name for name in named if f"def {name}(" not in tests})


def test_the_page_lists_the_keys_of_an_issuer_with_their_defaults() -> None:
    properties = load_published_schema()["$defs"]["issuer"]["properties"]
    rows = dict(re.findall(r"^\| `(\w+)` \| (–|`[^`]*`) \| .* \|$", PAGE, re.MULTILINE))
    defaults = {name: json.dumps(each.get("default")).replace('"', "") for name, each in properties.items()}
    assert {name: "–" if text == "null" else f"`{text}`" for name, text in defaults.items()} == rows
