"""Model calls are seen where tool calls are: in the log, the metrics and the kept calls; values only where those are
kept."""

from __future__ import annotations

import asyncio
import json

import pytest

from proxy.__main__ import main
from tests.extensions.chat.answers import ROUTES, chat_answer, chat_request, chat_text, whole
from tests.extensions.chat.streams import chat_stream, streamed
from tests.serving.proxied import proxied
from tests.serving.wire import Seen, replies, tool

CHAT = "/v1/chat/completions"
SECRET = "Oslo-between-us"


async def test_a_model_call_is_kept_counted_and_logged_without_its_values() -> None:
    sent = chat_answer(json.dumps({"city": SECRET, "days": "3"}), "getWeather")
    async with tool(replies(whole(sent))) as server, proxied(ROUTES, server.url) as proxy:
        await proxy.post(CHAT, chat_request(), "Authorization: Bearer sk-between-us")
        kept = await proxy.ask_admin("/-/calls")
        metrics = (await proxy.ask_admin("/metrics")).body.decode()
        line, log = proxy.lines()[-1], proxy.log.getvalue()
    (entry,) = json.loads(kept.body)["calls"]
    shown = ("gen_ai.tool.name", "gen_ai.tool.call.id", "outcome", "http.route", "gen_ai.request.model")
    assert ["get_weather", "call_1", "repaired", "/v1", "tiny"] == [entry[key] for key in shown]
    assert [line[key] for key in shown] == [entry[key] for key in shown]
    assert [("tool_name", ""), "/days"] == [
        (line["repairs"][0]["rule"], line["repairs"][0]["path"]),
        line["repairs"][1]["path"],
    ]
    repaired = [row for row in metrics.splitlines() if row.startswith("toolproxy_repairs_total{")]
    assert all('route="/v1"' in row and 'tool="get_weather"' in row for row in repaired)
    assert any('rule="tool_name"' in row and row.endswith(" 1.0") for row in repaired)
    assert not any("between-us" in text for text in (log, metrics, kept.body.decode()))


async def test_a_wrong_call_is_kept_with_what_is_wrong() -> None:
    async with tool(replies(whole(chat_answer('{"days": 3}')))) as server, proxied(ROUTES, server.url) as proxy:
        await proxy.post(CHAT, chat_request())
        kept = await proxy.ask_admin("/-/calls?tool=get_weather")
    (entry,) = json.loads(kept.body)["calls"]
    assert ("delivered", "report", "INVALID_ARGUMENTS") == (
        entry["outcome"], entry["validation.mode"], entry["error.code"],
    )  # fmt: skip


def read_rows(metrics: Seen, name: str) -> dict[str, float]:
    """The series of a metric."""
    rows = [line.removeprefix(name).rsplit(" ", 1) for line in metrics.body.decode().splitlines()]
    return {labels: float(value) for labels, value in (row for row in rows if row[0].startswith("{"))}


async def test_calls_and_tokens_are_counted_by_model_and_tool() -> None:
    wrong, right = chat_answer('{"days": 3}'), chat_answer('{"city": "Oslo", "days": "3"}')
    routes = "  - {path: /v1, upstream: tools, model: {retries: 1}}"
    async with tool(replies(whole(wrong), whole(right))) as server, proxied(routes, server.url) as proxy:
        for model in ("tiny", "tiny", "m" * 61):
            await proxy.post(CHAT, chat_request(model=model))
        metrics = await proxy.ask_admin("/metrics")
    calls = read_rows(metrics, "toolproxy_model_calls_total")
    tokens = read_rows(metrics, "toolproxy_model_tokens_again_total")
    assert {
        '{model="tiny",outcome="repaired",route="/v1",tool="get_weather"}': 2.0,
        '{model="_other",outcome="repaired",route="/v1",tool="get_weather"}': 1.0,
    } == calls
    assert {'{model="tiny",route="/v1"}': 15.0} == tokens


async def test_no_more_models_than_fifty_have_series_of_their_own() -> None:
    async with tool(replies(whole(chat_answer('{"city": "Oslo"}')))) as server, proxied(ROUTES, server.url) as proxy:
        for number in range(52):
            await proxy.post(CHAT, chat_request(model=f"m{number}"))
        calls = read_rows(await proxy.ask_admin("/metrics"), "toolproxy_model_calls_total")
    assert 51 == len(calls)
    assert 2.0 == calls['{model="_other",outcome="valid",route="/v1",tool="get_weather"}']


UNREAD = {
    "request": (chat_request(), ("Content-Encoding: br",), whole(b"{}")),
    "too_long": (chat_request(), (), whole(chat_text("x" * 2_000))),
    "no_json": (chat_request(), (), whole(b"{broken")),
    "compressed": (chat_request(), (), whole(b"{}", "Content-Encoding: br")),
    "cut": (chat_request(stream=True), (), streamed(chat_stream(('{"city"',))[:-3])),
}


@pytest.mark.parametrize("reason", UNREAD)
async def test_what_is_relayed_unread_is_counted(reason: str) -> None:
    request, headers, sent = UNREAD[reason]
    routes = "  - {path: /v1, upstream: tools, model: {max_answer: 1000}}"
    async with tool(replies(sent)) as server, proxied(routes, server.url) as proxy:
        await proxy.post(CHAT, request, *headers)
        rows = read_rows(await proxy.ask_admin("/metrics"), "toolproxy_model_unread_total")
    assert {f'{{reason="{reason}",route="/v1"}}': 1.0} == rows


async def test_a_tool_whose_schema_cannot_be_used_is_told_of_once() -> None:
    broken = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "nonsense"}}}
    async with tool(replies(whole(chat_answer("{}")))) as server, proxied(ROUTES, server.url) as proxy:
        for _ in range(2):
            await proxy.post(CHAT, chat_request(tools=[broken]))
        rows = read_rows(await proxy.ask_admin("/metrics"), "toolproxy_model_calls_total")
        told = [line for line in map(json.loads, proxy.log.getvalue().splitlines()) if "cannot be used" in str(line)]
    assert {'{model="tiny",outcome="unjudged",route="/v1",tool="get_weather"}': 2.0} == rows
    assert [("/v1", "get_weather")] == [(line["route"], line["tool"]) for line in told]


async def test_the_verb_calls_shows_model_calls(capsys: pytest.CaptureFixture[str]) -> None:
    sent = chat_answer('{"city": "Oslo", "days": "3"}')
    async with tool(replies(whole(sent))) as server, proxied(ROUTES, server.url) as proxy:
        await proxy.post(CHAT, chat_request())
        words = ["calls", "--admin", f"127.0.0.1:{proxy.admin}"]
        assert 0 == await asyncio.to_thread(main, words)
        line = capsys.readouterr().out
        assert 0 == await asyncio.to_thread(main, [*words, "--json"])
        entry = json.loads(capsys.readouterr().out)
    assert "get_weather (tiny) repaired" in line
    assert ("get_weather", "tiny") == (entry["gen_ai.tool.name"], entry["gen_ai.request.model"])


@pytest.mark.parametrize("keeps", [True, False])
async def test_values_of_model_calls_are_kept_only_where_the_config_says_so(keeps: bool) -> None:
    sent = chat_answer(json.dumps({"city": SECRET, "days": "3"}))
    token = "0123456789abcdef0123456789abcdef"
    admin = f"{{listen: 127.0.0.1:0, token: {token}, values: {'full' if keeps else 'off'}}}"
    async with tool(replies(whole(sent))) as server, proxied(ROUTES, server.url, admin=admin) as proxy:
        await proxy.post(CHAT, chat_request())
        login = f"Authorization: Bearer {token}"
        (entry,) = json.loads((await proxy.ask_admin("/-/calls", login)).body)["calls"]
        shown = await proxy.ask_admin(f"/-/calls/{entry['id']}", login)
        log = proxy.log.getvalue()
    assert 200 == shown.status
    assert keeps == (SECRET in shown.body.decode())
    assert SECRET not in log


async def test_calls_are_found_by_their_model() -> None:
    right, repaired = chat_answer('{"city": "Oslo"}'), chat_answer('{"city": "Oslo", "days": "3"}')
    async with tool(replies(whole(right), whole(repaired))) as server, proxied(ROUTES, server.url) as proxy:
        for model in ("tiny", "large"):
            await proxy.post(CHAT, chat_request(model=model))
        found = [
            [each["outcome"] for each in json.loads((await proxy.ask_admin(f"/-/calls?model={one}")).body)["calls"]]
            for one in ("tiny", "large", "~LAR", "other")
        ]
    assert [["delivered"], ["repaired"], ["repaired"], []] == found
