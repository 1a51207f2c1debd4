"""Every test ends: one that waits for ever is named, and the others go on."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.conftest import LONGEST_LARGE

ROOT = Path(__file__).parents[1]
TESTS = """
import asyncio, subprocess, sys, threading

async def test_waits_in_the_loop():
    await asyncio.Event().wait()

def test_waits_for_a_thread():
    threading.Event().wait()

def test_waits_for_a_process():
    subprocess.run([sys.executable, "-c", "import time; time.sleep(90)"])

def test_goes_on():
    pass
"""


def test_ends_and_names_a_test_that_waits_for_ever(tmp_path: Path) -> None:
    (tmp_path / "test_waiting.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path), "--timeout=1",
         "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    ended = re.findall(r"FAILED test_waiting.py::(\w+) - .*Timeout", done.stdout)
    assert ["test_waits_in_the_loop", "test_waits_for_a_thread", "test_waits_for_a_process"] == ended, done.stdout
    assert "3 failed, 1 passed" in done.stdout


def test_has_a_default_limit_for_all_tests(request: pytest.FixtureRequest) -> None:
    limit = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["timeout"]
    assert (120, "120") == (limit, str(request.config.getini("timeout")))


@pytest.mark.large
def test_gives_long_tests_more_time(request: pytest.FixtureRequest) -> None:
    marker = request.node.get_closest_marker("timeout")
    assert marker is not None
    assert (LONGEST_LARGE,) == marker.args
