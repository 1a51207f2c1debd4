"""`serve --model URL`: a model server, and no config."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.config.load import load
from proxy.extensions.chat.cli.model_config import write_model_config
from tests.extensions.chat.answers import chat_answer, chat_request, chat_text, whole
from tests.extensions.chat.samples import WHOLE
from tests.serving.wire import exchange, post, replies, tool


@pytest.mark.parametrize(
    ("url", "upstream", "path"),
    [
        ("http://127.0.0.1:11434/v1", "http://127.0.0.1:11434", "/v1"),
        ("https://api.example/openai/v1/", "https://api.example", "/openai/v1"),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000", "/"),
    ],
)
def test_the_config_has_the_base_path_of_the_url(tmp_path: Path, url: str, upstream: str, path: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(write_model_config(url))
    config = load(file, {}).config
    assert (upstream, [path]) == (config.upstreams["model"].url, [route.path for route in config.routes])


@pytest.mark.parametrize("text_calls", ["off", "leaked", "json"])
def test_the_flag_decides_which_texts_become_calls(tmp_path: Path, text_calls: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(write_model_config("http://127.0.0.1:1/v1", text_calls))
    (route,) = load(file, {}).config.routes
    assert route.relayed_by is not None
    assert text_calls == route.relayed_by.settings.text_calls


def test_the_flag_decides_how_many_streams_there_may_be(tmp_path: Path) -> None:
    for connections, wanted in ((None, 2048), (5000, 5000)):
        file = tmp_path / "c.yaml"
        file.write_text(write_model_config("http://127.0.0.1:1/v1", connections=connections))
        assert wanted == load(file, {}).config.upstreams["model"].pool_connections


async def test_serve_reports_leaked_markup_once_and_reads_it_with_the_flag() -> None:
    leaked = chat_text(WHOLE["hermes"][0])
    for flags, reports in ((), 1), (("--text-calls", "leaked"), 0):
        async with tool(replies(whole(leaked), whole(leaked))) as server:
            words = ["serve", "--model", f"{server.url}/v1", "--listen", "127.0.0.1:0", "--admin", "off", *flags]
            process = subprocess.Popen(  # noqa: ASYNC220 - returns at once
                [sys.executable, "-m", "proxy", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            try:
                assert process.stdout is not None
                said = ""
                while "clients use" not in (line := await asyncio.to_thread(process.stdout.readline)):
                    said += line
                port = int(line.rpartition(":")[2].partition("/")[0])
                seen = [await exchange(port, post("/v1/chat/completions", chat_request())) for _ in range(2)]
            finally:
                process.terminate()
                said += (await asyncio.to_thread(process.communicate))[0]
        assert reports == said.count("tool call left in text")
        assert (seen[0].body == leaked) == bool(reports)


@pytest.mark.parametrize("base", ["/v1", ""])
async def test_a_model_server_is_served_without_a_config(base: str) -> None:
    async with tool(replies(whole(chat_answer('{"city": "Oslo", "days": "3"}')))) as server:
        words = ["serve", "--model", f"{server.url}{base}", "--listen", "127.0.0.1:0", "--admin", "off"]
        process = subprocess.Popen(  # noqa: ASYNC220 - returns at once
            [sys.executable, "-m", "proxy", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ},
        )  # fmt: skip
        try:
            assert process.stdout is not None
            port = int((await asyncio.to_thread(process.stdout.readline)).rsplit(":", 1)[1])
            assert (await asyncio.to_thread(process.stdout.readline)).startswith("event loop: ")
            told = await asyncio.to_thread(process.stdout.readline)
            seen = await exchange(port, post("/v1/chat/completions", chat_request()))
        finally:
            process.kill()
            process.communicate()
    assert f"clients use http://127.0.0.1:{port}{base or '/'}\n" == told
    assert chat_answer('{"city":"Oslo","days":3}') == seen.body


@pytest.mark.parametrize(
    ("url", "mistake"),
    [
        ("localhost:11434/v1", "'localhost:11434/v1' is no URL: did you mean http://localhost:11434/v1?"),
        ("http://a.test/v1/chat/completions", "http://a.test/v1/chat/completions is where requests go: say the base, "
         "http://a.test/v1"),
        ("http://a.test/v1/responses/", "http://a.test/v1/responses/ is where requests go: say the base, http://a.test/v1"),
        ("https://a.test/v1/messages", "https://a.test/v1/messages is where requests go: say the base, https://a.test"),
    ],
)  # fmt: skip
def test_rejects_a_wrong_base_url_with_the_remedy(url: str, mistake: str) -> None:
    words = [sys.executable, "-m", "proxy", "serve", "--model", url]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (2, f"serve --model: {mistake}\n") == (done.returncode, done.stderr)


def test_ends_if_nothing_answers_at_the_url() -> None:
    words = [sys.executable, "-m", "proxy", "serve", "--model", "http://127.0.0.1:9/v1", "--listen", "127.0.0.1:0"]
    done = subprocess.run([*words, "--admin", "off"], capture_output=True, text=True, check=False, timeout=100)
    assert 1 == done.returncode
    assert "127.0.0.1:9: Connection refused  (is the model server running, and is this its address?)\n" in done.stderr


def test_a_second_source_next_to_it_is_a_mistake() -> None:
    words = [sys.executable, "-m", "proxy", "serve", "--model", "http://127.0.0.1:1/v1", "--mcp", "http://127.0.0.1:1/"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (2, "serve: --mcp and --model cannot be combined: use one of them\n") == (done.returncode, done.stderr)
