"""`/-/calls` shows failed calls, without their values."""

from __future__ import annotations

from tests.serving.proxied import WEATHER, proxied, told
from tests.serving.wire import JSON_TYPE, answer, replies, tool

OK = answer("200 OK", b"{}", JSON_TYPE)
SECRET = "planted-7b2f9c-planted"
REPORT = WEATHER + "    mode: report\n"


async def test_a_refused_call_is_found_by_its_request_id_without_any_value() -> None:
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy:
        await proxy.post("/weather", b'{"lat": "%s"}' % SECRET.encode(), "X-Request-ID: r-1")
        await proxy.post("/weather", b'{"lat": 1}', "X-Request-ID: r-2")
        await proxy.post("/nowhere", b"{}", "X-Request-ID: r-3")
        found = await proxy.ask_admin("/-/calls?request_id=r-1")
        everything = told(await proxy.ask_admin("/-/calls"))["calls"]

    (call,) = told(found)["calls"]
    assert {
        "correlation_id": "r-1",
        "outcome": "refused",
        "http.route": "/weather",
        "tool_name": "weather",
        "error.code": "INVALID_ARGUMENTS",
    }.items() <= call.items()
    assert [("/lat", "VAL-002", f"text of {len(SECRET)}")] == [
        (error["path"], error["code"], error["got"]) for error in call["errors"]
    ]
    assert ["r-3", "r-2", "r-1"] == [entry["correlation_id"] for entry in everything]
    assert SECRET.encode() not in found.body


async def test_keeps_a_call_that_a_report_only_route_would_have_refused() -> None:
    async with tool(replies(OK)) as server, proxied(REPORT, server.url) as proxy:
        await proxy.post("/weather", b'{"lat": []}')
        (call,) = told(await proxy.ask_admin("/-/calls"))["calls"]

    assert ("delivered", True, "report") == (call["outcome"], call["would_refuse"], call["validation.mode"])
