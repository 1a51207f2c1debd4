"""Model calls are seen where tool calls are: in the log, the metrics and the kept calls; values only if those are
kept."""

from __future__ import annotations

import asyncio
import json

import pytest

from proxy.__main__ import main
from tests.extensions.chat.answers import ROUTES, chat_answer, chat_request, chat_text, whole
from tests.extensions.chat.streams import data, streamed
from tests.serving.proxied import proxied
from tests.serving.wire import Seen, answer, replies, tool

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


async def test_at_most_fifty_models_have_their_own_series() -> None:
    async with tool(replies(whole(chat_answer('{"city": "Oslo"}')))) as server, proxied(ROUTES, server.url) as proxy:
        for number in range(52):
            await proxy.post(CHAT, chat_request(model=f"m{number}"))
        calls = read_rows(await proxy.ask_admin("/metrics"), "toolproxy_model_calls_total")
    assert 51 == len(calls)
    assert 2.0 == calls['{model="_other",outcome="valid",route="/v1",tool="get_weather"}']


UNREAD = [
    ("request", chat_request(), ("Content-Encoding: br",), whole(b"{}")),
    ("request", chat_request()[:-1], (), whole(b"{}")),
    ("too_long", chat_request(), (), whole(chat_text("x" * 2_000))),
    *(("no_json", chat_request(), (), whole(body)) for body in (b"{broken", b"Busy.", b"", b"[]", b"null")),
    ("no_json", chat_request(), (), answer("200 OK", b"{}", "Content-Type: text/plain")),
    ("compressed", chat_request(), (), whole(b"{}", "Content-Encoding: br")),
    ("no_json", chat_request(stream=True), (), streamed([b"data: {broken\n\n"])),
]


@pytest.mark.parametrize(("reason", "request_", "headers", "sent"), UNREAD)
async def test_counts_answers_that_are_relayed_unread(
    reason: str, request_: bytes, headers: tuple[str, ...], sent: bytes
) -> None:
    routes = "  - {path: /v1, upstream: tools, model: {max_answer: 1000}}"
    async with tool(replies(sent)) as server, proxied(routes, server.url) as proxy:
        await proxy.post(CHAT, request_, *headers)
        rows = read_rows(await proxy.ask_admin("/metrics"), "toolproxy_model_unread_total")
    assert {f'{{reason="{reason}",route="/v1"}}': 1.0} == rows


async def test_logs_a_tool_with_an_unusable_schema_once() -> None:
    broken = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "nonsense"}}}
    async with tool(replies(whole(chat_answer("{}")))) as server, proxied(ROUTES, server.url) as proxy:
        for _ in range(2):
            await proxy.post(CHAT, chat_request(tools=[broken]))
        rows = read_rows(await proxy.ask_admin("/metrics"), "toolproxy_model_calls_total")
        told = [line for line in map(json.loads, proxy.log.getvalue().splitlines()) if "cannot be used" in str(line)]
    assert {'{model="tiny",outcome="unjudged",route="/v1",tool="get_weather"}': 2.0} == rows
    assert [("/v1", "get_weather")] == [(line["route"], line["tool"]) for line in told]


async def test_the_verb_calls_shows_model_calls_and_why_a_model_was_asked_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    wrong, sent = chat_answer('{"days": 3}'), chat_answer('{"city": "Oslo", "days": "3"}')
    routes = "  - {path: /v1, upstream: tools, model: {retries: 1}}"
    async with tool(replies(whole(wrong), whole(sent))) as server, proxied(routes, server.url) as proxy:
        await proxy.post(CHAT, chat_request())
        words = ["calls", "--admin", f"127.0.0.1:{proxy.admin}"]
        assert 0 == await asyncio.to_thread(main, words)
        line = capsys.readouterr().out
        assert 0 == await asyncio.to_thread(main, [*words, "--json"])
        entry = json.loads(capsys.readouterr().out)
    assert "get_weather (tiny) repaired  /days string_to_integer (text of 1 -> integer)  " in line
    assert "  asked again for /city VAL-001 wants string, got nothing  " in line
    assert "Validation failed for tool 'get_weather' (attempt 1/2)" in entry["replaced"][0]["calls"][0]["model_read"]
    assert ("get_weather", "tiny") == (entry["gen_ai.tool.name"], entry["gen_ai.request.model"])


@pytest.mark.parametrize("keeps", [True, False])
async def test_values_of_model_calls_are_kept_only_if_the_config_says_so(keeps: bool) -> None:
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


REPLACED = (("get_weather", json.dumps({"days": SECRET})), ("getWeather", '{"city": "Oslo"}'), ("get_whether", "{}"))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("keeps", [True, False])
async def test_keeps_the_calls_of_an_answer_that_was_replaced(keeps: bool, stream: bool) -> None:
    token = "0123456789abcdef0123456789abcdef"
    admin = f"{{listen: 127.0.0.1:0, token: {token}, values: {'full' if keeps else 'off'}}}"
    login = f"Authorization: Bearer {token}"
    routes = "  - {path: /v1, upstream: tools, model: {retries: 1}}"
    wrong, right = (
        write_calls(*REPLACED, stream=stream),
        write_calls(("get_weather", '{"city": "Oslo"}'), stream=stream),
    )
    async with tool(replies(wrong, right)) as server, proxied(routes, server.url, admin=admin) as proxy:
        await proxy.post(CHAT, chat_request(stream=stream))
        listed = (await proxy.ask_admin("/-/calls", login)).body
        (entry,) = json.loads(listed)["calls"]
        shown = json.loads((await proxy.ask_admin(f"/-/calls/{entry['id']}", login)).body)
        log = proxy.log.getvalue()
    said = [one["content"] for one in json.loads(server.seen[1].body)["messages"][2:]]
    (answer,), (opened,) = entry["replaced"], shown["replaced"]
    assert 15 == answer["tokens"]
    assert [("get_weather", "INVALID_ARGUMENTS"), ("get_weather", None), ("get_whether", "UNKNOWN_TOOL")] == [
        (call["gen_ai.tool.name"], call.get("error.type")) for call in answer["calls"]
    ]
    first, second, third = answer["calls"]
    assert [("/city", "nothing"), ("/days", f"text of {len(SECRET)}")] == sorted(
        (error["path"], error["got"]) for error in first["errors"]
    )
    assert said[0].replace(f'"{SECRET}"', "<***>") == first["model_read"]
    assert said[1:] == [second["model_read"], third["model_read"]]
    came = [{"days": SECRET}, {"city": "Oslo"}, {}] if keeps else [None] * 3
    assert came == [call.get("came") for call in opened["calls"]]
    assert answer["calls"] == [{key: call[key] for key in call if key != "came"} for call in opened["calls"]]
    assert SECRET not in log + listed.decode()


def write_calls(*calls: tuple[str, str], stream: bool) -> bytes:
    """An answer of several calls by name and arguments."""
    made = [
        {"index": at, "id": f"call_{at}", "type": "function", "function": {"name": name, "arguments": text}}
        for at, (name, text) in enumerate(calls)
    ]
    if not stream:
        return whole(chat_answer("{}", tool_calls=made))
    usage = {"prompt_tokens": 10, "completion_tokens": 5}
    choice = {"index": 0, "delta": {"tool_calls": made}, "finish_reason": "tool_calls"}
    return streamed([data({"choices": [choice]}), data({"choices": [], "usage": usage}), b"data: [DONE]\n\n"])
