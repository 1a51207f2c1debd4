"""Each snippet of docs/agents.md, run with the real package in front of a real proxy: the refusal's text reaches the
model, and the right call its tool."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from pathlib import Path

import pytest

from tests.parties.environment import PARTIES, ROOT
from tests.serving.proxied import proxied
from tests.serving.wire import answer, replies, tool

pytestmark = pytest.mark.large

PAGE = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
SNIPPETS = dict(re.findall(r'```python title="([a-z-]+)"\n(.*?)```', PAGE, re.DOTALL))
ROUTE = """
  - path: /tools/weather
    upstream: tools
    tool: weather
    schema: {type: object, properties: {lat: {type: number}}, required: [lat]}
"""
SCHEMA = 'SCHEMA = {"type": "object", "properties": {"lat": {"type": "number"}}, "required": ["lat"]}\n'
MADE = SCHEMA + 'tool = make_tool("weather", "The weather.", SCHEMA, "c1")\n'
# Snippet -> what uses it as the package does: prints what the model reads of a wrong call and of a right one.
USES = {
    "requests": """
wrong, right = call_tool("weather", '{"lat": "north"}', "c1"), call_tool("weather", '{"lat": 1}', "c1")
assert isinstance(wrong, Retry) and isinstance(right, Answer)
seen = [wrong.text, json.dumps(right.value)]
""",
    "openai": """
from openai.types.chat.chat_completion_message_tool_call import Function
seen = []
for text in ('{"lat": "north"}', '{"lat": 1}'):
    function = Function(name="weather", arguments=text)
    message = answer_call(ChatCompletionMessageToolCall(id="a", type="function", function=function), "c1")
    assert (message["role"], message["tool_call_id"]) == ("tool", "a")
    seen.append(message["content"])
""",
    "anthropic": """
results = [answer_use(ToolUseBlock(id="a", type="tool_use", name="weather", input=given), "c1")
           for given in ({"lat": "north"}, {"lat": 1})]
assert [True, None] == [result.get("is_error") for result in results]
seen = [result["content"] for result in results]
""",
    "pydantic-ai": MADE
    + """
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
seen = []
def model(messages, info):
    parts = [part for part in messages[-1].parts if part.part_kind in ("retry-prompt", "tool-return")]
    seen.extend(str(part.content) if part.part_kind == "retry-prompt" else json.dumps(part.content) for part in parts)
    if len(seen) == 2:
        return ModelResponse(parts=[TextPart("done")])
    return ModelResponse(parts=[ToolCallPart("weather", {"lat": 1 if seen else "north"})])
assert "done" == Agent(FunctionModel(model), tools=[tool]).run_sync("How is the weather?").output
""",
    "langchain": MADE
    + """
call = {"name": "weather", "id": "a", "type": "tool_call"}
messages = [tool.invoke({**call, "args": given}) for given in ({"lat": "north"}, {"lat": 1})]
assert ["error", "success"] == [message.status for message in messages]
seen = [message.content for message in messages]
""",
    "openai-agents": MADE
    + """
import asyncio
seen = [asyncio.run(tool.on_invoke_tool(None, text)) for text in ('{"lat": "north"}', '{"lat": 1}')]
""",
}
PACKAGES = {"requests": "requests", "openai": "openai", "anthropic": "anthropic", "pydantic-ai": "pydantic_ai",
            "langchain": "langchain_core", "openai-agents": "agents"}  # fmt: skip


def find_python(package: str) -> Path:
    """The interpreter of the environment that has a package. If none has it, skips the test by name; on CI, fails
    it."""
    for environment in ("py1", "py2", "sdk"):
        folders = (PARTIES / environment).glob("lib/python*/site-packages")
        if any((folder / package).is_dir() and (folder / "requests").is_dir() for folder in folders):
            return PARTIES / environment / "bin" / "python"
    if os.environ.get("CI") == "true":
        pytest.fail(f"no {package} under .parties: run .ci/parties and .ci/sdks")
    pytest.skip(f"no {package} under .parties: run .ci/parties and .ci/sdks")


@pytest.mark.parametrize("name", USES)
async def test_a_snippet_hands_the_refusal_to_the_model_and_the_right_call_to_its_tool(
    name: str, tmp_path: Path
) -> None:
    python = find_python(PACKAGES[name])
    (tmp_path / "toolcall_proxy").mkdir()
    shutil.copy(ROOT / "proxy/extensions/guidance/agent_client.py", tmp_path / "toolcall_proxy" / "client.py")
    own = SNIPPETS[name] if name != "requests" else ""
    script = f"import json\n{SNIPPETS['requests']}\n{own}\n{USES[name]}\nprint(json.dumps(seen))\n"
    async with tool(replies(answer("200 OK", b'{"sky": "blue"}'))) as server, proxied(ROUTE, server.url) as proxy:
        environment = {**os.environ, "PROXY": f"http://127.0.0.1:{proxy.port}", "PYTHONPATH": str(tmp_path)}
        process = await asyncio.create_subprocess_exec(
            str(python), "-c", script, env=environment, cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, error = await process.communicate()

    assert 0 == process.returncode, error.decode()[-2000:]
    wrong, right = json.loads(out.decode().splitlines()[-1])
    assert "/lat (VAL-002)" in wrong
    assert {"sky": "blue"} == json.loads(right)
    assert [b'{"lat": 1}'] == [each.body for each in server.seen]


def test_every_snippet_is_run() -> None:
    assert set(SNIPPETS) == set(USES)
