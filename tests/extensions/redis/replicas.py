"""Real `python -m proxy serve` processes in front of a real tool, for tests of several replicas."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.serving.wire import Seen, exchange, post

CONFIG = """
version: 1
listen: 127.0.0.1:0
admin: {{listen: 127.0.0.1:0}}
drain: 0s
upstreams: {{tools: {{url: "{upstream}"}}}}
state: {state}
routes:
  - path: /weather
    upstream: tools
    tool: weather
    schema: {{type: object, properties: {{lat: {{type: number}}, note: {{type: string}}}}, required: [lat]}}
    attempts: {{max: 50}}
  - path: /capped
    upstream: tools
    tool: capped
    schema: {{type: object, properties: {{lat: {{type: number}}}}, required: [lat]}}
    caps: {{default: 7}}
  - path: /hard
    upstream: tools
    tool: hard
    schema: {{type: object, properties: {{lat: {{type: number}}}}, required: [lat]}}
    attempts: {{max: 3, block: hard}}
"""


@dataclass
class Replica:
    """One process: the client's port, the operator's port, and its log as it comes."""

    process: Process
    port: int
    admin: int
    log: list[dict[str, Any]] = field(default_factory=list)

    async def post(self, path: str, body: bytes, conversation: str = "c") -> Seen:
        """Posts a call of one conversation."""
        return await exchange(self.port, post(path, body, f"X-Conversation-Id: {conversation}"))

    async def metrics(self) -> dict[str, float]:
        """Its own samples by name and labels."""
        seen = await exchange(self.admin, b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        lines = [line.rsplit(" ", 1) for line in seen.body.decode().splitlines() if line.startswith("toolproxy_")]
        return {name: float(value) for name, value in lines}

    def said(self, message: str) -> list[dict[str, Any]]:
        """The lines of its log with this message."""
        return [line for line in self.log if line["message"] == message]


@contextlib.asynccontextmanager
async def replicas(folder: Path, count: int, upstream: str, state: str) -> AsyncIterator[list[Replica]]:
    """So many processes with one config; `state` is YAML."""
    config = folder / "replicas.yaml"
    config.write_text(CONFIG.format(upstream=upstream, state=state))
    words = (sys.executable, "-m", "proxy", "serve", str(config))
    started = [
        await asyncio.create_subprocess_exec(*words, stdout=PIPE, stderr=PIPE, env={**os.environ}) for _ in range(count)
    ]
    reading: list[asyncio.Task[None]] = []
    try:
        made = [Replica(process, await _port(process), await _port(process)) for process in started]
        reading = [asyncio.create_task(_read(one.process, one.log)) for one in made]
        yield made
    finally:
        for process in started:
            process.terminate()
        await asyncio.gather(*(process.wait() for process in started), *reading)


async def _port(process: Process) -> int:
    """The port that its next line names."""
    assert process.stdout is not None
    return int((await process.stdout.readline()).decode().rsplit(":", 1)[1])


async def _read(process: Process, log: list[dict[str, Any]]) -> None:
    assert process.stderr is not None
    async for line in process.stderr:
        with contextlib.suppress(ValueError):
            log.append(json.loads(line))
