"""A changed prompt or endpoint is taken over while serving; what is remembered of conversations stays."""

from __future__ import annotations

import contextlib
import io
from collections.abc import AsyncIterator
from pathlib import Path

from proxy.config.load import load
from proxy.server import start_serving
from tests.extensions.correction.model import failed, says
from tests.serving.proxied import Proxied
from tests.serving.wire import JSON_TYPE, answer, replies, tool

NO = failed("404 Not Found", "SYMBOL_NOT_FOUND", "no such symbol", "NOT_FOUND")
GOT = answer("200 OK", b'{"price": 7}', JSON_TYPE)


@contextlib.asynccontextmanager
async def served(path: Path) -> AsyncIterator[Proxied]:
    log = io.StringIO()
    serving = await start_serving(load(path, {}), log_to=log, environ={})
    try:
        yield Proxied(serving, log)
    finally:
        await serving.stop(grace=0)


async def test_an_edited_prompt_is_used_after_a_reload_and_the_trajectory_is_kept(tmp_path: Path) -> None:
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("first {{arguments}} {{error}} {{query}} {{trajectory}}")
    said = "X-Conversation-Id: c"
    async with tool(replies(GOT, NO)) as tools, tool(says({"should_retry": False})) as model:
        (tmp_path / "c.yaml").write_text(f"""
version: 1
listen: 127.0.0.1:0
admin: {{listen: 127.0.0.1:0}}
upstreams: {{tools: {{url: "{tools.url}"}}, model: {{url: "{model.url}"}}}}
correction: {{upstream: model, model: m, prompts: {{semantic_retry: prompt.txt}}}}
defaults: {{correct: {{semantic_retry: on, trajectory: on}}}}
routes: {{/a: {{upstream: tools, tool: a, schema: {{type: object}}}}}}
""")
        async with served(tmp_path / "c.yaml") as proxy:
            await proxy.post("/a", b'{"n": 1}', said)
            await proxy.post("/a", b'{"n": 2}', said)
            prompt.write_text("second {{arguments}} {{error}} {{query}} {{trajectory}}")
            assert 200 == (await proxy.ask_admin("/-/reload", method="POST")).status
            await proxy.post("/a", b'{"n": 3}', said)

    before, after = (seen.body.decode() for seen in model.seen)
    assert 'first {\\"n\\":2}' in before
    assert 'second {\\"n\\":3}' in after
    for asked in (before, after):
        assert '\\"result\\":{\\"price\\":7}' in asked
