"""Every scenario file is a test over plain HTTP. Those with the key `mcp` run over MCP too, in tests/extensions/mcp."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.matching import Answer, differences
from tests.scenarios.runner import hits, read_scenario, run_scenario
from tests.scenarios.upstream import Hit

SCENARIOS = sorted(Path(__file__).parent.glob("*.yaml"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
async def test_the_scenario_goes_as_written(path: Path, tmp_path: Path) -> None:
    found = await run_scenario(read_scenario(path), tmp_path / "config.yaml")
    assert not found, "\n".join(["", *found])


# --- the runner itself: a scenario that does not hold is noticed ------------------------------------------------------
ANSWER = Answer(400, {"tool-error": "X"}, b'{"content": "one\\ntwo", "a": {"b": 1, "c": [1, 2]}}')


@pytest.mark.parametrize(
    "expect",
    [
        {"status": 200},
        {"headers": {"tool-error": "Y"}},
        {"headers": {"tool-attempt": "1/3"}},
        {"absent": ["tool-error"]},
        {"body": {"content": "one\ntwo"}},
        {"text": "one"},
        {"has": {"a": {"b": True}}},
        {"has": {"a": {"c": [1]}}},
        {"has": {"d": 1}},
        {"keys": ["a", "content"]},
        {"contains": ["three"]},
        {"never": ["two"]},
        {"lines": ["two", "one"]},
        {"max_content": 6},
    ],
    ids=str,
)
def test_an_expectation_that_does_not_hold_is_noticed(expect: dict[str, object]) -> None:
    assert len(differences(expect, ANSWER)) == 1


def test_an_expectation_that_holds_is_quiet() -> None:
    assert [] == differences(
        {
            "status": 400,
            "headers": {"tool-error": "X"},
            "absent": ["tool-attempt"],
            "has": {"a": {"c": [1, 2]}},
            "keys": ["content", "a"],
            "contains": ["one\ntwo"],
            "never": ["three"],
            "lines": ["one", "tw"],
            "max_content": 7,
        },
        ANSWER,
    )


def test_a_request_that_reaches_the_tool_unasked_is_noticed() -> None:
    hit = Hit("POST", "/call", {}, b"{}")
    assert ["1 requests reached the tool, not 0: [b'{}']"] == hits([], [hit])
    assert ["body at the tool was '{}', not '{ }'"] == hits([{"path": "/call", "body": "{ }"}], [hit])
    assert [] == hits([{"path": "/call", "body": "{}"}], [hit])
