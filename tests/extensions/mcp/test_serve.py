"""`serve --mcp URL`: one MCP server, and no config."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.__main__ import make_parser
from proxy.cli.serve_flags import list_no_config
from proxy.config.load import load
from proxy.core.contract.policy import NullOptional
from proxy.extensions.mcp.cli.no_config import write_mcp_config
from tests.extensions.mcp.conversation import BOTH
from tests.extensions.mcp.server import McpServer, call
from tests.serving.wire import JSON_TYPE, answer, exchange, post, replies, tool


@pytest.mark.parametrize(
    ("url", "upstream", "path"),
    [
        ("http://127.0.0.1:9000/mcp", "http://127.0.0.1:9000", "/mcp"),
        ("https://tools.example/v1/mcp/", "https://tools.example", "/v1/mcp/"),
        ("http://127.0.0.1:9000", "http://127.0.0.1:9000", "/"),
        ("http://127.0.0.1:9000/mcp?project=a$b&ro", "http://127.0.0.1:9000?project=a$b&ro", "/mcp"),
    ],
)
def test_the_config_has_the_servers_path(tmp_path: Path, url: str, upstream: str, path: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(write_mcp_config(url))
    config = load(file, {}).config

    assert (upstream, [path]) == (config.upstreams["mcp"].url, [route.path for route in config.routes])


@pytest.mark.parametrize(
    "option", [["--mcp", "http://127.0.0.1:9/mcp"], ["--openapi", "api.json", "--upstream", "http://127.0.0.1:9"]]
)
def test_a_flag_says_on_whose_word_a_null_is_left_out(tmp_path: Path, option: list[str]) -> None:
    operation = {
        "operationId": "update",
        "responses": {},
        "requestBody": {"content": {"application/json": {"schema": {"type": "object"}}}},
    }
    described = {"openapi": "3.1.0", "info": {"title": "x", "version": "1"}, "paths": {"/x": {"post": operation}}}
    file = tmp_path / "api.json"
    file.write_text(json.dumps(described))
    words = ["serve", *(str(file) if word == "api.json" else word for word in option), "--null-optional", "drop"]
    args = make_parser().parse_args(words)
    args.command = None
    with contextlib.ExitStack() as kept:
        path = next(source for source in list_no_config() if source.flag.name == option[0]).make_file(args, kept)
        assert path is not None
        config = load(path, {}).config

    assert {NullOptional.DROP} == {route.policy.null_optional for route in config.routes}


async def test_a_server_is_guarded_without_a_config() -> None:
    server = McpServer()
    async with tool(server) as upstream:
        words = ["serve", "--mcp", f"{upstream.url}/mcp", "--header", "X-Team: a$b", "--listen", "127.0.0.1:0"]
        process = subprocess.Popen(  # noqa: ASYNC220 - returns at once
            [sys.executable, "-m", "proxy", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ},
        )  # fmt: skip
        try:
            assert process.stdout is not None
            line = await asyncio.to_thread(process.stdout.readline)
            port = int(line.rsplit(":", 1)[1])
            assert (await asyncio.to_thread(process.stdout.readline)).startswith("admin on http://127.0.0.1:")
            assert "/ui/#k=" in await asyncio.to_thread(process.stdout.readline)
            assert (await asyncio.to_thread(process.stdout.readline)).startswith("event loop: ")
            assert f"clients use http://127.0.0.1:{port}/mcp\n" == await asyncio.to_thread(process.stdout.readline)
            refused = await exchange(port, post("/mcp", json.dumps(call("add", {"a": 1})).encode(), BOTH))
            await exchange(port, post("/mcp", json.dumps(call("add", {"a": 1, "b": "2"})).encode(), BOTH))
        finally:
            process.kill()
            process.wait()
            with contextlib.suppress(AttributeError):
                process.stdout.close()  # type: ignore[union-attr]

    assert json.loads(refused.body)["result"]["isError"]
    assert ["a$b"] == [seen.header("x-team") for seen in server.calls]
    assert [{"a": 1, "b": 2}] == [json.loads(seen.body)["params"]["arguments"] for seen in server.calls]


@pytest.mark.parametrize("url", ["localhost", "ftp://127.0.0.1:9000/mcp?key=k"])
def test_reports_an_unusable_url(tmp_path: Path, url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "proxy", "serve", "--mcp", url], capture_output=True, text=True, check=False,
        cwd=tmp_path,
    )  # fmt: skip

    assert 2 == done.returncode
    assert done.stderr.startswith("serve: upstream 'mcp'  `url` expects http://host[:port][/path]")


def serve(*words: str) -> tuple[int, str]:
    """The exit code of `serve` and what it says on stderr."""
    command = [sys.executable, "-m", "proxy", "serve", "--listen", "127.0.0.1:0", "--admin", "off", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    return done.returncode, done.stderr


@pytest.mark.parametrize(("path", "bridge"), [("/mcp", False), ("/sse", True)])
def test_ends_if_no_server_answers_at_the_url(path: str, bridge: bool) -> None:
    code, said = serve("--mcp", f"http://127.0.0.1:9{path}")
    assert (1, bridge) == (code, "fastmcp run" in said)
    assert "the connection was refused" in said
    assert said.endswith("serve: nothing to serve  (use --wait to serve until there is)\n")


def test_ends_if_the_command_does_not_exist() -> None:
    code, said = serve("--mcp", "--", "no-such-command", "x")
    assert 1 == code
    assert "cannot start 'no-such-command': no such command  (install it, or write its path)\n" in said


DIES = (sys.executable, "-c", "import sys; print('reads its key', file=sys.stderr); sys.exit('no key: set API_KEY')")


def test_ends_if_the_command_ends_before_a_client_comes() -> None:
    code, said = serve("--mcp", "--", *DIES)
    assert 1 == code
    assert "serve --mcp: its process ended at once (exit code 1); it wrote to stderr:\n" in said
    assert "serve --mcp:   reads its key\nserve --mcp:   no key: set API_KEY\n" in said
    assert "serve: nothing to serve  (use --wait to serve until there is)\n" in said


async def test_wait_serves_though_the_command_ends() -> None:
    assert 404 == await serve_until("no key: set API_KEY", "--mcp", "--wait", "--", *DIES)


async def serve_until(said: str, *words: str) -> int:
    """Runs `serve` until stderr holds a text; gives the status of a call that it answers then."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "proxy", "serve", "--listen", "127.0.0.1:0", "--admin", "off", *words,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(100):
            port = int((await process.stdout.readline()).rpartition(b":")[2])
            while said not in (await process.stderr.readline()).decode():
                pass
            return (await exchange(port, b"GET /elsewhere HTTP/1.1\r\nHost: x\r\n\r\n")).status
    finally:
        process.kill()
        await process.wait()


async def test_wait_serves_though_nothing_answers() -> None:
    assert 404 == await serve_until("refused", "--mcp", "http://127.0.0.1:9/mcp", "--wait")


async def test_serves_a_server_that_requires_a_login() -> None:
    async with tool(replies(answer("401 Unauthorized", b"", JSON_TYPE))) as upstream:
        assert 404 == await serve_until("answers 401", "--mcp", f"{upstream.url}/mcp")
