"""The players of the proxy benchmark: how each is started, and whether it is installed.

A peer is a function from a `Stage` (ports, files, folders) to the words of its command line, or to the reason why it
is left out. All run one process on one core; none is tuned beyond what its own documentation advises.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

from benchmarks.calls import ANSWER, SIGNED, write_config

HERE: Final = Path(__file__).parent
# The last commit that a listener of ours served; its figures show the costs and gains of serving with aiohttp.
PARENT_COMMIT: Final = "e4201ef"
# Interpreters that this proxy is measured on beside the one that runs the benchmark.
INTERPRETERS: Final = ("python3.11", "python3.12", "python3.13", "python3.14")
_PACKAGES: Final = {
    "undici": ("undici", "ajv"),
    "fastify": ("fastify", "@fastify/http-proxy", "ajv"),
    "prism": ("@stoplight/prism-cli",),
}


@dataclass(frozen=True)
class Stage:
    """The stage of a peer: its port, the upstream's port, the tool's schema, a folder for files, and the places of
    packages. `cache` is the folder that installing.py fills, `python` an interpreter, `mitmdump` a command."""

    port: int
    upstream: int
    schema: Path
    folder: Path
    cache: Path
    python: str = sys.executable
    mitmdump: str = "mitmdump"


@dataclass(frozen=True)
class Command:
    """The command that starts a peer, and its folder. `validates` says with which peers ours is compared, `body` which
    body it gets while it starts."""

    words: list[str]
    environ: Mapping[str, str] = field(default_factory=dict)
    validates: bool = True
    folder: Path | None = None
    body: str = "clean"


@dataclass(frozen=True)
class Missing:
    """The reason why a peer does not take part."""

    reason: str


Cue = Callable[[Stage], Command | Missing]


def _ours(routes: int, **settings: str) -> Cue:
    def cue(stage: Stage) -> Command:
        name = "-".join(("ours", str(routes), *settings.values()))
        config = write_config(stage.folder, name, routes, stage.upstream, stage.port, settings)
        return Command([sys.executable, "-m", "proxy", "serve", str(config)])

    return cue


class _Keys(BaseHTTPRequestHandler):
    """Answers with the key of the issuer."""

    def do_GET(self) -> None:
        """Answers every request with the key."""
        body = json.dumps({"keys": SIGNED["keys"]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def _with_tokens(stage: Stage) -> Command:
    """Ours, with routes that take only signed tokens; the issuer is a thread of this process."""
    issuer = ThreadingHTTPServer(("127.0.0.1", 0), _Keys)
    threading.Thread(target=issuer.serve_forever, daemon=True).start()
    keys = f"http://127.0.0.1:{issuer.server_port}/keys"
    main = {"issuer": "https://login.example", "audience": "https://tools.example", "jwks": keys}
    settings = {"access": {"issuers": {"main": main}}, "defaults": {"jwt": {}}}
    config = write_config(stage.folder, "ours-tokens", 10, stage.upstream, stage.port, settings)
    return Command([sys.executable, "-m", "proxy", "serve", str(config)], validates=False, body="signed")


def _parent(stage: Stage) -> Command | Missing:
    tree, python = parent_tree(stage.cache), environment(stage.cache, "parent")
    if not tree.is_dir() or not python.exists():
        return Missing(f"{tree} or its packages are not there (--install makes them, where git knows {PARENT_COMMIT})")
    config = write_config(stage.folder, "parent", 10, stage.upstream, stage.port)
    return Command([str(python), "-m", "proxy", "serve", str(config)], {"PYTHONPATH": str(tree)}, False, tree)


def _on(interpreter: str) -> Cue:
    def cue(stage: Stage) -> Command | Missing:
        python = environment(stage.cache, interpreter)
        if interpreter == "python{}.{}".format(*sys.version_info):
            return Missing("it is the interpreter of `ours`")
        if not python.exists():
            return Missing(f"{python} is not there (--install makes it, where {interpreter} is)")
        config = write_config(stage.folder, f"ours-{interpreter}", 10, stage.upstream, stage.port)
        return Command([str(python), "-m", "proxy", "serve", str(config)], validates=False)

    return cue


def parent_tree(cache: Path) -> Path:
    """Returns the folder with the files of PARENT_COMMIT."""
    return cache / f"tree-{PARENT_COMMIT}"


def environment(cache: Path, name: str) -> Path:
    """The interpreter of a virtual environment in the cache."""
    return cache / f"env-{name}" / "bin" / "python"


def _nginx(stage: Stage) -> Command | Missing:
    location = (
        "proxy_pass http://up; proxy_http_version 1.1; proxy_set_header Connection ''; proxy_set_header Host $host;"
    )
    upstream = f"upstream up {{ server 127.0.0.1:{stage.upstream}; keepalive 256; keepalive_requests 1000000000; }}"
    return nginx(stage.folder / "nginx-proxy", stage.port, location, upstream)


def nginx(folder: Path, port: int, location: str, upstream: str = "") -> Command | Missing:
    """One nginx worker that serves `location` for every path."""
    found = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if found is None:
        return Missing("nginx is not installed (apt install nginx-light)")
    folder.mkdir(exist_ok=True)
    paths = " ".join(
        f"{what}_temp_path {folder}/{what};" for what in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log crit;\n"
        "events { worker_connections 4096; }\n"
        f"http {{ access_log off; keepalive_requests 1000000000; client_body_buffer_size 64k; {paths}\n"
        f"default_type application/json; {upstream}\n"
        f"server {{ listen 127.0.0.1:{port} backlog=1024; location / {{ {location} }} }} }}\n"
    )
    return Command([found, "-p", str(folder), "-c", str(folder / "nginx.conf")], validates=False)


def bare_upstream(folder: Path, port: int) -> Command:
    """The tool behind all proxies: nginx that answers the same bytes at once, or without nginx a program of ours."""
    found = nginx(folder / "nginx-upstream", port, f"return 200 '{ANSWER.decode()}';")
    if isinstance(found, Command):
        return found
    return Command([sys.executable, "-m", "benchmarks.peers.tool", str(port)], validates=False)


def _node(script: str, packages: str) -> Cue:
    def cue(stage: Stage) -> Command | Missing:
        node, modules = shutil.which("node"), stage.cache / "node" / "node_modules"
        if node is None:
            return Missing("node is not installed")
        if wanting := [name for name in _PACKAGES[packages] if not (modules / name).is_dir()]:
            return Missing(f"{modules} has no {', '.join(wanting)} (--install fetches them)")
        words = [node, str(HERE / script), str(stage.port), str(stage.upstream), str(stage.schema)]
        return Command(words, {"NODE_PATH": str(modules), "NODE_ENV": "production"})

    return cue


def toolguard(cache: Path) -> Path:
    """The folder in which the Rust peer is built."""
    return cache / "toolguard"


def _toolguard(stage: Stage) -> Command | Missing:
    found = toolguard(stage.cache) / "target" / "release" / "toolguard-proxy"
    if not found.exists():
        return Missing(f"{found} is not there (--install builds it, where cargo is)")
    return Command([str(found), str(stage.port), str(stage.upstream), str(stage.schema)])


def _prism(stage: Stage) -> Command | Missing:
    found = stage.cache / "node" / "node_modules" / ".bin" / "prism"
    if not found.exists():
        return Missing(f"{found} is not there (--install fetches it)")
    description, upstream = str(stage.schema.parent / "openapi.json"), f"http://127.0.0.1:{stage.upstream}"
    options = ["--errors", "--host", "127.0.0.1", "--port", str(stage.port), "--verboseLevel", "silent"]
    return Command([str(found), "proxy", description, upstream, *options])


def _python(script: str, *modules: str, validates: bool = True) -> Cue:
    def cue(stage: Stage) -> Command | Missing:
        if stage.python == sys.executable:
            wanting = [name for name in modules if importlib.util.find_spec(name) is None]
            if wanting:
                return Missing(f"not installed: {', '.join(wanting)} (--python names an interpreter that has them)")
        words = [stage.python, str(HERE / script), str(stage.port), str(stage.upstream), str(stage.schema)]
        return Command(words, validates=validates)

    return cue


def _mitmproxy(stage: Stage) -> Command | Missing:
    found = shutil.which(stage.mitmdump)
    if found is None:
        return Missing(f"{stage.mitmdump} is not there (--mitmdump names it)")
    mode = f"reverse:http://127.0.0.1:{stage.upstream}"
    options = [
        "--listen-host",
        "127.0.0.1",
        "--listen-port",
        str(stage.port),
        "--quiet",
        "-s",
        str(HERE / "mitm_addon.py"),
    ]
    home = f"confdir={stage.folder / 'mitmproxy'}"
    return Command([found, "--mode", mode, *options, "--set", home], {"SCHEMA_FILE": str(stage.schema)})


OURS: Final = "ours"
TOKENS: Final = "ours with signed tokens"
MANY: Final = "ours with 10000 routes"
PARENT: Final = f"ours at {PARENT_COMMIT}"
PLAIN: Final = "aiohttp (no checks)"
LEAN: Final = "aiohttp low level + check"
NGINX: Final = "nginx (no checks)"
NODE: Final = "node undici + AJV"
CAST: Final[dict[str, Cue]] = {
    OURS: _ours(10),
    MANY: _ours(10_000),
    TOKENS: _with_tokens,
    PARENT: _parent,
    NGINX: _nginx,
    PLAIN: _python("aiohttp_plain.py", "aiohttp", validates=False),
    LEAN: _python("aiohttp_lean.py", "aiohttp", validates=False),
    NODE: _node("undici_ajv.cjs", "undici"),
    "fastify + AJV": _node("fastify_ajv.cjs", "fastify"),
    "hyper + toolguard-core": _toolguard,
    "Prism": _prism,
    "mitmproxy + jsonschema": _mitmproxy,
    "Starlette + httpx": _python("starlette_httpx.py", "starlette", "uvicorn", "httpx", "fastjsonschema"),
    **{f"ours on {interpreter}": _on(interpreter) for interpreter in INTERPRETERS},
}


# Started and timed, but not loaded.
HUNDRED: Final = "ours with 100 routes"
TIMED: Final[dict[str, Cue]] = {HUNDRED: _ours(100)}
# Counted instruction by instruction, but not loaded.
COUNTED: Final[dict[str, Cue]] = {
    f"{OURS}, second judge {setting}": _ours(10, second_judge=setting) for setting in ("off", "always")
}


def packages() -> list[str]:
    """Returns what npm has to install."""
    return sorted({name for names in _PACKAGES.values() for name in names})
