"""`install` and `uninstall`: the config files of real clients, as their documentation writes them."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from proxy.__main__ import main
from proxy.extensions.mcp.importing.client_entries import CLIENTS, find_program
from proxy.extensions.mcp.importing.client_files import find_own_program

(PROGRAM,) = find_own_program()
FILES = ["-y", "@modelcontextprotocol/server-filesystem", "/data"]
IN_FRONT = {"command": PROGRAM, "args": ["stdio", "--", "npx", *FILES]}

CLAUDE_CODE = """\
{
  "numStartups": 7,
  "mcpServers": {
    "files": {
      "type": "stdio",
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-filesystem", "/data"],
      "env": {}
    },
    "shared": {"type": "http", "url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${API_KEY}"}}
  },
  "projects": {"/home/me": {"mcpServers": {}}}
}
"""
CLAUDE_DESKTOP = json.dumps(
    {"globalShortcut": "Ctrl+Space", "mcpServers": {"files": {"command": "npx", "args": FILES}}}
)
CURSOR = """\
{"mcpServers": {
\t"files": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/data"], "envFile": ".env"},
\t"shared": {"url": "https://example.com/mcp", "headers": {"API_KEY": "${env:KEY}"}}
}}"""
VSCODE = """\
{
  // of this workspace
  "inputs": [{"id": "key", "type": "promptString", "password": true}],
  "servers": {
    "files": {"type": "stdio", /* from npm */ "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-filesystem", "/data"], "dev": {"watch": "a//b"},},
    "shared": {"type": "http", "url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${input:key}"}},
  },
}
"""
WINDSURF = """\
{"mcpServers": {
  "files": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/data"], "disabled": false},
  "shared": {"serverUrl": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${env:KEY}"}}
}}
"""
GEMINI = """\
{
  "theme": "Dracula",
  "mcpServers": {
    "files": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/data"],
              "timeout": 30000.5, "trust": false},
    "shared": {"httpUrl": "https://example.com/mcp", "headers": {"Authorization": "$KEY"}, "timeout": 5000}
  }
}
"""
CODEX = """\
model = "gpt-5"  # mine

[mcp_servers.files]
command = "npx"
args = [
  "-y", "@modelcontextprotocol/server-filesystem",  # from npm
  "/data",
]
startup_timeout_sec = 20

[mcp_servers.files.env]
LOG = "warn"

[mcp_servers."local one"]
url = "http://127.0.0.1:8000/mcp"

[mcp_servers.shared]
url = "https://example.com/mcp"
bearer_token_env_var = "KEY"

[tools]
web_search = true
"""
TEXTS = {
    "claude-code": CLAUDE_CODE,
    "claude-desktop": CLAUDE_DESKTOP,
    "cursor": CURSOR,
    "vscode": VSCODE,
    "windsurf": WINDSURF,
    "codex": CODEX,
    "gemini": GEMINI,
}


def written(folder: Path, client: str, text: str | None = None) -> Path:
    path = folder / ("config.toml" if client == "codex" else "mcp.json")
    path.write_text(TEXTS[client] if text is None else text, encoding="utf-8")
    return path


def value_of(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".toml":
        return tomllib.loads(text)
    for comment in ("// of this workspace", "/* from npm */"):
        text = text.replace(comment, "")
    return json.loads(re.sub(r",(?=\s*[}\]])", "", text))


def servers_of(path: Path) -> Any:
    value = value_of(path)
    return next(value[key] for key in ("mcpServers", "servers", "mcp_servers") if key in value)


def own(entry: dict[str, Any]) -> dict[str, Any]:
    """Returns what the proxy changes of an entry."""
    return {key: entry[key] for key in ("command", "args")}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_command_is_started_behind_the_proxy_by_an_absolute_path_and_its_other_keys_stay(
    client: str, tmp_path: Path
) -> None:
    path = written(tmp_path, client)
    before = servers_of(path)["files"]
    assert 0 == main(["install", client, "--file", str(path)])
    after = servers_of(path)["files"]
    assert IN_FRONT == own(after)
    assert Path(after["command"]).is_absolute()
    assert {**before, **IN_FRONT} == after


@pytest.mark.parametrize(
    ("client", "typed", "header", "value"),
    [
        ("claude-code", {"type": "stdio"}, "Authorization", "Bearer ${API_KEY}"),
        ("cursor", {}, "API_KEY", "${env:KEY}"),
        ("vscode", {"type": "stdio"}, "Authorization", "Bearer ${input:key}"),
        ("windsurf", {}, "Authorization", "Bearer ${env:KEY}"),
        ("gemini", {"timeout": 5000}, "Authorization", "$KEY"),
    ],
)
def test_puts_no_header_of_a_url_among_the_arguments(
    client: str, typed: dict[str, str], header: str, value: str, tmp_path: Path
) -> None:
    path = written(tmp_path, client)
    assert 0 == main(["install", client, "--file", str(path)])
    variable = f"TOOLCALL_PROXY_{header.upper()}"
    args = ["stdio", "--url", "https://example.com/mcp", "--header-env", f"{header}={variable}"]
    assert {**typed, "command": PROGRAM, "args": args, "env": {variable: value}} == servers_of(path)["shared"]


@pytest.mark.parametrize("client", CLIENTS)
def test_uninstalling_gives_every_byte_back_and_leaves_nothing(client: str, tmp_path: Path) -> None:
    path = written(tmp_path, client)
    path.chmod(0o600)
    assert 0 == main(["install", client, "files", "--file", str(path)])
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)
    assert 0 == main(["install", client, "--file", str(path)]) or client == "claude-desktop"
    assert TEXTS[client] != path.read_text()
    assert 0 == main(["uninstall", client, "--file", str(path)])
    assert (TEXTS[client], [path]) == (path.read_text(encoding="utf-8"), list(tmp_path.iterdir()))


@pytest.mark.parametrize("client", CLIENTS)
def test_uninstall_keeps_other_changes_since(client: str, tmp_path: Path) -> None:
    path = written(tmp_path, client)
    before = servers_of(path)
    assert 0 == main(["install", client, "--file", str(path)])
    path.write_text(path.read_text(encoding="utf-8").rstrip() + "\n\n", encoding="utf-8")
    assert 0 == main(["uninstall", client, "--file", str(path)])
    assert before == servers_of(path)
    assert path.read_text(encoding="utf-8").endswith("\n\n")
    assert TEXTS[client] == path.with_name(path.name + ".before-toolcall-proxy").read_text(encoding="utf-8")


def test_rewrites_only_the_command(tmp_path: Path) -> None:
    path = written(tmp_path, "vscode")
    assert 0 == main(["install", "vscode", "files", "--file", str(path)])
    listed = '"args": ["-y", "@modelcontextprotocol/server-filesystem", "/data"]'
    new = f'"args": {json.dumps(IN_FRONT["args"])}'
    assert VSCODE.replace('"npx"', json.dumps(PROGRAM), 1).replace(listed, new) == path.read_text(encoding="utf-8")


def test_the_table_of_codex_keeps_its_comments_and_its_other_lines(tmp_path: Path) -> None:
    path = written(tmp_path, "codex")
    assert 0 == main(["install", "codex", "--file", str(path)])
    found = servers_of(path)
    assert {**IN_FRONT, "startup_timeout_sec": 20, "env": {"LOG": "warn"}} == found["files"]
    assert {"command": PROGRAM, "args": ["stdio", "--url", "http://127.0.0.1:8000/mcp"]} == found["local one"]
    assert tomllib.loads(CODEX)["mcp_servers"]["shared"] == found["shared"]
    assert path.read_text().startswith('model = "gpt-5"  # mine\n')


def test_an_entry_without_arguments_gets_some(tmp_path: Path) -> None:
    path = written(tmp_path, "cursor", '{"mcpServers": {"one": {"command": "server", "env": {"A": "1"}}}}')
    assert 0 == main(["install", "cursor", "--file", str(path)])
    entry = {"command": PROGRAM, "args": ["stdio", "--", "server"], "env": {"A": "1"}}
    assert {"mcpServers": {"one": entry}} == json.loads(path.read_text())
    assert ["command", "args", "env"] == list(servers_of(path)["one"])


LEFT: list[tuple[str, dict[str, Any], str]] = [
    ("claude-code", {"type": "http", "url": "https://example.com/mcp"}, "it may ask for OAuth"),
    ("claude-code", {"type": "sse", "url": "https://example.com/x"}, "it speaks HTTP+SSE of 2024-11-05"),
    (
        "claude-code",
        {"type": "http", "url": "https://h/mcp", "headersHelper": "x"},
        "only the client itself can follow",
    ),
    ("gemini", {"url": "https://example.com/x", "headers": {"A": "1"}}, "it speaks HTTP+SSE of 2024-11-05"),
    ("windsurf", {"command": "x", "disabled": True}, "it is switched off there"),
    ("cursor", {"command": "x", "args": "y"}, "`args` is not a list of texts"),
    ("cursor", {"command": "/opt/toolcall-proxy", "args": ["stdio", "x"]}, "the proxy is in front of it already"),
    ("cursor", {"note": 1}, "it names neither a command nor a URL"),
]


@pytest.mark.parametrize(("client", "entry", "why"), LEFT)
def test_names_unchanged_entries_with_the_reason(
    client: str, entry: dict[str, Any], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, client, json.dumps({"mcpServers": {"one": entry}}))
    assert 1 == main(["install", client, "--file", str(path)])
    assert why in capsys.readouterr().out
    assert ({"one": entry}, [path]) == (servers_of(path), list(tmp_path.iterdir()))


def test_a_server_that_is_named_is_taken_although_it_may_ask_for_oauth(tmp_path: Path) -> None:
    path = written(tmp_path, "cursor", '{"mcpServers": {"one": {"url": "https://example.com/mcp"}}}')
    assert 0 == main(["install", "cursor", "one", "--file", str(path)])
    assert ["stdio", "--url", "https://example.com/mcp"] == servers_of(path)["one"]["args"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["cursor", "nothing", "--file", "FILE"], "names no server 'nothing'  (there are: files, shared)"),
        (["cursor", "--file", "gone.json"], "cannot read gone.json"),
        (["windsurf", "--project"], "Windsurf has no config of a project"),
    ],
)
def test_reports_a_file_that_it_cannot_edit(
    words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, "cursor")
    for verb in ("install", "uninstall"):
        assert 2 == main([verb, *(str(path) if word == "FILE" else word for word in words)])
        assert told in capsys.readouterr().err
    assert CURSOR == path.read_text()


def test_a_toml_that_is_written_otherwise_is_left_and_said_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = 'mcp_servers = {files = {command = "npx", args = []}}\n'
    path = written(tmp_path, "codex", text)
    assert 2 == main(["install", "codex", "--file", str(path)])
    assert "the entries of files are written in a way that cannot be edited" in capsys.readouterr().err
    assert (text, [path]) == (path.read_text(), list(tmp_path.iterdir()))


def test_uninstall_keeps_an_entry_that_somebody_else_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = {"command": "toolcall-proxy", "args": ["stdio", "--config", "c.yaml"]}
    path = written(tmp_path, "cursor", json.dumps({"mcpServers": {"one": entry}}))
    assert 1 == main(["uninstall", "cursor", "--file", str(path)])
    assert "its arguments were not written by `install`" in capsys.readouterr().out
    assert {"one": entry} == servers_of(path)


HOSTILE = """\
/*
touch executed; exit 0
*/
{"mcpServers": {"files": {"type": "stdio", "command": "npx", "args": ["-y", "x"]}}}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cloned repository with a config for Claude Code, which is the current folder."""
    folder = tmp_path / "clone"
    (folder / ".git/hooks").mkdir(parents=True)
    (folder / ".mcp.json").write_text(HOSTILE)
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("verb", ["install", "uninstall"])
@pytest.mark.parametrize("planted", ["dangling", "link", "folder", "pipe"])
def test_refuses_a_backup_that_is_no_regular_file(
    project: Path, capsys: pytest.CaptureFixture[str], verb: str, planted: str
) -> None:
    backup = project / ".mcp.json.before-toolcall-proxy"
    if verb == "uninstall":
        assert 0 == main(["install", "claude-code", "--project"])
        backup.unlink()
    hook, before = project / ".git/hooks/pre-commit", (project / ".mcp.json").read_bytes()
    if planted in ("dangling", "link"):
        backup.symlink_to(Path(".git/hooks/pre-commit"))
        if planted == "link":
            hook.write_text("#!/bin/sh\n")
    elif planted == "folder":
        backup.mkdir()
    else:
        os.mkfifo(backup)
    capsys.readouterr()
    assert 2 == main([verb, "claude-code", "--project"])
    reason = "it is a link" if planted in ("dangling", "link") else "it is no regular file"
    assert f"{verb}: cannot write .mcp.json.before-toolcall-proxy: {reason}" in capsys.readouterr().err
    assert before == (project / ".mcp.json").read_bytes()
    assert not hook.exists() or "#!/bin/sh\n" == hook.read_text()
    assert [".git", ".mcp.json", backup.name] == sorted(each.name for each in project.iterdir())


@pytest.mark.parametrize("verb", ["install", "uninstall"])
@pytest.mark.parametrize("planted", ["file", "folder"])
def test_refuses_a_config_that_leads_out_of_the_project(
    project: Path, capsys: pytest.CaptureFixture[str], verb: str, planted: str
) -> None:
    outside = project.parent / "home"
    outside.mkdir()
    target = outside / "mcp.json"
    target.write_text(CURSOR)
    if planted == "folder":
        (project / ".cursor").symlink_to("../home")
    else:
        (project / ".cursor").mkdir()
        (project / ".cursor/mcp.json").symlink_to("../../home/mcp.json")
    assert 2 == main([verb, "cursor", "--project"])
    said = capsys.readouterr().err
    assert f"{verb}: .cursor/mcp.json: a link leads out of the folder, to {target}  (to edit that file" in said
    assert (CURSOR, [target]) == (target.read_text(), list(outside.iterdir()))


def test_edits_a_config_that_a_link_inside_the_project_leads_to(project: Path) -> None:
    (project / ".mcp.json").rename(project / "servers.json")
    (project / ".mcp.json").symlink_to("servers.json")
    assert 0 == main(["install", "claude-code", "--project"])
    assert '"stdio", "--", "npx"' in (project / "servers.json").read_text()
    assert 0 == main(["uninstall", "claude-code", "--project"])
    assert (True, HOSTILE) == ((project / ".mcp.json").is_symlink(), (project / "servers.json").read_text())
    assert [".git", ".mcp.json", "servers.json"] == sorted(each.name for each in project.iterdir())


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_uninstall_restores_bytes_and_mode(tmp_path: Path, mode: int) -> None:
    path = written(tmp_path, "vscode", VSCODE.replace("\n", "\r\n"))
    path.chmod(mode)
    before = path.read_bytes()
    assert 0 == main(["install", "vscode", "--file", str(path)])
    backup = path.with_name(f"{path.name}.before-toolcall-proxy")
    assert (0o600, mode) == (stat.S_IMODE(backup.stat().st_mode), stat.S_IMODE(path.stat().st_mode))
    assert 0 == main(["uninstall", "vscode", "--file", str(path)])
    assert (before, mode) == (path.read_bytes(), stat.S_IMODE(path.stat().st_mode))
    assert [path] == list(tmp_path.iterdir())


def test_a_link_to_the_config_stays_a_link(tmp_path: Path) -> None:
    target = written(tmp_path, "cursor")
    link = tmp_path / "linked.json"
    link.symlink_to(target)
    assert 0 == main(["install", "cursor", "--file", str(link)])
    assert link.is_symlink()
    assert IN_FRONT == own(servers_of(target)["files"])


@pytest.mark.parametrize(
    ("platform", "environ", "client", "path"),
    [
        ("linux", {}, "claude-desktop", "HOME/.config/Claude/claude_desktop_config.json"),
        ("linux", {"XDG_CONFIG_HOME": "/x"}, "vscode", "/x/Code/User/mcp.json"),
        ("darwin", {}, "claude-desktop", "HOME/Library/Application Support/Claude/claude_desktop_config.json"),
        ("win32", {"APPDATA": "/roaming"}, "vscode", "/roaming/Code/User/mcp.json"),
        ("linux", {}, "claude-code", "HOME/.claude.json"),
        ("linux", {"CLAUDE_CONFIG_DIR": "/c"}, "claude-code", "/c/.claude.json"),
        ("linux", {"CODEX_HOME": "/codex"}, "codex", "/codex/config.toml"),
        ("darwin", {}, "gemini", "HOME/.gemini/settings.json"),
        ("darwin", {}, "cursor", "HOME/.cursor/mcp.json"),
        ("win32", {}, "windsurf", "HOME/.codeium/windsurf/mcp_config.json"),
    ],
)
def test_each_client_keeps_its_config_somewhere_else(
    platform: str, environ: dict[str, str], client: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    assert Path(path.replace("HOME", str(Path.home()))) == CLIENTS[client].find_user_file(environ)


def test_the_proxy_is_known_by_its_name_and_as_a_module() -> None:
    assert ("C:\\x\\toolcall-proxy.exe",) == find_program(
        {"command": "C:\\x\\toolcall-proxy.exe", "args": ["stdio", "--", "y"]}
    )
    assert ("/py", "-m", "proxy") == find_program({"command": "/py", "args": ["-m", "proxy", "stdio", "--", "y"]})
    assert None is find_program({"command": "npx", "args": ["stdio"]})


def test_names_the_servers_that_claude_code_keeps_for_one_project(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / ".claude.json"
    kept = {"/p": {"mcpServers": {"loc": {"command": "npx", "args": []}}}, "/q": {}}
    path.write_text(json.dumps({"mcpServers": {"files": {"command": "npx", "args": FILES}}, "projects": kept}))
    assert 0 == main(["install", "claude-code", "--file", str(path)])
    said = capsys.readouterr().out
    assert "loc" in said
    assert "it belongs to the project /p" in said
    assert kept == json.loads(path.read_text())["projects"]
    path.write_text(json.dumps({"projects": kept}))
    assert 2 == main(["install", "claude-code", "--file", str(path)])
    assert "loc belong to single projects" in capsys.readouterr().err
