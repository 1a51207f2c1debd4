"""`explain`: the code that judges a tool's calls, with the places of the schema it came from."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from proxy.__main__ import main

CONFIG = """\
version: 1
upstreams: {tools: {url: http://127.0.0.1:9101}}
tools:
  weather:
    schema: {type: object, properties: {lat: {type: number, maximum: 90}}, required: [lat]}
    repair: basic
  note: {schema: {type: object, properties: {text: {}}}}
  odd: {schema: {$ref: "https://json-schema.org/draft/2020-12/schema"}}
  raw: {validation: "off"}
  many:
    schema:
      type: object
      properties: {PROPERTIES}
      additionalProperties: false
  Math: {container: {functions: [Add]}}
routes:
  - {name: forecast, path: /weather, upstream: tools, tool: weather}
  - {path: '/tools/{tool}', upstream: tools}
  - {path: /status, methods: [GET], upstream: tools, passthrough: true}
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "config.yaml"
    properties = ", ".join(f"p{number}: {{type: integer}}" for number in range(150))
    path.write_text(CONFIG.replace("PROPERTIES", properties))
    return str(path)


def explain(config: str, route: str, *more: str) -> int:
    return main(["explain", "--config", config, "--route", route, *more])


@pytest.mark.parametrize("route", ["forecast", "/weather"])
def test_the_code_and_the_rules_of_a_tool_are_shown(
    route: str, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == explain(config, route)
    said = capsys.readouterr().out
    assert said.startswith(
        "# === route forecast, tool weather\n"
        "# repair rules that are on: string_to_boolean, string_to_integer, string_to_number\n"
        '#   "42", " 42 ", "42.0" -> 42  string_to_integer\n'
        '#   "35.6" -> 35.6              string_to_number\n'
        '#   "true", "0" ... -> boolean  string_to_boolean\n'
    )
    names = [part.name for part in ast.parse(said).body if isinstance(part, ast.FunctionDef)]
    assert ["A0", "R0"] == names
    assert 2 == said.count('#/properties/lat: {"type":"number","maximum":90}\n')  # judge and report


def test_every_tool_of_a_route_is_shown_or_the_one_asked_for(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == explain(config, "/tools/{tool}")
    said = capsys.readouterr().out
    heads = [line.removeprefix("# === route ") for line in said.splitlines() if line.startswith("# === ")]
    assert ["weather", "note", "odd", "raw", "many", "Math"] == [head.rpartition(" ")[2] for head in heads]
    assert "# validation: off: every call is forwarded unchanged" in said
    assert "# a container: it takes no arguments, so there is nothing to judge" in said
    for asked in (["/tools/{tool}", "--tool", "note"], ["/tools/note"]):
        assert 0 == explain(config, *asked)
        assert capsys.readouterr().out.count("# === ") == 1


def test_shows_python_even_for_very_many_properties(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == explain(config, "/tools/many")
    said = capsys.readouterr().out
    functions = {part.name for part in ast.parse(said).body if isinstance(part, ast.FunctionDef)}
    tables = [part.value for part in ast.parse(said).body if isinstance(part, ast.Expr)]
    assert {"A0", "R0"} < functions
    assert [150] == [len(table.args[0].keys) for table in tables]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("route", "more", "said"),
    [
        ("/wether", [], "explain: no route '/wether'"),
        ("/status", [], "explain: the route '/status' relays everything and judges nothing"),
        ("forecast", ["--tool", "wether"], "explain: no tool 'wether' on route 'forecast'"),
    ],
)
def test_names_a_missing_route_or_tool(
    route: str, more: list[str], said: str, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == explain(config, route, *more)
    assert capsys.readouterr().err.startswith(said)


def test_a_config_with_mistakes_is_not_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("version: 2\n")
    assert 2 == explain(str(path), "/x")
    assert "version" in capsys.readouterr().err
