"""Client configs that name MCP servers (Claude Desktop and Code, Cursor, VS Code) -> a config that serves them all.

    {"mcpServers": {NAME: {"command": ..., "args": [...], "env": {...}}}}      Claude, Cursor and most others
    {"servers": {NAME: {"type": "stdio", "command": ..., ...}}}                VS Code, `.vscode/mcp.json`
    {"mcp": {"servers": {...}}}                                                VS Code, `settings.json`

Each server becomes an upstream and a route, `/NAME/mcp`. `rewrite_client_config` gives the client's config with each
served server replaced by the proxy. References such as `${env:NAME}` and `${input:id}` become variables of the
environment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from proxy.core.json.jsontext import TextLimits
from proxy.core.json.textrepair import read_document
from proxy.core.model.values import JsonProblem, JsonValue
from proxy.importing.files import escape_variables, write_yaml
from proxy.importing.harvest import ImportProblem, LeftOut, flatten_text

LISTEN: Final = "127.0.0.1:8080"
# The path at which all servers are served together, and their name in the client's config then.
JOINED_PATH: Final = "/mcp"
JOINED: Final = "toolcall-proxy"
_LIMITS: Final = TextLimits(depth=32, nodes=100_000)
# What editors accept in such files although JSON does not.
_TOLERATED: Final = frozenset({"comments", "trailing_commas"})
_VARIABLE: Final = re.compile(r"\$\{(?:(env|input|userHome|workspaceFolder)(?::([^{}]+))?|([A-Za-z_][A-Za-z0-9_]*))\}")
_HEAD: Final = """\
# Written by `toolcall-proxy import mcpservers` from {source}. It is yours now: edit it.
#   toolcall-proxy check {config}
#   toolcall-proxy serve {config}
# It holds the environment and the headers that the servers were given there, secrets included: keep it to yourself, or
# put ${{NAME}} or ${{file:/run/secrets/name}} in their place. Every key is explained in docs/config.md.
"""


@dataclass(frozen=True, slots=True)
class McpServers:
    """The servers of a client's config: the kind of client, upstreams and routes by name, and what was left out."""

    source: str
    client: str
    upstreams: Mapping[str, JsonValue]
    routes: tuple[JsonValue, ...]
    left_out: tuple[LeftOut, ...]
    variables: tuple[str, ...]
    written: JsonValue = field(repr=False)

    def write_config(self, config: str, *, one: bool = False) -> str:
        """The config of the proxy (YAML). `one`: all servers behind one route, in place of a route for each."""
        sections: dict[str, JsonValue] = {
            "version": 1,
            "listen": LISTEN,
            "upstreams": dict(self.upstreams),
            "routes": [self._make_one_route()] if one else list(self.routes),
        }
        head = _HEAD.format(source=flatten_text(self.source), config=config)
        return head + "".join(f"\n{write_yaml({key: value})}" for key, value in sections.items())

    def rewrite_client_config(self, *, one: bool = False) -> JsonValue:
        """The client's config with each served server replaced by the proxy; `one`: by one entry for all of them."""
        if one:
            return _replace_servers(
                self.written, dict.fromkeys(self.upstreams), {JOINED: self._make_entry(JOINED_PATH)}
            )
        return _replace_servers(self.written, {name: self._make_entry(f"/{name}/mcp") for name in self.upstreams})

    def _make_one_route(self) -> JsonValue:
        servers: dict[str, JsonValue] = {}
        for name, route in zip(self.upstreams, self.routes, strict=True):
            path = route.get("upstream_path") if isinstance(route, dict) else None
            more: dict[str, JsonValue] = {} if path in (None, "/mcp") else {"upstream_path": path}
            if any(other.startswith(f"{name}_") for other in self.upstreams):
                more["prefix"] = f"{name}__"  # otherwise a tool's name could belong to both servers
            servers[name] = {"upstream": name, **more} if more else name
        return {"path": JOINED_PATH, "protocol": "mcp", "servers": servers}

    def _make_entry(self, path: str) -> JsonValue:
        url = f"http://{LISTEN}{path}"
        match self.client:
            case "vscode":
                return {"type": "http", "url": url}
            case "claude":  # can only start commands
                return {"command": "toolcall-proxy", "args": ["stdio", "--url", url]}
            case _:
                return {"url": url}


def read_mcpservers(path: Path, client: str = "") -> McpServers:
    """Reads a client's config. `client` is claude, cursor or vscode; '' is decided by the file.

    Raises:
        ImportProblem: it cannot be read, or names no servers.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ImportProblem(f"cannot read {path}: {error.strerror}") from None
    found = read_document(text, _LIMITS, _TOLERATED)
    if isinstance(found, JsonProblem):
        raise ImportProblem(f"{path}:{found.line}:{found.column}: {found.reason}")
    servers, shape = _find_servers(found.value)
    if servers is None:
        hint = "it is looked for under `mcpServers` (Claude, Cursor) and `servers` (VS Code)"
        raise ImportProblem(f"{path} names no MCP servers", hint)
    kind = client or ("vscode" if shape == "vscode" else "claude" if "claude" in path.name.lower() else "cursor")
    return _Reading(str(path), kind, found.value).read(servers)


class _Reading:
    """Reads the servers of one config, one after the other."""

    def __init__(self, source: str, client: str, written: JsonValue) -> None:
        self._source = source
        self._client = client
        self._written = written
        self._upstreams: dict[str, JsonValue] = {}
        self._routes: list[JsonValue] = []
        self._left_out: list[LeftOut] = []
        self._variables: dict[str, None] = {}

    def read(self, servers: dict[str, JsonValue]) -> McpServers:
        for name, entry in servers.items():
            if not re.fullmatch(r"[A-Za-z0-9_.-]+", name) or name in ("none", ".", ".."):
                self._leave(name, "its name cannot stand in a path", "give it letters, digits, '.', '_' and '-'")
            elif not isinstance(entry, dict):
                self._leave(name, "it is not an object")
            elif entry.get("disabled") is True:
                self._leave(name, "it is switched off there")
            elif isinstance(entry.get("command"), str):
                self._take_command(name, entry)
            elif isinstance(entry.get("url", entry.get("serverUrl")), str):
                self._take_url(name, entry)
            else:
                self._leave(name, "it names neither a command nor an url")
        return McpServers(
            self._source,
            self._client,
            self._upstreams,
            tuple(self._routes),
            tuple(self._left_out),
            tuple(self._variables),
            self._written,
        )

    def _take_command(self, name: str, entry: Mapping[str, JsonValue]) -> None:
        args, env, cwd = entry.get("args", []), entry.get("env", {}), entry.get("cwd")
        if not isinstance(args, list) or not isinstance(env, dict) or not isinstance(cwd, str | None):
            self._leave(name, "`args` is not a list, `env` not an object, or `cwd` not a text")
            return
        upstream: dict[str, JsonValue] = {"command": [self._translate_text(word) for word in [entry["command"], *args]]}
        if env:
            upstream["env"] = {key: self._translate_text(value) for key, value in env.items()}
        if cwd is not None:
            upstream["cwd"] = self._translate_text(cwd)
        self._upstreams[name] = upstream
        self._routes.append({"path": f"/{name}/mcp", "upstream": name, "protocol": "mcp"})

    def _take_url(self, name: str, entry: Mapping[str, JsonValue]) -> None:
        url, headers = str(entry.get("url", entry.get("serverUrl"))), entry.get("headers", {})
        parts = urlsplit(url)
        if entry.get("type") == "sse" or parts.path.endswith("/sse"):
            hint = "put a bridge in front: fastmcp run URL --transport http"
            self._leave(name, "it speaks HTTP+SSE of 2024-11-05", hint)
        elif parts.query or parts.fragment or parts.scheme not in ("http", "https") or not parts.netloc:
            self._leave(name, "its url is not a plain http or https url without a query")
        else:
            upstream: dict[str, JsonValue] = {"url": self._translate_text(f"{parts.scheme}://{parts.netloc}")}
            if isinstance(headers, dict) and headers:
                upstream["headers"] = {
                    "set": {key.lower(): self._translate_text(value) for key, value in headers.items()}
                }
            self._upstreams[name] = upstream
            path = escape_variables(parts.path or "/")
            route = {"path": f"/{name}/mcp", "upstream": name, "upstream_path": path, "protocol": "mcp"}
            self._routes.append(dict(route))

    def _translate_text(self, value: JsonValue) -> JsonValue:
        """A text as the proxy's config spells it: the client's references become `${NAME}`, any other `$` is
        escaped."""
        text = value if isinstance(value, str) else str(value)
        parts: list[str] = []
        at = 0
        for reference in _VARIABLE.finditer(text):
            parts += [escape_variables(text[at : reference.start()]), self._translate_reference(reference)]
            at = reference.end()
        return "".join((*parts, escape_variables(text[at:])))

    def _translate_reference(self, found: re.Match[str]) -> str:
        kind, name = found[1], found[2] or found[3]
        if kind == "userHome":
            name = "HOME"
        elif kind == "workspaceFolder":
            name = "PWD"
        elif name is None:
            return escape_variables(found[0])
        variable = re.sub(r"[^A-Za-z0-9_]", "_", name).upper() if kind == "input" else name
        if kind not in ("userHome", "workspaceFolder"):
            self._variables[variable] = None
        return f"${{{variable}}}"

    def _leave(self, name: str, why: str, hint: str = "") -> None:
        self._left_out.append(LeftOut(name, why, hint))


def _find_servers(value: JsonValue) -> tuple[dict[str, JsonValue] | None, str]:
    """The servers that a config names (None if it names none), and the kind of client that writes them so."""
    if not isinstance(value, dict):
        return None, ""
    found = value.get("mcpServers")
    if isinstance(found, dict):
        return found, "claude"
    inner = value.get("mcp")
    found = value.get("servers", inner.get("servers") if isinstance(inner, dict) else None)
    return (found, "vscode") if isinstance(found, dict) else (None, "")


def _replace_servers(
    value: JsonValue, entries: Mapping[str, JsonValue], added: Mapping[str, JsonValue] | None = None
) -> JsonValue:
    """The config with its servers replaced by `entries` of the same names (None removes a server), and with `added`
    first."""
    if not isinstance(value, dict):
        return value
    for key in ("mcpServers", "servers"):
        servers = value.get(key)
        if isinstance(servers, dict):
            kept = {name: entries.get(name, entry) for name, entry in servers.items()}
            return {
                **value,
                key: {**(added or {}), **{name: entry for name, entry in kept.items() if entry is not None}},
            }
    return {**value, "mcp": _replace_servers(value.get("mcp"), entries, added)}
