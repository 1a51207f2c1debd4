"""Runs another project's client against the proxy, whose address is in the client's environment variables."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.parties.environment import PARTIES, PATIENCE

CLIENTS: Final = Path(__file__).with_name("clients")
NODE: Final = str(PARTIES / "models")


async def run_client(words: Sequence[str], port: int, asked: Any = None) -> Any:
    """Returns what a client prints, as JSON; `asked` is its standard input."""
    url = f"http://127.0.0.1:{port}"
    places = {"OPENAI_BASE_URL": f"{url}/v1", "ANTHROPIC_BASE_URL": url}
    process = await asyncio.create_subprocess_exec(
        *words,
        env={**os.environ, **places},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE):
        out, err = await process.communicate(json.dumps(asked).encode())
    assert 0 == process.returncode, err.decode()[-4000:]
    return json.loads(out)
