"""`toolcall-proxy calls` finds single calls, says when a tool is unknown, and ends quietly in a pipe."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest

from proxy.__main__ import main
from tests.serving.proxied import WEATHER, Proxied, proxied
from tests.serving.wire import JSON_TYPE, answer, replies, tool

OK = answer("200 OK", b"{}", JSON_TYPE)


async def run_calls(proxy: Proxied, *words: str) -> int:
    return await asyncio.to_thread(main, ["calls", "--admin", f"127.0.0.1:{proxy.admin}", *words])


async def test_a_call_is_found_by_request_id_by_rule_and_by_conversation(capsys: pytest.CaptureFixture[str]) -> None:
    async with tool(replies(OK, OK, OK)) as server, proxied(WEATHER, server.url) as proxy:
        await proxy.post("/weather", b'{"lat": 1}', "X-Request-ID: r-1", "X-Conversation-Id: one")
        await proxy.post("/weather", b'{"lat": "1"}', "X-Request-ID: r-2", "X-Conversation-Id: two")
        assert 0 == await run_calls(proxy, "--request-id", "r-1", "--json")
        first = json.loads(capsys.readouterr().out)
        assert 0 == await run_calls(proxy, "--rule", "string_to_number", "--json")
        repaired = json.loads(capsys.readouterr().out)
        assert 0 == await run_calls(proxy, "--conversation", first["conversation"], "--json")
        same = json.loads(capsys.readouterr().out)
    assert ("r-1", "r-2", "r-1") == tuple(entry["correlation_id"] for entry in (first, repaired, same))


async def test_a_call_is_found_by_a_text_that_it_shows(capsys: pytest.CaptureFixture[str]) -> None:
    async with tool(replies(OK, OK)) as server, proxied(WEATHER, server.url) as proxy:
        await proxy.post("/weather", b'{"lat": 1}', "X-Request-ID: r-1", "X-Conversation-Id: one")
        await proxy.post("/weather", b'{"lat": "north"}', "X-Request-ID: r-2", "X-Conversation-Id: two")
        found = []
        for text in ("EXPECTED NUMBER", "R-1", "weath", "nowhere to be found"):
            assert 0 == await run_calls(proxy, "--text", text, "--json")
            lines = capsys.readouterr().out.splitlines()
            found.append([json.loads(line)["correlation_id"] for line in lines])
    assert [["r-2"], ["r-1"], ["r-1", "r-2"], []] == found


async def test_shows_the_failure_of_a_repaired_call(capsys: pytest.CaptureFixture[str]) -> None:
    async with proxied(WEATHER, "http://127.0.0.1:9") as proxy:
        await proxy.post("/weather", b'{"lat": "1"}')
        assert 0 == await run_calls(proxy)
    line = capsys.readouterr().out
    assert "weather upstream_error  connection_refused  " in line
    assert "string_to_number" not in line


async def test_a_tool_that_no_route_names_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    async with proxied(WEATHER) as proxy:
        assert 0 == await run_calls(proxy, "--tool", "weathr", "--tool", "weather")
    assert "calls: no route names a tool 'weathr'  (did you mean 'weather'?)\n" == capsys.readouterr().err


@pytest.mark.parametrize(("name", "hint"), [("refusd", "  (did you mean 'refused'?)"), ("xyz", "")])
def test_an_unknown_outcome_is_a_usage_error(name: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == main(["calls", "--outcome", name])
    assert f"calls: unknown outcome {name!r}{hint}\noutcomes: delivered, repaired, " in capsys.readouterr().err


def run_into_closed_pipe(command: list[str]) -> tuple[int, bytes]:
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        said = running.stderr.read()
        return running.wait(), said


async def test_a_reader_that_stops_reading_is_no_error() -> None:
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy:
        await proxy.post("/weather", b'{"lat": 1}')
        command = [sys.executable, "-m", "proxy", "calls", "--admin", f"127.0.0.1:{proxy.admin}"]
        assert (0, b"") == await asyncio.to_thread(run_into_closed_pipe, command)
