"""The SDKs of OpenAI and Anthropic read the same calls through the proxy, streamed and not, whatever was repaired."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.extensions.chat.answers import chat_answer, messages_answer, responses_answer, whole
from tests.extensions.chat.streams import chat_stream, messages_stream, responses_stream, streamed
from tests.parties.environment import PARTIES, needs
from tests.serving.proxied import proxied
from tests.serving.wire import Seen, tool

pytestmark = pytest.mark.large

CLIENT = Path(__file__).with_name("sdk_client.py")
# Where the party's interpreter is, unless the environment names another with the package.
PYTHON = os.environ.get("SDK_PYTHON") or str(PARTIES / "py1" / "bin" / "python")
WAYS = {"openai": 4, "anthropic": 2}
ROUTES = """
  - {path: /v1, upstream: tools, repair: lenient, model: {}}
"""
# What the model sends as name and arguments -> whether anything has to be repaired.
SENT = [
    ("get_weather", '{"city": "Oslo", "days": 3}', False),
    ("Get-Weather", '{"city": "Oslo", "days": "3"}', True),
]


def write_answer(path: str, *, stream: bool, name: str, text: str) -> bytes:
    """The answer of the scripted model at one of the three paths."""
    pieces = (text[:9], text[9:])
    if path.endswith("/messages"):
        made: Any = messages_stream(pieces, name) if stream else messages_answer(json.loads(text), name)
    elif path.endswith("/responses"):
        made = responses_stream(pieces, name) if stream else responses_answer(text, name)
    else:
        made = chat_stream(pieces, name) if stream else chat_answer(text, name)
    return streamed(made) if stream else whole(made)


@pytest.mark.parametrize("package", WAYS)
@pytest.mark.parametrize(("name", "text", "repaired"), SENT)
async def test_an_sdk_reads_the_right_call(package: str, name: str, text: str, repaired: bool) -> None:
    await skip_without(package)

    async def script(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Seen) -> None:
        stream = json.loads(seen.body).get("stream") is True
        writer.write(write_answer(seen.start.split(" ")[1], stream=stream, name=name, text=text))
        await writer.drain()

    async with tool(script) as server, proxied(ROUTES, server.url) as proxy:
        code, out, err = await run(PYTHON, str(CLIENT), package, f"http://127.0.0.1:{proxy.port}")
        lines = proxy.lines()
    assert (0, b"") == (code, err[-2000:])
    assert [[["get_weather", {"city": "Oslo", "days": 3}]]] * WAYS[package] == json.loads(out)
    assert [repaired] * WAYS[package] == [line["outcome"] == "repaired" for line in lines]


async def skip_without(package: str) -> None:
    """Skips where the interpreter does not have a package."""
    if "SDK_PYTHON" not in os.environ:
        needs("py1")
    if not Path(PYTHON).exists() or (await run(PYTHON, "-c", f"import {package}"))[0]:
        pytest.skip(f"{PYTHON} has no {package}: `.ci/parties`, or pip install {package} and SDK_PYTHON=its python")


async def run(*words: str) -> tuple[int | None, bytes, bytes]:
    """A finished program: its exit code, and what it wrote."""
    process = await asyncio.create_subprocess_exec(
        *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    return process.returncode, out, err
