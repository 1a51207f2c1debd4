"""Optional libraries: only the keys that need one ask for it, and `check` reports a missing one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.extensions.access.test_access_config import MAIN, write

# Runs a verb as if no extra were installed: the finders of the interpreter find none of their libraries.
PLAIN: Final = """
import sys
EXTRAS = ("jwt", "cryptography", "redis", "opentelemetry", "shtab", "uvloop")

class Without:
    def __init__(self, finder):
        self._finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in EXTRAS else self._finder.find_spec(name, path, target)

sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
from proxy.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


def run_plain(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PLAIN, *words], capture_output=True, text=True, timeout=60, check=False
    )


def test_serves_rules_and_rates_without_an_extra(tmp_path: Path) -> None:
    top = (
        "listen: 127.0.0.1:0\nadmin: off\naccess: {audit: audit.jsonl}\ndefaults: {limits: {rate: {calls: 1, per: 1m}}}"
    )
    path = write(tmp_path, top, "allow: [{tools: [a]}]")
    assert 0 == run_plain("check", str(path)).returncode
    with subprocess.Popen(
        [sys.executable, "-c", PLAIN, "serve", str(path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as served:
        assert served.stdout is not None
        lines = []
        for line in served.stdout:
            lines.append(line)
            if line.startswith("event loop:") or "serve:" in line:
                break
        served.terminate()
        lines += served.stdout.readlines()
    assert (0, False) == (served.returncode, "No module" in "".join(lines)), lines
    assert "event loop: asyncio  (uvloop is not installed: calls take more CPU; run `pip install uvloop`)\n" in lines


@pytest.mark.parametrize(
    ("top", "route", "said"),
    [
        (MAIN, "jwt: {}", ":3:10  access  signed tokens need PyJWT and cryptography, which are not installed  (in"),
        ("state: {backend: redis, url: 'redis://a'}", "", ":3:18  state  the client library `redis` is not installed"),
        ("telemetry: {traces: otlp}", "", ":3:21  telemetry  the libraries of OpenTelemetry are not installed"),
    ],
)
@pytest.mark.parametrize("verb", ["check", "serve"])
def test_reports_a_missing_library_with_its_line_and_command(
    tmp_path: Path, verb: str, top: str, route: str, said: str
) -> None:
    shown = run_plain(verb, str(write(tmp_path, top, route)))
    assert (True, True) == (said in shown.stderr + shown.stdout, "pip install '.[" in shown.stderr + shown.stdout), (
        shown
    )
    assert (True, False) == (shown.returncode != 0, "Traceback" in shown.stderr)


def test_completion_names_its_extra() -> None:
    assert "pip install '.[completion]'" in run_plain("completion", "bash").stderr
