"""`import mcpservers`: client configs as their clients write them, and what the proxy makes of them."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from proxy.__main__ import main
from proxy.config.files.secrets import reveal
from proxy.config.load import load
from proxy.extensions.mcp.importing.mcpservers import read_mcpservers
from proxy.importing.harvest import ImportProblem, LeftOut

CLAUDE = {
    "globalShortcut": "Ctrl+Space",
    "mcpServers": {
        "files": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/data/$cash"]},
        "git": {"command": "uvx", "args": ["mcp-server-git"], "env": {"TOKEN": "s3cret"}},
        "old": {"command": "x", "disabled": True},
        "odd": {"note": "nothing"},
    },
}
CODE = """\
{
  // servers of this workspace
  "inputs": [{"id": "api-key", "type": "promptString"}],
  "servers": {
    "local": {"type": "stdio", "command": "node", "args": ["${workspaceFolder}/server.js"],
              "env": {"K": "${input:api-key}"}},
    "remote": {"type": "http", "url": "https://tools.example.com/v1/mcp",
               "headers": {"Authorization": "Bearer ${env:TOKEN}"}},
    "legacy": {"type": "sse", "url": "https://tools.example.com/sse"},
  },
}
"""


def written(folder: Path, name: str, text: object) -> Path:
    path = folder / name
    path.write_text(text if isinstance(text, str) else json.dumps(text), encoding="utf-8")
    return path


def test_the_servers_of_claude_are_served_each_at_its_own_path(tmp_path: Path) -> None:
    path = written(tmp_path, "claude_desktop_config.json", CLAUDE)
    assert 0 == main(["import", "mcpservers", str(path), "--into", str(tmp_path)])
    config = load(tmp_path / "config.yaml", {}).config
    assert ["/files/mcp", "/git/mcp"] == [route.path for route in config.routes]
    files, git = config.upstreams["files"].command, config.upstreams["git"].command
    assert files is not None
    assert git is not None
    assert ("npx", "-y", "@modelcontextprotocol/server-filesystem", "/data/$cash") == files.words
    assert {"TOKEN": "s3cret"} == dict(git.environment)
    assert 0o600 == stat.S_IMODE((tmp_path / "config.yaml").stat().st_mode)


def test_what_cannot_be_served_is_named_with_its_reason(tmp_path: Path) -> None:
    found = read_mcpservers(written(tmp_path, "config.json", CLAUDE))
    assert (
        LeftOut("old", "it is switched off there"),
        LeftOut("odd", "it names neither a command nor an url"),
    ) == found.left_out


def test_comments_references_and_remote_servers_of_vs_code_are_read(tmp_path: Path) -> None:
    found = read_mcpservers(written(tmp_path, "mcp.json", CODE))
    assert ("API_KEY", "TOKEN") == found.variables
    (tmp_path / "c.yaml").write_text(found.write_config("c.yaml"))
    environ = {"API_KEY": "k", "TOKEN": "t", "PWD": "/home/me"}
    config = load(tmp_path / "c.yaml", environ).config
    local, remote = config.upstreams["local"].command, config.upstreams["remote"]
    assert local is not None
    assert (("node", "/home/me/server.js"), {"K": "k"}) == (local.words, dict(local.environment))
    assert ("https://tools.example.com", "/v1/mcp") == (remote.url, config.routes[1].upstream_path)
    assert [("authorization", "Bearer t")] == [(name, reveal(value)) for name, value in remote.headers.set]
    assert ["legacy"] == [each.name for each in found.left_out]


REWRITTEN: list[tuple[str, object, str, Any]] = [
    ("claude_desktop_config.json", CLAUDE, "files",
     {"command": "toolcall-proxy", "args": ["stdio", "--url", "http://127.0.0.1:8080/files/mcp"]}),
    ("mcp.json", CLAUDE, "files", {"url": "http://127.0.0.1:8080/files/mcp"}),
    ("mcp.json", CODE, "local", {"type": "http", "url": "http://127.0.0.1:8080/local/mcp"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "server", "entry"), REWRITTEN)
def test_the_clients_config_is_printed_with_the_proxy_in_the_servers_places(
    name: str, text: object, server: str, entry: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == main(["import", "mcpservers", str(written(tmp_path, name, text)), "--rewrite"])
    printed = json.loads(capsys.readouterr().out)
    assert entry == printed.get("mcpServers", printed.get("servers"))[server]
    assert not (tmp_path / "config.yaml").exists()


def test_all_servers_can_be_served_at_one_path(tmp_path: Path) -> None:
    path = written(tmp_path, "mcp.json", {"mcpServers": {"a": {"command": "x"}, "a_b": {"url": "http://h:1/v1"}}})
    assert 0 == main(["import", "mcpservers", str(path), "--one", "--into", str(tmp_path)])
    (route,) = load(tmp_path / "config.yaml", {}).config.routes
    assert route.joined is not None
    assert [("a", "a__", "/mcp"), ("a_b", "a_b_", "/v1")] == [
        (server.name, server.prefix, server.path) for server in route.joined.servers
    ]
    entry = {"url": "http://127.0.0.1:8080/mcp"}
    assert {"mcpServers": {"toolcall-proxy": entry}} == read_mcpservers(path).rewrite_client_config(one=True)


def test_what_is_not_served_stays_as_it_was(tmp_path: Path) -> None:
    rewritten = read_mcpservers(written(tmp_path, "mcp.json", CLAUDE)).rewrite_client_config()
    assert isinstance(rewritten, dict)
    assert "Ctrl+Space" == rewritten["globalShortcut"]
    servers = rewritten["mcpServers"]
    assert isinstance(servers, dict)
    assert CLAUDE["mcpServers"]["odd"] == servers["odd"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("text", "message"),
    [("{}", "names no MCP servers"), ('{"mcpServers": {', ":1:16: "), ("[]", "names no MCP servers")],
)
def test_a_file_that_names_no_servers_says_so(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ImportProblem, match=message):
        read_mcpservers(written(tmp_path, "mcp.json", text))
