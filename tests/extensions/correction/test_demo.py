"""`demo` starts everything, prints calls that work, and ends on a signal."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from proxy.__main__ import VERBS
from tests.cli import curl
from tests.extensions.correction.running import ROOT, Demo, demo


@pytest.fixture(scope="module")
def started() -> Iterator[Demo]:
    with demo() as running:
        yield running


def test_it_is_the_first_verb_that_a_newcomer_sees() -> None:
    assert ("demo", "import") == VERBS[:2]


def call(started: Demo, path: str, body: str) -> str:
    """The printed line with this path and body."""
    (line,) = [line for line in started.calls if curl.parse(line).url.endswith(path) and curl.parse(line).body == body]
    return line


def test_numbers_in_quotes_reach_the_tool_as_numbers(started: Demo) -> None:
    status, text = curl.run(call(started, "/tools/weather", '{"lat": "48.85", "lon": "2.35"}'))
    answer = json.loads(text)
    assert (200, True, "Paris") == (status, answer["success"], answer["data"]["place"])
    assert '"asked": {"lat": 48.85, "lon": 2.35}' in text


def test_a_hopeless_call_is_explained_and_the_tool_is_not_asked(started: Demo) -> None:
    before = reached(started)
    status, text = curl.run(call(started, "/tools/weather", '{"lat": "48.85 N"}'))
    assert (400, "INVALID_ARGUMENTS") == (status, json.loads(text)["error"]["code"])
    assert before == reached(started)


def test_a_container_call_with_parameters_is_refused_and_the_tool_is_not_asked(started: Demo) -> None:
    before = reached(started)
    status, text = curl.run(call(started, "/tools/Math", '{"function": "Add", "a": 5, "b": 10}'))
    assert (400, "container_invocation_error") == (status, json.loads(text)["error"]["error_type"])
    assert before == reached(started)


def reached(started: Demo) -> dict[str, int]:
    """Returns how many calls have reached each tool."""
    _, text = curl.run(f"curl -s http://127.0.0.1:{started.tools_port}/status")
    calls: dict[str, int] = json.loads(text)["calls"]
    return calls


def test_a_script_in_place_of_a_model_shows_layers_3_and_4(started: Demo) -> None:
    for sent, layer in [
        ('{"amount": "five", "from": "USD", "to": "EUR"}', 3),
        ('{"amount": 5, "from": "USD", "to": "Euro"}', 4),
    ]:
        line = call(started, "/corrected/currency", sent)
        assert f"# layer {layer}: " in started.lines[started.lines.index(line) - 1]
        status, text = curl.run(line)
        data = json.loads(text)["data"]
        assert (200, 5.0, "USD", "EUR") == (status, data["amount"], data["from"], data["to"])


def test_every_printed_call_is_answered_in_json(started: Demo) -> None:
    wanted = {"/tools/weather": {200, 400}, "/tools/currency": {400}, "/tools/Math": {200, 400}, "/tools/Divide": {422}}
    for line in started.calls:
        status, text = curl.run(line)
        path = urlsplit(curl.parse(line).url).path
        assert status in wanted.get(path, {404 if path == "/tools/wether" else 200}), f"{line}\n{text}"
        assert json.loads(text)


def test_every_route_of_the_example_has_a_call(started: Demo) -> None:
    config = yaml.safe_load((ROOT / "config.example.yaml").read_text(encoding="utf-8"))
    paths = {urlsplit(curl.parse(line).url).path for line in started.calls}
    assert set() == {route["path"] for route in config["routes"]} - paths - {"/tools/{tool}"}


@pytest.mark.large
def test_a_taken_port_is_replaced_and_said(started: Demo) -> None:
    with demo() as second:
        assert f"port {started.port} is taken: the proxy listens on {second.port} instead" in second.lines or (
            started.port != 8080
        )
        assert {started.port, started.tools_port}.isdisjoint({second.port, second.tools_port})
        assert curl.run(second.calls[0])[0] == 200


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_at_once_and_well(number: signal.Signals) -> None:
    with demo() as running:
        running.process.send_signal(number)
        assert running.process.wait(timeout=120) == 0
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", running.port), timeout=5)


@pytest.mark.large
def test_an_installed_wheel_brings_all_that_the_demo_needs(tmp_path: Path) -> None:
    built = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(built, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    (tmp_path / "elsewhere").mkdir()
    with demo(cwd=tmp_path / "elsewhere", path=tmp_path / "installed") as running:
        assert curl.run(running.calls[1])[0] == 200


def test_another_config_with_a_mistake_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("version: 1\nroutes:\n  - {path: /x, upsteam: none, tool: x, validation: off}\n")
    done = subprocess.run(
        [sys.executable, "-m", "proxy", "demo", "--config", "bad.yaml"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "bad.yaml:3:" in done.stderr
    assert "did you mean 'upstream'" in done.stderr
