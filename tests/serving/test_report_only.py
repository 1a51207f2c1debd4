"""Report-only dispatch: a call of an unknown tool is forwarded unchanged, and counted by the error that it would have
been."""

from __future__ import annotations

import json
import re

import pytest

from proxy.call import judging
from proxy.core.model.values import Decision
from tests.serving.proxied import WEATHER, code, proxied
from tests.serving.wire import JSON_TYPE, answer, replies, tool

OK = answer("200 OK", b'{"ok": true}', JSON_TYPE)
CATALOGUE = "{known: {schema: {type: object, required: [a]}}}"
DISPATCH = """
  - path: /tools
    upstream: tools
    mode: %s
    dispatch: {tool: /tool, arguments: /arguments}
"""
ALONE = DISPATCH + "    upstream_path: /api/{tool}\n"


@pytest.mark.parametrize(
    "body",
    [b'{ "tool": "unknown", "arguments": {"x": 1} }', b'{"tool": 7}', b'{"arguments": {}}', b"{broken"],
    ids=["a name nobody knows", "no name", "none at all", "no JSON"],
)
async def test_forwards_an_unknown_tool_byte_for_byte_and_counts_it(body: bytes) -> None:
    async with (
        tool(replies(OK)) as server,
        proxied(DISPATCH % "report", server.url, tools=CATALOGUE) as proxy,
    ):
        seen = [await proxy.post("/tools", body, "X-Conversation-Id: c") for _ in range(4)]
        line = proxy.lines()[0]

    assert [200] * 4 == [one.status for one in seen]
    assert [body] * 4 == [one.body for one in server.seen]
    assert ("delivered", "warning") == (line["outcome"], line["level"])


class DefectError(RuntimeError):
    """Raised in place of a decision."""


def fail(*_: object, **__: object) -> Decision:
    raise DefectError("tulip")


@pytest.mark.parametrize("mode", ["report", "enforce"])
async def test_a_defect_of_the_engine_ends_only_a_call_that_is_enforced(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = b'{ "lat": "north" }'
    async with tool(replies(OK)) as server, proxied(f"{WEATHER}    mode: {mode}", server.url) as proxy:
        monkeypatch.setattr(judging, "decide", fail)
        seen = await proxy.post("/weather", body)
        metrics = (await proxy.ask_admin("/metrics")).body.decode()
        events = [json.loads(line) for line in proxy.log.getvalue().splitlines()]

    is_forwarded = mode == "report"
    assert (200 if is_forwarded else 500, [body] * is_forwarded) == (seen.status, [one.body for one in server.seen])
    (defect,) = [event for event in events if event["message"] == "Internal error"]
    (line,) = proxy.lines()
    assert ("DefectError", line["correlation_id"]) == (defect["error"], defect["correlation_id"])
    assert "fail" in defect["frames"][-1]
    assert "tulip" not in proxy.log.getvalue()
    assert ("INTERNAL_ERROR", "delivered" if is_forwarded else "refused") == (line["error.type"], line["outcome"])
    assert not is_forwarded or "Tool call forwarded unchecked after an internal error" == line["message"]
    assert re.search(r'toolproxy_errors_total{[^}]*code="INTERNAL_ERROR"[^}]*} 1.0', metrics)
    assert 'outcome="rejected"' not in metrics


async def test_an_enforcing_route_still_rejects_it() -> None:
    async with (
        tool(replies(OK)) as server,
        proxied(DISPATCH % "enforce", server.url, tools=CATALOGUE) as proxy,
    ):
        seen = await proxy.post("/tools", b'{"tool": "unknown", "arguments": {}}')

    assert (404, "UNKNOWN_TOOL") == code(seen)
    assert [] == server.seen


async def test_still_rejects_a_name_that_is_no_segment_of_a_path() -> None:
    async with (
        tool(replies(OK)) as server,
        proxied(ALONE % "report", server.url, tools=CATALOGUE) as proxy,
    ):
        seen = [await proxy.post("/tools", b'{"tool": "%s", "arguments": {"x": 1}}' % name) for name in (b"..", b"new")]

    assert [404, 200] == [one.status for one in seen]
    assert [("POST /api/new HTTP/1.1", b'{"x": 1}')] == [(one.start, one.body) for one in server.seen]
