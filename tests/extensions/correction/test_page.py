"""The pages on corrections name outcomes, placeholders and events; docs/evidence/corrections.md the measurements."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

from proxy.__main__ import main
from proxy.config.files.structure import list_other_names
from proxy.config.load import load
from proxy.extensions.correction.core.settings import PLACEHOLDERS, find_policy
from proxy.extensions.correction.core.words import QuestionOutcome
from proxy.extensions.correction.correction_section import find_correction
from proxy.extensions.correction.correctors import EVENTS
from proxy.extensions.correction.evaluation import read_bundled_cases, read_cases
from proxy.extensions.correction.rules import ACTIVATION, Why
from tests.telemetry.all_metrics import list_metrics

ROOT = Path(__file__).parents[3]
PAGE = "".join((ROOT / "docs" / name).read_text() for name in ("correction.md", "reference/correction.md"))
WORTH = (ROOT / "docs" / "evidence" / "corrections.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (PAGE + WORTH).split("\n")
    if line.startswith("| ")
]

VARIABLES = {
    "GOMIND_AGENT_MAX_RETRIES", "GOMIND_AGENT_USE_AI_CORRECTION", "GOMIND_AGENT_RETRY_BACKOFF_MS",
    "GOMIND_SEMANTIC_RETRY_ENABLED", "GOMIND_SEMANTIC_RETRY_MAX_ATTEMPTS", "GOMIND_SEMANTIC_RETRY_INDEPENDENT_STEPS",
    "GOMIND_LLM_DEBUG_ENABLED",
}  # fmt: skip


def first_cells(pattern: str) -> set[str]:
    return {found for row in ROWS for found in re.findall(pattern, row[0])}


def test_every_outcome_is_explained() -> None:
    assert {outcome.value for outcome in QuestionOutcome} <= first_cells(r"`(\w+)`")


def test_every_placeholder_is_explained_as_the_code_has_it() -> None:
    assert {f"`{{{{{name}}}}}`": meaning for name, meaning in PLACEHOLDERS.items()} == {
        row[0]: row[1] for row in ROWS if row[0].startswith("`{{")
    }


def test_every_event_and_metric_is_named() -> None:
    assert set(EVENTS) == first_cells(r"`((?:validation_feedback_|contextual_re_resolution\.)\w+)`")
    for name in re.findall(r"`(toolproxy_\w+)`", PAGE):
        assert name in list_metrics()


def test_every_variable_of_the_seeds_has_a_key() -> None:
    assert VARIABLES <= {name for system, name, _ in list_other_names() if system == "GoMind"}


def test_the_table_of_statuses_is_the_codes() -> None:
    (row,) = (row for row in ROWS if row[1].startswith("asked, unless"))
    assert [status for status, why in ACTIVATION.items() if why is Why.ARGUMENTS] == [
        int(s) for s in row[0].split(", ")
    ]


def test_the_example_of_the_page_is_a_config(tmp_path: Path) -> None:
    text = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[0]
    written = yaml.safe_load(text)
    assert {"upstreams", "correction", "routes"} == written.keys()
    (tmp_path / "key").write_text("k")
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "currency.yaml").write_text("type: object\n")
    (tmp_path / "c.yaml").write_text("version: 1\n" + text.replace("/run/secrets/model-key", "key"))
    config = load(tmp_path / "c.yaml", {}).config
    settings = find_correction(config)
    assert settings is not None
    assert ("authorization", "Bearer k") in settings.headers
    assert find_policy(config.routes[0].tools["currency"].policy).trajectory


def test_the_shares_without_a_model_are_those_that_are_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == main(["evaluate", "--out", str(tmp_path / "results.jsonl")])
    made = capsys.readouterr().out
    for mode in ("off", "layer 2"):
        (row,) = (row for row in ROWS if row[0] == mode)
        assert f"| {mode} | {row[1]} | {row[2]} |" in made
        assert made.splitlines()[2 if mode == "off" else 3].endswith(f"| {row[3]} |")


def test_the_case_on_the_page_is_one(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text(re.findall(r"^```json\n(.*?)^```", WORTH, re.MULTILINE | re.DOTALL)[0])
    (case,) = read_cases(tmp_path / "mine.jsonl")
    assert (True, False) == (case.is_right({"limit": 5}), case.is_right(case.sent))
    counted = Counter(case.kind for case in read_bundled_cases())
    assert {"valid": 10, "types": 12, "schema": 11, "context": 5, "unknowable": 3} == counted
    for kind, number in counted.items():
        assert re.search(rf"`{kind}`[^`]*\({number}\b", WORTH, re.DOTALL), kind
