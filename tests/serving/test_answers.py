"""`response_schema`: a tool's answers are validated against it, and counted or rejected; errors and streams pass
unchanged."""

from __future__ import annotations

import gzip
import json

import pytest

from proxy.config.mistakes import ConfigError
from tests.serving.proxied import code, proxied, told
from tests.serving.wire import JSON_TYPE, answer, replies, tool

ROUTE = """
  - path: /weather
    upstream: tools
    tool: weather
    schema: {type: object}
    response_schema: {type: object, properties: {sun: {type: boolean}}, required: [sun]}
    %s
"""
ENFORCE = ROUTE % "response_mode: enforce"
GOOD = answer("200 OK", b'{ "sun": true }', JSON_TYPE)
BAD = answer("200 OK", b'{"sun": "tulip"}', JSON_TYPE)


def counted(metrics: str) -> dict[str, float]:
    lines = [line for line in metrics.splitlines() if line.startswith("toolproxy_answers_total{")]
    return {line.split('outcome="')[1].split('"')[0]: float(line.rsplit(" ", 1)[1]) for line in lines}


@pytest.mark.parametrize("mode", ["", "response_mode: enforce"])
async def test_an_answer_that_fits_is_handed_on_as_it_is(mode: str) -> None:
    async with tool(replies(GOOD)) as server, proxied(ROUTE % mode, server.url) as proxy:
        seen = await proxy.post("/weather", b"{}")
        metrics = (await proxy.ask_admin("/metrics")).body.decode()

    assert (200, b'{ "sun": true }') == (seen.status, seen.body)
    assert {"passed": 1.0} == counted(metrics)


async def test_by_default_a_wrong_answer_is_counted_logged_without_values_and_handed_on() -> None:
    async with tool(replies(BAD)) as server, proxied(ROUTE % "", server.url) as proxy:
        seen = await proxy.post("/weather", b"{}")
        metrics = (await proxy.ask_admin("/metrics")).body.decode()

    assert (200, b'{"sun": "tulip"}') == (seen.status, seen.body)
    assert {"broken": 1.0} == counted(metrics)
    assert [{"path": "/sun", "code": "VAL-002"}] == proxy.lines()[0]["answer.errors"]
    assert "tulip" not in proxy.log.getvalue()


async def test_an_enforced_schema_holds_a_wrong_answer_back_and_costs_the_model_nothing() -> None:
    async with tool(replies(BAD)) as server, proxied(ENFORCE, server.url) as proxy:
        seen = await proxy.post("/weather", b"{}", "X-Conversation-Id: c")
        metrics = (await proxy.ask_admin("/metrics")).body.decode()

    assert (502, "UPSTREAM_UNFIT_ANSWER") == code(seen)
    assert None is seen.header("tool-attempt")
    assert (False, "VAL-002 /sun") == (
        told(seen)["error"]["retryable"],
        told(seen)["error"]["details"]["answer_errors"],
    )
    assert "The tool did run." in told(seen)["content"]
    assert "tulip" not in json.dumps(told(seen))
    assert {"refused": 1.0} == counted(metrics)


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (answer("200 OK", gzip.compress(b'{"sun": 1}'), JSON_TYPE, "Content-Encoding: gzip"), "refused"),
        (answer("200 OK", b"data: {}\n\n", "Content-Type: text/event-stream"), "unread"),
        (answer("200 OK", b"sunny", "Content-Type: text/plain"), "unread"),
        (answer("200 OK", b'{"sun": ', JSON_TYPE), "unread"),
        (answer("200 OK", b'{"sun": 1}', JSON_TYPE, "Content-Encoding: br"), "unread"),
        (answer("200 OK", b'{"long": "' + b"x" * 3000 + b'"}', JSON_TYPE), "unread"),
    ],
    ids=["gzip", "events", "text", "cut", "brotli", "long"],
)
async def test_only_a_whole_json_answer_is_validated(reply: bytes, outcome: str) -> None:
    keys = {"upstreams": "{tools: {url: URL, buffer: 2000}}"}
    async with tool(replies(reply)) as server:
        keys["upstreams"] = keys["upstreams"].replace("URL", f'"{server.url}"')
        async with proxied(ENFORCE, server.url, **keys) as proxy:
            seen = await proxy.post("/weather", b"{}")
            metrics = (await proxy.ask_admin("/metrics")).body.decode()

    assert (502 if outcome == "refused" else 200) == seen.status
    assert {outcome: 1.0} == counted(metrics)


@pytest.mark.parametrize(
    "reply",
    [
        answer("404 Not Found", b'{"error": "no such place"}', JSON_TYPE),
        answer("200 OK", b'{"success": false, "error": {"code": "X", "message": "no"}}', JSON_TYPE),
        answer("500 Oops", b"{}", JSON_TYPE),
    ],
    ids=["404", "an error in a 200", "500"],
)
async def test_an_error_of_the_tool_is_never_held_against_it(reply: bytes) -> None:
    async with tool(replies(reply)) as server, proxied(ENFORCE, server.url) as proxy:
        seen = await proxy.post("/weather", b"{}")
        metrics = (await proxy.ask_admin("/metrics")).body.decode()

    assert "UPSTREAM_UNFIT_ANSWER" != told(seen)["error"]["code"]
    assert {} == counted(metrics)


async def test_a_report_only_route_holds_nothing_back() -> None:
    routes = ROUTE % "response_mode: enforce\n    mode: report"
    async with tool(replies(BAD)) as server, proxied(routes, server.url) as proxy:
        seen = await proxy.post("/weather", b"{}")
    assert 200 == seen.status


async def test_a_schema_of_answers_that_does_not_compile_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match="the schema does not compile"):
        async with proxied("  - {path: /a, upstream: tools, tool: t, schema: {}, response_schema: {type: strin}}\n"):
            raise AssertionError("started")
