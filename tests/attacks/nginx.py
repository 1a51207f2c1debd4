"""An nginx beside the proxy and one in front of it, for the streams of `http_streams.py`.

The one beside hands what it reads to a recorder; the one in front hands it to the proxy. A request that arrives behind
both must be one that nginx by itself reads in the same stream: any other was smuggled between the two.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.ports import hold_ports
from tests.serving.wire import JSON_TYPE, Tool, answer, replies, tool

HOW: Final = "no nginx here: bash .ci/nginx, or apt-get install nginx-light"
# The field by which a request that came through nginx is known.
MARK: Final = "x-through-nginx"
# A request as a server has read it: method, number of the case, body.
Read = tuple[str, str, bytes]
_CONFIG: Final = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/errors crit;
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
  uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  proxy_http_version 1.1;
  server {{ listen 127.0.0.1:{beside}; location / {{ proxy_pass http://127.0.0.1:{recorder}; }} }}
  server {{
    listen 127.0.0.1:{front};
    location / {{ proxy_pass http://127.0.0.1:{proxy}; proxy_request_buffering off;
      proxy_set_header {mark} 1; }}
  }}
}}
"""


@dataclass
class Nginx:
    """A running nginx: the ports of the one `beside` the proxy and of the one in `front` of it, and what is behind the
    first."""

    beside: int
    front: int
    recorder: Tool

    def read(self) -> set[Read]:
        """All requests that nginx by itself has read so far."""
        return {(seen.start.split(" ")[0], seen.header("x-case") or "", seen.body) for seen in self.recorder.seen}

    async def reads(self, request: Read) -> bool:
        """Returns whether nginx by itself reads a request; on a busy machine it may do so a little later."""
        for _ in range(100):
            if request in self.read():
                return True
            await asyncio.sleep(0.05)
        return False


@asynccontextmanager
async def start_nginx(proxy: int) -> AsyncIterator[Nginx | None]:
    """An nginx in front of the proxy's port and one next to it; None if it is not installed."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        yield None
        return
    with TemporaryDirectory() as folder:
        async with tool(replies(answer("200 OK", b"{}", JSON_TYPE))) as recorder:
            beside, front = hold_ports(2)
            config = Path(folder) / "nginx.conf"
            config.write_text(
                _CONFIG.format(
                    folder=folder, beside=beside, front=front, recorder=recorder.port, proxy=proxy, mark=MARK
                )
            )
            process = await asyncio.create_subprocess_exec(program, "-p", folder, "-c", str(config))
            try:
                await _listening(beside, front)
                yield Nginx(beside, front, recorder)
            finally:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()


async def _listening(*ports: int) -> None:
    async with asyncio.timeout(300):
        for port in ports:
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except ConnectionError:
                    await asyncio.sleep(0.05)
                    continue
                writer.close()
                break
