"""Every kind of escalation is reported once: one notice, one count, one log line, one row on the operator's page."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from proxy.config.load import load
from tests.serving.proxied import Proxied, proxied
from tests.serving.wire import Tool, answer, exchange_together, post, replies, tool
from tests.steady import until

ROUTES = """
  - path: /convert
    upstream: tools
    tool: convert
    schema: {type: object, properties: {amount: {type: number}}, required: [amount]}
  - path: /budgeted
    upstream: tools
    tool: budgeted
    attempts: {tool_errors: {max: 2}}
    schema: {type: object, properties: {amount: {type: number}}, required: [amount]}
  - {path: /Math, upstream: tools, tool: Math, container: {functions: [Add]}}
  - path: /final
    upstream: none
    tool: report
    schema: {type: object, properties: {score: {type: number}}, required: [score]}
  - {path: '/tools/{tool}', upstream: tools}
"""
TOOLS = "{known: {schema: {type: object, properties: {a: {type: number}}}}}"
NAMED = "X-Conversation-Id: c"
REFUSED = answer("400 Bad Request", b'{"error": "city code must have 3 letters"}', "Content-Type: application/json")
PLACED = answer(
    "422 Unprocessable Entity",
    b'{"detail": [{"loc": ["body", "amount"], "msg": "amount must be positive", "type": "value_error"}]}',
    "Content-Type: application/json",
)
AWAY = answer("404 Not Found", b'{"error": "no such currency"}', "Content-Type: application/json")
TAKEN = answer("204 No Content", b"")


@dataclass(frozen=True)
class Kind:
    """A way in which a conversation escalates: the answers of the tool, and calls of which the last is the
    escalation."""

    path: str
    bodies: tuple[str, ...]
    answers: tuple[bytes, ...] = ()
    named: bool = True
    standing: tuple[int, int] = (3, 3)
    said: str = ""
    code: str = "ATTEMPTS_EXHAUSTED"
    summary: str = "failed after 3 attempts."

    @property
    def tool(self) -> str:
        """The tool of its calls."""
        return "report" if self.path == "/final" else "" if "tools" in self.path else self.path[1:]


WRONG = ('{"amount": "a"}', '{"amount": "b"}', '{"amount": "c"}')
KINDS = {
    "refusals of our own": Kind("/convert", WRONG),
    "arguments that the tool refuses": Kind(
        "/convert",
        ('{"amount": -1}', '{"amount": -2}', '{"amount": -3}'),
        (PLACED,) * 3,
        said="amount must be positive",
    ),
    "the same arguments by address": Kind("/convert", WRONG[:1] * 3, named=False),
    "final outputs": Kind("/final", ('{"score": "a"}', '{"score": "b"}', '{"score": "c"}')),
    "the same call, which the tool refused": Kind(
        "/convert", ('{"amount": 0}',) * 3, (REFUSED,) * 2, said="city code must have 3 letters"
    ),
    "a budget of the tool's errors": Kind(
        "/budgeted",
        ('{"amount": 1}', '{"amount": 2}', '{"amount": 3}'),
        (AWAY,) * 2,
        standing=(2, 2),
        said="no such currency",
        code="TOOL_ERROR_BUDGET",
        summary="no more than 2 are allowed within 300 seconds of one another.",
    ),
    "a container": Kind("/Math", ('{"a": 1}', '{"a": 2}', '{"a": 3}')),
    "unknown tools": Kind("/tools/nothing", ("{}", '{"a": 1}', '{"a": 2}')),
}


def _count(metrics: bytes) -> float:
    lines = metrics.decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("toolproxy_escalations_total{"))


async def _notices(proxy: Proxied, hook: Tool) -> list[dict[str, object]]:
    await until(lambda: bool(_results(proxy)))
    await proxy.serving._extending.close()  # a second notice would still be under way
    return [json.loads(seen.body)["data"] for seen in hook.seen]


async def _waiting(proxy: Proxied) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = json.loads((await proxy.ask_admin("/-/attempts?waiting=true")).body)["attempts"]
    return rows


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
async def test_reports_an_escalation_once_in_every_channel(kind: Kind) -> None:
    headers = [NAMED] if kind.named else []
    async with tool(replies(*kind.answers or (TAKEN,))) as upstream, tool(replies(TAKEN)) as hook:
        told = f"{{webhook: '{hook.url}/hook', secret: s3cret}}"
        async with proxied(ROUTES, upstream.url, tools=TOOLS, on_escalation=told) as proxy:
            seen = [await proxy.post(kind.path, body.encode(), *headers) for body in (*kind.bodies, kind.bodies[-1])]
            notices, waiting = await _notices(proxy, hook), await _waiting(proxy)
            counted = _count((await proxy.ask_admin("/metrics")).body)
            logged = [line for line in proxy.lines() if line.get("escalated")]

    number, limit = kind.standing
    error = json.loads(seen[-2].body)["error"]
    assert (kind.code, "blocked", False, number, limit) == (
        error["code"], error["status"], error["retryable"], error["attempt"], error["max_attempts"],
    )  # fmt: skip
    assert kind.said in json.loads(seen[-2].body)["content"]
    assert (1, 1.0, [("warning", number)]) == (
        len(notices), counted, [(line["level"], line["retry_attempt"]) for line in logged],
    )  # fmt: skip
    assert ("blocked", number, limit) == (
        notices[0]["status"], notices[0]["attempts"], notices[0]["max_attempts"],
    )  # fmt: skip
    assert kind.said in str(notices[0]["content"])
    assert str(notices[0]["summary"]).endswith(kind.summary)
    assert [(kind.tool, True, limit)] == [(row["tool"], row["waiting"], row["max_attempts"]) for row in waiting]
    assert len(kind.answers) == len(upstream.seen)


async def test_the_operators_page_does_not_hold_the_words_of_a_tool() -> None:
    kind = KINDS["the same call, which the tool refused"]
    async with tool(replies(*kind.answers)) as upstream, proxied(ROUTES, upstream.url, tools=TOOLS) as proxy:
        for body in kind.bodies:
            await proxy.post(kind.path, body.encode(), NAMED)
        everything = (await proxy.ask_admin("/-/attempts")).body
        (row,) = await _waiting(proxy)

    assert b"3 letters" not in everything
    assert [
        "Attempt 1: INVALID_REQUEST: The tool refused the request",
        "Attempt 2: INVALID_REQUEST: The tool refused the request",
        "Attempt 3: The same call again, which was not sent",
    ] == row["history"]


async def test_a_human_who_ends_an_escalation_lets_the_call_go_again() -> None:
    kind = KINDS["the same call, which the tool refused"]
    async with tool(replies(*kind.answers, TAKEN)) as upstream, proxied(ROUTES, upstream.url, tools=TOOLS) as proxy:
        for body in kind.bodies:
            await proxy.post(kind.path, body.encode(), NAMED)
        (row,) = await _waiting(proxy)
        question = post("/-/attempts/reset", json.dumps({"key": row["key"]}).encode())
        await exchange_together(proxy.admin, [question.replace(b"Host: tools.test", b"Host: 127.0.0.1")])
        seen = await proxy.post(kind.path, kind.bodies[0].encode(), NAMED)
        after = await _waiting(proxy)

    assert (204, []) == (seen.status, after)


async def test_failures_of_one_turn_escalate_together() -> None:
    async with tool(replies(TAKEN)) as hook:
        told = f"{{webhook: '{hook.url}/hook', secret: s3cret}}"
        async with proxied(ROUTES, tools=TOOLS, on_escalation=told) as proxy:
            for body in WRONG[:2]:
                await proxy.post("/convert", body.encode(), NAMED)
            turn = [post("/convert", b'{"amount": "x%d"}' % number, NAMED) for number in range(4)]
            seen = await exchange_together(proxy.port, turn)
            notices = await _notices(proxy, hook)
            counted = _count((await proxy.ask_admin("/metrics")).body)

    assert ["3/3"] * 4 == [one.header("tool-attempt") for one in seen]
    assert (1, 1.0) == (len(notices), counted)


async def test_notices_that_wait_go_to_the_webhook_that_the_config_names_now(tmp_path: Path) -> None:
    busy = answer("503 Service Unavailable", b"")
    async with (
        tool(replies(busy)) as old,
        tool(replies(TAKEN)) as new,
        proxied(ROUTES, tools=TOOLS, on_escalation=f"{{webhook: '{old.url}/hook', secret: s3cret}}") as proxy,
    ):
        for body in WRONG:
            await proxy.post("/convert", body.encode(), NAMED)
        await old.arrived.wait()
        _serve(proxy, tmp_path, f"{{webhook: '{new.url}/hook', secret: s3cret}}")
        await new.arrived.wait()
        ids = [one.header("webhook-id") for one in (old.seen[0], new.seen[0])]

    assert ids[0] == ids[1]


async def test_notices_that_wait_when_the_config_names_no_webhook_are_said_to_be_lost(tmp_path: Path) -> None:
    busy = answer("503 Service Unavailable", b"")
    async with (
        tool(replies(busy)) as hook,
        proxied(ROUTES, tools=TOOLS, on_escalation=f"{{webhook: '{hook.url}/hook', secret: s3cret}}") as proxy,
    ):
        for body in WRONG:
            await proxy.post("/convert", body.encode(), NAMED)
        await hook.arrived.wait()
        _serve(proxy, tmp_path, None)

    assert ["lost"] == _results(proxy)


async def test_a_notice_that_waits_at_the_end_of_the_process_is_said_to_be_lost() -> None:
    busy = answer("503 Service Unavailable", b"")
    async with (
        tool(replies(busy)) as hook,
        proxied(ROUTES, tools=TOOLS, on_escalation=f"{{webhook: '{hook.url}/hook', secret: s3cret}}") as proxy,
    ):
        for body in WRONG:
            await proxy.post("/convert", body.encode(), NAMED)
        await hook.arrived.wait()

    assert ["lost"] == _results(proxy)


def _serve(proxy: Proxied, folder: Path, webhook: str | None) -> None:
    """Serves the same config with another webhook, as a reload does."""
    serving = proxy.serving
    served = serving.reloader.served
    upstreams = "upstreams: {tools: {url: 'http://127.0.0.1:9'}}"
    text = f"version: 1\nlisten: 127.0.0.1:0\n{upstreams}\ntools: {TOOLS}\nroutes:{ROUTES}"
    path = folder / "config.yaml"
    path.write_text(text if webhook is None else f"{text}\non_escalation: {webhook}\n")
    config = replace(served.loaded.config, sections=load(path, {}).config.sections)
    serving._adopt(replace(served, loaded=replace(served.loaded, config=config)))


def _results(proxy: Proxied) -> list[str]:
    lines = map(json.loads, proxy.log.getvalue().splitlines())
    return [line["result"] for line in lines if line["message"] == "Escalation notice"]
