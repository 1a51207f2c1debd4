"""The cost of the console's readers for the process: its CPU time for each poll, while calls come.

    python -m tests.extensions.console.polling [--readers 10] [--seconds 20] [--rate 20] [--kept 2000]

2,000 calls are kept before it begins. Each reader asks for the data of two open pages. Each page asks for the calls
that contain a word (new ones only, every second), the overview and the header's overview (each every two seconds). Both
overviews accept an answer as old as the pages accept. No test does this: a figure of time says nothing on a busy
machine.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import aiohttp

from tests.extensions.console.busy import send
from tests.extensions.console.cpu_time import read_cpu_time
from tests.extensions.console.served import ROUTES, TOKEN, Served, served

KEPT: Final = 2000
_CHECKED: Final = ROUTES.replace("upstream: tools", "upstream: none\n    mode: report")
_PATHS: Final = {"calls": 1.0, "overview?window=15m": 2.0, "overview?window=1m": 2.0}


async def read_path(session: aiohttp.ClientSession, path: str, every: float, end: float) -> int:
    """Asks a path until `end`, as the page does, and gives how often."""
    polls, cursor = 0, ""
    while time.monotonic() < end:
        asked = f"calls?text=reminder&limit=200{f'&after={cursor}' if cursor else ''}" if path == "calls" else path
        headers = {} if path == "calls" else {"Cache-Control": f"max-age={every:.0f}"}
        async with session.get(f"/-/{asked}", headers=headers) as answer:
            cursor = (await answer.json()).get("cursor", "")
        polls += 1
        await asyncio.sleep(every)
    return polls


async def measure(started: Served, options: argparse.Namespace) -> None:
    """Prints the CPU time of the same load without readers and with them."""
    assert started.popen is not None
    await send(started.port, 400, options.kept / 400)
    spent, polls = [], list[int]()
    for readers in (0, 1, options.readers):
        before, end = read_cpu_time(started.popen.pid), time.monotonic() + options.seconds
        async with aiohttp.ClientSession(
            f"http://127.0.0.1:{started.admin}/", headers={"Authorization": f"Bearer {TOKEN}"}
        ) as session:
            asking = [read_path(session, path, every, end) for _ in range(readers) for path, every in _PATHS.items()]
            _, *polls = await asyncio.gather(send(started.port, options.rate, options.seconds), *asking)
        spent.append(read_cpu_time(started.popen.pid) - before)
        sys.stdout.write(
            f"{readers} readers: {spent[-1]:.2f} s of CPU in {options.seconds:.0f} s, {sum(polls)} polls, "
            f"{100 * (spent[-1] - spent[0]) / options.seconds:.1f} % of a core for them\n"
        )
    sys.stdout.write(f"{1000 * (spent[-1] - spent[0]) / sum(polls):.1f} ms for each poll\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="What readers of the console cost.")
    parser.add_argument("--readers", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rate", type=float, default=20)
    parser.add_argument("--kept", type=int, default=KEPT)
    with tempfile.TemporaryDirectory() as folder, served(Path(folder), routes=_CHECKED) as (proxy, _):
        asyncio.run(measure(proxy, parser.parse_args()))
