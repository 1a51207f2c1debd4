"""Metrics and the log line, made from real calls: names, labels, and never a value."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, cast

from proxy.call_record import CallRecord
from proxy.core.model.codes import TYPE_MISMATCH
from proxy.core.model.values import CheckedCall, Repair, Rung, UpstreamReply, Violation
from proxy.interfaces import UpstreamRequest
from proxy.telemetry.logs import Log
from proxy.telemetry.metrics import Metrics, Served
from proxy.telemetry.metrics_page import write_page
from tests.serving.proxied import RELAY, WEATHER, proxied
from tests.serving.test_calls import DISPATCH, TOOLS
from tests.serving.wire import JSON_TYPE, answer, exchange, post, replies, tool

OK = answer("200 OK", b"{}", JSON_TYPE)
SECRET = "planted-7b2f9c"


async def scraped(routes: str, url: str, *calls: tuple[str, bytes]) -> dict[str, float]:
    """The samples of our own counters after some calls in one conversation."""
    async with proxied(routes, url, tools=TOOLS) as proxy:
        for path, body in calls:
            await proxy.post(path, body, "X-Conversation-Id: c")
        text = (await proxy.ask_admin("/metrics")).body.decode()
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("toolproxy_")]
    return {name: float(value) for name, value in lines}


def of(samples: dict[str, float], name: str) -> dict[str, float]:
    """The samples of one metric, by their labels."""
    return {key.partition("{")[2].rstrip("}"): value for key, value in samples.items() if key.split("{")[0] == name}


async def test_calls_are_counted_by_what_became_of_them() -> None:
    calls = [b'{"lat": 1}', b'{"lat": "1"}', b'{"lat": "x"}', b'{"lat": "x"}', b'{"lat": 2}', b'{"lat": 3}']
    fail = answer("500 Oops", b"")
    async with tool(replies(OK, OK, OK, fail)) as server:
        samples = await scraped(WEATHER, server.url, *[("/weather", body) for body in calls])

    here = 'route="/weather",tool="weather"'
    assert {
        f'outcome="delivered",{here}': 2.0,
        f'outcome="repaired",{here}': 1.0,
        f'outcome="refused",{here}': 2.0,
        f'outcome="tool_error",{here}': 1.0,
    } == of(samples, "toolproxy_requests_total")
    assert {
        f'mode="enforce",outcome="passed",{here}': 3.0,
        f'mode="enforce",outcome="repaired",{here}': 1.0,
        f'mode="enforce",outcome="rejected",{here}': 2.0,
    } == of(samples, "toolproxy_validations_total")
    assert {f'code="VAL-002",{here}': 2.0} == of(samples, "toolproxy_violations_total")
    assert {'route="/weather",rule="string_to_number",tool="weather"': 1.0} == of(samples, "toolproxy_repairs_total")
    assert {here: 2.0} == of(samples, "toolproxy_attempts_total")
    assert {here: 1.0} == of(samples, "toolproxy_repeats_total")
    assert {f'attempts="2",{here}': 1.0} == of(samples, "toolproxy_corrected_total")
    assert {'status="2xx",upstream="tools"': 3.0, 'status="5xx",upstream="tools"': 1.0} == of(
        samples, "toolproxy_upstream_requests_total"
    )


async def test_counts_events_of_containers() -> None:
    routes = "- {path: /Math, upstream: tools, tool: Math, container: {functions: [Add], expand: proxy}}"
    samples = await scraped(
        routes, "http://127.0.0.1:9", ("/Math", b"{}"), ("/Math", b'{"a": 1}'), ("/Math", b'{"b": 1}')
    )

    here = 'route="/Math",tool="Math"'
    assert {f'event="expanded",{here}': 1.0, f'event="refused",{here}': 2.0} == of(
        samples, "toolproxy_containers_total"
    )


async def test_escalations_and_upstream_faults_are_counted() -> None:
    calls = [("/weather", json.dumps({"lat": text}).encode()) for text in "abc"]
    samples = await scraped(WEATHER + RELAY, "http://127.0.0.1:9", *calls, ("/relay", b"x"))

    assert {'route="/weather",tool="weather"': 1.0} == of(samples, "toolproxy_escalations_total")
    assert {'error="connection_refused",upstream="tools"': 1.0} == of(samples, "toolproxy_upstream_errors_total")


async def test_names_that_clients_make_up_are_no_labels() -> None:
    calls = [(f"/tools/made-up-{number}", b"{}") for number in range(5)] + [("/nowhere", b"{}")]
    samples = await scraped(DISPATCH, "http://127.0.0.1:9", *calls)

    assert {
        'outcome="refused",route="/tools/{tool}",tool="_other"': 5.0,
        'outcome="refused",route="_other",tool="_other"': 1.0,
    } == of(samples, "toolproxy_requests_total")
    assert not any("made-up" in name for name in samples)


async def test_our_own_time_is_measured_by_stage() -> None:
    async with tool(replies(OK)) as server:
        samples = await scraped(WEATHER, server.url, ("/weather", b'{"lat": 1}'))

    stages = of(samples, "toolproxy_overhead_seconds_count")
    assert {'stage="decode"': 1.0, 'stage="decide"': 1.0, 'stage="answer"': 1.0, 'stage="total"': 1.0} == stages


async def test_requests_under_way_are_gauged() -> None:
    go_on = asyncio.Event()

    async def slow(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: object) -> None:
        await go_on.wait()
        writer.write(OK)

    async with tool(slow) as server, proxied(WEATHER, server.url) as proxy:
        calling = asyncio.create_task(proxy.post("/weather", b'{"lat": 1}'))
        await server.arrived.wait()
        during = (await proxy.ask_admin("/metrics")).body
        go_on.set()
        await calling
        after = (await proxy.ask_admin("/metrics")).body

    assert b"toolproxy_inflight_requests 1.0" in during
    assert b"toolproxy_inflight_requests 0.0" in after


# --- the log line -----------------------------------------------------------------------------------------------------
async def test_a_refusal_is_logged_with_the_keys_that_acode_prescribes() -> None:
    async with proxied(WEATHER) as proxy:
        await proxy.post("/weather", b'{"lat": "x", "lon": []}', "X-Request-ID: abc-123", "X-Conversation-Id: c")

    (line,) = proxy.lines()
    assert {
        "level": "warning",
        "message": "Tool validation failed",
        "tool_name": "weather",
        "error_count": 2,
        "retry_attempt": 1,
        "max_retries": 3,
        "errors": [{"path": "/lat", "code": "VAL-002"}, {"path": "/lon", "code": "VAL-002"}],
        "correlation_id": "abc-123",
    }.items() <= line.items()


LIMITED = """
- path: /capped
  upstream: tools
  tool: capped
  caps: {default: 1}
  schema: {type: object, properties: {a: {type: number}}}
- path: /budgeted
  upstream: tools
  tool: budgeted
  attempts: {tool_errors: {max: 1}}
  schema: {type: object, properties: {a: {type: number}}}
- path: /refusing
  upstream: tools
  tool: refusing
  schema: {type: object, properties: {a: {type: number}}}
"""
NO = answer("400 Bad Request", b'{"error": "no"}', JSON_TYPE)


async def test_a_call_that_broke_no_rule_is_not_logged_or_counted_as_one_that_did() -> None:
    async with tool(replies(OK, NO, NO, NO)) as server, proxied(LIMITED, server.url) as proxy:
        for path in ("/capped", "/capped", "/budgeted", "/budgeted", *["/refusing"] * 3):
            await proxy.post(path, b'{"a": 1}', "X-Conversation-Id: c")
        text = (await proxy.ask_admin("/metrics")).body.decode()

    told = [(line["message"], line.get("error_count")) for line in proxy.lines() if line["outcome"] == "refused"]
    assert [
        ("Tool call beyond its cap refused", None),
        ("Tool call refused after too many errors of the tool", 0),
        ("Tool call refused that the tool has refused before", 0),
    ] == told
    counted = [line for line in text.splitlines() if line.startswith("toolproxy_validations_total")]
    assert not any('outcome="rejected"' in line for line in counted)


async def test_calls_are_counted_by_whether_a_value_got_another_type() -> None:
    routes = """
- path: /typed
  upstream: tools
  tool: typed
  schema: {type: object, properties: {lat: {type: number}, lon: {type: number}, unit: {enum: [celsius, kelvin]}}}
"""
    bodies = (b'{"lat": "1", "lon": "2"}', b'{"unit": "Celsius"}', b'{"lat": "3", "unit": "Kelvin"}')
    async with tool(replies(OK)) as server:
        samples = await scraped(routes, server.url, *[("/typed", body) for body in bodies])

    assert {'route="/typed",tool="typed"': 2.0} == of(samples, "toolproxy_coerced_calls_total")
    assert 5.0 == sum(of(samples, "toolproxy_repairs_total").values())


WARNED = """
- path: /warned
  upstream: tools
  tool: warned
  schema:
    properties: {lat: {type: number, maximum: 90, x-severity: {maximum: warning}}, old: {deprecated: true}}
"""


async def test_warnings_are_logged_and_counted_as_such() -> None:
    async with tool(replies(OK)) as server, proxied(WARNED, server.url) as proxy:
        await proxy.post("/warned", b'{"old": 1, "lat": 91}')
        await proxy.post("/warned", b'{"old": 1, "lat": "x"}')
        text = (await proxy.ask_admin("/metrics")).body.decode()

    delivered, refused = proxy.lines()
    warned = [{"path": "/lat", "code": "VAL-003", "severity": "warning"}]
    old = [{"path": "/old", "code": "VAL-014", "severity": "warning"}]
    named = ("level", "message", "error_count", "errors", "warning_count", "warnings", "retry_attempt")
    assert ["info", "Tool call delivered", None, None, 2, warned + old, None] == [delivered.get(name) for name in named]
    errors = [{"path": "/lat", "code": "VAL-002"}]
    assert ["warning", "Tool validation failed", 1, errors, 1, old, 1] == [refused.get(name) for name in named]
    here = 'route="/warned",tool="warned"'
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("toolproxy_")]
    samples = {name: float(value) for name, value in lines}
    assert {f'code="VAL-002",{here}': 1.0} == of(samples, "toolproxy_violations_total")
    here = 'route="/warned",severity="warning",tool="warned"'
    assert {f'code="VAL-003",{here}': 1.0, f'code="VAL-014",{here}': 2.0} == of(samples, "toolproxy_warnings_total")


async def test_a_delivered_call_is_one_line_with_otel_names() -> None:
    trace = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy:
        await proxy.post("/weather", b'{"lat": "1"}', "X-Tool-Call-Id: call_7", trace)

    (line,) = proxy.lines()
    assert {
        "level": "info",
        "message": "Tool call repaired and delivered",
        "outcome": "repaired",
        "http.request.method": "POST",
        "http.route": "/weather",
        "http.response.status_code": 200,
        "http.request.body.size": 12,
        "http.response.body.size": 2,
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "weather",
        "gen_ai.tool.call.id": "call_7",
        "conversation.source": "trace",
        "validation.mode": "enforce",
        "repairs": [{"rule": "string_to_number", "path": "/lat"}],
        "server.address": "tools",
        "upstream.status_code": 200,
        "trace_id": "0af7651916cd43dd8448eb211c80319c",
    }.items() <= line.items()
    assert line["timestamp"].endswith("+00:00")


async def test_an_escalation_is_logged_as_a_warning() -> None:
    async with proxied(WEATHER) as proxy:
        for text in "abc":
            await proxy.post("/weather", json.dumps({"lat": text}).encode(), "X-Conversation-Id: c")

    last = proxy.lines()[2]
    assert ("warning", True, 3, "ATTEMPTS_EXHAUSTED") == tuple(
        last[key] for key in ("level", "escalated", "retry_attempt", "error.code")
    )


async def test_no_argument_value_credential_or_answer_reaches_metrics_or_log() -> None:
    secret = SECRET.encode()
    bodies = [
        b'{"lat": "%s"}' % secret,
        b'{"lat": 1, "note": "%s"}' % secret,
        b'{"lat": "1", "note": "%s"}' % secret,
        b'{"lat": %s' % secret,
        b'{"lat": [{"%s": 1}]}' % secret,
    ]
    sent = (f"Authorization: Bearer {SECRET}", f"Cookie: {SECRET}", f"X-Conversation-Id: {SECRET}")
    failing = answer("500 Oops", secret)
    async with (
        tool(replies(OK, answer("200 OK", secret), failing)) as server,
        proxied(WEATHER + DISPATCH + RELAY, server.url, tools=TOOLS) as proxy,
    ):
        for body in bodies * 2:
            await proxy.post("/weather", body, *sent)
            await proxy.post(f"/relay?q={SECRET}", body, *sent)
            await proxy.post("/dispatch", b'{"name": "weather", "arguments": %s}' % body, *sent)
        await proxy.post("/weather", secret, *sent, content_type=f"text/{SECRET}")
        await proxy.post("/wether", secret, *sent)  # the log names the path of a request that no route takes
        await exchange(proxy.port, b"GET /weather HTTP/1.1\r\nHost: a\r\n%s\x00: 1\r\n\r\n" % secret)
        metrics = (await proxy.ask_admin("/metrics")).body.decode()
        log = proxy.log.getvalue()

    assert SECRET not in metrics
    assert SECRET not in log
    assert 33 == len(log.splitlines()) - log.count("config note")


class Defective:
    """An upstream with a defect of ours in it."""

    def start(self, checked: CheckedCall, request: UpstreamRequest) -> None:
        """Starts nothing: `send` has to."""

    async def send(self, checked: CheckedCall, request: UpstreamRequest) -> UpstreamReply:
        raise RuntimeError(f"{checked.value} for {request.upstream} is what I choke on")

    async def relay(self, request: UpstreamRequest, body: AsyncIterator[bytes] | None) -> UpstreamReply:
        raise RuntimeError(f"{request.target} {body}")

    async def close(self) -> None:
        """Holds nothing."""


async def test_a_defect_of_ours_is_answered_in_json_and_logged_without_the_exceptions_words() -> None:
    async with proxied(WEATHER) as proxy:
        snapshot = proxy.serving.handler.snapshot
        proxy.serving.handler.exchange(
            replace(snapshot, services=replace(snapshot.services, upstreams={"tools": cast(Any, Defective())}))
        )
        seen = await exchange(proxy.port, post("/weather", b'{"lat": 1}', "X-Request-ID: r1"))
        defect = next(json.loads(line) for line in proxy.log.getvalue().splitlines() if "Internal error" in line)

    assert (500, "INTERNAL_ERROR") == (seen.status, json.loads(seen.body)["error"]["code"])
    assert ("error", "r1", "RuntimeError") == (defect["level"], defect["correlation_id"], defect["error"])
    assert any("call/run.py" in frame for frame in defect["frames"])
    assert "choke" not in json.dumps(defect)


def record(**changes: object) -> CallRecord:
    made = CallRecord("r", "/weather", "POST", "weather", "call", conversation_rung=Rung.HEADER, outcome="delivered")
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def test_a_terminal_gets_a_line_for_people() -> None:
    stream = io.StringIO()
    Log(stream, "console", "info", lambda: 0.0).finished(record())

    assert "00:00:00 weather delivered  0 ms\n" == stream.getvalue()


def test_the_level_leaves_lesser_lines_out() -> None:
    stream = io.StringIO()
    log = Log(stream, "json", "warning", lambda: 0.0)
    log.finished(record())
    log.finished(record(outcome="refused", code="INVALID_ARGUMENTS"))

    assert ["Tool validation failed"] == [json.loads(line)["message"] for line in stream.getvalue().splitlines()]


def test_a_long_key_or_name_is_cut_and_a_credential_in_it_masked() -> None:
    stream = io.StringIO()
    token = "ghp_" + "a1B2" * 9
    violation = Violation(TYPE_MISMATCH, ("k" * 5000, token), "")
    Log(stream, "json", "info", lambda: 0.0).finished(
        record(tool="t" * 5000, outcome="refused", violations=(violation,), repairs=(Repair("key_case", (token,)),))
    )

    assert len(stream.getvalue()) < 2000
    assert token not in stream.getvalue()


def test_an_unknown_method_or_code_counts_as_other() -> None:
    metrics = Metrics([Served("/weather", "weather")], "digest")
    metrics.finished(record(method="BREW", code="MADE_UP", outcome="tool_error"))
    text = write_page(metrics)[1].decode()

    assert 'http_request_method="_other"' in text
    assert 'code="_other"' in text
    assert "MADE_UP" not in text
