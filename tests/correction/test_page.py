"""docs/correction.md names everything there is: outcomes, placeholders, events, variables of the seeds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from proxy.config.load import load
from proxy.core.correction import PLACEHOLDERS, Asked
from proxy.correction.rules import ACTIVATION, Why
from proxy.telemetry.catalogue import CATALOGUE, CORRECTION_EVENTS
from tests.config.test_published_schema import all_keys

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "correction.md").read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.split("\n") if line.startswith("| ")]

VARIABLES = {
    "GOMIND_AGENT_MAX_RETRIES", "GOMIND_AGENT_USE_AI_CORRECTION", "GOMIND_AGENT_RETRY_BACKOFF_MS",
    "GOMIND_SEMANTIC_RETRY_ENABLED", "GOMIND_SEMANTIC_RETRY_MAX_ATTEMPTS", "GOMIND_SEMANTIC_RETRY_INDEPENDENT_STEPS",
    "GOMIND_LLM_DEBUG_ENABLED",
}  # fmt: skip


def first_cells(pattern: str) -> set[str]:
    return {found for row in ROWS for found in re.findall(pattern, row[0])}


def test_every_outcome_is_explained() -> None:
    assert {asked.value for asked in Asked} <= first_cells(r"`(\w+)`")


def test_every_placeholder_is_explained_as_the_code_has_it() -> None:
    assert {f"`{{{{{name}}}}}`": meaning for name, meaning in PLACEHOLDERS.items()} == {
        row[0]: row[1] for row in ROWS if row[0].startswith("`{{")
    }


def test_every_event_and_metric_is_named() -> None:
    assert set(CORRECTION_EVENTS) == first_cells(r"`((?:validation_feedback_|contextual_re_resolution\.)\w+)`")
    for name in re.findall(r"`(toolproxy_\w+)`", PAGE):
        assert name in CATALOGUE


@pytest.mark.parametrize("variable", sorted(VARIABLES))
def test_a_variable_of_the_seeds_has_a_key(variable: str) -> None:
    (row,) = (row for row in ROWS if row[0] == f"`{variable}`")
    named = re.findall(r"`([a-z_.]+)`", row[2])
    assert named
    assert set() == set(named) - all_keys().keys()


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
    assert config.correction is not None
    assert ("authorization", "Bearer k") in config.correction.headers
    assert config.routes[0].tools["currency"].policy.correction.trajectory
