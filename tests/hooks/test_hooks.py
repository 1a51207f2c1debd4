"""Hooks in the real app: their arguments, the actions that they may take, and those that they cannot."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from proxy.config.mistakes import ConfigError
from proxy.hooks import Ending, Verdict
from tests.hooks.samples import TOLD, WAYS
from tests.serving.proxied import WEATHER, Proxied, code, proxied, told
from tests.serving.wire import JSON_TYPE, Seen, answer, post, replies, tool
from tests.steady import until

OK = answer("200 OK", b'{"sun": true}', JSON_TYPE)
HERE = "tests.hooks.samples"
GOOD, BAD, MENDED = b'{"lat": 1}', b'{"lat": "north"}', b'{"lat": "1"}'
DISPATCH = """
  - {path: /tools, upstream: tools, dispatch: {tool: /tool, arguments: /arguments}, tools: [weather]}
"""


@pytest.fixture(autouse=True)
def nobody_was_told_anything_yet() -> Iterator[None]:
    TOLD.clear()
    yield
    TOLD.clear()


def hook(name: str, settings: object = None, **keys: str) -> str:
    entry = {"use": f"{HERE}:{name}", "settings": settings or {}, **keys}
    return json.dumps(entry)


@asynccontextmanager
async def hooked(*hooks: str, routes: str = WEATHER, **keys: str) -> AsyncIterator[tuple[Proxied, list[Seen]]]:
    async with (
        tool(replies(OK, OK, OK)) as server,
        proxied(routes, server.url, hooks=f"[{', '.join(hooks)}]", **keys) as proxy,
    ):
        yield proxy, server.seen


async def test_a_hook_gets_the_state_of_the_call_at_every_point() -> None:
    async with hooked(hook("Witness")) as (proxy, _):
        await proxy.post("/weather", MENDED)
        await proxy.post("/weather", BAD, "X-Conversation-Id: c")

    shown = [(point, value) for _, point, value in TOLD]
    assert [
        ("before_decision", {"lat": "1"}),
        ("after_decision", Verdict(True, repairs=(("string_to_number", "/lat"),))),
        ("before_forward", (b'{"lat":1}', "/weather")),
        ("after_answer", (b'{"lat":1}', 200, {"sun": True}, True)),
    ] == shown[:4]
    assert [("before_decision", {"lat": "north"})] == shown[5:6]
    refused = shown[6][1]
    assert isinstance(refused, Verdict)
    broken = [(each.code, each.path) for each in refused.broken]
    assert (False, "INVALID_ARGUMENTS", [("VAL-002", "/lat")]) == (refused.forwarded, refused.code, broken)
    endings = [value for point, value in shown if point == "after_outcome" and isinstance(value, Ending)]
    assert [("repaired", 200, "", 0), ("refused", 400, "INVALID_ARGUMENTS", 1)] == [
        (ending.outcome, ending.status, ending.code, ending.attempt) for ending in endings
    ]
    assert all(0 < ending.seconds < 10 for ending in endings)


async def test_a_filter_reads_texts_and_bytes_that_are_not_utf_8_do_not_harm_it() -> None:
    odd = answer("200 OK", b"caf\xe9", "Content-Type: text/plain")
    async with (
        tool(replies(odd, answer("200 OK", b'{"a": "secret"}', JSON_TYPE))) as server,
        proxied(WEATHER, server.url, hooks=f"[{hook('Filter')}]") as proxy,
    ):
        seen = [await proxy.post("/weather", body) for body in (GOOD, GOOD, b'{"lat": 1, "note": "secret"}')]

    assert [(200, b"caf\xe9"), (200, b'"filtered"')] == [(one.status, one.body) for one in seen[:2]]
    assert (403, "CALL_NOT_ALLOWED") == code(seen[2])
    assert [
        ("before_decision", (str, bytes)), ("after_answer", "caf\ufffd"),
        ("before_decision", (str, bytes)), ("after_answer", '{"a": "secret"}'),
        ("before_decision", (str, bytes)),
    ] == [row[1:] for row in TOLD]  # fmt: skip


async def test_runs_hooks_in_the_order_of_the_config_until_one_decides() -> None:
    told_by = [hook("Witness", {"name": name}) for name in ("a", "b")]
    async with hooked(told_by[0], hook("Says", {"refuse": "No."}), told_by[1]) as (proxy, seen):
        said = await proxy.post("/weather", GOOD)

    assert [] == seen
    assert [("a", "before_decision"), ("a", "after_outcome"), ("b", "after_outcome")] == [row[:2] for row in TOLD]
    assert (403, "CALL_NOT_ALLOWED") == code(said)


async def test_a_refusal_is_read_by_the_model_and_costs_no_attempt() -> None:
    async with hooked(hook("Says", {"refuse": "Only managers may pay."})) as (proxy, seen):
        said = [await proxy.post("/weather", GOOD, "X-Conversation-Id: c") for _ in range(5)]

    assert [] == seen
    assert {(403, "CALL_NOT_ALLOWED")} == {code(one) for one in said}
    assert {None} == {one.header("tool-attempt") for one in said}
    assert "Only managers may pay." in told(said[0])["content"]
    assert "Ask somebody else." in told(said[0])["content"]
    assert False is told(said[0])["error"]["retryable"]


async def test_an_answer_of_a_hook_replaces_the_tools() -> None:
    async with hooked(hook("Says", {"answer": {"cached": [1.5]}})) as (proxy, seen):
        said = await proxy.post("/weather", GOOD)
        metrics = (await proxy.ask_admin("/metrics")).body.decode()

    assert [] == seen
    assert (200, b'{"cached":[1.5]}') == (said.status, said.body)
    assert 'outcome="answered"' in metrics
    assert ["answered"] == [line["outcome"] for line in proxy.lines()]


async def test_validates_repairs_and_reports_a_change_of_a_hook() -> None:
    async with hooked(hook("Says", {"change": {"lat": "2.50", "note": "n"}})) as (proxy, seen):
        said = await proxy.post("/weather", BAD)

    assert [b'{"lat":2.50,"note":"n"}'] == [one.body for one in seen]
    assert "hook;path=, string_to_number;path=/lat" == said.header("tool-repairs")


async def test_a_wrong_change_of_a_hook_does_not_reach_the_tool() -> None:
    async with hooked(hook("Says", {"change": {"lat": "north"}})) as (proxy, seen):
        said = await proxy.post("/weather", GOOD)

    assert [] == seen
    assert (400, "INVALID_ARGUMENTS") == code(said)


async def test_changed_arguments_replace_those_sent() -> None:
    catalogue = "{weather: {schema: {type: object, properties: {lat: {type: number}}, required: [lat]}}}"
    body = b'{ "id": 1, "tool": "weather", "arguments": {"lat": 5} }'
    async with hooked(hook("Says", {"change": {"lat": 7}}), routes=DISPATCH, tools=catalogue) as (proxy, seen):
        await proxy.post("/tools", body)

    assert [b'{ "id": 1, "tool": "weather", "arguments": {"lat":7} }'] == [one.body for one in seen]


async def test_without_a_change_the_tool_gets_the_very_bytes_that_were_sent() -> None:
    body = b'{ "lat" : 48.850,"note":"caf\\u00e9" }'
    async with hooked(hook("Witness")) as (proxy, seen):
        said = await proxy.post("/weather", body)

    assert [body] == [one.body for one in seen]
    assert None is said.header("tool-repairs")


async def test_a_hook_sets_and_removes_headers_of_what_goes_out() -> None:
    async with hooked(hook("Headers", {"X_User": "u-1", "x_tenant": None})) as (proxy, seen):
        await proxy.post("/weather", GOOD, "X-Tenant: a", "X-User: me")

    assert ("u-1", None) == (seen[0].header("x-user"), seen[0].header("x-tenant"))
    assert GOOD == seen[0].body


@pytest.mark.parametrize(
    "headers",
    [
        {"Mcp_Param_lat": "9"}, {"Content_Length": "3"},
        {"transfer_encoding": "chunked"}, {"content_type": "text/plain"},
        {"content_encoding": "gzip"}, {"host": "elsewhere"}, {"x": "a\r\nPOST /other HTTP/1.1"}, {"x": "a\x00"},
        {"x y": "a"}, {"": "a"}, {"x": 5},
    ],
    ids=str,
)  # fmt: skip
async def test_no_hook_can_touch_what_frames_the_body(headers: dict[str, object]) -> None:
    async with hooked(hook("Headers", headers)) as (proxy, seen):
        said = await proxy.post("/weather", GOOD)

    assert [] == seen
    assert (503, "HOOK_FAILED") == code(said)


# --- no hook can bypass validation ------------------------------------------------------------------------------------
@pytest.mark.large
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("on_failure", ["ignore", "refuse"])
@pytest.mark.parametrize("header", ["X-Way: plain", "X-Way: change"])
async def test_an_invalid_call_never_reaches_the_tool_with_any_hook(way: str, on_failure: str, header: str) -> None:
    entry = hook("Misbehaves", {"way": way}, on_failure=on_failure, timeout="20ms")
    async with hooked(entry) as (proxy, seen):
        bad = await proxy.post("/weather", BAD, header)
        good = await proxy.post("/weather", GOOD, header)

    assert [] == [one.body for one in seen if json.loads(one.body)["lat"] != 1]
    assert bad.status in ((200, 400) if way in ("changes_later", "shifts") else (400, 503))
    assert good.status in (200, 400, 503)


@pytest.mark.parametrize(
    ("way", "reason"),
    [
        ("sleeps", "timeout"), ("holds_on", "timeout"), ("raises", "exception"), ("exits", "exception"),
        ("cancels", "cancelled"), ("says_nonsense", "wrong_answer"), ("answers_what_is_no_json", "wrong_answer"),
        ("hands_over_a_checked_call", "wrong_answer"), ("grows", "wrong_answer"), ("rewrites_the_headers", "exception"),
    ],
)  # fmt: skip
async def test_a_hook_that_fails_is_counted_and_costs_what_its_policy_says(way: str, reason: str) -> None:
    settings = {"way": way}
    for on_failure, status in (("ignore", 200), ("refuse", 503)):
        entry = hook("Misbehaves", settings, on_failure=on_failure, timeout="20ms")
        async with hooked(entry) as (proxy, seen):
            said = await proxy.post("/weather", b'{"lat": 1, "note": "tulip"}')
            metrics = (await proxy.ask_admin("/metrics")).body.decode()

        assert (status, 1 if status == 200 else 0) == (said.status, len(seen))
        series = f'hook="{HERE}:Misbehaves",point="before_decision",reason="{reason}"'
        assert f"toolproxy_hook_failures_total{{{series}}} 1.0" in metrics
        assert "Hook failed" in proxy.log.getvalue()
        assert "tulip" not in proxy.log.getvalue()


@pytest.mark.parametrize(
    ("point", "refuse"), [("after_decision", 503), ("before_forward", 503), ("after_outcome", 200)]
)
async def test_a_later_failure_ends_the_call_unless_the_tool_has_run(point: str, refuse: int) -> None:
    for on_failure, status in (("ignore", 200), ("refuse", refuse)):
        async with hooked(hook("FailsAt", {"point": point}, on_failure=on_failure)) as (proxy, seen):
            said = await proxy.post("/weather", GOOD)

        assert (status, int(status == 200)) == (said.status, len(seen))
        named = f"{HERE}:FailsAt" if status == 503 else None
        assert [named] == [line.get("refused_by") for line in proxy.lines() if "outcome" in line]


async def test_a_report_only_route_keeps_the_clients_bytes_and_the_operators_rules() -> None:
    routes = WEATHER.replace("tool: weather", "tool: weather\n    mode: report")
    async with hooked(hook("Says", {"change": {"lat": 5}}), routes=routes) as (proxy, seen):
        await proxy.post("/weather", BAD)
    assert [BAD] == [one.body for one in seen]

    async with hooked(hook("Says", {"refuse": "No."}), routes=routes) as (proxy, seen):
        said = await proxy.post("/weather", GOOD)
    assert ([], 403) == (seen, said.status)


async def test_a_hook_hears_of_a_client_that_has_gone() -> None:
    async def never(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter, _seen: Seen) -> None:
        await reader.read()

    async with tool(never) as server, proxied(WEATHER, server.url, hooks=f"[{hook('Witness')}]") as proxy:
        _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(post("/weather", GOOD))
        async with asyncio.timeout(300):
            await until(lambda: server.seen)
            writer.transport.abort()
            await until(lambda: TOLD[-1][1] == "after_outcome")

    ending = TOLD[-1][2]
    assert isinstance(ending, Ending)
    assert Ending("client_gone", 0, "", 0, 0, ending.seconds) == ending


async def test_a_hook_hears_of_an_escalation_with_its_history() -> None:
    async with hooked(hook("Witness")) as (proxy, _):
        for lat in ("x", "y", "z"):
            await proxy.post("/weather", b'{"lat": "%s"}' % lat.encode(), "X-Conversation-Id: c")

    endings = [value for _, point, value in TOLD if point == "after_outcome" and isinstance(value, Ending)]
    line = "Type mismatch on 'lat' (got: string)"
    assert [(), (), tuple(f"Attempt {number}: {line}" for number in (1, 2, 3))] == [each.history for each in endings]


async def test_without_hooks_there_is_nothing_to_ask() -> None:
    async with proxied(WEATHER) as proxy:
        assert None is proxy.serving.handler.snapshot.services.hooks


async def test_a_call_by_mcp_comes_by_the_hooks_too() -> None:
    schema = "{type: object, properties: {lat: {type: number}}, required: [lat]}"
    own = f"tools: {{weather: {{schema: {schema}}}}}"
    routes = f"  - {{path: /mcp, upstream: tools, protocol: mcp, mcp: {{{own}}}}}\n"
    body = (
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "weather", "arguments": {"lat": 5}}}'
    )
    async with hooked(hook("Says", {"change": {"lat": 7}}), routes=routes) as (proxy, seen):
        await proxy.post("/mcp", body, "Accept: application/json, text/event-stream")
    assert [{"name": "weather", "arguments": {"lat": 7}}] == [
        json.loads(one.body)["params"] for one in seen if b"tools/call" in one.body
    ]

    async with hooked(hook("Says", {"refuse": "Not today."}), routes=routes) as (proxy, seen):
        said = await proxy.post("/mcp", body, "Accept: application/json, text/event-stream")
    assert ([], True) == ([one for one in seen if b"tools/call" in one.body], told(said)["result"]["isError"])
    assert "Not today." in told(said)["result"]["content"][0]["text"]

    async with hooked(hook("Says", {"answer": {"sun": 1}}), routes=routes) as (proxy, seen):
        said = await proxy.post("/mcp", body, "Accept: application/json, text/event-stream")
    assert {"content": [{"type": "text", "text": '{"sun":1}'}]} == told(said)["result"]


# --- loading ----------------------------------------------------------------------------------------------------------
async def test_a_ready_made_hook_is_taken_as_it_is() -> None:
    async with hooked(json.dumps({"use": f"{HERE}:READY"})) as (proxy, _):
        await proxy.post("/weather", GOOD)
    assert {"ready"} == {name for name, _, _ in TOLD}


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"use": "no_such_module_at_all:X"}, "'no_such_module_at_all:X' cannot be loaded"),
        ({"use": f"{HERE}:Missing"}, "cannot be loaded (AttributeError"),
        ({"use": f"{HERE}:NoHook"}, "is not a hook  (write a class that inherits from `proxy.hooks.Hook`)"),
        ({"use": f"{HERE}:Empty"}, "has none of a hook's methods"),
        ({"use": f"{HERE}:Plain"}, "is not a coroutine  (write `async def before_decision`)"),
        ({"use": f"{HERE}:Witness", "settings": {"colour": "red"}}, "cannot be instantiated (TypeError)"),
        ({"use": f"{HERE}:READY", "settings": {"name": "x"}}, "is an instance already and takes no settings"),
        ({"use": "surely-not-installed"}, "no hook is installed under the name 'surely-not-installed'"),
    ],
)
async def test_a_hook_that_cannot_be_used_is_a_mistake_of_the_config(entry: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        async with proxied(WEATHER, hooks=f"[{hook('Witness')}, {json.dumps(entry)}]"):
            raise AssertionError("started")
    (mistake,) = raised.value.mistakes
    assert said in str(mistake)
    assert "hooks" == mistake.where
