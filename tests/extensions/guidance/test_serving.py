"""Guidance at the agents' address: the tools that a caller may use, the state of the caller's conversation, the next
step."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from proxy.extensions.guidance.core.prompt import REACT_HEADER, ToolState, list_progress_hints
from tests.serving.proxied import Proxied, proxied
from tests.serving.wire import JSON_TYPE, Seen, answer, exchange, replies, tool

ROOT = Path(__file__).parents[3]
TOKEN = "desk-token-0123456789"
BEARER = json.dumps({"desk": f"sha256:{hashlib.sha256(TOKEN.encode()).hexdigest()}"})
SCHEMA = "{type: object, properties: {lat: {type: number}}, required: [lat]}"
ROUTES = f"""
  - {{path: /weather, upstream: tools, tool: weather, schema: {SCHEMA}, caps: {{default: 2}}}}
  - {{path: /search, upstream: tools, tool: search, schema: {{type: object}}}}
  - {{path: /pay, upstream: tools, tool: pay, schema: {{type: object}}, auth: {{bearer: {BEARER}}}}}
"""
SERVED = {"guidance": "{serve: /guidance}"}
OK = answer("200 OK", b"{}", JSON_TYPE)
MINE = "X-Conversation-Id: mine"


async def ask(proxy: Proxied, path: str, *headers: str) -> Seen:
    head = "\r\n".join([f"GET {path} HTTP/1.1", "Host: tools.test", *headers, "", ""])
    return await exchange(proxy.port, head.encode())


async def ask_json(proxy: Proxied, path: str, *headers: str) -> Any:
    return json.loads((await ask(proxy, path, "Accept: application/json", *headers)).body)


async def test_lists_the_tools_that_a_caller_may_use() -> None:
    async with proxied(ROUTES, **SERVED) as proxy:
        seen = await ask(proxy, "/guidance")
        anybody = await ask_json(proxy, "/guidance")
        desk = await ask_json(proxy, "/guidance", f"Authorization: Bearer {TOKEN}")
        one = await ask_json(proxy, "/guidance?route=/weather")
        hidden = [await ask(proxy, f"/guidance?{query}") for query in ("route=/pay", "tool=pay", "tool=nothing")]
    text = seen.body.decode()
    assert (200, "text/plain; charset=utf-8", "no-store") == (
        seen.status, seen.header("content-type"), seen.header("cache-control"),
    )  # fmt: skip
    assert text.startswith(REACT_HEADER)
    assert ["## weather", "## search"] == [line for line in text.splitlines() if line.startswith("## ")]
    assert [["weather", "search"], ["weather", "search", "pay"], ["weather"]] == [
        told["tools"] for told in (anybody, desk, one)
    ]
    assert [404, 404, 404] == [refused.status for refused in hidden]


async def test_it_tells_the_state_of_the_callers_own_conversation_and_what_to_do_next() -> None:
    async with tool(replies(OK)) as server, proxied(ROUTES, server.url, **SERVED) as proxy:
        await proxy.post("/weather", b'{"lat": 1}', MINE)
        await proxy.post("/weather", b'{"lat": "north"}', MINE)
        mine = await ask_json(proxy, "/guidance?tool=weather", MINE)
        text = (await ask(proxy, "/guidance?tool=weather", MINE)).body.decode()
        other = await ask_json(proxy, "/guidance?tool=weather", "X-Conversation-Id: other")
        nobody = await ask_json(proxy, "/guidance?tool=weather")
    state = {"tool": "weather", "used": 1, "cap": 2, "failed": 1, "max_attempts": 3, "to_expand": ""}
    assert [{**state, "last_failure": "Type mismatch on 'lat' (got: string)"}] == mine["state"]
    assert ["Mend what weather was last refused for, and change nothing else: 2 tries are left."] == mine["progress"]
    counts = "1 of 2 calls used, 1 left; 1 failed attempt of 3, 2 left"
    last = "last: Type mismatch on 'lat' (got: string)"
    assert f"- weather: {counts}; {last}\nProgress:\n- Mend what weather was last refused for" in text
    assert [{**state, "used": 0, "failed": 0, "last_failure": ""}] == other["state"]
    assert ([], []) == (nobody["state"], nobody["progress"])


async def test_it_is_not_served_unless_the_config_says_where() -> None:
    async with proxied(ROUTES) as proxy:
        assert 404 == (await ask(proxy, "/guidance")).status
    async with proxied(ROUTES, guidance="{serve: /guidance, dynamic_state: off}") as proxy:
        assert [] == (await ask_json(proxy, "/guidance", MINE))["state"]
    async with tool(replies(OK)) as server, proxied(ROUTES, server.url, guidance="{serve: /search}") as proxy:
        assert 405 == (await ask(proxy, "/search")).status  # the route goes first


def test_the_hints_name_the_most_urgent_first() -> None:
    states = [
        ToolState("a", 1, 2, 0, 3), ToolState("b", None, None, 2, 3),
        ToolState("c", None, None, 0, 3, to_expand="Math"),
        ToolState("d", 2, 2, 0, 3), ToolState("e", None, None, 3, 3), ToolState("f", 0, 2, 0, 3),
    ]  # fmt: skip
    assert [
        "e failed 3 times: stop, and ask the user.",
        "d is used up: go on with what you have.",
        "Call Math with no arguments before you call c.",
        "Mend what b was last refused for, and change nothing else: one try is left.",
        "a can be called once more: be sure of its arguments.",
    ] == list_progress_hints(states)


def test_a_file_is_kept_up_to_date_with_the_config(tmp_path: Path) -> None:
    config, prompt = tmp_path / "c.yaml", tmp_path / "prompt.txt"
    written = "version: 1\nroutes: [{path: /a, upstream: none, tool: %s, schema: {type: object}}]\n"
    config.write_text(written % "first")
    words = ["guidance", "--config", str(config), "--watch", str(prompt)]
    process = subprocess.Popen(
        [sys.executable, "-m", "proxy", *words], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        _await_text(prompt, "## first")
        config.write_text("version: 1\nroutes: nonsense\n")
        config.write_text(written % "second")
        _await_text(prompt, "## second")
        assert "## first" not in prompt.read_text()
    finally:
        process.terminate()
        process.wait(20)


def _await_text(path: Path, text: str) -> None:
    until = time.monotonic() + 60
    while not (path.is_file() and text in path.read_text()):
        assert time.monotonic() < until, f"{path} never held {text!r}"
        time.sleep(0.05)
