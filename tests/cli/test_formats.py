"""The output of `check` and `validate` for programs: JSON by the published schemas, SARIF, workflow commands."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from proxy import __version__
from proxy.__main__ import main
from proxy.cli.check_formats import list_flags

ROOT = Path(__file__).parents[2]
SARIF = json.loads(gzip.decompress((ROOT / "tests/data/sarif/sarif-schema-2.1.0.json.gz").read_bytes()))
GOOD = """\
version: 1
upstreams: {tools: {url: http://127.0.0.1:9101}}
routes: [{path: /a, upstream: tools, tool: a, schema: {properties: {lat: {type: number}}, required: [lat]}}]
"""
BAD = "version: 1\nroutes:\n- {path: /a, upstream: none, tool: a, schema: {type: object}, mod: report}\n"
NOTE = "query strings reach the tool unjudged on '/a' (`query: refuse` takes none)"


def fits(verb: str, text: str) -> Any:
    """The JSON object in a text, held against the published schema of a verb's output."""
    found = json.loads(text)
    jsonschema.Draft202012Validator(json.loads((ROOT / f"schemas/verbs/{verb}.schema.json").read_text())).validate(
        found
    )
    return found


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "bad, 100%.yaml").write_text(BAD)


def output(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """The exit code and the standard output of a command line whose standard error is empty."""
    code = main(list(words))
    out, err = capsys.readouterr()
    assert "" == err
    return code, out


def test_check_prints_a_right_config_as_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = output(capsys, "check", "good.yaml", "--format", "json")
    found = fits("check", out)
    assert 64 == len(found["served"].pop("files_digest"))
    assert (0, {
        "config": "good.yaml",
        "exit_code": 0,
        "mistakes": [],
        "problem": None,
        "notes": [NOTE],
        "served": {
            "routes": [
                {"name": "/a", "path": "/a", "methods": ["POST"], "kind": "call", "tools": ["a"], "upstream": "tools"}
            ],
            "left_out": [],
        },
        **{flag.key: [] for flag in list_flags().values()},
    }) == (code, found)  # fmt: skip


def test_check_prints_a_wrong_config_as_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = output(capsys, "check", "bad, 100%.yaml", "--format", "json")
    found = fits("check", out)
    mistake = {
        "file": "bad, 100%.yaml",
        "line": 3,
        "column": 63,
        "where": "route '/a'",
        "message": "unknown key 'mod'",
        "hint": "did you mean 'mode'?",
    }
    assert (2, None, [mistake]) == (code, found["served"], found["mistakes"])


@pytest.mark.parametrize("name", ["good.yaml", "bad, 100%.yaml", "missing.yaml"])
def test_check_writes_sarif_that_fits_the_standards_schema(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = output(capsys, "check", name, "--format", "sarif")
    log = json.loads(out)
    jsonschema.Draft4Validator(SARIF, format_checker=jsonschema.FormatChecker()).validate(log)
    (run,) = log["runs"]
    assert ("toolcall-proxy", __version__) == (run["tool"]["driver"]["name"], run["tool"]["driver"]["version"])
    assert [{"executionSuccessful": True, "exitCode": code}] == run["invocations"]
    assert [each["ruleId"] for each in run["results"]] == [
        run["tool"]["driver"]["rules"][each["ruleIndex"]]["id"] for each in run["results"]
    ]


def test_sarif_names_the_place_in_the_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    _, out = output(capsys, "check", "bad, 100%.yaml", "--format", "sarif")
    (result,) = json.loads(out)["runs"][0]["results"]
    assert {
        "ruleId": "mistake",
        "ruleIndex": 0,
        "level": "error",
        "message": {"text": "route '/a'  unknown key 'mod'  (did you mean 'mode'?)"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": "bad%2C%20100%25.yaml"},
                    "region": {"startLine": 3, "startColumn": 63},
                },
                "logicalLocations": [{"fullyQualifiedName": "route '/a'"}],
            }
        ],
    } == result


def test_workflow_commands_are_escaped_as_the_runner_reads_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        2,
        "::error file=bad%2C 100%25.yaml,line=3,col=63,title=toolcall-proxy mistake::"
        "route '/a'  unknown key 'mod'  (did you mean 'mode'?)\n",
    ) == output(capsys, "check", "bad, 100%.yaml", "--format", "github")
    assert (
        0,
        f"::notice file=good.yaml,line=1,col=1,title=toolcall-proxy note::{NOTE}\n",
    ) == output(capsys, "check", "good.yaml", "--format", "github")
    assert (0, "") == output(capsys, "check", "good.yaml", "--format", "github", "--quiet")


@pytest.mark.parametrize("form", ["sarif", "github", "json"])
def test_a_source_that_cannot_be_asked_is_in_every_format(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = output(capsys, "check", "good.yaml", "--live", "--format", form)
    assert (2, True) == (code, "check --live: cannot read imported.json" in out)
    if form == "sarif":
        log = json.loads(out)
        jsonschema.Draft4Validator(SARIF).validate(log)
        assert [False] == [each["executionSuccessful"] for each in log["runs"][0]["invocations"]]


def test_validate_prints_a_repaired_call_as_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["validate", "-c", "good.yaml", "-r", "/a", "--format", "json", '{"lat": "48.80"}']
    code, out = output(capsys, *words)
    assert '"arguments":{"lat":48.80}' in out
    assert (0, {
        "decision": "forward",
        "route": "/a",
        "upstream": "tools",
        "arguments": {"lat": 48.8},
        "repairs": [{"rule": "string_to_number", "path": "/lat"}],
    }) == (code, fits("validate", out))  # fmt: skip


def test_validate_prints_a_refused_call_as_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = output(capsys, "validate", "-c", "good.yaml", "-r", "/a", "--format", "json", '{"lat": "north"}')
    found = fits("validate", out)
    assert (1, "reject", "INVALID_ARGUMENTS", 400, [("VAL-002", "/lat")]) == (
        code,
        found["decision"],
        found["code"],
        found["answer"]["status"],
        [(error["code"], error["path"]) for error in found["errors"]],
    )
    assert found["answer"]["body"]["content"] == found["content"]


@pytest.mark.parametrize(
    ("config", "message", "lines"),
    [("good.yaml", "validate: no route '/b'\nroutes: /a", []), ("bad, 100%.yaml", "unknown key 'mod'", [3])],
)
def test_validate_says_in_json_what_cannot_be_used(
    config: str, message: str, lines: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = output(capsys, "validate", "-c", config, "-r", "/b", "--format", "json", "{}")
    error = fits("validate", out)["error"]
    assert (2, True, lines) == (code, message in error["message"], [each["line"] for each in error["mistakes"]])


@pytest.mark.parametrize("form", ["text", "json", "sarif", "github"])
@pytest.mark.parametrize(("config", "code"), [("good.yaml", 0), ("bad, 100%.yaml", 2), (os.devnull, 2)])
def test_no_format_changes_the_exit_code_of_check(config: str, code: int, form: str) -> None:
    assert code == main(["check", config, "--format", form])
