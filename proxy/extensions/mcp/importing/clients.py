"""The MCP clients whose config files are read and edited: where each keeps its servers, and how it writes one.

    {"mcpServers": {NAME: {"command": ..., "args": [...], "env": {...}}}}      Claude, Cursor, Windsurf, Gemini CLI
    {"servers": {NAME: {"type": "stdio", "command": ..., ...}}}                VS Code, `mcp.json`
    {"mcp": {"servers": {...}}}                                                VS Code, `settings.json`
    [mcp_servers.NAME]                                                         Codex, `config.toml`

A server at a URL stands under `url`, with `"type": "http"` beside it for Claude Code and VS Code, which skip an entry
without it; under `serverUrl` for Windsurf, and under `httpUrl` for Gemini CLI, where `url` means the transport of
2024-11-05. Claude Desktop starts commands alone.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue

# The keys under which a client's config may hold its servers.
_PLACES: Final[tuple[tuple[str, ...], ...]] = (("mcpServers",), ("servers",), ("mcp", "servers"), ("mcp_servers",))


@value_class
class ClientFormat:
    """One client. `url_key`: where the URL of a server stands, '' where it takes none; `typed`: its entries say `type`.
    `user_file` is below the user's home (`home`) or the folder of desktop applications (`apps`), or in the folder that
    the environment variable `moved_by` names; `project_file` is below a project's folder, '' where there is none."""

    name: str
    title: str
    url_key: str
    typed: bool
    folder: str
    user_file: str
    project_file: str = ""
    moved_by: str = ""

    def find_user_file(self, environ: Mapping[str, str]) -> Path:
        """The file with the user's servers on this machine."""
        moved = environ.get(self.moved_by, "") if self.moved_by else ""
        if moved:
            return Path(moved) / Path(self.user_file).name
        return _find_folder(self.folder, environ) / self.user_file


CLIENTS: Final = {
    client.name: client
    for client in (
        ClientFormat(
            "claude-code", "Claude Code", "url", True, "home", ".claude.json", ".mcp.json", "CLAUDE_CONFIG_DIR"
        ),
        ClientFormat("claude-desktop", "Claude Desktop", "", False, "apps", "Claude/claude_desktop_config.json"),
        ClientFormat("cursor", "Cursor", "url", False, "home", ".cursor/mcp.json", ".cursor/mcp.json"),
        ClientFormat("vscode", "VS Code", "url", True, "apps", "Code/User/mcp.json", ".vscode/mcp.json"),
        ClientFormat("windsurf", "Windsurf", "serverUrl", False, "home", ".codeium/windsurf/mcp_config.json"),
        ClientFormat("codex", "Codex", "url", False, "home", ".codex/config.toml", ".codex/config.toml", "CODEX_HOME"),
        ClientFormat(
            "gemini", "Gemini CLI", "httpUrl", False, "home", ".gemini/settings.json", ".gemini/settings.json"
        ),
    )
}


def _find_folder(kind: str, environ: Mapping[str, str]) -> Path:
    """The user's home folder, or the one in which desktop applications keep their settings (`apps`)."""
    if kind == "home":
        return Path.home()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    if sys.platform == "win32":
        return Path(environ.get("APPDATA") or Path.home() / "AppData" / "Roaming")
    return Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")


def find_servers(value: JsonValue) -> tuple[tuple[str, ...], dict[str, JsonValue]] | None:
    """Where a client's config holds its servers, and the servers; None where it holds none."""
    for place in _PLACES:
        found = value
        for key in place:
            found = found.get(key) if isinstance(found, dict) else None
        if isinstance(found, dict):
            return place, found
    return None


def list_project_servers(value: JsonValue) -> list[tuple[str, str]]:
    """The servers that Claude Code keeps for single projects, which is the default of `claude mcp add`: the folder of
    the project, and the server's name."""
    projects = value.get("projects") if isinstance(value, dict) else None
    found = projects.items() if isinstance(projects, dict) else ()
    kept = ((folder, each["mcpServers"]) for folder, each in found if isinstance(each, dict) and "mcpServers" in each)
    return [(folder, name) for folder, servers in kept if isinstance(servers, dict) for name in servers]


def guess_client(path: Path, place: tuple[str, ...], servers: Mapping[str, JsonValue]) -> ClientFormat:
    """The client that a config belongs to, by the file's name, by where its servers stand, and by how they are written.
    The default is Claude Code: its entries say `type`, which other clients ignore."""
    entries = [entry for entry in servers.values() if isinstance(entry, dict)]
    parts = "/".join(path.parts[-3:]).lower()
    if path.suffix == ".toml":
        name = "codex"
    elif place[-1] == "servers":
        name = "vscode"
    elif "claude_desktop" in parts:
        name = "claude-desktop"
    elif ".gemini" in parts or any("httpUrl" in entry for entry in entries):
        name = "gemini"
    elif "windsurf" in parts or any("serverUrl" in entry for entry in entries):
        name = "windsurf"
    elif ".cursor" in parts:
        name = "cursor"
    else:
        name = "claude-code"
    return CLIENTS[name]
