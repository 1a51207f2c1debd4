"""The default operator's port: one above the proxy's, and a free one on a terminal if it is taken."""

from __future__ import annotations

import os
import pty
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.config.model import Address
from tests.ports import hold_port


@pytest.mark.parametrize(("port", "above"), [(8080, 8081), (9000, 9001), (65535, 65534), (0, 0)])
def test_is_the_port_above(port: int, above: int) -> None:
    assert Address("127.0.0.1", above) == Address("0.0.0.0", port).above


def write_config(folder: Path, port: int, admin: str = "") -> Path:
    path = folder / "config.yaml"
    path.write_text(
        f"version: 1\nlisten: 127.0.0.1:{port}\n{admin}upstreams: {{a: {{url: 'http://127.0.0.1:9'}}}}\n"
        "routes: [{path: /a, upstream: a, tool: x, validation: off}]\n"
    )
    return path


def serve_on_terminal(path: Path) -> tuple[list[str], int]:
    """The lines that `serve` prints on a terminal until it serves or ends, and its exit code after SIGTERM."""
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "proxy", "serve", str(path)]
    with subprocess.Popen(words, stdout=theirs, stderr=subprocess.PIPE, text=True) as running:
        os.close(theirs)
        lines = []
        try:
            with os.fdopen(ours, encoding="utf-8") as terminal:
                for line in terminal:
                    lines.append(line.strip())
                    if line.startswith("console on"):
                        running.send_signal(signal.SIGTERM)
        except OSError:  # the other end is closed
            pass
        _, said = running.communicate(timeout=100)
        lines += [line for line in said.splitlines() if "cannot listen" in line]
        return lines, running.returncode


def test_takes_a_free_port_on_a_terminal_and_says_so(tmp_path: Path) -> None:
    port = hold_port(above=1)
    with socket.create_server(("127.0.0.1", port + 1)):
        lines, code = serve_on_terminal(write_config(tmp_path, port))
    admin = next(line.rpartition(":")[2] for line in lines if line.startswith("admin on"))
    assert f"port {port + 1} is taken: the operator's port is {admin} instead" in lines
    assert (0, True) == (code, admin != str(port + 1))


def test_keeps_a_port_that_the_config_names(tmp_path: Path) -> None:
    port = hold_port(above=1)
    with socket.create_server(("127.0.0.1", port + 1)):
        lines, code = serve_on_terminal(write_config(tmp_path, port, f"admin: {{listen: '127.0.0.1:{port + 1}'}}\n"))
    assert (2, True) == (code, any("another process listens there" in line for line in lines))


def test_reports_a_taken_port_without_a_terminal(tmp_path: Path) -> None:
    port = hold_port(above=1)
    words = [sys.executable, "-m", "proxy", "serve", str(write_config(tmp_path, port))]
    with socket.create_server(("127.0.0.1", port + 1)):
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (2, True) == (done.returncode, "another process listens there" in done.stderr)
