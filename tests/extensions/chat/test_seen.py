"""Model calls are seen where tool calls are: in the log, the metrics and the kept calls; values only where those are
kept."""

from __future__ import annotations

import json

from tests.extensions.chat.answers import ROUTES, chat_answer, chat_request, whole
from tests.serving.proxied import proxied
from tests.serving.wire import replies, tool

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
