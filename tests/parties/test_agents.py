"""Agent frameworks with a scripted model: the model reads our words about a rejected call, and the run continues."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest

from tests.parties.conftest import Stage
from tests.parties.environment import HERE, asked, python
from tests.parties.mistakes import BOOK

pytestmark = pytest.mark.large

FRAMEWORKS: Final = ("langchain", "openai-agents", "pydantic-ai")
# Low-level servers check nothing, and the TypeScript SDK has other words: behind the proxy all are alike.
SERVERS: Final = ("low", "ts1")
WRONG: Final = [{**BOOK, "copies": 3.7}, {**BOOK, "copies": "3"}]
CLEAN: Final = [BOOK, {**BOOK, "title": "Persuasion"}]


@pytest.fixture(scope="module")
def told(stage: Stage) -> dict[str, list[Any]]:
    """Returns the texts that each framework's model read, job by job: a wrong and a corrected call at each server, then
    clean calls without and with the proxy."""
    jobs: list[Any] = [[stage.url(server), WRONG] for server in SERVERS]
    jobs += [[stage.direct_url("high"), CLEAN], [stage.url("high"), CLEAN]]
    program = [python("py1"), str(HERE / "clients" / "loops.py")]
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(FRAMEWORKS, pool.map(lambda name: asked([*program, name], jobs), FRAMEWORKS), strict=True))


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("server", SERVERS)
def test_a_model_learns_what_is_wrong_and_the_run_continues(
    framework: str, server: str, told: dict[str, list[Any]]
) -> None:
    seen = told[framework][SERVERS.index(server)]
    refused, ordered = seen["told"]
    assert "Validation failed for tool 'book'" in refused
    assert "copies" in refused
    assert BOOK.items() <= json.loads(ordered).items()
    assert "The book is ordered." == seen["end"]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_clean_calls_are_the_same_to_the_model(framework: str, told: dict[str, list[Any]]) -> None:
    direct, proxied = told[framework][len(SERVERS) :]
    assert direct == proxied
    assert 2 == len(direct["told"])
