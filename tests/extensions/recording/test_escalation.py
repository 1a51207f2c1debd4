"""An escalation reaches a human: by the webhook, and on the operator's page."""

from __future__ import annotations

import asyncio
import hmac
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web

from proxy.config.load import load
from proxy.server import Serving, start_serving

CONFIG = """
version: 1
listen: 127.0.0.1:0
admin: {listen: 127.0.0.1:0}
upstreams: {tools: {url: http://127.0.0.1:9}}
on_escalation: {webhook: 'http://127.0.0.1:%d/hook', secret: s3cret}
routes:
  - path: /read_file
    upstream: tools
    tool: read_file
    schema:
      type: object
      properties: {path: {type: string}, password: {type: string}}
      required: [path]
"""


class Hook:
    """A webhook on a real socket that answers slowly."""

    def __init__(self) -> None:
        self.got: list[tuple[bytes, dict[str, str]]] = []
        self.answer = asyncio.Event()

    async def take(self, request: web.Request) -> web.Response:
        self.got.append((await request.read(), {name.lower(): value for name, value in request.headers.items()}))
        await self.answer.wait()
        return web.Response(status=204)


@pytest.fixture
async def hook() -> Hook:
    return Hook()


@pytest.fixture
async def serving(hook: Hook, tmp_path: Path) -> AsyncIterator[Serving]:
    app = web.Application()
    app.router.add_post("/hook", hook.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG % runner.addresses[0][1])
    with (tmp_path / "log").open("w") as log:
        started = await start_serving(load(config, {}), log_to=log)
        yield started
        hook.answer.set()
        await started.stop(grace=1.0)
    await runner.cleanup()


async def call(serving: Serving, body: str, conversation: str) -> int:
    headers = {"Content-Type": "application/json", "X-Conversation-Id": conversation}
    async with ClientSession() as client, client.post(serving.url + "/read_file", data=body, headers=headers) as reply:
        return reply.status


async def ask(serving: Serving, path: str) -> Any:
    async with ClientSession() as client, client.get(f"{serving.admin_url}{path}") as reply:
        return (await reply.json())["attempts"]


async def test_an_escalation_is_posted_once_signed_and_without_values(serving: Serving, hook: Hook) -> None:
    for word in ("hunter2", "hunter3", "hunter4", "hunter5"):  # no answer waits for the webhook, which keeps silent
        assert 400 == await asyncio.wait_for(call(serving, json.dumps({"password": word}), "c-1"), 60)
    hook.answer.set()
    await serving._extending.close()
    ((body, headers),) = hook.got
    told = json.loads(body)
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    assert "v1," + b64encode(hmac.digest(b"s3cret", signed, "sha256")).decode() == headers["webhook-signature"]
    assert (
        "tool_call.escalated",
        "Tool 'read_file' validation failed after 3 attempts.",
        "blocked",
        ["Attempt 1: Missing required field 'path'", "Attempt 2: Missing required field 'path'",
         "Attempt 3: Missing required field 'path'"],
        {"tool": "read_file", "arguments": {"password": "<***>"}},
    ) == (
        told["type"], told["data"]["summary"], told["data"]["status"], told["data"]["history"],
        told["data"]["original_call"],
    )  # fmt: skip
    assert b"hunter" not in body


async def test_the_operator_finds_a_conversation_by_its_own_id_and_those_that_wait(serving: Serving) -> None:
    for conversation, times in (("c-1", 3), ("c-2", 1)):
        for number in range(times):
            await call(serving, json.dumps({"a": number}), conversation)
    (one,) = await ask(serving, "/-/attempts?conversation=c-1")
    assert ("read_file", "attempts", 3, 3, True) == (
        one["tool"], one["kind"], one["attempts"], one["max_attempts"], one["waiting"],
    )  # fmt: skip
    assert [f"Attempt {number}: Missing required field 'path'" for number in (1, 2, 3)] == one["history"]
    assert [one] == await ask(serving, "/-/attempts?waiting=true")
    assert [1] == [each["attempts"] for each in await ask(serving, "/-/attempts?conversation=c-2&rung=header")]
    assert [] == await ask(serving, "/-/attempts?conversation=c-2&rung=session")
    assert 2 == len(await ask(serving, "/-/attempts"))
