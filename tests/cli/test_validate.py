"""`validate`: a dry run of one call on a configured route."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from proxy.__main__ import main

CONFIG = """\
version: 1
upstreams: {tools: {url: http://127.0.0.1:9101}}
tools:
  weather: {schema: {type: object, properties: {lat: {type: number}}, required: [lat]}}
  Math: {container: {functions: [Add]}}
routes:
  - {name: forecast, path: /weather, upstream: tools, tool: weather, envelope: gomind}
  - {path: '/tools/{tool}', upstream: tools}
  - {path: /call, upstream: tools, dispatch: {tool: /name, arguments: /arguments}}
  - {path: /check, upstream: none, tool: weather}
  - {path: /status, methods: [GET], upstream: tools, passthrough: true}
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    return str(path)


def validate(config: str, route: str, body: str, *more: str) -> int:
    return main(["validate", "--config", config, "--route", route, *more, body])


@pytest.mark.parametrize("route", ["forecast", "/weather"])
def test_a_repaired_call_is_shown_as_it_would_be_sent(
    route: str, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert validate(config, route, '{"lat": "48.85", "x": 1.10}') == 0
    assert (
        "decision: forward to tools\n"
        "repairs: string_to_number at /lat\n"
        'arguments: {"lat":48.85,"x":1.10}\n' == capsys.readouterr().out
    )


def test_a_clean_call_is_shown_byte_for_byte(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert validate(config, "/weather", '{ "lat" : 1.0 }') == 0
    assert 'decision: forward to tools\nrepairs: none\narguments: { "lat" : 1.0 }\n' == capsys.readouterr().out


def test_a_refused_call_shows_the_feedback_and_the_answer_in_the_routes_format(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert validate(config, "forecast", '{"lat": "north"}') == 1
    said = capsys.readouterr().out
    head, _, answer = said.partition("answer: HTTP 400\n")
    assert head.startswith("decision: reject, INVALID_ARGUMENTS\nthe model reads:\n\n  Validation failed for tool")
    assert json.loads(answer)["error"]["category"] == "INPUT_ERROR"


@pytest.mark.parametrize(
    ("route", "body", "more", "code"),
    [
        ("/tools/{tool}", '{"lat": 1}', ["--tool", "weather"], 0),
        ("/tools/weather", '{"lat": 1}', [], 0),
        ("/tools/Math", '{"a": 1}', [], 1),
        ("/tools/Math", "", [], 0),
        ("/tools/wether", "{}", [], 1),
        ("/call", '{"name": "weather", "arguments": {"lat": "1"}}', [], 0),
        ("/call", '{"arguments": {"lat": "1"}}', [], 1),
        ("/check", '{"lat": 1}', [], 0),
    ],
)
def test_every_kind_of_route_can_be_asked(route: str, body: str, more: list[str], code: int, config: str) -> None:
    assert code == validate(config, route, body, *more)


@pytest.mark.parametrize(
    ("route", "said"),
    [
        ("/wether", "validate: no route '/wether'  (did you mean '/weather'?)"),
        ("/status", "validate: the route '/status' relays everything and judges nothing"),
        ("/tools/{tool}", "takes the tool from its path: add --tool NAME (weather, Math)"),
    ],
)
def test_a_route_that_cannot_be_asked_is_explained(
    route: str, said: str, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert validate(config, route, "{}") == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("route", "said"),
    [
        ("/weather", "validate: the route 'forecast' always calls 'weather': leave --tool out\n"),
        ("/call", "validate: the route '/call' takes the tool from the body: leave --tool out\n"),
    ],
)
def test_a_tool_that_would_not_be_called_is_no_question(
    route: str, said: str, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == validate(config, route, "{}", "--tool", "Math")
    assert said == capsys.readouterr().err


def test_a_broken_config_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.yaml").write_text("version: 2\n")
    assert validate(str(tmp_path / "bad.yaml"), "/x", "{}") == 2
    assert "bad.yaml:1:10" in capsys.readouterr().err


def test_a_dash_reads_the_body_from_standard_input(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"lat": 1}')))
    assert validate(config, "/weather", "-") == 0
