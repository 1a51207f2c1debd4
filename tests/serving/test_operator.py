"""The operator's questions and actions: failed calls, attempts, schemas, the log's level; and who may use them."""

from __future__ import annotations

import json
from typing import Any

from proxy.call_record import CallRecord
from proxy.telemetry.ring import RecentCalls, make_entry
from tests.serving.proxied import FREE, WEATHER, Proxied, proxied, told
from tests.serving.wire import JSON_TYPE, Seen, answer, exchange, replies, tool

OK = answer("200 OK", b"{}", JSON_TYPE)
SECRET = "planted-7b2f9c-planted"
REPORT = WEATHER + "    mode: report\n"


async def ask(proxy: Proxied, path: str, body: Any = None, *headers: str, method: str = "POST") -> Seen:
    """Posts JSON to the operator's port."""
    text = b"" if body is None else json.dumps(body).encode()
    head = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(text)}", *headers, "", ""]
    return await exchange(proxy.admin, "\r\n".join(head).encode() + text)


def test_no_more_calls_are_kept_than_fit() -> None:
    recent = RecentCalls(lambda: 0.0, kept=3)
    for number in range(5):
        recent.finished(CallRecord(f"r{number}", "/a", outcome="refused"))

    assert ["r4", "r3", "r2"] == [make_entry(kept)["correlation_id"] for kept in recent.newest()]


# --- report-only ------------------------------------------------------------------------------------------------------
async def test_a_report_only_route_counts_what_it_would_have_done_and_no_failure() -> None:
    async with tool(replies(OK)) as server, proxied(REPORT, server.url) as proxy:
        for body in (b'{"lat": 1}', b'{"lat": "1"}', b'{"lat": []}'):
            assert 200 == (await proxy.post("/weather", body)).status
        metrics = (await proxy.ask_admin("/metrics")).body.decode()
        lines = [(line["level"], line["message"]) for line in proxy.lines()]

    labels = 'mode="report",outcome="{}",route="/weather",tool="weather"'
    for outcome in ("passed", "repaired", "rejected"):
        assert f"toolproxy_validations_total{{{labels.format(outcome)}}} 1.0" in metrics
    assert "toolproxy_errors_total{" not in metrics
    assert [
        ("info", "Tool call delivered"),
        ("info", "Tool call would have been repaired"),
        ("warning", "Tool validation would have failed"),
    ] == lines


# --- attempts, schemas, level -----------------------------------------------------------------------------------------
async def test_attempts_are_listed_and_reset() -> None:
    async with proxied(WEATHER) as proxy:
        for name in ("a", "a", "b"):
            await proxy.post("/weather", json.dumps({"lat": [name]}).encode(), f"X-Conversation-Id: {name}")
        before = told(await proxy.ask_admin("/-/attempts"))["attempts"]
        one = told(await ask(proxy, "/-/attempts/reset", {"key": before[0]["key"]}))
        by_tool = told(await ask(proxy, "/-/attempts/reset", {"tool": "weather"}))
        unfit = await ask(proxy, "/-/attempts/reset", {})
        after = told(await proxy.ask_admin("/-/attempts"))["attempts"]

    assert [("weather", 2), ("weather", 1)] == [(entry["tool"], entry["attempts"]) for entry in before]
    assert ({"reset": 1}, {"reset": 1}, 400, []) == (one, by_tool, unfit.status, after)


async def test_a_schema_is_shown_with_the_routes_that_use_it() -> None:
    async with proxied(WEATHER + FREE) as proxy:
        shown = told(await proxy.ask_admin("/-/schemas/weather"))
        missing = [(await proxy.ask_admin(f"/-/schemas/{name}")).status for name in ("free", "nothing", "")]

    assert ("weather", ["/weather"], ["lat"]) == (
        shown["tool"], shown["schemas"][0]["routes"], shown["schemas"][0]["schema"]["required"]
    )  # fmt: skip
    assert [404, 404, 404] == missing


async def test_the_level_of_the_log_is_changed_while_serving() -> None:
    async with proxied(FREE, "http://127.0.0.1:9") as proxy:
        await proxy.get("/nowhere")
        changed = told(await ask(proxy, "/-/log-level", {"level": "error"}))
        await proxy.get("/nowhere")
        unfit = await ask(proxy, "/-/log-level", {"level": "loud"})
        now = told(await proxy.ask_admin("/-/log-level"))
        lines = proxy.lines()

    assert ({"level": "error"}, 400, {"level": "error"}, 1) == (changed, unfit.status, now, len(lines))


# --- who may ----------------------------------------------------------------------------------------------------------
async def test_with_a_token_everything_below_the_dash_asks_for_it() -> None:
    admin = f"{{listen: 127.0.0.1:0, token: {SECRET}}}"
    async with proxied(WEATHER, admin=admin) as proxy:
        right, wrong = (f"Authorization: Bearer {SECRET}", f"Authorization: Bearer {SECRET}x")
        statuses = [
            (await proxy.ask_admin("/-/config", *headers)).status for headers in ((), (wrong,), (right,), (right[:-1],))
        ]
        posted = [(await ask(proxy, "/-/log-level", {"level": "info"}, *headers)).status for headers in ((), (right,))]
        refused = await proxy.ask_admin("/-/nothing")
        free = [(await proxy.ask_admin(path)).status for path in ("/livez", "/readyz", "/metrics")]
        shown = await proxy.ask_admin("/-/config", right)

    assert ([401, 401, 200, 401], [401, 200], [200, 200, 200]) == (statuses, posted, free)
    assert (401, "Bearer") == (refused.status, refused.header("www-authenticate"))
    assert (b"planted" not in shown.body, "***") == (True, told(shown)["config"]["admin"]["token"])


async def test_the_probes_port_serves_only_probes_and_metrics_under_any_host() -> None:
    async with proxied(WEATHER, admin="{listen: 127.0.0.1:0, probes: 127.0.0.1:0}") as proxy:
        port = int((proxy.serving.probes_url or "").rsplit(":", 1)[1])

        async def get(path: str, *more: str) -> Seen:
            return await exchange(port, "\r\n".join([f"GET {path} HTTP/1.1", "Host: pod.test", *more, "", ""]).encode())

        open_ones = [(await get(path)).status for path in ("/livez", "/readyz", "/startupz", "/metrics")]
        closed = [(await get(path)).status for path in ("/-/config", "/-/calls", "/-/schemas/weather", "/")]
        browser = (await get("/metrics", "Origin: http://pod.test")).status

    assert ([200] * 4, [404] * 4, 403) == (open_ones, closed, browser)


async def test_a_body_too_large_for_any_page_is_refused() -> None:
    async with proxied(WEATHER) as proxy:
        seen = await ask(proxy, "/-/conversations/find", {"id": "x" * (5 << 20)})

    assert 413 == seen.status
