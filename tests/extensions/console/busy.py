"""Measures the Calls page while calls come fast: the time of a click, the size of its heap, and the cost of the tabs
for the proxy.

    python -m tests.extensions.console.busy [--rate 500] [--seconds 60] [--tabs 1]

The calls are right ones that are judged and answered by the proxy itself, over 8 connections, at a steady rate. A click
is one on `pause`, timed in the page until it shows that it was taken. No test does this: a figure of time says nothing
on a busy machine.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

from tests.extensions.console.browser import browser, page
from tests.extensions.console.cpu_time import read_cpu_time
from tests.extensions.console.served import ROUTES, Served, served

_BODY: Final = b'{"text": "tea", "at": "2026-12-01T09:00:00Z"}'
_CONNECTIONS: Final = 8
_CHECKED: Final = ROUTES.replace("upstream: tools", "upstream: none\n    mode: report")
_CLICK: Final = """() => new Promise((done) => {
  const button = [...document.querySelectorAll("button")].find((one) => /^(pause|resume)$/.test(one.textContent));
  const before = button.textContent, start = performance.now();
  const watch = new MutationObserver(() => {
    if (button.textContent !== before) { watch.disconnect(); done(performance.now() - start); }
  });
  watch.observe(document.body, {subtree: true, childList: true, characterData: true});
  button.click();
})"""


async def send(port: int, rate: float, seconds: float) -> int:
    """Sends calls at a rate, and gives how many were answered."""
    answered, end = 0, time.monotonic() + seconds

    async def client(number: int) -> None:
        nonlocal answered
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = (
            f"POST /reminders HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(_BODY)}\r\n"
        )
        request = f"{head}X-Conversation-Id: c{number}\r\n\r\n".encode() + _BODY
        due = time.monotonic()
        while (now := time.monotonic()) < end:
            due = max(due + _CONNECTIONS / rate, now - 0.1)
            await asyncio.sleep(due - now)
            writer.write(request)
            length = int(
                (await reader.readuntil(b"\r\n\r\n")).lower().partition(b"content-length: ")[2].split(b"\r")[0]
            )
            await reader.readexactly(length)
            answered += 1
        writer.close()

    await asyncio.gather(*(client(number) for number in range(_CONNECTIONS)))
    return answered


def watch(started: Served, running: Any, options: argparse.Namespace) -> None:
    """Opens the tabs, clicks in the last one while the calls come, and prints what was seen."""
    with page(running) as first:
        first.goto(started.link())
        first.get_by_role("heading", name="Overview").wait_for()
        token = first.evaluate("sessionStorage.getItem('toolcall-proxy token')")
        tabs = [first, *(first.context.new_page() for _ in range(options.tabs - 1))]
        for tab in tabs:
            tab.goto(started.ui)
            tab.evaluate("token => sessionStorage.setItem('toolcall-proxy token', token)", token)
            tab.goto(started.link(view="#/calls"))
            tab.reload()
            tab.locator("main h1").wait_for()
        assert started.popen is not None
        begun = read_cpu_time(started.popen.pid)
        answered: list[int] = []
        calling = threading.Thread(
            target=lambda: answered.append(asyncio.run(send(started.port, options.rate, options.seconds)))
        )
        calling.start()
        clicks = []
        while calling.is_alive():
            clicks.append(tabs[-1].evaluate(_CLICK))
            tabs[-1].wait_for_timeout(500)
        spent = 100 * (read_cpu_time(started.popen.pid) - begun) / options.seconds
        heap = tabs[-1].context.new_cdp_session(tabs[-1]).send("Runtime.getHeapUsage")["usedSize"] / 1e6
        rate = answered[0] / options.seconds
        sys.stdout.write(
            f"{len(tabs)} tabs, {rate:.0f} calls a second for {options.seconds:.0f} s: {len(clicks)} clicks, median "
            f"{statistics.median(clicks):.0f} ms, longest {max(clicks):.0f} ms; heap {heap:.0f} MB; "
            f"the proxy took {spent:.1f} % of a core, these calls included\n"
        )


if __name__ == "__main__":
    prog = "python -m tests.extensions.console.busy"
    parser = argparse.ArgumentParser(prog=prog, description="The Calls page under load.")
    parser.add_argument("--rate", type=float, default=500)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--tabs", type=int, default=1)
    with (
        tempfile.TemporaryDirectory() as folder,
        served(Path(folder), routes=_CHECKED) as (proxy, _),
        browser() as chromium,
    ):
        watch(proxy, chromium, parser.parse_args())
