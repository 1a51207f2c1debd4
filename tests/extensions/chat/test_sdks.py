"""The SDKs of OpenAI and Anthropic, for Python and TypeScript, read the right calls through the proxy, streamed or not:
those that real models broke, those in the text, and those of a second answer. A failure is the SDK's own error."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pytest

from proxy.core.json.jsontext import parse
from proxy.core.model.values import JsonProblem
from tests.extensions.chat.answers import WEATHER
from tests.extensions.chat.client_runs import CLIENTS, NODE, run_client
from tests.extensions.chat.recorded_turns import list_recorded_turns
from tests.extensions.chat.samples import WHOLE
from tests.extensions.chat.scripted_model import Said, answers_by, has_result, stream_text_and_call
from tests.parties.environment import needs, python
from tests.serving.proxied import proxied
from tests.serving.wire import JSON_TYPE, answer, tool

pytestmark = pytest.mark.large

OPENAI_WAYS: Final = ("chat", "chat, streamed", "responses", "responses, streamed")
ANTHROPIC_WAYS: Final = ("messages", "messages, streamed")
# An SDK -> the environment that has it, how its client is started, and its ways to ask.
SDKS: Final = {
    f"{package}, {language}": (party, [*words, package], ways)
    for language, party, words in (
        ("Python", "py1", [python("py1"), str(CLIENTS / "sdk.py")]),
        ("TypeScript", "models", ["node", str(CLIENTS / "sdk.mjs"), NODE]),
    )
    for package, ways in (("openai", OPENAI_WAYS), ("anthropic", ANTHROPIC_WAYS))
}
# A recorded turn with a number of 19 digits, and those that stay wrong at every level. A repair would have to guess the
# meaning of a value of another shape, a key of another name, a key too many, or a null that no rule allows.
LONG_NUMBER: Final = "rf-028"
GUESSED: Final = {
    "a value for a list": (
        "gorilla/AIREV-Agent-0.8B/parallel_multiple_126#240",
        "rf-030",
        "rf-094",
        "rf-126",
        "rf-127",
    ),
    "a wrapper of any name": ("rf-033", "rf-084", "rf-102", "ff-31", "ff-33"),
    "a key of another name": ("ff-39", "ff-41"),
    "a key too many": ("rf-082", "rf-083"),
    "a null that nothing states": ("rf-123", "rf-143", "ff-43", "ff-45"),
}
LEFT: Final = frozenset(name for names in GUESSED.values() for name in names)
TOOLS: Final = {"get_weather": WEATHER}
WRONG: Final = ("get_weather", '{"days": 3}')
RIGHT: Final = ("get_weather", '{"city": "Oslo"}')
BUSY: Final = json.dumps({"type": "error", "error": {"type": "rate_limit_error", "message": "slower"}}).encode()


@dataclass(frozen=True)
class Turn:
    """The model's answer to a request with these tools, and to the second request."""

    tools: dict[str, Any]
    said: Said
    next_said: Said | None = None


# The calls that the SDK read, by way and turn.
Read = dict[str, dict[str, Any]]


async def ask(sdk: str, turns: dict[str, Turn], model: str) -> Read:
    """Asks for each turn in each way of an SDK, through a route with these settings of `model`."""

    def choose(_path: str, body: dict[str, Any]) -> Said:
        turn = turns[body["model"]]
        return turn.next_said if turn.next_said is not None and has_result(body) else turn.said

    return await ask_model(sdk, choose, {name: turn.tools for name, turn in turns.items()}, model)


async def ask_model(
    sdk: str, choose: Callable[[str, dict[str, Any]], Said], models: dict[str, dict[str, Any]], model: str
) -> Read:
    """Asks each of the models, each with its own tools, in each way of an SDK."""
    party, words, ways = SDKS[sdk]
    needs(party)
    routes = f"  - {{path: /v1, upstream: tools, repair: lenient, model: {model}}}"
    asked = [{"model": name, "tools": tools} for name, tools in models.items()]
    async with tool(answers_by(choose)) as server, proxied(routes, server.url) as proxy:
        found: Read = await run_client(words, proxy.port, asked)
    assert [*ways] == [*found]
    return {way: {name: _read_calls(calls) for name, calls in each.items()} for way, each in found.items()}


def _read_calls(calls: Any) -> Any:
    """Calls by name and arguments, of which OpenAI's SDK gives the text."""
    if not isinstance(calls, list):
        return calls
    return [[name, parse(sent.encode()) if isinstance(sent, str) else sent] for name, sent in calls]


def list_recorded() -> dict[str, tuple[Turn, Any]]:
    """Calls that real models broke, with what is right."""
    found = {}
    for turn in list_recorded_turns():
        if turn["expected"] and turn["kind"] != "clean":
            function = turn["message"]["tool_calls"][0]["function"]
            said = (function["name"], function["arguments"])
            found[turn["id"]] = (Turn(turn["tools"], said), turn["expected"])
    return found


@pytest.fixture(scope="module", params=SDKS)
def read(request: pytest.FixtureRequest) -> tuple[str, Read]:
    """An SDK, and what it read of all turns."""
    turns = {
        **{name: turn for name, (turn, _) in list_recorded().items()},
        **{name: Turn(TOOLS, text) for name, (text, _) in WHOLE.items()},
        "again": Turn(TOOLS, WRONG, RIGHT),
        "busy": Turn(TOOLS, answer("429 Too Many Requests", BUSY, JSON_TYPE)),
    }
    return request.param, asyncio.run(ask(request.param, turns, "{retries: 1, text_calls: leaked}"))


def test_calls_that_real_models_broke_arrive_repaired(read: tuple[str, Read]) -> None:
    sdk, found = read
    assert (101, 18) == (len(list_recorded()), len(LEFT & list_recorded().keys()))
    for way, each in found.items():
        right = {name: calls for name, (turn, calls) in list_recorded().items() if is_told(sdk, way, name, turn)}
        assert right == {name: each[name] for name in right}


def is_told(sdk: str, way: str, name: str, turn: Turn) -> bool:
    """Returns whether a recorded call has to be repaired, and the SDK can return it. An answer of Messages in one piece
    has no broken JSON, and the TypeScript SDK of Anthropic reads numbers as JavaScript does."""
    is_broken = isinstance(turn.said, tuple) and isinstance(parse(turn.said[1].encode()), JsonProblem)
    is_short = sdk == "anthropic, TypeScript" and name == LONG_NUMBER
    return not (name in LEFT or is_short or (way == "messages" and is_broken))


def test_calls_in_the_text_arrive_as_calls(read: tuple[str, Read]) -> None:
    _, found = read
    right = {name: [["get_weather", each] for each in calls] for name, (_, calls) in WHOLE.items()}
    for each in found.values():
        assert right == {name: each[name] for name in right}


def test_asks_again_for_a_call_that_cannot_be_repaired(read: tuple[str, Read]) -> None:
    _, found = read
    right = [["get_weather", {"city": "Oslo"}]]
    assert dict.fromkeys(found, right) == {way: each["again"] for way, each in found.items()}


def test_an_error_of_the_model_server_is_raised_as_the_sdks_own(read: tuple[str, Read]) -> None:
    _, found = read
    raised = {"error": "RateLimitError", "status": 429}
    assert dict.fromkeys(found, raised) == {way: each["busy"] for way, each in found.items()}


@pytest.mark.parametrize("sdk", SDKS)
async def test_an_answer_in_one_piece_that_is_refused_is_raised_as_the_sdks_own_error(sdk: str) -> None:
    found = await ask(sdk, {"wrong": Turn(TOOLS, WRONG)}, "{mode: refuse}")
    raised = {"wrong": {"error": "InternalServerError", "status": 502}}
    assert [raised] * (len(found) // 2) == [each for way, each in found.items() if not way.endswith("streamed")]


# The exception of an SDK for an error in a stream. OpenAI's for Python returns that of Responses as an event.
ENDINGS: Final = {
    "openai, Python": {"error": "APIError", "status": None},
    "anthropic, Python": {"error": "APIStatusError", "status": 200},
    "openai, TypeScript": {"error": "APIError", "status": None},
    "anthropic, TypeScript": {"error": "APIError", "status": None},
}


@pytest.mark.parametrize("sdk", SDKS)
async def test_the_error_that_ends_a_stream_is_read_as_the_sdks_own(sdk: str) -> None:
    def choose(path: str, body: dict[str, Any]) -> Said:
        return stream_text_and_call(path, ("It ", "rains"), WRONG) if body.get("stream") else "It rains"

    found = await ask_model(sdk, choose, {"refused": TOOLS}, "{mode: refuse}")
    read = {way: each["refused"] for way, each in found.items() if way.endswith("streamed")}
    if sdk == "openai, Python":
        message = read["responses, streamed"].pop("message")
        assert message.startswith("The model's call is refused. Validation failed for tool 'get_weather'")
        assert {"error": "INVALID_ARGUMENTS", "number": 8} == read.pop("responses, streamed")
    assert dict.fromkeys(read, ENDINGS[sdk]) == read
