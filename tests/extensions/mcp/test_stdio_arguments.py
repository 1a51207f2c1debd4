"""The command line of `toolcall-proxy stdio`: a command with and without `--`, and headers out of the environment."""

from __future__ import annotations

import os

import pytest

from proxy.__main__ import main
from tests.extensions.mcp.server import McpServer
from tests.extensions.mcp.test_stdio import SERVER, started, text_of
from tests.extensions.mcp.test_stdio_upstream import asked, call
from tests.serving.wire import tool


@pytest.mark.parametrize("before", [(), ("--",)])
async def test_a_command_needs_no_dashes_and_keeps_its_own(before: tuple[str, ...]) -> None:
    async with started("stdio", *before, *SERVER, "--url", "--", "-x") as client:
        await client.begin()
        assert '{"a": 5}' == await text_of(client, "echo", arguments={"a": "5"})


async def test_headers_come_out_of_the_environment() -> None:
    server = McpServer()
    async with tool(server) as upstream:
        arguments = ("--url", f"{upstream.url}/mcp", "--header-env", "Authorization=SECRET")
        async with started("stdio", *arguments, env={**os.environ, "SECRET": "Bearer s3cret"}) as client:
            await client.ask(asked("tools/list", 1))
            await client.ask(call("add", 2, arguments={"a": 1, "b": 2}))

    assert ["Bearer s3cret"] * 2 == [seen.header("authorization") for seen in (*server.listed, *server.calls)]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--header-env", "Authorization=NOWHERE"], "there is no environment variable 'NOWHERE'"),
        (["--header-env", "Authorization"], "there is no environment variable ''"),
        (["--header-env", "Authorization=TWO_LINES"], "a header is 'Name: value'"),
        (["no-such-program"], "which server?"),
    ],
)
def test_reports_missing_or_wrong_arguments(
    words: list[str], told: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWO_LINES", "a\nb")
    assert 2 == main(["stdio", "--url", "http://127.0.0.1:9/mcp", *words])
    assert told in capfd.readouterr().err
