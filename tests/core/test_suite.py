"""Every case of the JSON-Schema-Test-Suite, through our own check.

The required cases must all pass, formats as annotation. The optional ones are counted, and what is missed is listed
by name: a case that starts to fail, or to pass, changes the list.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from jiter import LosslessFloat

from proxy.core.check.validation import Check, compile_check

SUITE: Final = Path(__file__).parents[1] / "data" / "json-schema-test-suite"

DIALECTS: Final = {
    "draft4": "http://json-schema.org/draft-04/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}

# draft -> cases that must pass: required, optional, optional/format
PASSED: Final = {
    "draft4": (618, 100, 219),
    "draft6": (839, 106, 325),
    "draft7": (927, 114, 676),
    "draft2019-09": (1259, 158, 757),
    "draft2020-12": (1299, 160, 764),
}

CONTENT: Final = "content* is an annotation in our reading (2020-12 validation 8.1); draft 7 leaves it open"
VOCABULARY: Final = "whether a format is asserted is our switch, not the meta-schema's (format-assertion vocabulary)"

# The optional cases that we miss, and why.
MISSED: Final = {
    ("draft7", "optional/content.json", "an invalid JSON document"): CONTENT,
    ("draft7", "optional/content.json", "an invalid base64 string (% is not a valid character)"): CONTENT,
    ("draft7", "optional/content.json", "a validly-encoded invalid JSON document"): CONTENT,
    ("draft7", "optional/content.json", "an invalid base64 string that is valid JSON"): CONTENT,
    ("draft2020-12", "optional/format-assertion.json", "format-assertion: false: invalid string"): VOCABULARY,
    ("draft2020-12", "optional/format-assertion.json", "format-assertion: true: invalid string"): VOCABULARY,
}


class Case(NamedTuple):
    file: str
    description: str
    check: Check
    value: Any
    valid: bool


def _read(name: str) -> Any:
    return json.loads(
        gzip.decompress((SUITE / f"{name}.json.gz").read_bytes()), parse_float=lambda text: LosslessFloat(text.encode())
    )


def _documents(draft: str) -> Mapping[str, Any]:
    """The remote schemas, as a draft reads them; those below another draft's folder keep that draft."""
    documents = {}
    for path, schema in _read("remotes").items():
        dialect = DIALECTS.get(path.split("/")[0], DIALECTS[draft])
        if isinstance(schema, dict) and not path.startswith(("v1", "draft3")):
            documents[f"http://localhost:1234/{path}"] = {"$schema": dialect, **schema}
    return documents


def cases(draft: str, kind: str) -> Iterator[Case]:
    documents = _documents(draft)
    for file, groups in _read(draft).items():
        if kind != ("format" if "optional/format/" in file else "optional" if "optional" in file else "required"):
            continue
        for group in groups:
            schema = group["schema"]
            if isinstance(schema, dict):
                schema = {"$schema": DIALECTS[draft], **schema}
            check = compile_check(schema, documents=documents, formats=kind == "format")
            for test in group["tests"]:
                yield Case(file, test["description"], check, test["data"], test["valid"])


@pytest.mark.parametrize("draft", DIALECTS)
@pytest.mark.parametrize("kind", ["required", "optional", "format"])
def test_the_suite_passes_but_for_what_is_listed(draft: str, kind: str) -> None:
    passed, missed = 0, set()
    for case in cases(draft, kind):
        if case.check.accepts(case.value) is case.valid:
            passed += 1
        else:
            missed.add((draft, case.file, case.description))
    expected = {entry for entry in MISSED if entry[0] == draft and kind == "optional"}
    assert (PASSED[draft][("required", "optional", "format").index(kind)], expected) == (passed, missed)


@pytest.mark.parametrize("draft", DIALECTS)
def test_a_report_is_empty_exactly_for_the_values_that_are_accepted(draft: str) -> None:
    for kind in ("required", "optional", "format"):
        for case in cases(draft, kind):
            assert case.check.accepts(case.value) is (case.check.list_broken(case.value) == []), case


@pytest.mark.parametrize("draft", DIALECTS)
def test_the_root_node_gives_the_verdict_of_the_whole(draft: str) -> None:
    for case in cases(draft, "required"):
        assert case.check.accepts(case.value) is case.check.accepts_at(case.check.root, case.value), case
