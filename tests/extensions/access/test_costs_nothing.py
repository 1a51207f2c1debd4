"""A route without access checks runs no line of access, even beside a route with them in the same config."""

from __future__ import annotations

import subprocess
import sys
from types import FrameType
from typing import Any

import pytest

from proxy.extensions import access
from tests.extensions.access.issuer import ROUTE, guarded

FOLDER = str(access.__path__[0])
PLAIN = ROUTE.replace("/weather", "/plain").replace("    jwt: {}\n", "")
SERVES = """
import asyncio, io, pathlib, sys, tempfile
from proxy.config.load import load
from proxy.server import start_serving

async def main():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "config.yaml"
        path.write_text('''
version: 1
listen: 127.0.0.1:0
admin: {listen: 127.0.0.1:0}
routes: [{path: /a, upstream: none, tool: a, schema: {type: object}}]
''')
        serving = await start_serving(load(path, {}), log_to=io.StringIO())
        reader, writer = await asyncio.open_connection("127.0.0.1", int(serving.url.rsplit(":", 1)[1]))
        body = b"POST /a HTTP/1.1\\r\\nHost: a\\r\\nContent-Type: application/json\\r\\nContent-Length: 2\\r\\n\\r\\n{}"
        writer.write(body)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
        writer.close()
        await serving.stop(grace=0.5)

asyncio.run(main())
named = ("proxy.extensions.access", "jwt", "cryptography")
rows = ("proxy.extensions.access", "proxy.extensions.access.plugin")
print([name for name in sys.modules if name.startswith(named) and name not in rows])
"""


def test_a_config_without_access_imports_nothing_of_it() -> None:
    done = subprocess.run([sys.executable, "-c", SERVES], capture_output=True, text=True, check=False)
    assert (0, "[]\n") == (done.returncode, done.stdout), done.stderr


@pytest.mark.parametrize(("path", "runs"), [("/plain", False), ("/weather", True)])
async def test_a_call_enters_access_only_if_its_route_asks_who_calls(path: str, runs: bool) -> None:
    entered: set[str] = set()

    def note(frame: FrameType, event: str, _arg: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(FOLDER):
            entered.add(frame.f_code.co_qualname)

    async with guarded(ROUTE + PLAIN) as there:
        token = there.issuer.sign()
        await there.call(token, path=path)
        sys.setprofile(note)
        try:
            assert 200 == (await there.call(token, path=path)).status
        finally:
            sys.setprofile(None)
    assert runs is bool(entered), entered
