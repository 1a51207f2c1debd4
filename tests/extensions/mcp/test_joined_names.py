"""Names of several servers that a client knows from before, and those of a server that is only starting."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.extensions.mcp import test_joined_upstream
from tests.extensions.mcp.conversation import BOTH, feedback, refusal, text
from tests.extensions.mcp.server import call, modern, modern_headers
from tests.extensions.mcp.test_joined import Client
from tests.extensions.mcp.test_joined_upstream import Joined, make, of
from tests.extensions.mcp.test_stdio_upstream import SERVER, asked
from tests.serving.proxied import proxied
from tests.serving.wire import exchange, post

joined = test_joined_upstream.joined  # a fixture
BOOKS = of("old", "book", always=False)


@BOOKS
@pytest.mark.parametrize(
    ("method", "params", "expected"),
    [
        ("prompts/get", {"name": "greet"}, "hello greet"),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {}}, "greet"),
        ("completion/complete", {"ref": {"type": "ref/resource", "uri": "book://{page}"}, "argument": {}}, "{page}"),
        ("resources/read", {"uri": "book://7"}, "book://7"),
    ],
)
async def test_finds_a_name_that_a_client_knows_from_an_earlier_list(
    joined: Joined,
    method: str,
    params: dict[str, Any],
    expected: str,
) -> None:
    answer = await joined.ask(asked(method, 1, **params), await joined.begin())
    assert expected in json.dumps(answer["result"])


@BOOKS
async def test_asks_for_a_list_once_before_it_calls_a_prompt_unknown(joined: Joined) -> None:
    session = await joined.begin()
    for _ in range(3):
        answer = await joined.ask(asked("prompts/get", 1, name="other"), session)
        assert "Unknown prompt: other" == answer["error"]["message"]
    seen = [json.loads(line) for line in json.loads(await _ask_for_lines(joined, session))]
    assert 1 == sum(line["method"] == "prompts/list" for line in seen)


async def _ask_for_lines(joined: Joined, session: Any) -> str:
    lines: str = (await joined.ask(call("book_seen"), session))["result"]["content"][0]["text"]
    return lines


@of("old", "gone", always=False)
async def test_names_the_servers_out_of_reach_next_to_an_unknown_prompt(joined: Joined) -> None:
    answer = await joined.ask(asked("prompts/get", 1, name="greet"), await joined.begin())
    assert "Unknown prompt: greet (out of reach: gone)" == answer["error"]["message"]


async def test_of_several_errors_the_one_with_data_reaches_the_client() -> None:
    for names in (("book", "other"), ("other", "book")):
        both = await make(*names)
        answer = await both.ask(asked("resources/read", 1, uri="x://1"), await both.begin())
        assert {"uri": "x://1"} == answer["error"]["data"]
        await both.close()


# --- a server that starts ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("prefix", "name"), [("always", "slow_echo"), ("clash", "echo")])
@pytest.mark.parametrize("late", ["late", "late-list"])
async def test_says_that_a_server_is_starting_and_counts_no_attempt(
    tmp_path: Path, prefix: str, name: str, late: str
) -> None:
    ready = tmp_path / "ready"
    command = json.dumps([sys.executable, str(SERVER), f"{late}={ready}"])
    route = (
        f"  - {{path: /mcp, protocol: mcp, servers: {{slow: slow}}, mcp: {{prefix: {prefix}, servers_wait: 100ms}}}}"
    )
    async with proxied(route, upstreams=f"{{slow: {{command: {command}}}}}") as proxy:
        client = Client(proxy)
        await client.begin()
        answer: Any = None
        for _ in range(4):
            answer = await client.ask(call(name, {"a": 1}))
            assert (True, "UPSTREAM_UNAVAILABLE") == refusal(answer)
            assert "Server 'slow' is still starting." in text(answer)
            assert "The tool did not run." in text(answer)
            assert (True, None) == (feedback(answer)["retryable"], feedback(answer)["attempt"])
        ready.touch()
        while "error" in answer or answer["result"].get("isError"):
            answer = await client.ask(call(name, {"a": 1}))
        assert '{"a": 1}' == text(answer)


async def test_waits_for_the_list_from_the_first_answer_of_a_process() -> None:
    command = json.dumps([sys.executable, str(SERVER), "modern"])
    route = "  - {path: /mcp, protocol: mcp, upstream: slow, mcp: {wait: 1ms}}"  # no interpreter starts so fast
    async with proxied(route, upstreams=f"{{slow: {{command: {command}}}}}") as proxy:
        message = call("echo", {"a": 1})
        body = post("/mcp", json.dumps(modern(message)).encode(), BOTH, *modern_headers(message))
        assert '{"a": 1}' == text(json.loads((await exchange(proxy.port, body)).body))
