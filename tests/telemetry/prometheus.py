"""A real Prometheus on a free loopback port, started for a test and ended by its pid; and its promtool."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.ports import hold_port

_HOW: Final = "no {0} here: apt-get install prometheus"


def needs(program: str) -> str:
    """The path of a program. If it is missing, it skips the test; on CI, which has to have it, the test fails."""
    found = shutil.which(program)
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail(_HOW.format(program))
        pytest.skip(_HOW.format(program))
    return found


def promtool(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs promtool in a folder."""
    return subprocess.run(
        [needs("promtool"), *words], cwd=folder, capture_output=True, text=True, check=False, timeout=600
    )


@dataclass(frozen=True)
class Prometheus:
    """A running server."""

    url: str

    def ask(self, path: str, **query: str) -> Any:
        """Returns what its API answers."""
        asked = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(asked, timeout=60) as response:  # noqa: S310 - our own loopback server
            return json.load(response)["data"]

    def values(self, expression: str) -> list[Any]:
        """The series that an expression gives now."""
        found: list[Any] = self.ask("query", query=expression)["result"]
        return found


@contextlib.contextmanager
def prometheus(folder: Path, target: str, rules: Path, every: str = "1s") -> Iterator[Prometheus]:
    """A server that scrapes `target` (host:port) and evaluates `rules`. Its first scrape comes after five seconds: that
    is how often it looks for targets, whatever the config says."""
    binary = needs("prometheus")
    config = folder / "prometheus.yml"
    config.write_text(
        f"""
global: {{scrape_interval: {every}, scrape_timeout: {every}, evaluation_interval: 1s}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: toolcall-proxy
    static_configs: [{{targets: ["{target}"], labels: {{namespace: tests}}}}]
"""
    )
    port = hold_port()
    words = [
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen([binary, *words], stderr=log, stdout=log)
    try:
        _wait(process, f"http://127.0.0.1:{port}/-/ready", folder / "prometheus.log")
        yield Prometheus(f"http://127.0.0.1:{port}")
    finally:
        process.kill()
        process.wait()


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    for _ in range(1200):
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=60):  # noqa: S310 - as above
            return
        assert process.poll() is None, log.read_text()
        time.sleep(0.05)
    raise AssertionError(log.read_text())
