"""The servers that people run: filesystem, git, fetch and Playwright, seen by the Inspector's CLI.

A client's config starts one of them behind `toolcall-proxy stdio`, and all of them are behind one route. The list
through the proxy is the list without it, and calls with numbers as text do what was meant.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

import pytest

from tests.parties.environment import CLIENTS, PARTIES, PATIENCE, ROOT, asked, needs, proxy, python

pytestmark = pytest.mark.large

MODULES: Final = PARTIES / "servers" / "node_modules"
INSPECTOR: Final = ["node", str(MODULES / ".bin" / "mcp-inspector"), "--cli"]
GUARD: Final = [sys.executable, "-m", "proxy", "stdio", "--"]


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Every server as a client's config would name it, with a folder and a repository to work on."""
    needs("servers", "tools", "py2")
    folder = tmp_path_factory.mktemp("work").resolve()
    (folder / "notes.txt").write_text("one\ntwo\nthree\n")
    repository = folder / "repository"
    for words in (
        ["git", "init", "-q", str(repository)],
        ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@b.example", "commit", "-q",
         "--allow-empty", "-m", "first"],
    ):  # fmt: skip
        subprocess.run(words, check=True)
    return {
        "files": ["node", str(MODULES / "@modelcontextprotocol/server-filesystem/dist/index.js"), str(folder)],
        "git": [python("tools"), "-m", "mcp_server_git", "--repository", str(repository)],
        "fetch": [python("tools"), "-m", "mcp_server_fetch", "--ignore-robots-txt", "--allow-private-ips"],
        "browser": ["node", str(MODULES / "@playwright/mcp/cli.js"), "--headless", "--isolated"],
    }


def inspected(target: list[str], *arguments: str) -> Any:
    """Returns what the Inspector prints for a server: a command, or an URL with how to speak to it."""
    done = subprocess.run(
        [*INSPECTOR, *target, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=ROOT
    )
    assert 0 == done.returncode, done.stderr[-2000:] + done.stdout[-2000:]
    return json.loads(done.stdout)


def listed(folder: Path, command: list[str]) -> list[Any]:
    """The tools of a server that the Inspector starts, as a client's config says."""
    config = folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"server": {"command": command[0], "args": command[1:]}}}))
    tools: list[Any] = inspected(["--config", str(config), "--server", "server"], "--method", "tools/list")["tools"]
    return tools


def test_a_config_that_starts_the_proxy_lists_what_the_server_lists(
    commands: dict[str, list[str]], tmp_path: Path
) -> None:
    assert listed(tmp_path, commands["git"]) == listed(tmp_path, [*GUARD, *commands["git"]])


@pytest.fixture(scope="module")
def endpoint(commands: dict[str, list[str]], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """All of them at one URL."""
    upstreams = "".join(f"  {name}: {{command: {json.dumps(words)}}}\n" for name, words in commands.items())
    servers = ", ".join(f"{name}: {name}" for name in commands)
    config = tmp_path_factory.mktemp("common") / "config.yaml"
    config.write_text(
        f"version: 1\nadmin: off\nupstreams:\n{upstreams}routes:\n"
        f"  - {{path: /mcp, protocol: mcp, servers: {{{servers}}}, mcp: {{wait: 60s, servers_wait: 45s}}}}\n"
    )
    with proxy(config) as port:
        yield f"http://127.0.0.1:{port}/mcp"


def test_all_of_them_work_at_one_address(commands: dict[str, list[str]], endpoint: str) -> None:
    found = inspected([endpoint, "--transport", "http"], "--method", "tools/list")["tools"]
    assert set(commands) == {tool["name"].partition("_")[0] for tool in found}
    folder, page = Path(commands["files"][-1]), ThreadingHTTPServer(("127.0.0.1", 0), Page)
    Thread(target=page.serve_forever, daemon=True).start()
    calls = [
        ["files_read_text_file", {"path": str(folder / "notes.txt"), "head": "2"}],
        ["git_git_log", {"repo_path": str(folder / "repository"), "max_count": "1"}],
        ["fetch_fetch", {"url": f"http://127.0.0.1:{page.server_port}/", "max_length": "500"}],
    ]
    try:
        told = asked(CLIENTS["mcp2-legacy"], {"all": endpoint}, {"all": calls})["all"]
    finally:
        page.shutdown()
        page.server_close()
    texts = [answer.get("text", answer) for answer in told["calls"]]
    assert [] == [
        text for part, text in zip(("one\ntwo", "first", "a page of ours"), texts, strict=True) if part not in text
    ]


class Page(BaseHTTPRequestHandler):
    """A page to fetch."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        self.wfile.write(b"a page of ours")

    def log_message(self, *_: object) -> None:
        pass
