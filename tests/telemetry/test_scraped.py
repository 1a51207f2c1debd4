"""A real Prometheus scrapes a running proxy to which everything has happened: no panel of the dashboard is empty, and
every alert can be evaluated."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from proxy.extensions.access.lock_file import write_lock
from tests.extensions.chat.answers import chat_answer, chat_request, whole
from tests.extensions.correction.model import completion
from tests.extensions.mcp.server import McpServer, call
from tests.extensions.recording.collector import collector
from tests.serving.proxied import WEATHER, Proxied, proxied
from tests.serving.wire import JSON_TYPE, Seen, answer, replies, tool
from tests.steady import until
from tests.telemetry.prometheus import Prometheus, prometheus
from tests.telemetry.queries import ALERTS, alerts, filled, panels, without_stand_in

pytestmark = pytest.mark.large

SCHEMA = "{type: object, properties: {lat: {type: number}, old: {deprecated: true}}, required: [lat]}"
ROUTES = f"""
  - path: /weather
    upstream: tools
    tool: weather
    schema: {SCHEMA}
    response_schema: {{type: object, required: [sky]}}
    answer: {{mask: [/sky]}}
  - {{path: /capped, upstream: tools, tool: capped, schema: {SCHEMA}, caps: {{default: 1}}}}
  - {{path: /math, upstream: tools, tool: math, container: {{functions: [add], expand: proxy}}}}
  - {{path: /final, upstream: none, tool: final, schema: {SCHEMA}}}
  - {{path: /corrected, upstream: tools, tool: corrected, schema: {SCHEMA}, correct: {{validation_feedback: on}}}}
  - {{path: /mcp, protocol: mcp, upstream: mcp}}
  - {{path: /v1, upstream: llm, model: {{retries: 1}}}}
  - {{path: /asked, upstream: tools, tool: asked, schema: {SCHEMA}}}
  - {{path: /dead, upstream: dead, tool: dead, schema: {SCHEMA}, resend: {{max: 1, backoff: 1ms}}}}
"""
# Bodies by path, all of one conversation. A rate needs them twice: before the first scrape and after.
CALLS = [
    ("/weather", b'{"lat": 1}'),
    ("/weather", b'{"lat": "1"}'),
    *[("/weather", b'{"lat": "x"}')] * 2,
    ("/weather", b'{"lat": 2, "old": 1}'),
    *[("/weather", b'{"lat": "%s"}' % text) for text in (b"a", b"b", b"c")],
    *[("/capped", b'{"lat": 1}')] * 2,
    ("/math", b"{}"),
    *[("/final", b'{"lat": %s}' % number) for number in (b"[]", b"1")],
    *[("/corrected", b'{"lat": %s}' % wrong) for wrong in (b"[]", b"{}")],
    *[("/dead", b'{"lat": 1}')] * 2,
    ("/asked", b'{"lat": 1}'),
]


async def happen(proxy: Proxied, listing: McpServer, conversation: str) -> None:
    """Lets everything happen once."""
    unguarded = {"name": "odd", "inputSchema": {"type": "object", "requird": [conversation]}}
    ambiguous = {"name": "twin", "Name": conversation, "inputSchema": {"type": "object"}}
    listing.tools = [unguarded, ambiguous]
    for message in ({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, call("odd", {})):
        await proxy.post("/mcp", json.dumps(message).encode(), "Accept: application/json, text/event-stream")
    for path, body in CALLS:
        await proxy.post(path, body, f"X-Conversation-Id: {conversation}")
    for headers in ((), ("Content-Encoding: br",)):
        await proxy.post("/v1/chat/completions", chat_request(), *headers)
    await proxy.ask_admin("/-/reload", "Content-Length: 0", method="POST")


async def empty(server: Prometheus, within: float, expressions: Iterable[tuple[str, str]]) -> list[str]:
    """The panels that show nothing, once all show something or the time is up."""
    missing = [*expressions]
    for _ in range(int(within / 0.25)):
        await asyncio.sleep(0.25)  # in which the server scrapes
        asking = [asyncio.to_thread(server.values, filled(expression, "30s")) for _, expression in missing]
        shown = await asyncio.gather(*asking)
        missing = [panel for panel, found in zip(missing, shown, strict=True) if not found]
        if not missing:
            break
    return [f"{title}: {expression}" for title, expression in missing]


async def test_no_panel_is_empty_and_every_alert_is_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def sunny(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        writer.write(answer("200 OK", b'{"sky": "blue"}', JSON_TYPE))

    corrects = replies(completion('{"lat": 1}', prompt_tokens=300, completion_tokens=20))
    listing = McpServer()
    async with (
        collector() as received,
        tool(sunny) as server,
        tool(corrects) as model,
        tool(listing) as mcp,
        tool(replies(whole(chat_answer("{}")))) as llm,
        tool(replies(answer("200 OK", b'{"action": "allow"}', JSON_TYPE))) as policy,
    ):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.url)
        upstreams = (
            f'{{tools: {{url: "{server.url}"}}, model: {{url: "{model.url}"}}, '
            f'llm: {{url: "{llm.url}"}}, policy: {{url: "{policy.url}"}}, '
            f'mcp: {{url: "{mcp.url}"}}, '
            "dead: {url: 'http://127.0.0.1:9', breaker: {failures: 2}}}"
        )
        keys = {
            "upstreams": upstreams,
            "correction": "{upstream: model, model: tiny, budget: {per_conversation: 1}}",
            "second_judge": "always",
            "pins": f"{{file: {tmp_path / 'tools.lock'}, changed: warn}}",
            "access": f"{{audit: {tmp_path / 'audit.jsonl'}}}",
            "record": f"{{file: {tmp_path / 'calls.jsonl'}, sample: {{refused: 1}}}}",
            "callout": "[{name: policy, upstream: policy, routes: [/asked]}]",
            "hooks": "[{use: 'tests.hooks.samples:FailsAt', settings: {point: after_outcome}, on_failure: ignore}]",
        }
        (tmp_path / "tools.lock").write_text(write_lock({}), encoding="utf-8")
        async with proxied(ROUTES, **keys) as proxy:
            await happen(proxy, listing, "before")
            with prometheus(tmp_path, f"127.0.0.1:{proxy.admin}", ALERTS) as scraping:
                await until(lambda: scraping.values("toolproxy_build_info"))
                await happen(proxy, listing, "while it scrapes")
                # Without what is in for series that are not there: every query has to find its own.
                missing = await empty(scraping, 120, [(title, without_stand_in(query)) for title, query in panels()])
                groups = (await asyncio.to_thread(scraping.ask, "rules"))["groups"]

    assert "" == "; ".join(missing)
    rules = {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}
    assert {alert["alert"]: "ok" for alert in alerts()} == rules


async def test_no_panel_is_empty_after_only_plain_calls(tmp_path: Path) -> None:
    """Most use no correction, no hooks, no containers: their panels show a zero, not "No data"."""

    async def sunny(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        writer.write(answer("200 OK", b'{"sky": "blue"}', JSON_TYPE))

    async with tool(sunny) as server, proxied(WEATHER, server.url) as proxy:
        bodies = (b'{"lat": 1}', b'{"lat": "1"}', b'{"lat": "x"}', b'{"lat": 2}')
        for body in bodies:
            await proxy.post("/weather", body, "X-Conversation-Id: before")
        with prometheus(tmp_path, f"127.0.0.1:{proxy.admin}", ALERTS) as scraping:
            await until(lambda: scraping.values("toolproxy_build_info"))
            for body in bodies:
                await proxy.post("/weather", body, "X-Conversation-Id: while it scrapes")
            missing = await empty(scraping, 120, panels())

    assert "" == "; ".join(missing)
