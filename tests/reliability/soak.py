"""The soak: a proxy in its own process, callers and disturbers in this one, and faults all the time.

Every second the config is exchanged as kubelet does it, every tenth time by one with mistakes. Every few seconds the
upstream is killed and started again on the same port. The counts are in `Measured`.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from tests.ports import hold_port
from tests.reliability.clients import Told, caller, disturber
from tests.serving.mounted import Mounted
from tests.serving.process import Process, process
from tests.serving.wire import exchange

CALLERS: Final = 12
DISTURBERS: Final = 4
# Between two calls of one caller: leaves room for the other processes of a small machine.
PAUSE: Final = 0.02
# A busy machine continues until so many calls came out as they must.
LEAST: Final = 200
_WARM: Final = 5.0
_QUIET: Final = 3.0
_BROKEN_EVERY: Final = 10


@dataclass
class Measured:
    """The outcome of a soak. Memory in bytes, times in seconds."""

    seconds: float
    told: Told
    arrived: int = 0
    invalid_arrived: int = 0
    arrived_twice: int = 0
    kills: int = 0
    reloads: dict[str, int] = field(default_factory=dict)
    memory: list[int] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    exit_code: int = -1
    defects: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Returns whether all promises were kept."""
        kept = not self.told.lost and not self.invalid_arrived and not self.arrived_twice
        return kept and self.exit_code == 0 and not self.defects


def config(port: int, version: int) -> dict[str, str]:
    """The files of one version. All versions judge alike; the schema is another one each time."""
    schema = {
        "type": "object",
        "title": f"version {version}",
        "properties": {
            "lat": {"type": "number", "minimum": -180, "maximum": 180},
            "lon": {"type": "number", "minimum": -180, "maximum": 180},
            "days": {"type": "integer", "minimum": 1, "maximum": 7},
            "id": {"type": "string"},
        },
        "required": ["lat", "id"],
        "additionalProperties": False,
    }
    text = f"""
version: 1
listen: 127.0.0.1:0
admin: {{listen: 127.0.0.1:0}}
drain: 500ms
reload: {{interval: 200ms}}
telemetry: {{log: {{level: error}}}}
upstreams: {{tools: {{url: "http://127.0.0.1:{port}"}}}}
routes:
  - {{path: /weather, upstream: tools, tool: weather, schema: schemas/weather.json}}
  - {{path: /large, methods: [GET], upstream: tools, passthrough: true}}
"""
    return {"config.yaml": text, "schemas/weather.json": json.dumps(schema)}


async def soak(seconds: float, say: Callable[[str], None]) -> Measured:
    """Runs for so long and returns the measurements. `say` gets its progress."""
    measured = Measured(seconds, Told())
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), hold_port()
        (folder / "config").mkdir()
        mounted = Mounted(folder / "config", config(port, 0))
        upstream = _Upstream(port, folder / "book")
        upstream.start()
        async with process(folder / "config" / "config.yaml") as running:
            until = time.monotonic() + seconds

            def over() -> bool:
                return time.monotonic() >= until and measured.told.held.total() > LEAST

            tasks = [caller(running.port, number, over, measured.told, PAUSE) for number in range(CALLERS)]
            tasks += [disturber(running.port, number, over, measured.told) for number in range(1, DISTURBERS + 1)]
            faults = [
                asyncio.create_task(_reloading(mounted, port)),
                asyncio.create_task(_killing(upstream, measured)),
                asyncio.create_task(_measuring(running, measured, say)),
            ]
            await asyncio.gather(*tasks)
            for fault in faults:
                fault.cancel()
            await asyncio.gather(*faults, return_exceptions=True)
            await asyncio.sleep(_QUIET)
            _sample(running, measured)
            measured.reloads = await _reloads(running)
            running.signal(signal.SIGTERM)
            measured.exit_code = await running.ended()
        upstream.kill()
        log = (folder / "config" / "log.jsonl").read_text().splitlines()
        measured.defects = [line for line in log if '"Internal error"' in line or "Traceback" in line]
        _read_book(folder / "book", measured)
    return measured


# --- faults -----------------------------------------------------------------------------------------------------------
async def _reloading(mounted: Mounted, port: int) -> None:
    version = 0
    while True:
        await asyncio.sleep(1)
        version += 1
        files = config(port, version)
        if version % _BROKEN_EVERY == 0:
            files["config.yaml"] += "  - {path: /broken, upstream: nowhere}\n"
        mounted.update(files)


async def _killing(upstream: _Upstream, measured: Measured) -> None:
    random = Random(7)
    while True:
        await asyncio.sleep(random.uniform(5, 9))
        upstream.kill()
        measured.kills += 1
        await asyncio.sleep(random.uniform(0.1, 1.5))
        upstream.start()


class _Upstream:
    """The tool's process."""

    def __init__(self, port: int, book: Path) -> None:
        self._command = [sys.executable, "-m", "tests.reliability.upstream", str(port), str(book)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


# --- measuring --------------------------------------------------------------------------------------------------------
async def _measuring(running: Process, measured: Measured, say: Callable[[str], None]) -> None:
    await asyncio.sleep(_WARM)
    while True:
        _sample(running, measured)
        held, lost = measured.told.held.total(), len(measured.told.lost)
        say(f"{held} held, {lost} lost, {measured.memory[-1] >> 10} KiB, {measured.files[-1]} files")
        await asyncio.sleep(10)


def _sample(running: Process, measured: Measured) -> None:
    pid = running.popen.pid
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
    measured.memory.append(int(found[1]) * 1024 if found else 0)
    measured.files.append(len(list(Path(f"/proc/{pid}/fd").iterdir())))


async def _reloads(running: Process) -> dict[str, int]:
    seen = await exchange(running.admin, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    rows = re.findall(r'^toolproxy_config_reloads_total\{result="(\w+)"\} (\S+)$', seen.body.decode(), re.MULTILINE)
    return {result: int(float(count)) for result, count in rows}


def _read_book(book: Path, measured: Measured) -> None:
    lines = book.read_bytes().splitlines()
    ids = Counter(line for line in lines if line.startswith(b"ok "))
    measured.arrived = len(lines)
    measured.invalid_arrived = sum(not line.startswith(b"ok ") for line in lines)
    measured.arrived_twice = sum(count > 1 for count in ids.values())
