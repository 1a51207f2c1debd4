"""Agents of five frameworks call their tool rightly, streamed and not, although their model does not."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.extensions.chat.client_runs import CLIENTS, NODE, run_client
from tests.extensions.chat.scripted_model import Said, answers_by, has_result
from tests.parties.environment import needs, python
from tests.serving.proxied import proxied
from tests.serving.wire import tool

pytestmark = pytest.mark.large

_PYTHON: Final = [python("py1"), str(CLIENTS / "agent.py")]
# A framework -> the environment that has it, how its agents are started, and the APIs that its models speak.
FRAMEWORKS: Final = {
    "openai-agents": ("py1", [*_PYTHON, "openai-agents"], ("chat", "responses")),
    "pydantic-ai": ("py1", [*_PYTHON, "pydantic-ai"], ("chat", "responses", "messages")),
    "langchain": ("py1", [*_PYTHON, "langchain"], ("chat", "responses", "messages")),
    "litellm": ("py1", [*_PYTHON, "litellm"], ("chat", "messages")),
    "Vercel": (
        "models",
        ["node", str(CLIENTS / "agent.mjs"), NODE],
        ("chat", "compatible", "responses", "messages"),
    ),
}
# The model's answer -> the outcome of the call.
SAID: Final[dict[str, tuple[Said, str]]] = {
    "clean": (("get_weather", '{"city": "Oslo", "days": 3}'), "delivered"),
    "broken": (("GetWeather", '{"city": "Oslo", "days": "3"}'), "repaired"),
    "again": (("get_weather", '{"days": 3}'), "delivered"),
}
RIGHT: Final = ("get_weather", '{"city": "Oslo", "days": 3}')
END: Final = "It rains."


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_an_agent_calls_its_tool_rightly(framework: str) -> None:
    party, words, apis = FRAMEWORKS[framework]
    needs(party)
    routes = "  - {path: /v1, upstream: tools, repair: lenient, model: {retries: 1}}"
    async with tool(answers_by(answer_turn)) as server, proxied(routes, server.url) as proxy:
        found = await run_client(words, proxy.port, [*SAID])
        outcomes = [line["outcome"] for line in proxy.lines()]
    assert {api: dict.fromkeys(SAID, [[[["Oslo", 3]], END]] * 2) for api in apis} == found
    runs = [outcome for _, outcome in SAID.values() for outcome in (outcome, "passthrough") * 2]
    assert runs * len(apis) == outcomes


def answer_turn(_path: str, body: dict[str, Any]) -> Said:
    """Returns what the model says: its own call, the right one if that was refused, and words once it has the tool's
    result."""
    if not has_result(body):
        return SAID[body["model"]][0]
    return END if '"rain"' in str(body).replace("'", '"') else RIGHT
