"""The modules that a plain config loads: none that it does not use, and no more once calls arrive."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Final

# Modules that a plain config does not load: libraries, and modules of Python's, each with the event that loads it.
RARE: Final = {
    "prometheus_client": "the first scrape",
    "http.server": "the first scrape",
    "wsgiref": "the first scrape",
    "jsonschema": "a schema that is wrong",
    "fastjsonschema": "the process of the second judge",
    "aiohttp.web": "nothing: its applications, their routes and their files",
    "aiohttp.web_fileresponse": "nothing",
    "ctypes": "nothing",
    "re2": "a schema with a pattern",
    "regex": "a pattern with lookaround",
    "redis": "state in Redis",
    "opentelemetry": "traces",
    "jwt": "signed tokens",
}
SERVES: Final = """
import asyncio, io, json, pathlib, random, sys, tempfile
from proxy.config.load import load
from proxy.server import start_serving

async def answer(reader, writer):
    while head := await reader.readuntil(b"\\r\\n\\r\\n"):
        length = int(head.lower().split(b"content-length:")[1].split()[0])
        await reader.readexactly(length)
        writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Type: application/json\\r\\nContent-Length: 2\\r\\n\\r\\n{}")

async def call(port, body):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = b"POST /a HTTP/1.1\\r\\nHost: a\\r\\nContent-Type: application/json\\r\\nContent-Length: %d\\r\\n\\r\\n"
    writer.write(head % len(body) + body)
    status = int((await reader.readline()).split()[1])
    writer.close()
    return status

async def main():
    tool = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = tool.sockets[0].getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "config.yaml"
        path.write_text(f'''
version: 1
listen: 127.0.0.1:0
admin: {{listen: 127.0.0.1:0}}
upstreams: {{tool: {{url: "http://127.0.0.1:{port}"}}}}
routes:
  - path: /a
    upstream: tool
    tool: a
    schema: {{type: object, properties: {{n: {{type: integer}}}}, required: [n]}}
''')
        serving = await start_serving(load(path, {}), log_to=io.StringIO())
        if serving.warming.task is not None:
            await serving.warming.task
        loaded = set(sys.modules)
        bodies = (b'{"n": 1}', b'{"n": "1"}', b'{"n": "x"}', b'{"n": ', b'[]', b'{"m": 1}')
        statuses = [await call(int(serving.url.rsplit(":", 1)[1]), body) for body in bodies]
        later = sorted(set(sys.modules) - loaded)
        await serving.stop(grace=0.5)
    print(json.dumps([statuses, sorted(loaded), later]))

random.seed(1)  # by chance neither call goes to the second judge
asyncio.run(main())
"""


def test_a_plain_config_loads_nothing_rare_and_its_calls_load_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", SERVES], capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr
    statuses, loaded, later = json.loads(done.stdout)
    assert [200, 200, 400, 400, 400, 400] == statuses
    assert [] == [name for name in loaded if name.split(".")[0] in RARE or name in RARE]
    assert [] == later
