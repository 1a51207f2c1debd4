"""`import mcpservers`: client configs as their clients write them, and what the proxy makes of them."""

from __future__ import annotations

import json
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest

from proxy.__main__ import main
from proxy.config.files.secrets import reveal
from proxy.config.load import load
from proxy.extensions.mcp.config.model import Command, find_mcp
from proxy.extensions.mcp.importing.client_files import find_own_program
from proxy.extensions.mcp.importing.mcpservers import read_mcpservers
from proxy.extensions.operations.importing.harvest import ImportProblem, LeftOut

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
    files, git = config.upstreams["files"].added, config.upstreams["git"].added
    assert isinstance(files, Command)
    assert isinstance(git, Command)
    assert ("npx", "-y", "@modelcontextprotocol/server-filesystem", "/data/$cash") == files.words
    assert {"TOKEN": "s3cret"} == dict(git.environment)
    assert 0o600 == stat.S_IMODE((tmp_path / "config.yaml").stat().st_mode)


def test_the_query_of_a_url_is_kept(tmp_path: Path) -> None:
    """As in the published config of a server that is switched by a query."""
    url = "https://mcp.example.dev/mcp/org/project?experimental=1&key=${TOKEN}"
    found = read_mcpservers(written(tmp_path, "mcp.json", {"mcpServers": {"tools": {"type": "http", "url": url}}}))
    assert () == found.left_out
    (tmp_path / "c.yaml").write_text(found.write_config("c.yaml"))
    config = load(tmp_path / "c.yaml", {"TOKEN": "s3cret"}).config
    assert "https://mcp.example.dev?experimental=1&key=s3cret" == reveal(config.upstreams["tools"].url)
    assert ["/mcp/org/project"] == [route.upstream_path for route in config.routes]


def test_names_servers_that_cannot_be_served_with_the_reason(tmp_path: Path) -> None:
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
    local, remote = config.upstreams["local"].added, config.upstreams["remote"]
    assert isinstance(local, Command)
    assert (("node", "/home/me/server.js"), {"K": "k"}) == (local.words, dict(local.environment))
    assert ("https://tools.example.com", "/v1/mcp") == (remote.url, config.routes[1].upstream_path)
    assert [("authorization", "Bearer t")] == [(name, reveal(value)) for name, value in remote.headers.set]
    assert ["legacy"] == [each.name for each in found.left_out]


CODEX = """\
model = "gpt-5"

[mcp_servers.files]
command = "npx"

[mcp_servers.files.env]
LOG = "warn"

[mcp_servers.hub]
url = "https://tools.example.com/mcp"
bearer_token_env_var = "HUB_TOKEN"
http_headers = {"X-Team" = "red"}
env_http_headers = {"X-Key" = "HUB_KEY"}

[mcp_servers.off]
command = "x"
enabled = false

[tools]
web_search = true
"""


def test_the_servers_of_codex_are_read_with_their_credentials(tmp_path: Path) -> None:
    found = read_mcpservers(written(tmp_path, "config.toml", CODEX))
    assert ("HUB_KEY", "HUB_TOKEN") == found.variables
    (tmp_path / "c.yaml").write_text(found.write_config("c.yaml"))
    config = load(tmp_path / "c.yaml", {"HUB_TOKEN": "t", "HUB_KEY": "k"}).config
    sent = {name: reveal(value) for name, value in config.upstreams["hub"].headers.set}
    assert {"authorization": "Bearer t", "x-team": "red", "x-key": "k"} == sent
    assert [("off", "it is switched off there")] == [(each.name, each.why) for each in found.left_out]


(PROGRAM,) = find_own_program()
URL = "http://127.0.0.1:8080/files/mcp"
TYPED = {"mcpServers": {"files": {"type": "stdio", "command": "x"}}}
PLAIN = {"mcpServers": {"files": {"command": "x"}}}

REWRITTEN: list[tuple[str, object, Any]] = [
    ("claude_desktop_config.json", PLAIN, {"command": PROGRAM, "args": ["stdio", "--url", URL]}),
    (".mcp.json", PLAIN, {"type": "http", "url": URL}),
    (".cursor/mcp.json", PLAIN, {"url": URL}),
    (".cursor/mcp.json", TYPED, {"type": "http", "url": URL}),
    (".codeium/windsurf/mcp_config.json", PLAIN, {"serverUrl": URL}),
    (".gemini/settings.json", PLAIN, {"httpUrl": URL}),
    ("mcp.json", {"servers": {"files": {"type": "stdio", "command": "x"}}}, {"type": "http", "url": URL}),
    ("config.toml", '[mcp_servers.files]\ncommand = "x"\n', {"url": URL}),
]


@pytest.mark.parametrize(("name", "text", "entry"), REWRITTEN)
def test_each_client_gets_the_urls_of_a_proxy_as_it_writes_urls(
    name: str, text: object, entry: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    assert 0 == main(["import", "mcpservers", str(written(path.parent, path.name, text)), "--rewrite", "--urls"])
    printed = capsys.readouterr().out
    found = tomllib.loads(printed) if path.suffix == ".toml" else json.loads(printed)
    (servers,) = found.values()
    assert {"files": entry} == servers


def test_by_default_the_client_itself_starts_the_proxy_in_front_of_each_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, "mcp.json", CODE)
    assert 0 == main(["import", "mcpservers", str(path), "--rewrite"])
    seen = capsys.readouterr()
    args = json.dumps(["stdio", "--", "node", "${workspaceFolder}/server.js"])
    assert f'"command": {json.dumps(PROGRAM)}, "args": {args},' in seen.out
    assert "// servers of this workspace" in seen.out
    assert "legacy  it speaks HTTP+SSE of 2024-11-05" in seen.err
    assert [path] == list(tmp_path.iterdir())


def test_all_servers_of_codex_can_be_one_entry(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, "config.toml", CODEX)
    assert 0 == main(["import", "mcpservers", str(path), "--rewrite", "--one"])
    found = tomllib.loads(capsys.readouterr().out)
    servers = {"off": {"command": "x", "enabled": False}, "toolcall-proxy": {"url": "http://127.0.0.1:8080/mcp"}}
    assert {"model": "gpt-5", "tools": {"web_search": True}, "mcp_servers": servers} == found


def test_all_servers_can_be_served_at_one_path(tmp_path: Path) -> None:
    path = written(tmp_path, "mcp.json", {"mcpServers": {"a": {"command": "x"}, "a_b": {"url": "http://h:1/v1"}}})
    assert 0 == main(["import", "mcpservers", str(path), "--one", "--into", str(tmp_path)])
    (route,) = load(tmp_path / "config.yaml", {}).config.routes
    mcp = find_mcp(route)
    assert mcp is not None
    assert mcp.joined is not None
    assert [("a", "a__", "/mcp"), ("a_b", "a_b_", "/v1")] == [
        (server.name, server.prefix, server.path) for server in mcp.joined.entries
    ]
    entry = {"type": "http", "url": "http://127.0.0.1:8080/mcp"}
    rewritten = json.loads(read_mcpservers(path).rewrite_client_config(("x",), one=True))
    assert {"mcpServers": {"toolcall-proxy": entry}} == rewritten


def test_keeps_entries_that_are_not_served(tmp_path: Path) -> None:
    rewritten = json.loads(read_mcpservers(written(tmp_path, "mcp.json", CLAUDE)).rewrite_client_config(("x",)))
    assert "Ctrl+Space" == rewritten["globalShortcut"]
    assert CLAUDE["mcpServers"]["odd"] == rewritten["mcpServers"]["odd"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("text", "message"),
    [("{}", "names no MCP servers"), ('{"mcpServers": {', ":1:16: "), ("[]", "names no MCP servers")],
)
def test_a_file_that_names_no_servers_says_so(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ImportProblem, match=message):
        read_mcpservers(written(tmp_path, "mcp.json", text))
