"""Report-only dispatch: a call of an unknown tool is forwarded unchanged, and counted by the error that it would have
been."""

from __future__ import annotations

import pytest

from tests.serving.proxied import code, proxied
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


async def test_where_routes_enforce_it_is_still_refused() -> None:
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
