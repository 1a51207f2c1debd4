"""Client configs that name MCP servers -> a config that serves them all.

Each server becomes an upstream and a route, `/NAME/mcp`. `rewrite_client_config` gives the client's config with the
proxy in place of the servers (`client_files.py`, or the URLs of a serving proxy). References such as `${env:NAME}` and
`${input:id}` become variables of the environment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from proxy.core.json.jsontext import dumps
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue
from proxy.extensions.mcp.importing.client_entries import find_url, make_url_entry
from proxy.extensions.mcp.importing.client_files import ClientFile, read_client_file
from proxy.extensions.mcp.importing.client_texts import write_toml_servers
from proxy.extensions.operations.importing.files import escape_variables, write_yaml
from proxy.extensions.operations.importing.harvest import LeftOut, flatten_text

LISTEN: Final = "127.0.0.1:8080"
# The path at which all servers are served together, and their name in the client's config then.
JOINED_PATH: Final = "/mcp"
JOINED: Final = "toolcall-proxy"
_VARIABLE: Final = re.compile(r"\$\{(?:(env|input|userHome|workspaceFolder)(?::([^{}]+))?|([A-Za-z_][A-Za-z0-9_]*))\}")
_HEAD: Final = """\
# Written by `toolcall-proxy import mcpservers` from {source}. It is yours now: edit it.
#   toolcall-proxy check {config}
#   toolcall-proxy serve {config}
# It holds the environment and the headers that the servers were given there, secrets included: keep it to yourself, or
# put ${{NAME}} or ${{file:/run/secrets/name}} in their place. Every key is explained in docs/reference/keys.md.
"""


@value_class
class McpServers:
    """The servers of a client's config: upstreams and routes by name, and those left out."""

    file: ClientFile
    upstreams: Mapping[str, JsonValue]
    routes: tuple[JsonValue, ...]
    left_out: tuple[LeftOut, ...]
    variables: tuple[str, ...]

    def write_config(self, config: str, *, one: bool = False) -> str:
        """The config of the proxy (YAML). `one`: all servers behind one route, in place of a route for each."""
        sections: dict[str, JsonValue] = {
            "version": 1,
            "listen": LISTEN,
            "upstreams": dict(self.upstreams),
            "routes": [self._make_one_route()] if one else list(self.routes),
        }
        head = _HEAD.format(source=flatten_text(str(self.file.path)), config=config)
        return head + "".join(f"\n{write_yaml({key: value})}" for key, value in sections.items())

    def rewrite_client_config(self, program: Sequence[str], *, one: bool = False) -> str:
        """The client's config with each served server replaced by its URL at a proxy that serves them; `one`: by one
        entry for all of them. `program` starts the proxy, for clients that take no URLs."""
        url, file = f"http://{LISTEN}", self.file
        made: dict[str, JsonValue] = {}
        if one:
            made[JOINED] = make_url_entry(None, file.client, url + JOINED_PATH, program)
        for name, entry in file.servers.items():
            if name not in self.upstreams:
                made[name] = entry
            elif not one:
                made[name] = make_url_entry(entry, file.client, f"{url}/{name}/mcp", program)
        if file.is_toml:
            return write_toml_servers(file.text, file.place, made, str(file.path))
        return json.dumps(json.loads(dumps(_put_at(file.value, file.place, made))), indent=2, ensure_ascii=False) + "\n"

    def _make_one_route(self) -> JsonValue:
        servers: dict[str, JsonValue] = {}
        for name, route in zip(self.upstreams, self.routes, strict=True):
            path = route.get("upstream_path") if isinstance(route, dict) else None
            more: dict[str, JsonValue] = {} if path in (None, "/mcp") else {"upstream_path": path}
            if any(other.startswith(f"{name}_") for other in self.upstreams):
                more["prefix"] = f"{name}__"  # otherwise a tool's name could belong to both servers
            servers[name] = {"upstream": name, **more} if more else name
        return {"path": JOINED_PATH, "protocol": "mcp", "servers": servers}


def read_mcpservers(path: Path, client: str = "") -> McpServers:
    """Reads a client's config. `client` is a key of `CLIENTS`; '' is decided by the file.

    Raises:
        ImportProblem: it cannot be read, or names no servers.
    """
    return _Reading(read_client_file(path, client)).read()


class _Reading:
    """Reads the servers of one config, one after the other."""

    def __init__(self, file: ClientFile) -> None:
        self._file = file
        self._upstreams: dict[str, JsonValue] = {}
        self._routes: list[JsonValue] = []
        self._left_out: list[LeftOut] = []
        self._variables: dict[str, None] = {}

    def read(self) -> McpServers:
        for name, entry in self._file.servers.items():
            if not re.fullmatch(r"[A-Za-z0-9_.-]+", name) or name in ("none", ".", ".."):
                self._leave(name, "its name is not legal in a path", "give it letters, digits, '.', '_' and '-'")
            elif not isinstance(entry, dict):
                self._leave(name, "it is not an object")
            elif entry.get("disabled") is True or entry.get("enabled") is False:
                self._leave(name, "it is switched off there")
            elif isinstance(entry.get("command"), str):
                self._take_command(name, entry)
            elif (url := find_url(entry)) is not None:
                self._take_url(name, entry, url)
            else:
                self._leave(name, "it names neither a command nor an url")
        return McpServers(
            self._file, self._upstreams, tuple(self._routes), tuple(self._left_out), tuple(self._variables)
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

    def _take_url(self, name: str, entry: Mapping[str, JsonValue], url: str) -> None:
        headers = self._read_headers(entry)
        parts = urlsplit(url)
        if entry.get("type") == "sse" or parts.path.endswith("/sse"):
            hint = "put a bridge in front: fastmcp run URL --transport http"
            self._leave(name, "it speaks HTTP+SSE of 2024-11-05", hint)
        elif parts.scheme not in ("http", "https") or not parts.netloc:
            self._leave(name, "its url is not an http or https url")
        else:
            address = f"{parts.scheme}://{parts.netloc}" + (f"?{parts.query}" if parts.query else "")
            upstream: dict[str, JsonValue] = {"url": self._translate_text(address)}
            if headers:
                upstream["headers"] = {"set": headers}
            self._upstreams[name] = upstream
            path = escape_variables(parts.path or "/")
            route = {"path": f"/{name}/mcp", "upstream": name, "upstream_path": path, "protocol": "mcp"}
            self._routes.append(dict(route))

    def _read_headers(self, entry: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """The headers of an entry, as the proxy's config spells them. Codex names variables for some."""
        found: dict[str, JsonValue] = {}
        for key in ("headers", "http_headers"):
            written = entry.get(key)
            for name, value in written.items() if isinstance(written, dict) else ():
                found[name.lower()] = self._translate_text(value)
        named = entry.get("env_http_headers")
        variables = {name.lower(): ("", value) for name, value in named.items()} if isinstance(named, dict) else {}
        if "bearer_token_env_var" in entry:
            variables["authorization"] = ("Bearer ", entry["bearer_token_env_var"])
        for name, (before, variable) in variables.items():
            if isinstance(variable, str):
                self._variables[variable] = None
                found[name] = f"{before}${{{variable}}}"
        return found

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


def _put_at(value: JsonValue, place: tuple[str, ...], servers: Mapping[str, JsonValue]) -> JsonValue:
    """A config with other servers at `place`."""
    if not place:
        return dict(servers)
    inner = value if isinstance(value, dict) else {}
    return {**inner, place[0]: _put_at(inner.get(place[0]), place[1:], servers)}
