"""A test case made of a kept call: it has right arguments only if they are known."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.serving.proxied import WEATHER, Proxied, proxied, told
from tests.serving.wire import JSON_TYPE, answer, replies, tool

TOKEN = "a-token-of-the-operator"
ADMIN = f"{{listen: 127.0.0.1:0, token: {TOKEN}, values: full}}"
OK = answer("200 OK", b"{}", JSON_TYPE)
COMPLAINT = answer("422 Unprocessable Entity", b'{"detail": [{"loc": ["body", "lat"], "msg": "too far"}]}', JSON_TYPE)
BROKEN = b"no HTTP\r\n\r\n"
UNSETTLED = "It cannot be copied as a test: whether its arguments were right is not known."
RIGHT, WRONG = b'{"lat": 1}', b'{"lat": []}'


async def read_calls(proxy: Proxied) -> list[Any]:
    """The kept calls in full, newest first."""
    login = f"Authorization: Bearer {TOKEN}"
    listed = told(await proxy.ask_admin("/-/calls", login))["calls"]
    return [told(await proxy.ask_admin(f"/-/calls/{each['id']}", login)) for each in listed]


@pytest.mark.parametrize(
    ("more", "answers", "bodies", "outcome", "code"),
    [
        ("caps: {default: 1}", [OK], [RIGHT, RIGHT], "refused", "CALL_CAP_EXCEEDED"),
        ("attempts: {max: 1, block: hard}", [OK], [WRONG, RIGHT], "refused", "ATTEMPTS_EXHAUSTED"),
        ("attempts: {tool_errors: {max: 1}}", [COMPLAINT], [RIGHT, RIGHT], "refused", "TOOL_ERROR_BUDGET"),
        ("", [COMPLAINT], [RIGHT], "tool_error", ""),
        ("upstream_errors: passthrough", [COMPLAINT], [RIGHT], "tool_error", ""),
        ("", [BROKEN], [RIGHT], "upstream_error", ""),
    ],
)
async def test_a_call_that_failed_for_another_reason_than_its_arguments_is_no_test_case(
    more: str, answers: list[bytes], bodies: list[bytes], outcome: str, code: str
) -> None:
    async with (
        tool(replies(*answers)) as server,
        proxied(f"{WEATHER}    {more}\n", server.url, admin=ADMIN) as proxy,
    ):
        for body in bodies:
            await proxy.post("/weather", body, "X-Conversation-Id: c")
        call, *_ = await read_calls(proxy)

    assert outcome == call["outcome"]
    assert code in ("", call["error.code"])
    assert (RIGHT.decode(), "/weather", True) == tuple(call[name] for name in ("sent", "target", "replay"))
    assert (UNSETTLED, False) == (call["no_copy"], "expected" in call)


async def test_a_call_that_a_hook_refused_is_no_test_case() -> None:
    hooks = '[{use: "tests.hooks.samples:Says", settings: {refuse: "No."}}]'
    async with proxied(WEATHER, admin=ADMIN, hooks=hooks) as proxy:
        await proxy.post("/weather", RIGHT)
        (call,) = await read_calls(proxy)

    assert ("refused", UNSETTLED, False) == (call["outcome"], call["no_copy"], "expected" in call)


@pytest.mark.parametrize(
    ("mode", "reply", "outcome"),
    [("enforce", OK, "refused"), ("report", OK, "delivered"), ("report", BROKEN, "upstream_error")],
)
async def test_a_test_case_refuses_arguments_that_broke_the_rules(mode: str, reply: bytes, outcome: str) -> None:
    routes = f"{WEATHER}    mode: {mode}\n"
    async with tool(replies(reply)) as server, proxied(routes, server.url, admin=ADMIN) as proxy:
        await proxy.post("/weather", WRONG)
        (call,) = await read_calls(proxy)

    assert (outcome, "null", False) == (call["outcome"], call["expected"], "no_copy" in call)


@pytest.mark.parametrize(
    "body", [b'{\n  "lat": 1,\r\n  "note": "a\\nb"\r}', b'{\n  "lat": "1",\r\n  "note": "a\\nb"\r}']
)
async def test_the_right_arguments_are_on_one_line_despite_their_line_breaks(body: bytes) -> None:
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url, admin=ADMIN) as proxy:
        await proxy.post("/weather", body)
        (call,) = await read_calls(proxy)

    assert body.decode() == call["sent"]
    assert 1 == len(call["expected"].splitlines())
    assert {"lat": 1, "note": "a\nb"} == json.loads(call["expected"])
