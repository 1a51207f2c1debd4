"""The two frameworks of docs/library.md with the engine in their own process: each refusal reaches the scripted model,
the tool gets only the right call, and no aiohttp is installed."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.parties.environment import ROOT, needs, python

pytestmark = pytest.mark.large

PAGE: Final = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
SNIPPETS: Final = dict(re.findall(r'```python title="([a-z-]+)"\n(.*?)```', PAGE, re.DOTALL))
# The turns of the scripted model: a duplicate key, a wrong value, and at last a call that needs one repair.
TURNS: Final = """
import importlib.util, json
turns = ['{"guests": 1, "guests": 2, "name": "Ann"}', '{"guests": "many"}', '{"guests": "4", "name": "Ann"}']
seen, booked = [], []
def book_table(guests: int, name: str) -> str:
    booked.append([guests, name])
    return "booked"
assert importlib.util.find_spec("aiohttp") is None
"""
# Snippet -> an agent of that framework with its own scripted model.
USES: Final = {
    "pydantic-ai": """
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
def model(messages, info):
    seen.extend(str(part.content) for part in messages[-1].parts if part.part_kind in ("retry-prompt", "tool-return"))
    done = len(seen) == len(turns)
    return ModelResponse([TextPart("done") if done else ToolCallPart("book_table", turns[len(seen)])])
agent = Agent(FunctionModel(model), tools=[book_table], capabilities=[CheckedCalls()], retries=3)
assert "done" == agent.run_sync("Book a table.").output
""",
    "openai-agents": """
from agents import Agent, Runner, function_tool, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call
set_tracing_disabled(True)
steps = [[function_call("book_table", text, call_id=f"c{number}")] for number, text in enumerate(turns)]
model = ScriptedModel([*steps, [assistant_message("done")]])
result = Runner.run_sync(Agent("host", model=model, tools=[check_calls(function_tool(book_table))]), "Book a table.")
assert "done" == result.final_output
seen.extend(item.output for item in result.new_items if item.type == "tool_call_output_item")
""",
}


@pytest.mark.parametrize("name", USES)
def test_the_model_reads_each_refusal_and_the_tool_gets_the_right_call(name: str, tmp_path: Path) -> None:
    needs("library")
    script = f"{SNIPPETS[name]}\n{TURNS}\n{USES[name]}\nprint(json.dumps([seen, booked]))\n"
    done = subprocess.run(
        [python("library"), "-c", script], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert 0 == done.returncode, done.stderr[-2000:]
    (duplicate, wrong, last), booked = json.loads(done.stdout.splitlines()[-1])
    assert 'duplicate key "guests"' in duplicate
    assert "/guests (VAL-002)" in wrong
    assert "/name (VAL-001)" in wrong
    assert ("booked", [[4, "Ann"]]) == (last, booked)


def test_runs_every_snippet_of_the_page() -> None:
    assert set(SNIPPETS) == set(USES)
