"""Agent frameworks with a scripted model: a refused call is told to the model in our words, and the run goes on."""

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
    """Returns what each framework's model was told, job by job: a wrong and a mended call at each server, then clean
    calls without and with the proxy."""
    jobs: list[Any] = [[stage.url(server), WRONG] for server in SERVERS]
    jobs += [[stage.direct_url("high"), CLEAN], [stage.url("high"), CLEAN]]
    program = [python("py1"), str(HERE / "clients" / "loops.py")]
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(FRAMEWORKS, pool.map(lambda name: asked([*program, name], jobs), FRAMEWORKS), strict=True))


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("server", SERVERS)
def test_a_model_is_told_what_is_wrong_and_goes_on(framework: str, server: str, told: dict[str, list[Any]]) -> None:
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
