"""`evaluate` measures the layers with a scripted endpoint, and resumes a run that was broken off."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from proxy.__main__ import main
from proxy.core.check.validation import compile_check
from proxy.core.json.jsontext import dumps, parse
from proxy.extensions.correction.cli.evaluate import MODES, read_results, split_endpoint
from proxy.extensions.correction.evaluation import EvaluatedCall, read_bundled_cases, read_cases
from proxy.extensions.correction.samples.server import run_server

CASES = {case.id: case for case in read_bundled_cases()}
KINDS = ("--kind", "context", "--kind", "unknowable")


class KnowingModel(ThreadingHTTPServer):
    """Knows what is right of every case but `unknown`; `asked` counts the questions."""

    daemon_threads = True

    def __init__(self, unknown: str) -> None:
        self.unknown, self.asked = unknown, 0
        super().__init__(("127.0.0.1", 0), _Handler)

    def answer(self, prompt: str) -> dict[str, Any]:
        """A verdict about the case that the prompt is about."""
        self.asked += 1
        case = next(case for case in CASES.values() if _is_about(prompt, case))
        if not case.expected or case.id == self.unknown:
            return {"should_retry": False, "analysis": "nothing says so"}
        return {"should_retry": True, "analysis": "so it is", "corrected_payload": case.expected[0]}


def _is_about(prompt: str, case: EvaluatedCall) -> bool:
    arguments = re.findall(r"^Arguments:\n(.+)$", prompt, re.MULTILINE)
    return [case.sent] == [json.loads(text) for text in arguments] and f"Tool: {case.tool}\n" in prompt


class _Handler(BaseHTTPRequestHandler):
    server: KnowingModel
    protocol_version = "HTTP/1.1"
    wbufsize = 16 * 1024

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        verdict = self.server.answer("\n".join(message["content"] for message in asked["messages"]))
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": json.dumps(verdict)}}
        body = json.dumps({"choices": [choice], "usage": {"prompt_tokens": 90, "completion_tokens": 10}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        """Logs nothing."""


@contextmanager
def knowing(unknown: str = "") -> Iterator[KnowingModel]:
    with run_server(KnowingModel(unknown)) as server:
        yield server


def test_the_share_that_arrives_right_is_measured_in_every_mode(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "results.jsonl"
    with knowing(unknown="tokio") as model:
        words = ["--endpoint", f"http://127.0.0.1:{model.server_port}", "--model", "m", "--out", str(out), *KINDS]
        assert 0 == main(["evaluate", *words])
        first, asked = capsys.readouterr().out, model.asked
        assert 0 == main(["evaluate", *words])
        again = capsys.readouterr().out

    rows = {cells[0]: cells[1:] for cells in _rows(first) if cells[0] in MODES and len(cells) > 5}
    assert ["3 of 8 (38%)", "3 of 8 (38%)", "5 of 8 (62%)", "7 of 8 (88%)"] == [rows[mode][0] for mode in MODES]
    assert ["0", "0", "0", "0"] == [rows[mode][1] for mode in MODES]
    assert ["70 %", "95 %", "99 %", "–"] == [rows[mode][-1] for mode in MODES]
    assert "100" == rows["layer 4"][4]
    assert "model: m" in first
    assert (first, asked) == (again, model.asked)
    assert 4 * 8 == len(read_results(out))


def _rows(table: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("|")
    ]


def test_resumes_a_run_that_was_broken_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "results.jsonl"
    assert 0 == main(["evaluate", "--out", str(out), *KINDS])
    whole = capsys.readouterr().out
    kept = out.read_text().splitlines()
    out.write_text("\n".join(kept[:5]) + "\n" + kept[5][:20] + "\n")
    assert 0 == main(["evaluate", "--out", str(out), *KINDS])
    assert 16 == len(read_results(out))
    assert whole.splitlines()[5:] == capsys.readouterr().out.splitlines()[5:]
    assert "no model was asked" in whole


def test_cases_of_ones_own_are_measured_as_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "mine.jsonl"
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    mine.write_text(
        json.dumps({"id": "own", "tool": "t", "schema": schema, "sent": {"n": "1"}, "expected": [{"n": 1}]})
    )
    assert 0 == main(["evaluate", "--file", str(mine), "--kind", "own", "--out", str(tmp_path / "r")])
    rows = {cells[0]: cells[1] for cells in _rows(capsys.readouterr().out) if len(cells) > 5}
    assert ("0 of 1 (0%)", "1 of 1 (100%)") == (rows["off"], rows["layer 2"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--endpoint", "http://127.0.0.1:9"], "together with --model"),
        (["--endpoint", "ftp://x", "--model", "m"], "say --endpoint http(s)://"),
        (["--key-env", "NO_SUCH_KEY_HERE"], "NO_SUCH_KEY_HERE is not set"),
        (["--kind", "none"], "no case of this kind"),
        (["--file", "no/such/file"], "No such file"),
    ],
)
def test_rejects_wrong_arguments_with_a_reason(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == main(["evaluate", *words])
    assert said in capsys.readouterr().err


def test_a_line_that_is_no_case_is_named(tmp_path: Path) -> None:
    (tmp_path / "c").write_text('\n{"id": "x"}\n')
    with pytest.raises(ValueError, match=r"c:2: a case needs tool, schema, sent, expected"):
        read_cases(tmp_path / "c")


def test_an_endpoint_may_be_given_with_and_without_its_path() -> None:
    path = "/v1/chat/completions"
    assert {("http://h:1", path)} == {split_endpoint(f"http://h:1{given}") for given in ("", "/", "/v1", "/v1/", path)}
    assert ("https://h", "/api/chat/completions") == split_endpoint("https://h/api")


def test_the_bundled_cases_are_what_they_say() -> None:
    """The expected arguments fit the schema; a case of the kind `valid` needs no change; a call of the kinds `types`
    and `schema` is wrong."""
    for case in CASES.values():
        accepts = compile_check(parse(dumps(case.schema))).accepts
        assert all(accepts(parse(dumps(right))) for right in case.expected), case.id
        assert case.is_right(case.sent) is (case.kind == "valid" or case.id == "whole-float"), case.id
        if case.kind in ("types", "schema"):
            assert case.id == "whole-float" or not accepts(parse(dumps(case.sent))), case.id
