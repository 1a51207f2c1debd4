"""A real browser for the tests of the pages: Debian's chromium, driven by Playwright's Python client.

A page is closed with a failure where it wrote an error to the console, threw one, or broke its own policy (CSP).
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[3]
AXE: Final = ROOT / ".parties" / "axe" / "axe.min.js"
ARGS: Final = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    # No other host can be asked; one name of another origin leads here, as after DNS rebinding.
    "--host-resolver-rules=MAP rebound.test 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)  # fmt: skip
# How long anything may take on a busy machine, in ms.
PATIENCE: Final = 120_000


def need(what: str, *, there: bool) -> None:
    """Skips a test whose program is missing; with CI=true it fails."""
    if not there:
        told = f"no {what} here: bash .ci/browser installs it"
        if os.environ.get("CI") == "true":
            pytest.fail(told)
        pytest.skip(told)


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """A running browser."""
    need("chromium", there=shutil.which("chromium") is not None)
    need("playwright", there=importlib.util.find_spec("playwright") is not None)
    with importlib.import_module("playwright.sync_api").sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=shutil.which("chromium"), args=list(ARGS))
        try:
            yield running
        finally:
            running.close()


def wait_until(shown: Any, expression: str) -> None:
    """Waits until an expression is true in a page, which itself may evaluate nothing (its policy)."""
    until = time.monotonic() + PATIENCE / 1000
    while not shown.evaluate(expression):
        assert time.monotonic() < until, expression
        shown.wait_for_timeout(50)


@contextlib.contextmanager
def page(running: Any, **options: Any) -> Iterator[Any]:
    """A page with its own context (session storage, theme), watched for errors."""
    context = running.new_context(**{"viewport": {"width": 1280, "height": 860}, **options})
    opened = context.new_page()
    opened.set_default_timeout(PATIENCE)
    problems: list[str] = []
    opened.on("pageerror", lambda error: problems.append(f"threw {error}"))
    opened.on("console", lambda told: problems.extend([f"console: {told.text}"] if told.type == "error" else []))
    opened.problems = problems
    try:
        yield opened
    finally:
        context.close()
    assert [] == [problem for problem in problems if "Failed to load resource" not in problem]
