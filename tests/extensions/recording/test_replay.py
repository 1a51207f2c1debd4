"""`replay`: recorded calls in, decisions out, line by line."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from proxy.__main__ import main

WEATHER = {
    "type": "object",
    "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}, "hot": {"type": "boolean"}},
    "required": ["lat", "lon"],
}


def case(identity: Any, sent: str, schema: Any = WEATHER, **more: Any) -> str:
    return json.dumps({"id": identity, "schema": schema, "sent": sent, **more}) + "\n"


@pytest.fixture
def replay(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> Any:
    """Runs the verb over lines; gives the exit code, the output lines as text, and stderr."""

    def run(lines: str, *options: str) -> tuple[int, list[str], str]:
        path = tmp_path / "cases.jsonl"
        path.write_text(lines, encoding="utf-8")
        code = main(["replay", *options, str(path)])
        said = capfdbinary.readouterr()
        return code, said.out.decode().splitlines(), said.err.decode()

    return run


def test_a_clean_call_is_forwarded_as_it_is(replay: Any) -> None:
    code, lines, _ = replay(case("a", '{ "lat": 1.10, "lon": 123456789012345678901234567890, "x": 1e3 }'))
    assert code == 0
    assert [
        '{"id":"a","decision":"forward","arguments":{"lat":1.10,"lon":123456789012345678901234567890,"x":1e3},'
        '"repairs":[],"errors":[],"content":null}'
    ] == lines


def test_a_repaired_call_names_rule_and_pointer(replay: Any) -> None:
    schema = {"properties": {"a/b": {"type": "array", "items": {"type": "integer"}}}}
    _, (line,), _ = replay(case(1, '{"a/b": [1, "2"]}', schema))
    assert {
        "id": 1,
        "decision": "forward",
        "arguments": {"a/b": [1, 2]},
        "repairs": [{"rule": "string_to_integer", "path": "/a~1b/1"}],
        "errors": [],
        "content": None,
    } == json.loads(line)


def test_a_refused_call_has_all_errors_and_what_the_model_reads(replay: Any) -> None:
    _, (line,), _ = replay(case({"any": "id"}, '{"lat": "48.85 N"}', tool="weather"))
    row = json.loads(line)
    assert {"any": "id"} == row["id"]
    assert ("reject", None, []) == (row["decision"], row["arguments"], row["repairs"])
    assert [("VAL-002", "/lat"), ("VAL-001", "/lon")] == [(error["code"], error["path"]) for error in row["errors"]]
    assert all(error["message"] for error in row["errors"])
    assert row["content"].startswith("Validation failed for tool 'weather' (attempt 1/3):\n")


def test_equal_calls_are_validated_each_as_the_first(replay: Any) -> None:
    _, lines, _ = replay(case(1, "{}") * 5)
    assert {"attempt 1/3"} == {json.loads(line)["content"].split("(")[1].split(")")[0] for line in lines}


@pytest.mark.parametrize(
    ("options", "decision"),
    [
        (["--level", "off"], "reject"),
        (["--level", "basic"], "forward"),
        ([], "forward"),
        (["--rule", "string_to_number=off"], "reject"),
        (["--level", "off", "--rule", "string_to_number=on"], "forward"),
    ],
)
def test_level_and_switches_decide_what_is_repaired(options: list[str], decision: str, replay: Any) -> None:
    _, (line,), _ = replay(case(1, '{"lat": "1", "lon": 2}'), *options)
    assert decision == json.loads(line)["decision"]


def test_text_repairs_belong_to_the_level_too(replay: Any) -> None:
    fenced = case(1, '```json\n{"lat": 1, "lon": 2}\n```')
    assert "forward" == json.loads(replay(fenced)[1][0])["decision"]
    assert "reject" == json.loads(replay(fenced, "--level", "basic")[1][0])["decision"]


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ("", "VAL-001"),
        ("{", "VAL-004"),
        ('{"lat": 1, "lat": 2}', "VAL-004"),
        ('{"lat": "\ud800", "lon": 1}', "VAL-004"),
    ],
)
def test_rejects_unreadable_arguments(sent: str, code: str, replay: Any) -> None:
    _, (line,), _ = replay(case(1, sent))
    assert code == json.loads(line)["errors"][0]["code"]


def test_a_schema_that_does_not_compile_is_a_refusal_that_says_so(replay: Any) -> None:
    code, lines, _ = replay(case(1, "{}", {"properties": {"a": {"type": "nope"}}}, tool="t") + case(2, "{}", {}))
    first, second = map(json.loads, lines)
    assert code == 0
    assert ("reject", "INVALID_SCHEMA", "/properties/a/type") == (
        first["decision"],
        first["errors"][0]["code"],
        first["errors"][0]["path"],
    )
    assert first["content"].startswith("The schema of tool 't' cannot be used (at /properties/a/type): ")
    assert second["decision"] == "forward"


def test_names_lines_that_are_no_cases_and_replays_the_rest(replay: Any) -> None:
    bad = 'nonsense\n\n[]\n{"id": 1}\n' + json.dumps({"id": 1, "schema": {}, "sent": {}}) + "\n"
    code, lines, said = replay(bad + case("good", "{}", {}))
    assert code == 2
    assert ["good"] == [json.loads(line)["id"] for line in lines]
    assert [
        "replay: line 1: no JSON: Expecting value: line 1 column 1 (char 0)",
        'replay: line 3: an object is wanted: {"id": ..., "schema": ..., "sent": "..."}',
        "replay: line 4: 'schema' and 'sent' missing",
        "replay: line 5: 'sent' must be the text of the arguments, as a JSON string",
        "replay: 4 of 6 lines are not cases and were left out  (toolcall-proxy replay --help shows one)",
    ] == said.splitlines()


def test_a_file_of_another_kind_is_one_message(replay: Any) -> None:
    code, lines, said = replay("a: b\n" * 30_000)
    assert (code, lines) == (2, [])
    assert [
        "replay: line 1: no JSON: Expecting value: line 1 column 1 (char 0)"
        "  (none of the first 100 lines holds a call: is this the right file?)"
    ] == said.splitlines()


def test_wrong_lines_behind_a_right_one_are_named_a_hundred_times_at_most(replay: Any) -> None:
    code, lines, said = replay(case("good", "{}", {}) + "a: b\n" * 30_000)
    assert (code, len(lines)) == (2, 1)
    assert [
        *(f"replay: line {number}: no JSON: Expecting value: line 1 column 1 (char 0)" for number in range(2, 102)),
        "replay: 29900 more lines hold no call",
        "replay: 30000 of 30001 lines are not cases and were left out  (toolcall-proxy replay --help shows one)",
    ] == said.splitlines()


def test_recorded_lines_without_a_config_are_one_message(replay: Any) -> None:
    recorded = '{"v": 1, "route": "/a", "tool": "t", "sent": "{}", "fate": {"decision": "forward"}}\n'
    told = "replay: line 1: `record` wrote this line: judge it by the config that served it, with --config CONFIG"
    assert (2, [], f"{told}\n") == replay(recorded)
    more = "  (none of the 3 lines holds a call: is this the right file?)"
    assert (2, [], f"{told}{more}\n") == replay(recorded * 3)


RECORDED = '{"v": 1, "route": "/a", "tool": "t", "sent": "{}", "masked": [], "fate": {"decision": "forward"}}\n'


@pytest.mark.parametrize("verb", ["replay", "diff"])
@pytest.mark.parametrize(
    ("input_", "said"),
    [
        (gzip.compress(RECORDED.encode() * 50)[:-12], "the input breaks off after line "),
        (RECORDED.replace("[]", "null").encode(), "line 1: 'masked' is a list of pointers, 'repairs' and 'errors' "),
        (RECORDED.replace('"forward"', '"reject", "errors": [1]').encode(), "line 1: 'masked' is a list of pointers"),
    ],
    ids=["cut-off gzip", "masked null", "errors that are no pairs"],
)
def test_reports_a_damaged_record_with_its_place(
    verb: str, input_: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, calls = tmp_path / "config.yaml", tmp_path / "calls.jsonl"
    config.write_text("version: 1\nroutes: [{path: /a, upstream: none, tool: t, schema: {type: object}}]\n")
    calls.write_bytes(input_)
    given = ["--config", str(config)] if verb == "replay" else [str(config), str(config)]
    assert 2 == main([verb, *given, str(calls)])
    assert capsys.readouterr().err.startswith(f"{verb}: {said}")


def test_empty_lines_of_a_record_are_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, calls = tmp_path / "config.yaml", tmp_path / "calls.jsonl"
    config.write_text("version: 1\nroutes: [{path: /a, upstream: none, tool: t, schema: {type: object}}]\n")
    calls.write_text(f"{RECORDED}\n")
    assert 0 == main(["replay", "--config", str(config), str(calls)])


def test_gzipped_input_is_read(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    path = tmp_path / "cases.jsonl.gz"
    path.write_bytes(gzip.compress((case(1, "{}", {}) * 3).encode()))
    assert main(["replay", str(path)]) == 0
    assert 3 == capfdbinary.readouterr().out.count(b'"forward"')


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_dash_is_standard_input(
    pack: Any, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    piped = io.BufferedReader(io.BytesIO(pack(case(1, "{}", {}).encode())))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(piped))
    assert main(["replay", "-"]) == 0
    assert 1 == capfdbinary.readouterr().out.count(b'"forward"')


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("yes_no", "replay: --rule yes_no: write NAME=on or NAME=off\n"),
        ("key_word=on", "replay: --rule key_word=on: rule 'key_word' was removed  (use `aliases` on the tool)\n"),
        ("yes_on=on", "replay: --rule yes_on=on: there is no rule 'yes_on'  (did you mean 'yes_no'?)\n"),
    ],
)
def test_a_wrong_switch_is_explained(rule: str, said: str, replay: Any) -> None:
    assert (2, [], said) == replay("", "--rule", rule)


@pytest.mark.parametrize("options", [["--level", "lenient"], ["--rule", "yes_no=off"], ["--second-opinion"]])
def test_rejects_an_option_that_a_config_decides(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == main(["replay", "--config", "config.yaml", *options, "calls.jsonl"])

    assert (
        f"replay: {options[0]} does not go with --config, which decides it: leave one out\n" == capsys.readouterr().err
    )


def test_a_missing_file_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == main(["replay", "nowhere.jsonl"])
    assert "replay: cannot read nowhere.jsonl: No such file or directory\n" == capsys.readouterr().err


def test_replay_validates_each_call_as_it_was_sent_and_sums_up(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    schema: dict[str, Any] = {"properties": {"lat": {"type": "number"}}}
    sent = ['{"lat": 1.5}', '{"lat": "1.5"}', '{"lat": {}}', "{"]
    path = tmp_path / "cases.jsonl"
    path.write_text("".join(json.dumps({"id": text, "schema": schema, "sent": text}) + "\n" for text in sent))
    assert 0 == main(["replay", "--second-opinion", str(path)])
    told = capsysbinary.readouterr()
    lines = [json.loads(line) for line in told.out.splitlines()]
    assert (4, []) == (len(lines), [line for line in lines if "second_opinion" in line])
    assert b"replay: the judges differ on 0 of the calls\n" in told.err


def test_names_a_second_judge_that_is_not_installed(replay: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.extensions.recording.cli.replay.find_plugins", lambda _seam: [])
    missing = "needs the plugin `second_judge`, which is not installed"
    assert (2, [], f"replay: --second-opinion {missing}\n") == replay("", "--second-opinion")


def test_a_reader_that_stops_reading_is_no_error(tmp_path: Path) -> None:
    cases = tmp_path / "cases.jsonl"
    cases.write_text('{"id": 1, "schema": {}, "sent": "{}"}\n' * 20_000)
    script = f"{sys.executable} -m proxy replay {cases} | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)  # noqa: S607
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith('{"id":1,"decision":"forward"')


# --- formats ----------------------------------------------------------------------------------------------------------
def test_a_line_of_json_fits_its_published_schema(replay: Any) -> None:
    schema = json.loads((Path(__file__).parents[3] / "schemas/verbs/replay.schema.json").read_text())
    _, lines, _ = replay(case(1, '{"lat": "1", "lon": 2}') + case(2, "{}") + case(3, "{}", {"type": "nope"}))
    assert 3 == len(lines)
    for line in lines:
        jsonschema.Draft202012Validator(schema).validate(json.loads(line))


def test_text_is_one_line_to_read_for_each_call_with_the_same_exit_code(replay: Any) -> None:
    cases = case(1, '{"lat": "1", "lon": 2}', tool="weather") + case(2, '{"lat": "x"}') + "nonsense\n"
    code, lines, said = replay(cases + case(4, '{"lat": 1, "lon": 2}'), "--format", "text")
    assert [
        "line 1  forward  string_to_number at /lat",
        "line 2  reject  VAL-002 at /lat, VAL-001 at /lon",
        "line 4  forward",
    ] == lines
    assert code == replay(cases)[0] == 2
    assert "replay: line 3: no JSON" in said
