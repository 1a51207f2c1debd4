"""The proxy as a separate process, for tests of signals and workers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Process:
    """A running `serve`. Ports are 0 where there is no such port."""

    popen: subprocess.Popen[str]
    port: int
    admin: int = 0
    probes: int = 0

    def signal(self, number: int) -> None:
        """Sends a signal."""
        self.popen.send_signal(number)

    async def ended(self, within: float = 300) -> int:
        """The exit code."""
        return await asyncio.to_thread(self.popen.wait, within)


@contextlib.asynccontextmanager
async def process(
    config: Path, *words: str, log_to: int | None = None, within: Path | None = None, **environ: str
) -> AsyncIterator[Process]:
    """`serve` with a config file, and `environ` beside our own environment; ended at the end, at the latest. Its log
    goes to the file descriptor `log_to`, or to a file beside the config. The config names its operator's port, for the
    default one is the same for all tests. `within`: the control group that it is started in."""
    assert "admin:" in config.read_text(), "`admin: off`, or `admin: {listen: 127.0.0.1:0}`"
    command = [sys.executable, "-m", "proxy", "serve", str(config), *words]
    if within is not None:
        command = ["sh", "-c", 'echo $$ > "$0/cgroup.procs"; exec "$@"', str(within), *command]
    with (config.parent / "log.jsonl").open("w") as log:
        popen = subprocess.Popen(  # noqa: ASYNC220 - returns at once
            command,
            stdout=subprocess.PIPE,
            stderr=log if log_to is None else log_to,
            text=True,
            env={**os.environ, **environ},
        )
    try:
        yield await _started(popen, config)
    finally:
        if popen.poll() is None:
            popen.kill()
        popen.wait()
        if popen.stdout is not None:
            popen.stdout.close()


async def _started(popen: subprocess.Popen[str], config: Path) -> Process:
    assert popen.stdout is not None
    ports: dict[str, int] = {}
    wanted = 1 + config.read_text().count("admin: {") + config.read_text().count("probes:")
    while len(ports) < wanted:
        line = await asyncio.to_thread(popen.stdout.readline)
        assert line, (config.parent / "log.jsonl").read_text()
        ports[line.split(" on ")[0]] = int(line.rsplit(":", 1)[1])
    return Process(popen, ports["listening"], ports.get("admin", 0), ports.get("probes", 0))
