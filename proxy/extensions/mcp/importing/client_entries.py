"""The proxy in front of one server of a client's config, and the server as it was before. Pure.

A command is behind `stdio --`, a URL behind `stdio --url`. The client starts the proxy as it started the server, so
nothing has to run before. Headers become variables of the environment (`--header-env`), because other users can read a
process's arguments. Every other key of an entry stays (`env`, `cwd`, `timeout`, `disabled` ...).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path, PurePath
from typing import Final
from urllib.parse import urlsplit

from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue

# --- the MCP clients whose config files are read and edited -----------------------------------------------------------
# Each has its own place for servers, and its own form:
#
#     {"mcpServers": {NAME: {"command": ..., "args": [...], "env": {...}}}}      Claude, Cursor, Windsurf, Gemini CLI
#     {"servers": {NAME: {"type": "stdio", "command": ..., ...}}}                VS Code, `mcp.json`
#     {"mcp": {"servers": {...}}}                                                VS Code, `settings.json`
#     [mcp_servers.NAME]                                                         Codex, `config.toml`
#
# `url` holds the URL of a server, with `"type": "http"` beside it for Claude Code and VS Code, which skip an entry
# without it. Windsurf has `serverUrl` and Gemini CLI `httpUrl`: there `url` means the transport of 2024-11-05. Claude
# Desktop starts only commands.

# The keys under which a client's config may hold its servers.
_PLACES: Final[tuple[tuple[str, ...], ...]] = (("mcpServers",), ("servers",), ("mcp", "servers"), ("mcp_servers",))


@value_class
class ClientFormat:
    """One client. `url_key`: the key of a server's URL, '' if it takes none; `typed`: its entries say `type`.
    `user_file` is below the user's home (`home`), the folder of desktop applications (`apps`), or the folder that the
    environment variable `moved_by` names. `project_file` is below a project's folder, '' without one."""

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
    """Returns the place of the servers in a client's config, and the servers; None if it holds none."""
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
    """Returns the client that a config belongs to, by the file's name, the place of its servers, and their form. The
    default is Claude Code: its entries say `type`, which other clients ignore."""
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


# --- the proxy in front of one server of a client's config ------------------------------------------------------------
Entry = Mapping[str, JsonValue]

PROGRAM: Final = "toolcall-proxy"
VERB: Final = "stdio"
_VARIABLE: Final = "TOOLCALL_PROXY_"
URL_KEYS: Final = ("httpUrl", "serverUrl", "url")
# The types of entries that speak Streamable HTTP, or name no transport.
_HTTP: Final = frozenset({None, "http", "streamable-http", "streamableHttp"})
# Keys about credentials and transports that only the client itself can use.
_OWN_KEYS: Final = frozenset(
    {"bearer_token_env_var", "env_http_headers", "http_headers", "oauth", "auth", "authProviderType", "headersHelper"}
)


def find_url(entry: Entry) -> str | None:
    """The URL of an entry."""
    return next((value for key in URL_KEYS if isinstance(value := entry.get(key), str)), None)


def find_obstacle(entry: JsonValue, client: ClientFormat, *, named: bool) -> str:
    """Returns why the proxy is not put in front of a server; '' if it can be. `named`: the user names this server."""
    if not isinstance(entry, dict):
        return "it is not an object"
    if find_program(entry) is not None:
        return "the proxy is in front of it already"
    if (entry.get("disabled") is True or entry.get("enabled") is False) and not named:
        return "it is switched off there"
    if isinstance(entry.get("command"), str):
        args = entry.get("args", [])
        texts = isinstance(args, list) and all(isinstance(word, str) for word in args)
        return "" if texts else "`args` is not a list of texts"
    return _find_obstacle_of_url(entry, client, named=named)


def _find_obstacle_of_url(entry: Entry, client: ClientFormat, *, named: bool) -> str:
    url = find_url(entry)
    if url is None:
        return "it names neither a command nor a URL"
    is_sse = entry.get("type") not in _HTTP or urlsplit(url).path.endswith("/sse")
    if is_sse or (client.name == "gemini" and "httpUrl" not in entry and entry.get("type") is None):
        return "it speaks HTTP+SSE of 2024-11-05, or another transport"
    if own := sorted(_OWN_KEYS & entry.keys()):
        return f"only the client itself can follow `{own[0]}`"
    headers = entry.get("headers", {})
    if not isinstance(headers, dict) or not all(isinstance(value, str) for value in headers.values()):
        return "`headers` is not an object of texts"
    if not headers and not _is_loopback(url) and not named:
        return (
            "it may ask for OAuth, which the client can do and `stdio --url` cannot  (name it to take it all the same)"
        )
    return ""


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def wrap_entry(entry: Entry, client: ClientFormat, program: Sequence[str]) -> dict[str, JsonValue]:
    """An entry that `find_obstacle` has let through, with the proxy in front. `program` starts the proxy."""
    if isinstance(entry.get("command"), str):
        args = entry.get("args", [])
        words: list[JsonValue] = [*program[1:], VERB, "--", entry["command"], *(args if isinstance(args, list) else ())]
        return {**entry, "command": program[0], "args": words}
    url, headers, env = find_url(entry), entry.get("headers", {}), entry.get("env", {})
    words = [*program[1:], VERB, "--url", url]
    variables: dict[str, JsonValue] = dict(env) if isinstance(env, dict) else {}
    for name, value in headers.items() if isinstance(headers, dict) else ():
        variable = _VARIABLE + re.sub(r"[^A-Za-z0-9]", "_", name).upper()
        words += ["--header-env", f"{name}={variable}"]
        variables[variable] = value
    typed: dict[str, JsonValue] = {"type": VERB} if client.typed or "type" in entry else {}
    kept = {key: value for key, value in entry.items() if key not in (*URL_KEYS, "headers", "type", "env")}
    return {**typed, "command": program[0], "args": words, **({"env": variables} if variables else {}), **kept}


def find_program(entry: JsonValue) -> tuple[str, ...] | None:
    """Returns the words that start the proxy if an entry has it in front of its server; otherwise None."""
    if not isinstance(entry, dict):
        return None
    command, args = entry.get("command"), entry.get("args")
    if not isinstance(command, str) or not isinstance(args, list):
        return None
    if PurePath(command.replace("\\", "/")).stem == PROGRAM and args[:1] == [VERB]:
        program: tuple[str, ...] = (command,)
    elif args[:3] == ["-m", "proxy", VERB]:
        program = (command, "-m", "proxy")
    else:
        return None
    return program


def unwrap_entry(entry: Entry, client: ClientFormat) -> dict[str, JsonValue] | None:
    """The entry without the proxy, for one in which `find_program` finds it; None where `wrap_entry` has not written
    its arguments."""
    program, args = find_program(entry), entry.get("args")
    if program is None or not isinstance(args, list) or not all(isinstance(word, str) for word in args):
        return None
    rest = [str(word) for word in args[len(program) :]]
    rest = rest[1:] if rest[:1] == ["--"] else rest
    if rest and not rest[0].startswith("-"):
        return {**entry, "command": rest[0], "args": [*rest[1:]]}
    options, words = rest[2::2], rest[3::2]
    if rest[:1] != ["--url"] or len(rest) % 2 or any(option != "--header-env" for option in options):
        return None
    env = entry.get("env", {})
    variables = dict(env) if isinstance(env, dict) else {}
    headers: dict[str, JsonValue] = {}
    for name, _, variable in (word.partition("=") for word in words):
        headers[name] = variables.pop(variable, "")
    more: dict[str, JsonValue] = {
        **({"headers": headers} if headers else {}),
        **({"env": variables} if variables else {}),
    }
    typed: dict[str, JsonValue] = {"type": "http"} if client.typed or "type" in entry else {}
    kept = {key: value for key, value in entry.items() if key not in ("type", "command", "args", "env")}
    return {**typed, client.url_key or "url": rest[1], **more, **kept}


def make_url_entry(entry: JsonValue, client: ClientFormat, url: str, program: Sequence[str]) -> dict[str, JsonValue]:
    """An entry that leads to a proxy that serves at `url`, in place of `entry`."""
    if not client.url_key:  # it can only start commands
        return {"command": program[0], "args": [*program[1:], VERB, "--url", url]}
    typed = client.typed or (isinstance(entry, dict) and isinstance(entry.get("type"), str))
    return {**({"type": "http"} if typed else {}), client.url_key: url}
