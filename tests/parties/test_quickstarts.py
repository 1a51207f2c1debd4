"""Each page of docs/quickstart: its files and commands run in their order, and print what the page shows."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from proxy.__main__ import VERBS
from tests.cli import curl
from tests.parties.environment import PARTIES, ROOT, needs, python
from tests.ports import hold_port
from tests.test_docs import pattern

pytestmark = pytest.mark.large

FOLDER: Final = ROOT / "docs" / "quickstart"
PAGES: Final = {page.stem: page.read_text(encoding="utf-8") for page in sorted(FOLDER.glob("*.md"))}
# The port that each page gives its service.
SERVICE: Final = {"fastapi": 8000, "express": 9000, "go": 9000, "fastmcp": 9000}


def list_blocks(page: str, pattern: str) -> list[tuple[str, str]]:
    """Returns the info string and the text of each code block whose info string matches."""
    found = re.findall(r'^```(\w+(?: title="[\w.-]+")?)\n(.*?)^```$', PAGES[page], re.MULTILINE | re.DOTALL)
    return [(info, text) for info, text in found if re.fullmatch(pattern, info)]


def write_files(page: str, folder: Path, port: int) -> None:
    """Writes the files of a page; `port` takes the place of the service's."""
    for info, text in list_blocks(page, r'\w+ title="\w+\.\w+"'):
        (folder / info.split('"')[1]).write_text(text.replace(str(SERVICE[page]), str(port)), encoding="utf-8")


def translate_service(page: str, words: list[str], folder: Path, port: int) -> list[str]:
    """Returns the command that starts the service, with the interpreter that has its packages."""
    words = [word.replace(str(SERVICE[page]), str(port)) for word in words]
    if page == "fastapi":
        needs("py1")
        return [python("py1"), "-m", *words]
    if page == "fastmcp":
        needs("py2")
        return [python("py2"), *words[1:]]
    if page == "express":
        needs("node", "webnode")
        (folder / "node_modules").mkdir()
        for package, environment in (("express", "webnode"), ("zod", "node")):
            (folder / "node_modules" / package).symlink_to(PARTIES / environment / "node_modules" / package)
        return words
    if shutil.which("go") is None:
        pytest.skip("no go here: install Go 1.22 or newer")
    subprocess.run(["go", "build", "-o", "service", words[2]], cwd=folder, check=True)  # noqa: S607
    return [str(folder / "service")]


@contextlib.contextmanager
def serving(page: str, folder: Path) -> Iterator[int]:
    """Starts the service and the proxy of a page, and yields the proxy's port."""
    port = hold_port()
    write_files(page, folder, port)
    ((_, text),) = list_blocks(page, "sh")
    service, proxy = (line.split() for line in text.splitlines())
    assert "toolcall-proxy" == proxy[0]
    words = [word.replace(f":{SERVICE[page]}", f":{port}") for word in proxy[1:]]
    with contextlib.ExitStack() as stack:
        started = subprocess.Popen(
            translate_service(page, service, folder, port),
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        stack.callback(end, started)
        wait_for(port, started)
        process = subprocess.Popen(
            [sys.executable, "-m", "proxy", *words, "--listen", "127.0.0.1:0"],
            cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        stack.callback(end, process)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("listening on http://127.0.0.1:"), line
        yield int(line.rsplit(":", 1)[1])


def end(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """Ends a program that this test started."""
    process.kill()
    process.communicate()


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Waits until a service accepts connections."""
    while True:
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return
        if process.poll() is not None:
            assert process.stderr is not None
            pytest.fail(process.stderr.read().decode()[-2000:])
        time.sleep(0.05)


def run(command: str, folder: Path, port: int) -> str:
    """Returns what a command of a page prints."""
    if command.startswith("curl "):
        return curl.run(command, port)[1]
    name = command.split()[1]
    text = (folder / name).read_text(encoding="utf-8").replace("127.0.0.1:8080", f"127.0.0.1:{port}")
    (folder / name).write_text(text, encoding="utf-8")
    return subprocess.run([python("py2"), name], cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("page", SERVICE)
def test_the_page_does_what_it_shows(page: str, tmp_path: Path) -> None:
    ((_, tour),) = list_blocks(page, "console")
    parts = [part.partition("\n") for part in re.split(r"^\$ ", tour, flags=re.MULTILINE)[1:]]
    with serving(page, tmp_path) as port:
        for command, _, shown in parts:
            printed = run(command, tmp_path, port).strip()
            assert re.fullmatch(pattern(shown), printed, re.DOTALL), f"$ {command}\n{printed}"


@pytest.mark.parametrize("framework", ["langgraph", "openai-agents"])
def test_an_agent_reads_why_its_call_was_rejected_and_tries_again(framework: str, tmp_path: Path) -> None:
    needs("py1")
    ((_, snippet),) = list_blocks("agents", f'python title="{framework}"')
    script = tmp_path / "agent.py"
    with serving("fastmcp", tmp_path) as port:
        script.write_text(
            f"{SCRIPTED[framework]}\nmodel, conversation = Scripted(), 'c1'\n"
            f"{snippet.replace('127.0.0.1:8080', f'127.0.0.1:{port}')}\n"
            "import asyncio\nprint(json.dumps([asyncio.run(answer('Order A-100.')), *seen]))\n",
            encoding="utf-8",
        )
        quiet = {**os.environ, "OPENAI_AGENTS_DISABLE_TRACING": "1", "LANGSMITH_TRACING": "false"}
        words = [python("py1"), str(script)]
        done = subprocess.run(words, env=quiet, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr[-3000:]
    answer, rejected, ordered = json.loads(done.stdout.splitlines()[-1])
    assert "done" == answer
    assert "/quantity (VAL-003)" in rejected
    assert "ordered 2 of A-100" in ordered


def test_every_verb_of_the_pages_exists() -> None:
    assert set(re.findall(r"toolcall-proxy ([a-z]+)", "".join(PAGES.values()))) <= set(VERBS)


CALLS: Final = """
import json
calls = [{"sku": "A-100", "quantity": 50}, {"sku": "A-100", "quantity": 2}]
seen = []
"""
# Models that send a wrong call, then a right one, and keep what they read.
SCRIPTED: Final = {
    "langgraph": CALLS
    + """
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult


class Scripted(BaseChatModel):
    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **more):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **more):
        seen[:] = [str(message.content) for message in messages if isinstance(message, ToolMessage)]
        if len(seen) == len(calls):
            message = AIMessage("done")
        else:
            call = {"name": "place_order", "args": calls[len(seen)], "id": f"c{len(seen)}"}
            message = AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=message)])
""",
    "openai-agents": CALLS
    + """
from agents import Model, ModelResponse, Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText


class Scripted(Model):
    async def get_response(self, *words, **named):
        given = named.get("input", words[1] if len(words) > 1 else [])
        outputs = [item for item in given if isinstance(item, dict) and item.get("type") == "function_call_output"]
        seen[:] = [json.dumps(item["output"]) for item in outputs]
        if len(seen) == len(calls):
            text = ResponseOutputText(text="done", type="output_text", annotations=[])
            part = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
        else:
            number = len(seen)
            part = ResponseFunctionToolCall(
                arguments=json.dumps(calls[number]), call_id=f"c{number}", name="place_order", type="function_call",
                id=f"f{number}",
            )
        return ModelResponse(output=[part], usage=Usage(), response_id=None)

    def stream_response(self, *words, **named):
        raise NotImplementedError
""",
}
