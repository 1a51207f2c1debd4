"""Spans arrive at a collector over a real socket, as OTLP, with the ids that the tool and the log have."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from proxy.config.load import load
from proxy.config.mistakes import ConfigError
from tests.extensions.correction.model import rig, says
from tests.extensions.mcp.conversation import talk
from tests.extensions.mcp.server import call
from tests.extensions.recording.collector import collector
from tests.serving.process import process
from tests.serving.proxied import RELAY, WEATHER, proxied
from tests.serving.wire import JSON_TYPE, Seen, answer, exchange, post, replies, tool

OK = answer("200 OK", b"{}", JSON_TYPE)
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"traceparent: 00-{TRACE}-b7ad6b7169203331-01"
SECRET = "planted-7b2f9c"


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans leave within the tenth of a second, and no variable of this machine is heard."""
    for name in ("OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_TRACES_SAMPLER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.3")


def parent_of(seen: Seen) -> tuple[str, str, str]:
    """Trace id, span id and flags of the `traceparent` that a tool was sent."""
    (value,) = [value for name, value in seen.headers if name == "traceparent"]
    return tuple(value.split("-")[1:])  # type: ignore[return-value]


async def test_a_call_is_a_server_span_and_each_send_a_client_span(monkeypatch: pytest.MonkeyPatch) -> None:
    routes = WEATHER + "    resend: {max: 1, backoff: 1ms}\n    idempotent: true\n"
    before = time.time_ns()
    async with collector() as received, tool(replies(answer("503 Busy", b""), OK)) as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.url)
        async with proxied(routes, server.url) as proxy:
            await proxy.post("/weather", b'{"lat": "48.85"}', PARENT, "tracestate: vendor=1", "X-Tool-Call-Id: c7")
            whole, first, second = await received.until(3)
            (line,) = proxy.lines()

    assert ("tools/call weather", "server", TRACE, "b7ad6b7169203331", "vendor=1", None) == (
        whole.name, whole.kind, whole.trace_id, whole.parent_id, whole.state, whole.failed,
    )  # fmt: skip
    assert [("type_coercion_applied", {"coercions_count": 1, "capability": "weather", "step_id": "c7"})] == whole.events
    assert {
        "correlation_id": line["correlation_id"],
        "outcome": "repaired",
        "http.request.method": "POST",
        "http.route": "/weather",
        "http.response.status_code": 200,
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "weather",
        "gen_ai.tool.call.id": "c7",
        "schema_id": line["schema_id"],
        "repairs": ["string_to_number /lat"],
        "http.request.resend_count": 1,
    }.items() <= whole.attributes.items()
    shared = {"http.request.method": "POST", "server.address": "tools"}
    assert [
        (shared | {"http.response.status_code": 503, "error.type": "503"}, "503"),
        (
            shared | {"http.response.status_code": 200, "http.request.resend_count": 1, "resend.reason": "idempotent"},
            None,
        ),
    ] == [(span.attributes, span.failed) for span in (first, second)]
    assert [("POST", "client", TRACE, whole.span_id)] * 2 == [
        (span.name, span.kind, span.trace_id, span.parent_id) for span in (first, second)
    ]
    assert before <= whole.started <= first.started <= first.ended <= second.started <= second.ended <= whole.ended
    assert [(TRACE, first.span_id, "01"), (TRACE, second.span_id, "01")] == [parent_of(seen) for seen in server.seen]
    assert ["vendor=1"] * 2 == [seen.header("tracestate") for seen in server.seen]
    assert (TRACE, whole.span_id) == (line["trace_id"], line["span_id"])


async def test_a_request_without_a_parent_starts_a_new_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    async with collector() as received, tool(replies(OK)) as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=tools")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "weather-sidecar")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
        async with proxied(WEATHER + RELAY, server.url) as proxy:
            bad = "traceparent: 00-" + "0" * 32 + "-b7ad6b7169203331-01"
            await proxy.post("/relay", b"x", bad, "tracestate: nobodys=1", content_type=None)
            whole, sent = await received.until(2)

    assert ("POST /relay", "", "") == (whole.name, whole.parent_id, whole.state)
    assert (whole.trace_id, sent.span_id, "01") == parent_of(server.seen[0])
    assert None is server.seen[0].header("tracestate")
    assert ("weather-sidecar", "test") == (
        whole.resource["service.name"], whole.resource["deployment.environment.name"],
    )  # fmt: skip
    assert "tools" == received.headers[0]["x-team"]
    assert len(whole.trace_id.strip("0")) > 16


async def test_propagates_an_unsampled_parent_and_sends_no_span(monkeypatch: pytest.MonkeyPatch) -> None:
    async with collector() as received, tool(replies(OK)) as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.url)
        async with proxied(WEATHER, server.url) as proxy:
            await proxy.post("/weather", b'{"lat": 1}', PARENT[:-2] + "02")
            await proxy.post("/weather", b'{"lat": 1}', PARENT)
            spans = await received.until(2)
            lines = proxy.lines()

    assert 2 == len(spans)
    assert [(TRACE, "02"), (TRACE, "01")] == [parent_of(seen)[::2] for seen in server.seen]
    assert "b7ad6b7169203331" not in {parent_of(seen)[1] for seen in server.seen}
    assert [TRACE, TRACE] == [line["trace_id"] for line in lines]


async def test_the_standard_sampler_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    async with collector() as received, tool(replies(OK)) as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.url)
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
        async with proxied(WEATHER, server.url) as proxy:
            await proxy.post("/weather", b'{"lat": 1}', PARENT)

    assert ([], "00") == (received.spans, parent_of(server.seen[0])[2])


async def test_reports_failures_and_gives_an_unknown_tool_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    routes = WEATHER + "    resend: {max: 0}\n  - {path: '/tools/{tool}', upstream: tools, tools: [weather]}\n"
    catalogue = "{weather: {schema: {type: object}}}"
    async with collector() as received:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.url)
        async with proxied(routes, tools=catalogue) as proxy:
            await proxy.post("/tools/made-up", b"{}")
            await proxy.post("/weather", b'{"lat": "x"}')
            await proxy.post("/weather", b'{"lat": 1}')
            spans = await received.until(4)

    unknown, refused, failed, sent = spans
    assert ("tools/call", None) == (unknown.name, unknown.failed)
    assert ("tools/call weather", None, "INVALID_ARGUMENTS", ["/lat VAL-002"]) == (
        refused.name, refused.failed, refused.attributes["error.type"], refused.attributes["errors"],
    )  # fmt: skip
    assert ("tools/call weather", "connection_refused") == (failed.name, failed.failed)
    assert ("connection_refused", "connection_refused") == (sent.failed, sent.attributes["error.type"])


async def test_a_correction_has_gominds_events(monkeypatch: pytest.MonkeyPatch) -> None:
    routes = WEATHER + "    correct: {validation_feedback: on}\n"
    async with collector() as received:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.url)
        async with rig(says('{"lat": 1}'), replies(OK), routes) as it:
            await it.proxy.post("/weather", b'{"lat": []}', "X-Tool-Call-Id: c7")
            whole, sent, chat = await received.until(3)

    told = {"capability": "weather", "step_id": "c7", "retry_number": 1}
    assert [
        ("validation_feedback_started", told | {"type_error": True, "reason": "INVALID_ARGUMENTS"}),
        ("validation_feedback_success", told),
    ] == whole.events
    assert ("corrected", whole.span_id, None) == (whole.attributes["outcome"], sent.parent_id, sent.failed)
    assert ("chat", whole.span_id, "validation_feedback", "delivered", None) == (
        chat.name, chat.parent_id, chat.attributes["correction.layer"], chat.attributes["correction.outcome"],
        chat.failed,
    )  # fmt: skip
    assert whole.started <= chat.started <= chat.ended <= sent.started


async def test_continues_the_trace_of_an_mcp_message_and_keeps_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"traceparent": PARENT.removeprefix("traceparent: "), "tracestate": "vendor=1"}
    async with collector() as received:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.url)
        async with talk() as client:
            message = call("add", {"a": 1, "b": 2}, _meta=told)
            await client.send(message)
            whole, *sent = await received.until(2)
            (line,) = client.proxy.lines()
            (seen,) = client.server.calls

    assert ("tools/call add", TRACE, "b7ad6b7169203331", "vendor=1") == (
        whole.name, whole.trace_id, whole.parent_id, whole.state,
    )  # fmt: skip
    assert (TRACE, sent[-1].span_id, "01") == parent_of(seen)
    assert json.dumps(message).encode() == seen.body
    assert (TRACE, whole.span_id) == (line["trace_id"], line["span_id"])


async def test_off_the_log_names_the_trace_that_an_mcp_message_tells() -> None:
    async with talk() as client:
        await client.send(call("add", {"a": 1, "b": 2}, _meta={"traceparent": PARENT.removeprefix("traceparent: ")}))
        (line,) = client.proxy.lines()

    assert TRACE == line["trace_id"]


async def test_a_client_that_leaves_ends_its_span(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object) -> None:
        await asyncio.sleep(30)

    async with collector() as received, tool(never) as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.url)
        async with proxied(WEATHER, server.url) as proxy:
            _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(post("/weather", b'{"lat": 1}'))
            await server.arrived.wait()
            writer.close()
            whole, sent = await received.until(2)

    assert ("client_gone", "client_gone") == (whole.attributes["outcome"], sent.failed)


async def test_no_argument_value_credential_or_answer_is_in_a_span(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = SECRET.encode()
    bodies = [b'{"lat": "%s"}', b'{"lat": 1, "note": "%s"}', b'{"lat": "1", "note": "%s"}', b'{"lat": %s']
    sent = (f"Authorization: Bearer {SECRET}", f"Cookie: {SECRET}", f"X-Conversation-Id: {SECRET}")
    failing = answer("500 Oops", secret)
    async with collector() as received, tool(replies(OK, answer("200 OK", secret), failing)) as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.url)
        async with proxied(WEATHER + RELAY, server.url) as proxy:
            for body in bodies:
                await proxy.post("/weather", body % secret, *sent)
                await proxy.post(f"/relay?q={SECRET}", body % secret, *sent)
            await proxy.post("/wether", secret, *sent)  # a span names the path of a request that no route takes
            spans = await received.until(9 + 4 + 2)

    assert SECRET not in repr([vars(span) | {"resource": span.resource} for span in spans])
    assert SECRET not in repr(received.headers)


# --- the collector in trouble -----------------------------------------------------------------------------------------
def spans_of(metrics: Seen) -> dict[str, float]:
    lines = [line for line in metrics.body.decode().splitlines() if line.startswith("toolproxy_spans_total{")]
    return {line.split('"')[1]: float(line.rsplit(" ", 1)[1]) for line in lines}


async def test_a_collector_that_refuses_costs_spans_and_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    async with collector() as received, tool(replies(OK)) as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.url)
        received.status = 400
        async with proxied(WEATHER, server.url) as proxy:
            refused = await proxy.post("/weather", b'{"lat": 1}')
            while spans_of(await proxy.ask_admin("/metrics"))["failed"] < 2:  # call and request
                await asyncio.sleep(0.02)
            received.status = 200
            await proxy.post("/weather", b'{"lat": 1}')
            await received.until(2)
            while (counted := spans_of(await proxy.ask_admin("/metrics")))["exported"] < 2:
                await asyncio.sleep(0.02)
        said = [line["message"] for line in map(json.loads, proxy.log.getvalue().splitlines())]

    assert 200 == refused.status
    assert {"exported": 2.0, "failed": 2.0, "dropped": 0.0} == counted
    assert ["Spans cannot be exported", "Spans are exported again"] == [each for each in said if "Spans" in each]


async def test_a_silent_collector_holds_up_neither_a_call_nor_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async with collector() as received, tool(replies(OK)) as server:
        received.open.clear()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.url)
        monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")
        monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2")
        async with proxied(WEATHER, server.url) as proxy:
            answered = [(await proxy.post("/weather", b'{"lat": 1}')).status for _ in range(6)]
            counted = spans_of(await proxy.ask_admin("/metrics"))

    assert [200] * 6 == answered
    assert counted["dropped"] >= 12 - 4 - 2
    assert 0 == counted["exported"]


async def test_a_drain_sends_what_is_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "60000")
    async with collector() as received, tool(replies(OK)) as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.url)
        async with proxied(WEATHER, server.url) as proxy:
            await proxy.post("/weather", b'{"lat": 1}')
            await proxy.serving.drain(0)
            drained = len(received.spans)

    assert 2 == drained


@pytest.mark.large
async def test_every_worker_exports_and_sends_the_rest_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "60000")
    path = tmp_path / "config.yaml"
    async with collector() as received, tool(replies(OK)) as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.url)
        path.write_text(
            f"""
version: 1
workers: 2
listen: 127.0.0.1:0
admin: off
drain: 1ms
upstreams: {{tools: {{url: "{server.url}"}}}}
routes:
  - {{path: /relay, methods: [POST], upstream: tools, passthrough: true}}
"""
        )
        async with process(path) as running:
            seen: set[Any] = set()
            for _ in range(40):
                await exchange(running.port, post("/relay", b"x"))
            running.popen.terminate()
            assert 0 == await running.ended()
            seen = {span.resource["service.instance.id"] for span in received.spans}

    assert (80, 2) == (len(received.spans), len(seen))


# --- on and off -------------------------------------------------------------------------------------------------------
NOBODY = "http://127.0.0.1:9"


async def told_with(monkeypatch: pytest.MonkeyPatch, **variables: str) -> tuple[Seen, list[dict[str, Any]]]:
    """Returns what a tool was sent, and the log, of a proxy with these variables."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", NOBODY)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy:
        await proxy.post("/weather", b'{"lat": 1}', PARENT)
    return server.seen[0], list(map(json.loads, proxy.log.getvalue().splitlines()))


@pytest.mark.parametrize(
    "variables",
    [{"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}, {"OTEL_EXPORTER_OTLP_ENDPOINT": ""}],
    ids=str,
)
async def test_forwards_the_clients_trace_untouched_if_traces_are_off(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, lines = await told_with(monkeypatch, **variables)

    assert PARENT == f"traceparent: {seen.header('traceparent')}"
    (line,) = [line for line in lines if "outcome" in line]
    assert (TRACE, False) == (line["trace_id"], "span_id" in line)


async def test_off_in_the_config_goes_before_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", NOBODY)
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url, telemetry="{traces: off}") as proxy:
        await proxy.post("/weather", b'{"lat": 1}', PARENT)

    assert PARENT == f"traceparent: {server.seen[0].header('traceparent')}"


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        (
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL asks for 'grpc': say http/protobuf, and its port (usually 4318)",
        ),
        ({"OTEL_BSP_SCHEDULE_DELAY": "-1"}, None),
    ],
    ids=str,
)
async def test_traces_that_cannot_be_made_are_said_and_calls_go_on(
    variables: dict[str, str], said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, lines = await told_with(monkeypatch, **variables)

    (line,) = [line for line in lines if line["message"].startswith("Traces are off")]
    assert ("error", said) == (line["level"], line.get("reason"))
    assert PARENT == f"traceparent: {seen.header('traceparent')}"


async def test_logs_messages_of_the_sdk_without_the_values(monkeypatch: pytest.MonkeyPatch) -> None:
    _, lines = await told_with(monkeypatch, OTEL_EXPORTER_OTLP_HEADERS=f"{SECRET} {SECRET}")

    assert any(line["message"].startswith("OpenTelemetry: ") for line in lines)
    assert SECRET not in json.dumps(lines)


def test_off_the_libraries_are_not_even_loaded() -> None:
    script = "import sys, proxy.server; sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"

    assert 0 == subprocess.run([sys.executable, "-c", script], check=False).returncode


def test_configured_traces_need_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    path = tmp_path / "config.yaml"
    path.write_text("version: 1\ntelemetry: {traces: otlp}\nupstreams: {t: {url: http://127.0.0.1:9}}\n"
                    "routes: [{path: /a, upstream: t, passthrough: true}]\n")  # fmt: skip
    with pytest.raises(ConfigError) as raised:
        load(path, {})

    assert ["the libraries of OpenTelemetry are not installed"] == [
        mistake.message for mistake in raised.value.mistakes
    ]
